"""A reply of OpenAI Chat Completions, put together from chunks; a whole body is one chunk."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from agentcore.chat import ChatResponse
from agentcore.codecs.call_assembly import CallAssembly
from agentcore.codecs.failures import failure_error, failure_of
from agentcore.codecs.openai_chat_request import FORMAT
from agentcore.codecs.openai_usage import usage_of
from agentcore.codecs.pieces import Pieces
from agentcore.codecs.reasoning_details import ReasoningDetails
from agentcore.codecs.shared import as_int, as_text, encode_json, excerpt, mend_surrogates, without_surrogates
from agentcore.errors import DecodeError
from agentcore.events import ReasoningDelta, StreamEvent, TextDelta
from agentcore.messages import AssistantMessage, FinishReason

_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "end": "stop",
    "complete": "stop",
    "completed": "stop",
    "stop_sequence": "stop",
    "null": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "max_length": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "stop",  # calls decide, not the word
    "tool_call": "stop",
    "tool_use": "stop",
    "function_call": "stop",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "sensitive": "content_filter",
    "refusal": "content_filter",
    "recitation": "content_filter",
    "prohibited_content": "content_filter",
    "blocklist": "content_filter",
}


class Delta(Struct):
    """What a chunk adds to the message, or a whole message. Untyped: a side field never costs the answer."""

    content: Any = None
    refusal: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    thinking: Any = None
    reasoning_details: Any = None
    tool_calls: Any = None
    function_call: Any = None


class Choice(Struct):
    """One of the answers of a chunk."""

    index: Any = 0
    delta: Delta | list[Any] | None = None  # a list: how PHP writes an object that is empty
    message: Delta | list[Any] | None = None
    finish_reason: Any = None
    usage: Any = None
    error: Any = None
    text: Any = None


class Chunk(Struct):
    """An event of a stream, or a whole body."""

    id: Any = None
    model: Any = None
    choices: list[Choice] | None = None
    usage: Any = None
    error: Any = None
    x_groq: Any = None


chunks = msgspec.json.Decoder(Chunk)


class Reply:
    """A reply put together from chunks.

    Attributes:
        odd: surrogates may be in what comes.
        finish: the service's word for why the reply ended, once it said so.
        seen_choice: an answer, or a part of one, has been seen.
    """

    def __init__(self, provider: str, names: Mapping[str, str]) -> None:
        self.provider = provider
        self.text = Pieces()
        self.reasoning = Pieces()
        self.calls = CallAssembly(names)
        self.finish: str | None = None
        self.seen_choice = False
        self.odd = False
        self._refused = False
        self._from_message = False
        self._usage: Any = None
        self._id: str | None = None
        self._model: str | None = None
        self._details = ReasoningDetails()
        self._others: list[Choice] = []  # of the first answer that is not number 0, in case there is no number 0

    def take(self, chunk: Chunk, events: list[StreamEvent] | None = None) -> None:
        """Take the next chunk.

        Args:
            chunk: the next event of a stream, or a whole body.
            events: of a stream, what the caller is told; None for a whole body.

        Raises:
            ProviderError: the chunk holds an error, or cannot be read.
        """
        if self._id is None:
            self._id = as_text(chunk.id)
        if self._model is None:
            self._model = as_text(chunk.model)
        if chunk.usage:
            self._take_usage(chunk.usage)
        elif chunk.x_groq is not None:
            self._take_usage(_field(chunk.x_groq, "usage"))
        for choice in chunk.choices or ():
            if choice.index and as_int(choice.index):
                # Further answers (n > 1) have no place in a conversation.
                if not self.seen_choice and (not self._others or self._others[0].index == choice.index):
                    self._others.append(choice)
                continue
            self._take_choice(choice, events)

    def end(self, events: list[StreamEvent] | None = None) -> None:
        """Nothing more comes: take what was held back."""
        if not self.seen_choice:
            for choice in self._others:
                self._take_choice(choice, events)
        self._others.clear()
        for pieces, event in ((self.reasoning, ReasoningDelta), (self.text, TextDelta)):
            if pieces.held:
                pieces.held = ""
                pieces.pieces.append("\ufffd")
                if events is not None:
                    events.append(event("\ufffd"))

    def response(self) -> ChatResponse:
        """The reply as it is now."""
        if not self.seen_choice:
            raise DecodeError("the answer has no choices", provider=self.provider, retryable=True)
        neutral: FinishReason = "stop" if self.finish is None else _FINISH.get(self.finish.lower(), "other")
        calls = self.calls.calls(self._id, cut=neutral == "length")
        if neutral != "length":
            neutral = "tool_calls" if calls else "content_filter" if self._refused else neutral
        text = str(self.text)
        told: list[Any] = [self._details.all(), self._id, self._model]
        details, response_id, model = without_surrogates(told) if self.odd else told
        message = AssistantMessage(
            text or (None if calls else ""),
            calls,
            str(self.reasoning) or None,
            neutral if neutral not in ("stop", "tool_calls") else None,
            {"format": FORMAT, "reasoning_details": details} if details else None,
        )
        return ChatResponse(message, neutral, self.finish, usage_of(self._usage), model, response_id)

    def _take_choice(self, choice: Choice, events: list[StreamEvent] | None) -> None:
        self.seen_choice = True
        if choice.error:  # OpenRouter
            raise failure_error(self.provider, failure_of({"error": choice.error}))
        if choice.usage:
            self._take_usage(choice.usage)
        if isinstance(choice.finish_reason, str) and choice.finish_reason:
            self.finish = choice.finish_reason if not self.odd else mend_surrogates(choice.finish_reason)
        delta, message = choice.delta, choice.message
        if isinstance(message, Delta) and (events is None or not isinstance(delta, Delta) or delta == Delta()):
            self._take_message(message, events)
        elif isinstance(delta, Delta):
            self._take_delta(delta, events)
        elif choice.text and isinstance(choice.text, str):  # a gateway in front of a text completion
            self._put_text(choice.text, events)

    def _take_message(self, message: Delta, events: list[StreamEvent] | None) -> None:
        """A message where a delta is usual: a piece like any other, or, after deltas, the whole once more."""
        if self._from_message or not (self.text.pieces or self.reasoning.pieces or self.calls):
            self._from_message = True
            self._take_delta(message, events)
            return
        if self.text.pieces:
            message.content = message.refusal = None
        if self.reasoning.pieces:
            message.reasoning_content = message.reasoning = message.thinking = message.reasoning_details = None
        if self.calls:
            message.tool_calls = message.function_call = None
        self._take_delta(message, events)

    def _take_delta(self, delta: Delta, events: list[StreamEvent] | None) -> None:
        if delta.reasoning_content or delta.reasoning or delta.thinking or delta.reasoning_details:
            self._take_reasoning(delta, events)
        content = delta.content
        if content:
            if type(content) is str:
                self._put_text(content, events)
            else:
                self._take_parts(content, events)
        if delta.refusal and isinstance(delta.refusal, str):
            self._refused = True
            if delta.refusal != content:
                self._put_text(delta.refusal, events)
        if delta.tool_calls:
            self._take_calls(delta.tool_calls, events)
        elif delta.function_call:  # the form before tool_calls
            self._take_calls([{"index": 0, "function": delta.function_call}], events)

    def _put_text(self, text: str, events: list[StreamEvent] | None) -> None:
        if self.odd:
            text = self.text.mended(text)
            if not text:
                return
        self.text.pieces.append(text)
        if events is not None:
            events.append(TextDelta(text))

    def _put_reasoning(self, text: str, events: list[StreamEvent] | None) -> None:
        if self.odd:
            text = self.reasoning.mended(text)
        if text:
            self.reasoning.pieces.append(text)
            if events is not None:
                events.append(ReasoningDelta(text))

    def _take_reasoning(self, delta: Delta, events: list[StreamEvent] | None) -> None:
        """The first field that can be read: routers copy one thought into several."""
        details = cast("object", delta.reasoning_details)
        if isinstance(details, list):
            for detail in cast("list[object]", details):
                self._details.take(detail, whole=events is None)
        for name in ("reasoning_content", "reasoning", "thinking", "reasoning_details"):
            field: object = getattr(delta, name)
            if field and (text := _readable(field)):
                self._put_reasoning(text, events)
                return

    def _take_parts(self, content: Any, events: list[StreamEvent] | None) -> None:
        if not isinstance(content, list | dict):
            raise DecodeError(f"content is neither text nor parts: {excerpt(encode_json(content))}")
        for part in cast("list[Any]", content if isinstance(content, list) else [content]):
            if isinstance(part, str):
                if part:
                    self._put_text(part, events)
            elif isinstance(part, dict):
                known = cast("dict[str, Any]", part)
                if known.get("type") in ("thinking", "reasoning"):
                    self._put_reasoning(_readable(known), events)
                elif known.get("type") == "refusal" and as_text(known.get("refusal")):
                    self._refused = True
                    self._put_text(known["refusal"], events)
                elif text := as_text(known.get("text")):
                    self._put_text(text, events)

    def _take_calls(self, calls: Any, events: list[StreamEvent] | None) -> None:
        if isinstance(calls, dict):
            calls = [calls]
        if not isinstance(calls, list):
            raise DecodeError(f"tool_calls is not a list: {excerpt(encode_json(calls))}")
        for position, item in enumerate(cast("list[Any]", calls)):
            if item is None:
                continue
            if not isinstance(item, dict):
                raise DecodeError(f"a tool call is not an object: {excerpt(encode_json(item))}")
            call = cast("dict[str, Any]", item)
            function = call.get("function") or call.get("custom") or call
            if not isinstance(function, dict):
                raise DecodeError(f"a tool call's function is not an object: {excerpt(encode_json(call))}")
            known = cast("dict[str, Any]", function)
            arguments: object = known.get("arguments")
            if arguments is None and "input" in known:
                given: object = known["input"]
                arguments = cast("object", given) if isinstance(given, dict) else {"input": given}
            # In a body each entry is a call of its own, whatever its index says.
            index = position if events is None else as_int(call.get("index"))
            event = self.calls.add(
                index, _call_id(call.get("id")), as_text(known.get("name")) or "", arguments, position=position
            )
            if events is not None and event is not None:
                events.append(event)

    def _take_usage(self, usage: Any) -> None:
        if isinstance(usage, dict):
            said = {key: value for key, value in cast("dict[str, Any]", usage).items() if value is not None}
            # Cumulative, so the last word counts; some say the prompt at the start and the rest at the end.
            self._usage = said if self._usage is None else {**self._usage, **said}


def _readable(value: Any) -> str:
    """The text of a reasoning field: text, an object that holds it, or a list of either; never a repr."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join([_readable(item) for item in cast("list[Any]", value)])
    if isinstance(value, dict):
        known = cast("dict[str, Any]", value)
        for key in ("text", "content", "thinking", "summary", "reasoning"):
            if known.get(key) and (text := _readable(known[key])):
                return text
    return ""


def _field(value: object, name: str) -> Any:
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None


def _call_id(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""
