"""Anthropic Messages: requests, replies and streams of it and of what is compatible with it."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentcore.chat import ChatRequest, ChatResponse, events_of
from agentcore.codecs.anthropic_request import FORMAT, request_body, wire_messages
from agentcore.codecs.base import NO_NAMES, WireRequest
from agentcore.codecs.failures import failure_error, failure_of, provider_error
from agentcore.codecs.shared import (
    as_int,
    as_text,
    decode_json,
    encode_json,
    excerpt,
    mend_surrogates,
    parse_arguments,
    tool_names,
    wire_names,
    with_distinct_ids,
)
from agentcore.codecs.sse import MAX_EVENT_BYTES, SSEParser
from agentcore.errors import DecodeError, InvalidInputError, ProviderError, UnsupportedContentError
from agentcore.events import ReasoningDelta, StreamEvent, TextDelta, ToolCallDelta
from agentcore.messages import AssistantMessage, FinishReason, Message, ToolCall
from agentcore.usage import UNKNOWN_USAGE, Usage

DEFAULT_MAX_TOKENS = 4096
"""Sent when a call does not say `max_tokens`, which this API requires."""

MAX_BLOCKS = 4096

_FINISH: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "stop": "stop",
    "max_tokens": "length",
    "length": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "content_filter": "content_filter",
}
_CLOSED = "the connection was closed before the end of the stream was announced"


class _Body(Struct):
    type: Any = None
    id: Any = None
    model: Any = None
    content: Any = None
    stop_reason: Any = None
    usage: Any = None
    error: Any = None
    message: Any = None


class _Delta(Struct):
    type: Any = None
    text: Any = None
    thinking: Any = None
    signature: Any = None
    partial_json: Any = None
    citation: Any = None
    stop_reason: Any = None


class _Event(Struct):
    type: Any = None
    index: Any = None
    delta: _Delta | None = None
    content_block: Any = None
    message: Any = None
    usage: Any = None
    error: Any = None


_bodies = msgspec.json.Decoder(_Body)
_events = msgspec.json.Decoder(_Event)


class AnthropicMessagesCodec:
    """The codec of `POST …/v1/messages`.

    Args:
        provider: name for errors.
        default_max_tokens: sent when a call does not say `max_tokens`.
        max_event_bytes: largest single event of a stream.
        keep_raw: keep the body (of a stream: its event payloads) on the response.
    """

    path = "/v1/messages"

    def __init__(
        self,
        provider: str = "anthropic",
        *,
        default_max_tokens: int = DEFAULT_MAX_TOKENS,
        max_event_bytes: int = MAX_EVENT_BYTES,
        keep_raw: bool = False,
    ) -> None:
        self.provider = provider
        self.default_max_tokens = default_max_tokens
        self.max_event_bytes = max_event_bytes
        self.keep_raw = keep_raw

    async def encode(self, request: ChatRequest, *, stream: bool) -> WireRequest:
        """The request as bytes; see `Codec.encode`."""
        names = tool_names(request)
        body = request_body(request, self.provider, names, self.default_max_tokens, stream=stream)
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
        try:
            reply = decode_json(body, _bodies, _Body)
        except DecodeError as error:
            error.provider = self.provider
            raise
        if reply.type == "error" or reply.error:
            raise failure_error(self.provider, failure_of(decode_json(body, _values, dict), body))
        if reply.content is None and reply.stop_reason is None:
            if reply.message:
                raise failure_error(self.provider, failure_of(decode_json(body, _values, dict), body))
            raise DecodeError(f"the answer has no content: {excerpt(body)}", provider=self.provider, retryable=True)
        blocks = _blocks_of(reply.content, self.provider)
        usage = cast("dict[str, Any]", reply.usage) if isinstance(reply.usage, dict) else {}
        response = _response(blocks, {}, reply.stop_reason, usage, reply.model, reply.id, wire.tool_names)
        return replace(response, raw=body) if self.keep_raw else response

    def stream_decoder(self, wire: WireRequest) -> "AnthropicStreamDecoder":
        """A fresh decoder for one stream."""
        return AnthropicStreamDecoder(self, wire)

    def decode_error(self, status: int, body: bytes) -> ProviderError:
        """An error status and its body as an error."""
        return provider_error(self.provider, body, status=status)

    def check(self, messages: Sequence[Message]) -> list[str]:
        """What this format could not carry of a history, one line each."""
        problems: list[str] = []
        for index, message in enumerate(messages):
            try:
                wire_messages([message], self.provider, NO_NAMES)
            except UnsupportedContentError as error:
                problems.append(str(error).replace("(message 0)", f"(message {index})"))
            except InvalidInputError:
                continue  # a blank message is no loss
        return problems


_values = msgspec.json.Decoder(dict)


class _Block:
    """A content block as it grows."""

    __slots__ = ("citations", "json", "signature", "start", "text", "thinking")

    def __init__(self, start: dict[str, Any]) -> None:
        self.start = start
        self.text: list[str] = []
        self.thinking: list[str] = []
        self.signature: list[str] = []
        self.json: list[str] = []
        self.citations: list[Any] = []

    def raw_input(self) -> object:
        """The arguments: the JSON text that came in pieces, or the object the block began with."""
        return "".join(self.json) if self.json else self.start.get("input")

    def whole(self) -> dict[str, Any]:
        """The block as it would stand in a body."""
        block = dict(self.start)
        kind = block.get("type")
        if kind == "text":
            block["text"] = (as_text(block.get("text")) or "") + "".join(self.text)
            if self.citations:
                block["citations"] = [*(block.get("citations") or []), *self.citations]
        elif kind == "thinking":
            block["thinking"] = (as_text(block.get("thinking")) or "") + "".join(self.thinking)
            block["signature"] = (as_text(block.get("signature")) or "") + "".join(self.signature)
        elif self.json or "input" in block or kind == "tool_use":
            block["input"] = parse_arguments(self.raw_input())[0]
        return block


class AnthropicStreamDecoder:
    """Decodes one stream; see `StreamDecoder`."""

    def __init__(self, codec: AnthropicMessagesCodec, wire: WireRequest) -> None:
        self.error: ProviderError | None = None
        self.done = False
        self._codec = codec
        self._wire = wire
        self._parser = SSEParser(codec.max_event_bytes)
        self._blocks: dict[int, _Block] = {}
        self._calls: dict[int, int] = {}  # block index → position among the calls
        self._text: list[str] = []
        self._id: Any = None
        self._model: Any = None
        self._usage: dict[str, Any] = {}
        self._stop_reason: Any = None
        self._plain: list[bytes] | None = None
        self._started = False
        self._odd_text = False
        self._held = ""
        self._whole: ChatResponse | None = None
        self._raw: list[bytes] = []

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

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
                self._whole = self._codec.decode(b"".join(self._plain), self._wire)
                self.done = True
                return events_of(self._whole.message)
            if not self.done:
                for name, payload in self._parser.finish():
                    self._take(name, payload, events)
            self._release(events)
            if not self.done and not as_text(self._stop_reason):
                raise ProviderError(_CLOSED, kind="network", provider=self._codec.provider, retryable=True)
            self.done = True
        except ProviderError as error:
            if isinstance(error, DecodeError) and not self.done and not as_text(self._stop_reason):
                # A half event at a broken connection is a symptom: the connection is the cause.
                error = ProviderError(_CLOSED, kind="network", provider=self._codec.provider, retryable=True)
            self._fail(error)
        return events

    def response(self) -> ChatResponse:
        """The whole reply."""
        if self._whole is not None:
            return self._whole
        if self.error is None:
            try:
                return self._assemble()
            except ProviderError as error:
                self._fail(error)
        assert self.error is not None
        raise self.error

    def _assemble(self) -> ChatResponse:
        if not self._blocks and self._id is None and not as_text(self._stop_reason):
            raise DecodeError("the stream held no message", retryable=True)
        ordered = [self._blocks[index] for index in sorted(self._blocks)]
        raw = {position: block.raw_input() for position, block in enumerate(ordered) if block.json}
        blocks = [block.whole() for block in ordered]
        for block in blocks:
            if self._odd_text and block.get("type") == "text":
                block["text"] = mend_surrogates(block["text"])
        response = _response(
            blocks, raw, self._stop_reason, self._usage, self._model, self._id, self._wire.tool_names
        )
        return replace(response, raw=b"\n".join(self._raw)) if self._codec.keep_raw else response

    def _fail(self, error: ProviderError) -> None:
        error.provider = error.provider or self._codec.provider
        error.partial_text = self.text
        self.error = error

    def _take(self, name: str, payload: bytes, events: list[StreamEvent]) -> None:
        if not payload.strip() or name == "ping":
            return
        if payload.startswith(b"[DONE]"):  # some gateways add OpenAI's end
            self.done = True
            return
        if self._codec.keep_raw:
            self._raw.append(payload)
        if name == "error":
            raise provider_error(self._codec.provider, payload)
        try:
            event = _events.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            event = decode_json(payload, _events, _Event)
            self._odd_text = True
        kind = event.type or name
        if kind == "content_block_delta":
            self._take_delta(event, events)
        elif kind == "content_block_start":
            self._open(event, events)
        elif kind == "message_start":
            self._take_message(event.message)
        elif kind == "message_delta":
            if event.delta is not None and as_text(event.delta.stop_reason):
                self._stop_reason = event.delta.stop_reason
            self._take_usage(event.usage)
        elif kind == "message_stop":
            self._release(events)
            self.done = True
        elif kind == "error" or event.error:
            raise failure_error(self._codec.provider, failure_of(decode_json(payload, _values, dict), payload))

    def _take_message(self, message: Any) -> None:
        if not isinstance(message, dict):
            return
        known = cast("dict[str, Any]", message)
        self._id, self._model = known.get("id"), known.get("model")
        self._stop_reason = known.get("stop_reason") or self._stop_reason
        self._take_usage(known.get("usage"))
        for index, block in enumerate(_blocks_of(known.get("content"), self._codec.provider)):
            self._blocks[index] = _Block(block)

    def _take_usage(self, usage: Any) -> None:
        if isinstance(usage, dict):  # later figures win, field by field
            known = cast("dict[str, Any]", usage)
            self._usage.update({key: value for key, value in known.items() if value is not None})

    def _open(self, event: _Event, events: list[StreamEvent]) -> None:
        index = as_int(event.index)
        if not isinstance(event.content_block, dict):
            return
        if len(self._blocks) >= MAX_BLOCKS:
            raise DecodeError(f"one reply with more than {MAX_BLOCKS} content blocks")
        block = cast("dict[str, Any]", event.content_block)
        position = len(self._blocks) if index is None else index
        self._blocks[position] = made = _Block(block)
        match block.get("type"):
            case "text" if as_text(block.get("text")):
                self._put_text(made, block["text"], events, count=False)
            case "thinking" if as_text(block.get("thinking")):
                events.append(ReasoningDelta(block["thinking"]))
            case "tool_use":
                self._calls[position] = len(self._calls)
                given = block.get("input")
                events.append(self._call_event(position, made, encode_json(given).decode() if given else ""))
            case _:
                pass

    def _take_delta(self, event: _Event, events: list[StreamEvent]) -> None:
        delta = event.delta
        index = as_int(event.index)
        if delta is None:
            return
        if index is None:
            index = max(self._blocks, default=0)
        block = self._blocks.get(index)
        kind = delta.type
        if block is None:  # a server that leaves the start of a text block out
            if kind not in ("text_delta", "thinking_delta"):
                return
            start = {"type": "text", "text": ""} if kind == "text_delta" else {"type": "thinking", "thinking": ""}
            block = self._blocks[index] = _Block(start)
        if kind == "text_delta":
            if isinstance(delta.text, str) and delta.text:
                self._put_text(block, delta.text, events)
        elif kind == "thinking_delta":
            if isinstance(delta.thinking, str) and delta.thinking:
                block.thinking.append(delta.thinking)
                events.append(ReasoningDelta(mend_surrogates(delta.thinking) if self._odd_text else delta.thinking))
        elif kind == "input_json_delta":
            if isinstance(delta.partial_json, str) and delta.partial_json:
                block.json.append(delta.partial_json)
                if index in self._calls:
                    events.append(self._call_event(index, block, delta.partial_json))
        elif kind == "signature_delta":
            if isinstance(delta.signature, str):
                block.signature.append(delta.signature)
        elif kind == "citations_delta" and delta.citation is not None:
            block.citations.append(delta.citation)

    def _put_text(self, block: _Block, text: str, events: list[StreamEvent], *, count: bool = True) -> None:
        if count:
            block.text.append(text)
        if self._odd_text or self._held:
            text, self._held = self._held + text, ""
            if "\ud800" <= text[-1] <= "\udbff":
                text, self._held = text[:-1], text[-1]
            text = mend_surrogates(text)
            if not text:
                return
        self._text.append(text)
        events.append(TextDelta(text))

    def _release(self, events: list[StreamEvent]) -> None:
        """Nothing more comes: half a character that was held back is given up."""
        if self._held:
            self._held = ""
            self._text.append("\ufffd")
            events.append(TextDelta("\ufffd"))

    def _call_event(self, index: int, block: _Block, fragment: str) -> ToolCallDelta:
        name = as_text(block.start.get("name")) or ""
        names = self._wire.tool_names
        call_id = as_text(block.start.get("id")) or ""
        return ToolCallDelta(self._calls[index], call_id, names.get(name, name), fragment)


def _blocks_of(content: Any, provider: str) -> list[dict[str, Any]]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        raise DecodeError(f"content is not a list of blocks: {excerpt(encode_json(content))}", provider=provider)
    return [cast("dict[str, Any]", one) for one in cast("list[Any]", content) if isinstance(one, dict)]


def _response(
    blocks: list[dict[str, Any]],
    raw_inputs: Mapping[int, object],
    stop_reason: Any,
    usage: dict[str, Any],
    model: Any,
    response_id: Any,
    names: Mapping[str, str],
) -> ChatResponse:
    """A reply out of its blocks; body and stream both come here."""
    raw = as_text(stop_reason)
    finish: FinishReason = "stop" if raw is None else _FINISH.get(raw, "other")
    text: list[str] = []
    reasoning: list[str] = []
    calls: list[ToolCall] = []
    for position, block in enumerate(blocks):
        match block.get("type"):
            case "text":
                text.append(as_text(block.get("text")) or "")
            case "thinking":
                reasoning.append(as_text(block.get("thinking")) or "")
            case "tool_use":
                cut = finish == "length" and position == len(blocks) - 1
                calls.append(_call(block, raw_inputs.get(position, block.get("input")), names, cut=cut))
            case _:
                pass  # the provider's own tools, and what is not known yet: carried in the replay payload
    made = with_distinct_ids(calls, as_text(response_id))
    if made and finish != "length":
        finish = "tool_calls"
    content = "".join(text)
    message = AssistantMessage(
        content or None if made else content,
        made,
        "".join(reasoning) or None,
        finish if finish not in ("stop", "tool_calls") else None,
        _replay(blocks),
    )
    return ChatResponse(message, finish, raw, _usage(usage), as_text(model), as_text(response_id))


def _call(block: dict[str, Any], raw: object, names: Mapping[str, str], *, cut: bool) -> ToolCall:
    name = as_text(block.get("name"))
    if name is None:
        raise DecodeError(f"a tool call came without a name: {excerpt(encode_json(block))}")
    args, raw_arguments = parse_arguments(raw)
    if cut and raw_arguments is None:  # the limit fell into this block: whatever it holds is not the whole
        args, raw_arguments = {}, raw if isinstance(raw, str) else encode_json(args).decode()
    return ToolCall(as_text(block.get("id")) or "", names.get(name, name), args, raw_arguments)


def _replay(blocks: list[dict[str, Any]]) -> dict[str, Any] | None:
    """What has to go back as it came: signed thinking and the provider's own blocks.

    Thinking in front of text and calls is kept by itself. Any other mixture is kept in its order: then text stands in
    it again, and each call as a mark of its place.
    """
    kept = [block for block in blocks if not _is_neutral(block)]
    if not kept:
        return None
    front = len(kept)
    rest = [str(block.get("type")) for block in blocks[front:]]
    if all(_is_neutral(block) for block in blocks[front:]) and rest == sorted(rest):  # "text" sorts before "tool_use"
        return {"format": FORMAT, "blocks": kept}
    ordered: list[dict[str, Any]] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "tool_use":
            ordered.append({"type": "tool_use", "id": block.get("id")})
        elif kind == "text" and not block.get("citations"):
            ordered.append({"type": "text", "text": block.get("text")})
        elif kind != "thinking" or block.get("signature"):
            ordered.append(block)
    return {"format": FORMAT, "blocks": ordered}


def _is_neutral(block: dict[str, Any]) -> bool:
    """Nothing would be lost if only the neutral message were sent back."""
    kind = block.get("type")
    if kind == "thinking":
        return not block.get("signature")  # unsigned thinking is not accepted back
    return kind == "tool_use" or (kind == "text" and not block.get("citations"))


def _usage(usage: dict[str, Any]) -> Usage:
    fresh = as_int(usage.get("input_tokens"))
    read, written = as_int(usage.get("cache_read_input_tokens")), as_int(usage.get("cache_creation_input_tokens"))
    output = as_int(usage.get("output_tokens"))
    if fresh is None and output is None:
        return UNKNOWN_USAGE
    return Usage(
        # This wire counts the cached parts apart; the neutral number is the whole prompt.
        input_tokens=None if fresh is None else fresh + (read or 0) + (written or 0),
        output_tokens=output,
        cached_input_tokens=read,
        cache_write_tokens=written,
    )
