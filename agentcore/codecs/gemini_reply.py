"""A reply of Gemini `generateContent`, put together from chunks; a whole body is one chunk."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from agentcore.chat import ChatResponse
from agentcore.codecs.gemini_failure import gemini_error
from agentcore.codecs.gemini_replay import SIGNATURE, replay_payload
from agentcore.codecs.pieces import Pieces
from agentcore.codecs.shared import (
    as_int,
    as_text,
    encode_json,
    excerpt,
    mend_surrogates,
    parse_arguments,
    with_distinct_ids,
    without_surrogates,
)
from agentcore.errors import DecodeError
from agentcore.events import ReasoningDelta, StreamEvent, TextDelta, ToolCallDelta
from agentcore.messages import AssistantMessage, FinishReason, ToolCall
from agentcore.usage import UNKNOWN_USAGE, Usage

_FINISH: dict[str, FinishReason] = {
    "STOP": "stop",
    "FINISH_REASON_UNSPECIFIED": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "MODEL_ARMOR": "content_filter",
}
_MAX_CALLS = 1024


class Chunk(Struct, gc=False):
    """An event of a stream, or a whole body. Untyped: a side field never costs the answer."""

    candidates: Any = None
    promptFeedback: Any = None  # noqa: N815 - the wire's name
    usageMetadata: Any = None  # noqa: N815
    modelVersion: Any = None  # noqa: N815
    responseId: Any = None  # noqa: N815
    error: Any = None


chunks = msgspec.json.Decoder(Chunk)


class _PlainPart(Struct, gc=False):
    text: str
    thought: Any = None
    thoughtSignature: Any = None  # noqa: N815
    functionCall: Any = None  # noqa: N815


class _PlainContent(Struct, gc=False):
    parts: list[_PlainPart]


class _PlainCandidate(Struct, gc=False):
    content: _PlainContent
    index: int = 0
    finishReason: None = None  # noqa: N815


class PlainChunk(Struct, gc=False):
    """What nearly every event of a stream is: a piece of text and the tokens so far, in their final types."""

    candidates: list[_PlainCandidate]
    usageMetadata: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815
    promptFeedback: None = None  # noqa: N815
    modelVersion: str | None = None  # noqa: N815
    responseId: str | None = None  # noqa: N815
    error: None = None


plain_chunks = msgspec.json.Decoder(PlainChunk)
_usages: "msgspec.json.Decoder[Any]" = msgspec.json.Decoder()


class Reply:
    """A reply put together from chunks.

    Attributes:
        odd: surrogates may be in what comes.
        finish: the service's word for why the reply ended, once it said so.
        has_usage: the tokens were told.
        went_on: a piece of the reply came without a reason to stop beside it.
    """

    def __init__(self, provider: str, names: Mapping[str, str]) -> None:
        self.provider = provider
        self.text = Pieces()
        self.reasoning = Pieces()
        self.odd = False
        self.finish: str | None = None
        self.has_usage = False
        self.went_on = False
        self._names = names
        self._calls: list[ToolCall] = []
        self._parts: list[dict[str, Any]] = []
        self._open_text: list[str] | None = None  # pieces of the text part that may still grow
        self._blocked: str | None = None
        self._usage: dict[str, Any] = {}
        self._plain_usage: msgspec.Raw | None = None  # the tokens that the last plain chunk told, not yet read
        self._id: str | None = None
        self._model: str | None = None

    @property
    def ended(self) -> bool:
        """The service said why the reply ended, or that there is none."""
        return self.finish is not None or self._blocked is not None

    def take_plain(self, chunk: PlainChunk, events: list[StreamEvent]) -> bool:
        """Take a chunk that is one piece of text and nothing else; False if it is more than that."""
        candidates = chunk.candidates
        if len(candidates) != 1 or candidates[0].index or self.odd:
            return False
        parts = candidates[0].content.parts
        if len(parts) != 1:
            return False
        part = parts[0]
        text = part.text
        if not text or part.thought or part.thoughtSignature is not None or part.functionCall is not None:
            return False
        if self._id is None:
            self._id = chunk.responseId or None
        if self._model is None:
            self._model = chunk.modelVersion or None
        if chunk.usageMetadata:
            self._plain_usage = chunk.usageMetadata
        self.went_on = True
        self.text.pieces.append(text)
        if self._open_text is None:
            self._open_text = []
        self._open_text.append(text)
        events.append(TextDelta(text))
        return True

    def take(self, chunk: Chunk, events: list[StreamEvent] | None = None) -> None:
        """Take the next chunk; `events` is what the caller of a stream is told.

        Raises:
            ProviderError: the chunk holds an error, or cannot be read.
        """
        if chunk.error:
            raise gemini_error(self.provider, encode_json({"error": chunk.error}))
        if self._id is None:
            self._id = as_text(chunk.responseId)
        if self._model is None:
            self._model = as_text(chunk.modelVersion)
        usage: object = chunk.usageMetadata
        self._read_plain_usage()
        self._take_usage(usage)
        feedback: object = chunk.promptFeedback
        if isinstance(feedback, dict):
            self._blocked = as_text(cast("dict[str, Any]", feedback).get("blockReason")) or self._blocked
        candidates: object = chunk.candidates
        if candidates is None:
            return
        if not isinstance(candidates, list):
            raise DecodeError(f"candidates is not a list: {excerpt(encode_json(candidates))}")
        for candidate in cast("list[Any]", candidates):
            if isinstance(candidate, dict):
                self._take_candidate(cast("dict[str, Any]", candidate), events)

    def end(self, events: list[StreamEvent] | None = None) -> None:
        """Nothing more comes: take what was held back."""
        for pieces, event in ((self.reasoning, ReasoningDelta), (self.text, TextDelta)):
            if pieces.held:
                pieces.held = ""
                pieces.pieces.append("\ufffd")
                if event is TextDelta:
                    self._add_text("\ufffd")
                if events is not None:
                    events.append(event("\ufffd"))

    def response(self) -> ChatResponse:
        """The reply as it is now."""
        self._close_text()
        self._read_plain_usage()
        if not self.ended and not self._parts:
            raise DecodeError("the answer has no candidates", provider=self.provider, retryable=True)
        word = self.finish if self.finish is not None else self._blocked
        if self.finish is None and self._blocked is not None:
            neutral: FinishReason = "content_filter"
        else:
            neutral = "stop" if self.finish is None else _FINISH.get(self.finish, "other")
        calls = with_distinct_ids(self._calls, self._id)
        if neutral != "length" and calls:
            neutral = "tool_calls"
        text = str(self.text)
        parts, response_id, model = self._parts, self._id, self._model
        if self.odd:
            parts, response_id, model = without_surrogates([parts, response_id, model])
        message = AssistantMessage(
            text or (None if calls else ""),
            calls,
            str(self.reasoning) or None,
            neutral if neutral not in ("stop", "tool_calls") else None,
            replay_payload(parts, model),
        )
        return ChatResponse(message, neutral, word, _usage(self._usage), model, response_id)

    def _read_plain_usage(self) -> None:
        if self._plain_usage is not None:
            told, self._plain_usage = self._plain_usage, None
            self._take_usage(_usages.decode(told))

    def _take_usage(self, usage: object) -> None:
        if isinstance(usage, dict):
            self.has_usage = True
            known = cast("dict[str, Any]", usage)
            # Cumulative, so the last word counts.
            self._usage.update({key: value for key, value in known.items() if value is not None})

    def _take_candidate(self, candidate: dict[str, Any], events: list[StreamEvent] | None) -> None:
        if as_int(candidate.get("index")):
            return  # further answers have no place in a conversation
        content: object = candidate.get("content")
        parts: object = cast("dict[str, Any]", content).get("parts") if isinstance(content, dict) else None
        if isinstance(parts, dict):
            parts = [cast("object", parts)]
        if isinstance(parts, list):
            for part in cast("list[Any]", parts):
                if isinstance(part, dict):
                    self._take_part(cast("dict[str, Any]", part), events)
        finish = candidate.get("finishReason")
        if isinstance(finish, str) and finish:
            if finish != "STOP" or self.finish is None:  # which gateways write beside the tokens behind the real word
                self.finish = mend_surrogates(finish)
        elif parts:
            self.went_on = True

    def _take_part(self, part: dict[str, Any], events: list[StreamEvent] | None) -> None:
        text = part.get("text")
        if "functionCall" in part:
            self._take_call(part, events)
        elif part.get("thought"):
            self._take_thought(part, text, events)
        elif isinstance(text, str):
            self._take_text(part, text, events)
        elif part:  # code that the service ran, images it made: nothing of ours, but part of the conversation
            self._close_text()
            self._parts.append(part)

    def _take_text(self, part: dict[str, Any], text: str, events: list[StreamEvent] | None) -> None:
        if self.odd:
            text = self.text.mended(text)
        if text:
            self.text.pieces.append(text)
            if events is not None:
                events.append(TextDelta(text))
        signature = as_text(part.get(SIGNATURE))
        if signature is None:
            if text:
                self._add_text(text)
            return
        self._close_text()
        self._parts.append({"text": text, SIGNATURE: signature})

    def _take_thought(self, part: dict[str, Any], text: object, events: list[StreamEvent] | None) -> None:
        if isinstance(text, str):
            if self.odd:
                text = self.reasoning.mended(text)
            if text:
                self.reasoning.pieces.append(text)
                if events is not None:
                    events.append(ReasoningDelta(text))
        signature = as_text(part.get(SIGNATURE))
        if signature is not None:
            self._close_text()
            self._parts.append({"text": text, "thought": True, SIGNATURE: signature} if isinstance(text, str) else part)

    def _take_call(self, part: dict[str, Any], events: list[StreamEvent] | None) -> None:
        function: object = part["functionCall"]
        if not isinstance(function, dict):
            raise DecodeError(f"a function call is not an object: {excerpt(encode_json(function))}")
        known = cast("dict[str, Any]", function)
        name, given = as_text(known.get("name")), as_text(known.get("id"))
        if name is None:
            raise DecodeError(f"a function call came without a name: {excerpt(encode_json(known))}")
        if known.get("partialArgs") or known.get("willContinue"):
            raise DecodeError(f"the arguments of {name!r} come in pieces; leave streamFunctionCallArguments out")
        if len(self._calls) >= _MAX_CALLS:
            raise DecodeError(f"one reply with more than {_MAX_CALLS} function calls")
        args, raw_arguments = parse_arguments(known.get("args"))
        if self.odd:
            name, args, given = without_surrogates([name, args, given])
        call = ToolCall(given or "", self._names.get(name, name), args, raw_arguments)
        number = len(self._calls)
        self._calls.append(call)
        kept: dict[str, Any] = {"call": number}
        if given is not None:
            kept["id"] = given
        signature = as_text(part.get(SIGNATURE))
        if signature is not None:
            kept[SIGNATURE] = signature
        self._close_text()
        self._parts.append(kept)
        if events is not None:
            arguments = raw_arguments if raw_arguments is not None else encode_json(args).decode()
            events.append(ToolCallDelta(number, call.id, call.name, arguments))

    def _add_text(self, text: str) -> None:
        if self._open_text is None:
            self._open_text = []
        self._open_text.append(text)

    def _close_text(self) -> None:
        if self._open_text is not None:
            self._parts.append({"text": "".join(self._open_text)})
            self._open_text = None


def _usage(usage: Mapping[str, Any]) -> Usage:
    """Tokens: this wire counts thoughts and the results of its own tools apart; the neutral numbers are the whole."""
    if not usage:
        return UNKNOWN_USAGE
    thoughts = as_int(usage.get("thoughtsTokenCount"))
    return Usage(
        input_tokens=_sum(usage.get("promptTokenCount"), usage.get("toolUsePromptTokenCount")),
        output_tokens=_sum(usage.get("candidatesTokenCount"), thoughts),
        cached_input_tokens=as_int(usage.get("cachedContentTokenCount")),
        reasoning_tokens=thoughts,
    )


def _sum(first: object, second: object) -> int | None:
    counts = [count for count in (as_int(first), as_int(second)) if count is not None]
    return sum(counts) if counts else None
