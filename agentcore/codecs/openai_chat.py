"""OpenAI Chat Completions: requests, replies and streams of it and of everything that claims to be compatible."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.codecs.base import NO_NAMES, WireRequest
from agentcore.codecs.call_assembly import CallAssembly
from agentcore.codecs.dialect import OPENAI, Dialect
from agentcore.codecs.failures import failure_error, failure_of, provider_error
from agentcore.codecs.openai_chat_request import FORMAT, request_body, wire_messages
from agentcore.codecs.shared import (
    as_int,
    as_text,
    decode_json,
    encode_json,
    excerpt,
    mend_surrogates,
    tool_names,
    wire_names,
)
from agentcore.codecs.sse import MAX_EVENT_BYTES, SSEParser
from agentcore.errors import DecodeError, InvalidInputError, ProviderError, UnsupportedContentError
from agentcore.events import ReasoningDelta, StreamEvent, TextDelta
from agentcore.messages import AssistantMessage, FinishReason, Message
from agentcore.usage import UNKNOWN_USAGE, Usage

_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "end": "stop",
    "complete": "stop",
    "completed": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
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
}
_HEARTBEATS = frozenset(("ping", "heartbeat", "keepalive", "keep-alive", "keep_alive"))
_CLOSED = "the connection was closed before the end of the stream was announced"


class _Delta(Struct):
    content: Any = None
    refusal: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    thinking: Any = None
    reasoning_details: Any = None
    tool_calls: Any = None
    function_call: Any = None


class _Choice(Struct):
    index: Any = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: Any = None
    usage: Any = None


class _Chunk(Struct):
    id: Any = None
    model: Any = None
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None
    x_groq: Any = None
    object: Any = None
    message: Any = None
    detail: Any = None
    code: Any = None
    type: Any = None


_chunks = msgspec.json.Decoder(_Chunk)


class OpenAIChatCodec:
    """The codec of `POST …/chat/completions`.

    Args:
        provider: name for errors.
        dialect: how the endpoint differs from the original.
        max_event_bytes: largest single event of a stream.
        keep_raw: keep the body (of a stream: its event payloads) on the response.
    """

    path = "/chat/completions"

    def __init__(
        self,
        provider: str = "openai",
        dialect: Dialect = OPENAI,
        *,
        max_event_bytes: int = MAX_EVENT_BYTES,
        keep_raw: bool = False,
    ) -> None:
        self.provider = provider
        self.dialect = dialect
        self.max_event_bytes = max_event_bytes
        self.keep_raw = keep_raw

    async def encode(self, request: ChatRequest, *, stream: bool) -> WireRequest:
        """The request as bytes; see `Codec.encode`."""
        names = tool_names(request)
        body = request_body(request, self.provider, self.dialect, names, stream=stream)
        if not body["messages"]:
            raise InvalidInputError("there is nothing to send: the request has no messages with content")
        return WireRequest(self.path, encode_json(body), wire_names(names) or NO_NAMES)

    def decode(self, body: bytes, wire: WireRequest) -> ChatResponse:
        """A whole body as a response; see `Codec.decode`."""
        if body[:64].lstrip().startswith((b"data:", b"event:", b":")):  # a stream, though none was asked for
            decoder = self.stream_decoder(wire)
            decoder.feed(body)
            decoder.finish()
            return decoder.response()
        reply = _Reply(self.provider, wire.tool_names)
        try:
            chunk = decode_json(body, _chunks, _Chunk)
            if not chunk.choices:
                raise self._without_choices(chunk, body)
            reply.take(chunk)
            reply.finish_text()
            response = reply.response()
        except DecodeError as error:
            raise _named(error, self.provider) from error.__cause__
        return replace(response, raw=body) if self.keep_raw else response

    def stream_decoder(self, wire: WireRequest) -> "OpenAIChatStreamDecoder":
        """A fresh decoder for one stream."""
        return OpenAIChatStreamDecoder(self, wire)

    def decode_error(self, status: int, body: bytes) -> ProviderError:
        """An error status and its body as an error."""
        return provider_error(self.provider, body, status=status)

    def check(self, messages: Sequence[Message]) -> list[str]:
        """What this endpoint could not carry of a history, one line each."""
        problems: list[str] = []
        for index, message in enumerate(messages):
            try:
                wire_messages([message], self.provider, self.dialect, NO_NAMES)
            except UnsupportedContentError as error:
                problems.append(str(error).replace("(message 0)", f"(message {index})"))
        return problems

    def _without_choices(self, chunk: _Chunk, body: bytes) -> ProviderError:
        if chunk.error or chunk.object == "error" or chunk.message or chunk.detail:
            return failure_error(self.provider, failure_of(msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf")), body))
        return DecodeError(f"the answer has no choices: {excerpt(body)}", provider=self.provider, retryable=True)


class OpenAIChatStreamDecoder:
    """Decodes one stream; see `StreamDecoder`."""

    def __init__(self, codec: OpenAIChatCodec, wire: WireRequest) -> None:
        self.error: ProviderError | None = None
        self.done = False
        self._codec = codec
        self._wire = wire
        self._parser = SSEParser(codec.max_event_bytes)
        self._reply = _Reply(codec.provider, wire.tool_names)
        self._plain: list[bytes] | None = None
        self._started = False
        self._raw: list[bytes] = []

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._reply.text)

    def feed(self, data: bytes) -> Sequence[StreamEvent]:
        """The events in the next bytes; see `StreamDecoder.feed`."""
        if self.error is not None or self.done:
            return ()
        if not self._started and data.strip():
            self._started = True
            if data.lstrip(b"\xef\xbb\xbf \r\n\t")[:1] in (b"{", b"[", b"<"):
                self._plain = []  # not a stream at all: a JSON body, or a page of some proxy
        if self._plain is not None:
            self._plain.append(data)
            return ()
        events: list[StreamEvent] = []
        try:
            for name, payload in self._parser.feed(data):
                self._take(name, payload, events)
                if self.done:
                    break
        except ProviderError as error:
            self._fail(error)
        return events

    def finish(self) -> Sequence[StreamEvent]:
        """The end of the connection; see `StreamDecoder.finish`."""
        if self.error is not None:
            return ()
        events: list[StreamEvent] = []
        try:
            if self._plain is not None:
                return self._finish_plain(b"".join(self._plain))
            if not self.done:
                for name, payload in self._parser.finish():
                    self._take(name, payload, events)
            self._reply.finish_text(events)
            if not self.done and self._reply.finish is None:
                raise ProviderError(_CLOSED, kind="network", provider=self._codec.provider, retryable=True)
            self.done = True
        except ProviderError as error:
            # A half event at a broken connection is a symptom: the connection is the cause.
            if isinstance(error, DecodeError) and not self.done and self._parser.pending == b"" and not self._reply.finish:
                error = ProviderError(_CLOSED, kind="network", provider=self._codec.provider, retryable=True)
            self._fail(error)
        return events

    def response(self) -> ChatResponse:
        """The whole reply."""
        if self.error is None:
            try:
                response = self._reply.response()
                return replace(response, raw=b"\n".join(self._raw)) if self._codec.keep_raw else response
            except ProviderError as error:
                self._fail(error)
        assert self.error is not None
        raise self.error

    def _fail(self, error: ProviderError) -> None:
        if isinstance(error, DecodeError):
            error = _named(error, self._codec.provider)
        error.partial_text = self.text
        self.error = error

    def _finish_plain(self, body: bytes) -> Sequence[StreamEvent]:
        from agentcore.chat import events_of

        response = self._codec.decode(body, self._wire)
        self._reply.whole = response
        self.done = True
        return events_of(response.message)

    def _take(self, name: str, payload: bytes, events: list[StreamEvent]) -> None:
        if payload[:6] == b"[DONE]":
            self.done = True
            self._reply.finish_text(events)
            if not self._reply.seen_choice:
                raise DecodeError("the stream ended without any choices", retryable=True)
            return
        if not payload.strip() or name in _HEARTBEATS:
            return
        if self._codec.keep_raw:
            self._raw.append(payload)
        if name == "error":
            raise provider_error(self._codec.provider, payload)
        try:
            chunk = _chunks.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if b"\n" in payload:  # several values in one event: a server that leaves the blank lines out
                for line in payload.split(b"\n"):
                    self._take("", line, events)
                return
            chunk = decode_json(payload, _chunks, _Chunk)
            self._reply.odd_text = True
        if chunk.error or (not chunk.choices and (chunk.object == "error" or (chunk.message and chunk.id is None))):
            raise failure_error(
                self._codec.provider, failure_of(msgspec.json.decode(payload), payload), partial_text=self.text
            )
        self._reply.take(chunk, events)


class _Reply:
    """A reply put together from chunks; a whole body is one chunk."""

    def __init__(self, provider: str, names: Mapping[str, str]) -> None:
        self.provider = provider
        self.names = names
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.calls = CallAssembly()
        self.finish: str | None = None
        self.refused = False
        self.usage: Any = None
        self.id: str | None = None
        self.model: str | None = None
        self.details: list[Any] = []
        self.seen_choice = False
        self.odd_text = False  # surrogates may be in the text: see `_put_text`
        self.held = ""
        self.whole: ChatResponse | None = None

    def take(self, chunk: _Chunk, events: list[StreamEvent] | None = None) -> None:
        if self.id is None:
            self.id = as_text(chunk.id)
        if self.model is None:
            self.model = as_text(chunk.model)
        if chunk.usage:
            self.usage = chunk.usage
        elif chunk.x_groq is not None and isinstance(chunk.x_groq, dict):
            self.usage = cast("dict[str, Any]", chunk.x_groq).get("usage") or self.usage
        for choice in chunk.choices or ():
            if choice.index:
                continue  # further answers (n > 1) have no place in a conversation
            self.seen_choice = True
            if choice.usage:
                self.usage = choice.usage
            if isinstance(choice.finish_reason, str) and choice.finish_reason:
                self.finish = choice.finish_reason
            delta = choice.delta
            if choice.message is not None and (delta is None or delta == _Delta()) and not self.text and not self.calls:
                delta = choice.message
            if delta is not None:
                self._take_delta(delta, events)

    def _take_delta(self, delta: _Delta, events: list[StreamEvent] | None) -> None:
        content = delta.content
        reasoning = delta.reasoning_content or delta.reasoning or delta.thinking
        if reasoning:
            self._put_reasoning(_readable(reasoning), events)
        if delta.reasoning_details:
            self._take_details(delta.reasoning_details, events, silent=bool(reasoning))
        if content:
            if type(content) is str:
                self._put_text(content, events)
            else:
                self._take_parts(content, events)
        if delta.refusal and isinstance(delta.refusal, str):
            self.refused = True
            self._put_text(delta.refusal, events)
        if delta.tool_calls:
            self._take_calls(delta.tool_calls, events)
        if delta.function_call:  # the form before tool_calls
            self._take_calls([{"index": -1, "function": delta.function_call}], events)

    def _put_text(self, text: str, events: list[StreamEvent] | None) -> None:
        if self.odd_text or self.held:
            # Some servers cut an emoji between its two surrogate escapes.
            text, self.held = self.held + text, ""
            if "\ud800" <= text[-1] <= "\udbff":
                text, self.held = text[:-1], text[-1]
            text = mend_surrogates(text)
            if not text:
                return
        self.text.append(text)
        if events is not None:
            events.append(TextDelta(text))

    def finish_text(self, events: list[StreamEvent] | None = None) -> None:
        """Nothing more comes: half a character that was held back is given up."""
        if self.held:
            self.held = ""
            self.odd_text = False
            self._put_text("\ufffd", events)

    def _put_reasoning(self, text: str, events: list[StreamEvent] | None) -> None:
        if text:
            text = mend_surrogates(text) if self.odd_text else text
            self.reasoning.append(text)
            if events is not None:
                events.append(ReasoningDelta(text))

    def _take_details(self, details: Any, events: list[StreamEvent] | None, *, silent: bool) -> None:
        if not isinstance(details, list):
            return
        self.details.extend(cast("list[Any]", details))
        if not silent:
            self._put_reasoning(_readable(details), events)

    def _take_parts(self, content: Any, events: list[StreamEvent] | None) -> None:
        for part in cast("list[Any]", content) if isinstance(content, list) else [content]:
            if isinstance(part, str):
                self._put_text(part, events)
            elif isinstance(part, dict):
                known = cast("dict[str, Any]", part)
                if known.get("type") in ("thinking", "reasoning"):
                    self._put_reasoning(_readable(known), events)
                elif known.get("type") == "refusal" and as_text(known.get("refusal")):
                    self.refused = True
                    self._put_text(known["refusal"], events)
                elif text := as_text(known.get("text")):
                    self._put_text(text, events)

    def _take_calls(self, calls: Any, events: list[StreamEvent] | None) -> None:
        if isinstance(calls, dict):
            calls = [calls]
        if not isinstance(calls, list):
            raise DecodeError(f"tool_calls is not a list: {excerpt(encode_json(calls))}")
        listed = cast("list[Any]", calls)
        whole = events is None  # a body: each entry is a call of its own, whatever its index says
        for position, item in enumerate(listed):
            if item is None:
                continue
            if not isinstance(item, dict):
                raise DecodeError(f"a tool call is not an object: {excerpt(encode_json(item))}")
            call = cast("dict[str, Any]", item)
            function = call.get("function") or call.get("custom") or call
            if not isinstance(function, dict):
                raise DecodeError(f"a tool call's function is not an object: {excerpt(encode_json(call))}")
            known = cast("dict[str, Any]", function)
            arguments = known.get("arguments")
            if arguments is None and "input" in known:
                arguments = known["input"] if isinstance(known["input"], dict) else {"input": known["input"]}
            name = as_text(known.get("name")) or ""
            index = position if whole else as_int(call.get("index"))
            event = self.calls.add(index, _id(call.get("id")), self.names.get(name, name), arguments)
            if events is not None and event is not None:
                events.append(event)

    def response(self) -> ChatResponse:
        if self.whole is not None:
            return self.whole
        if not self.seen_choice:
            raise DecodeError("the answer has no choices", provider=self.provider, retryable=True)
        calls = self.calls.calls(self.id)
        finish = self._finish_reason(bool(calls))
        text = "".join(self.text)
        message = AssistantMessage(
            text or None if calls else text,
            calls,
            "".join(self.reasoning) or None,
            finish if finish not in ("stop", "tool_calls") else None,
            {"format": FORMAT, "reasoning_details": self.details} if self.details else None,
        )
        return ChatResponse(message, finish, self.finish, _usage(self.usage), self.model, self.id)

    def _finish_reason(self, has_calls: bool) -> FinishReason:
        finish: FinishReason = "stop" if self.finish is None else _FINISH.get(self.finish.lower(), "other")
        if finish == "length":
            return finish
        if has_calls:
            return "tool_calls"
        return "content_filter" if self.refused else finish


def _readable(value: Any) -> str:
    """The text of a reasoning field: text, an object that holds it, or a list of either; never a repr."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_readable(item) for item in cast("list[Any]", value))
    if isinstance(value, dict):
        known = cast("dict[str, Any]", value)
        for key in ("text", "content", "thinking", "summary", "reasoning"):
            if known.get(key):
                return _readable(known[key])
    return ""


def _id(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def _usage(value: Any) -> Usage:
    if not isinstance(value, dict):
        return UNKNOWN_USAGE
    usage = cast("dict[str, Any]", value)
    prompt, completion = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    prompt_details = cast("dict[str, Any]", prompt) if isinstance(prompt, dict) else {}
    completion_details = cast("dict[str, Any]", completion) if isinstance(completion, dict) else {}
    cached = as_int(prompt_details.get("cached_tokens"))
    if cached is None:  # DeepSeek, Moonshot
        cached = as_int(usage.get("prompt_cache_hit_tokens"))
    if cached is None:
        cached = as_int(usage.get("cached_tokens"))
    return Usage(
        input_tokens=_first(as_int(usage.get("prompt_tokens")), as_int(usage.get("input_tokens"))),
        output_tokens=_first(as_int(usage.get("completion_tokens")), as_int(usage.get("output_tokens"))),
        cached_input_tokens=cached,
        cache_write_tokens=as_int(prompt_details.get("cache_write_tokens")),
        reasoning_tokens=_first(
            as_int(completion_details.get("reasoning_tokens")), as_int(usage.get("reasoning_tokens"))
        ),
    )


def _first(a: int | None, b: int | None) -> int | None:
    return b if a is None else a


def _named(error: DecodeError, provider: str) -> DecodeError:
    if not error.provider:
        error.provider = provider
    return error
