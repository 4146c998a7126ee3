"""Streams of Anthropic Messages: bytes in, events out, the whole reply at the end."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from agentcore.chat import ChatResponse
from agentcore.codecs.anthropic_reply import blocks_of, response_of
from agentcore.codecs.failures import failure_error, failure_of, is_failure, provider_error
from agentcore.codecs.shared import (
    as_int,
    as_text,
    decode_json,
    encode_json,
    excerpt,
    mend_surrogates,
    parse_arguments,
)
from agentcore.codecs.stream_base import EventStreamDecoder, closed_early
from agentcore.errors import DecodeError
from agentcore.events import ReasoningDelta, StreamEvent, TextDelta, ToolCallDelta

MAX_BLOCKS = 4096


class _Delta(Struct, gc=False):
    type: Any = None
    text: Any = None
    thinking: Any = None
    signature: Any = None
    partial_json: Any = None
    citation: Any = None
    stop_reason: Any = None


class _Event(Struct, gc=False):
    type: Any = None
    index: Any = None
    delta: _Delta | None = None
    content_block: Any = None
    message: Any = None
    usage: Any = None
    error: Any = None


_events = msgspec.json.Decoder(_Event)
_objects: "msgspec.json.Decoder[dict[str, Any]]" = msgspec.json.Decoder(dict[str, Any])
_KNOWN_EVENTS = ("content_block_start", "content_block_delta", "message_start", "message_delta", "error")


def json_object(body: bytes) -> dict[str, Any]:
    """The JSON object that a body or payload is.

    Raises:
        DecodeError: it is not one.
    """
    return decode_json(body, _objects, cast("type[dict[str, Any]]", dict))


class _Block:
    """A content block as it grows."""

    __slots__ = ("call", "citations", "index", "json", "kind", "signature", "start", "text")

    def __init__(self, index: int, start: dict[str, Any], call: int | None = None) -> None:
        self.index = index
        self.start = start
        self.kind: Any = start.get("type")
        self.call = call  # position among the calls of the reply
        self.text: list[str] = []  # of a text or a thought
        self.signature: list[str] = []
        self.json: list[str] = []
        self.citations: list[Any] = []

    def raw_input(self) -> object:
        """The arguments: the JSON text that came in pieces, or the object the block began with."""
        return "".join(self.json) if self.json else self.start.get("input")

    def whole(self) -> dict[str, Any]:
        """The block as it would stand in a body."""
        block = dict(self.start)
        if self.kind == "text":
            block["text"] = mend_surrogates((as_text(block.get("text")) or "") + "".join(self.text))
            if self.citations:
                known = block.get("citations")
                block["citations"] = [*(cast("list[Any]", known) if isinstance(known, list) else []), *self.citations]
        elif self.kind == "thinking":
            block["thinking"] = mend_surrogates((as_text(block.get("thinking")) or "") + "".join(self.text))
            block["signature"] = (as_text(block.get("signature")) or "") + "".join(self.signature)
        elif self.json or "input" in block or self.kind == "tool_use":
            block["input"] = parse_arguments(self.raw_input())[0]
        return block


class AnthropicStreamDecoder(EventStreamDecoder):
    """Decodes one stream; see `EventStreamDecoder`.

    Args:
        provider: name for errors.
        tool_names: wire name → neutral name of tools.
        decode_body: reads a plain body that came in place of a stream.
        max_event_bytes: largest single event.
        keep_raw: keep the event payloads on the response.
    """

    def __init__(
        self,
        provider: str,
        tool_names: Mapping[str, str],
        decode_body: Callable[[bytes], ChatResponse],
        *,
        max_event_bytes: int,
        keep_raw: bool,
    ) -> None:
        super().__init__(provider, decode_body, max_event_bytes=max_event_bytes, keep_raw=keep_raw)
        self._tool_names = tool_names
        self._blocks: list[_Block] = []  # as they were opened
        self._by_index: dict[int, _Block] = {}
        self._calls = 0
        self._text: list[str] = []
        self._id: Any = None
        self._model: Any = None
        self._usage: dict[str, Any] = {}
        self._stop_reason: str | None = None
        self._early: list[dict[str, Any]] = []  # blocks that stood in the first event already
        self._odd_text = False
        self._held = ""
        self._stray: str | None = None  # the first arguments that came for a block which is no call

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    def _take_rest(self, events: list[StreamEvent]) -> None:
        try:
            for name, payload in self._parser.finish():
                self._take(name, payload, events)
        except DecodeError as error:
            # Half an event is a symptom; the broken connection is the cause, and after an announced end not even that.
            if self._stop_reason is None:
                raise closed_early() from error

    def _announced(self) -> bool:
        return self._stop_reason is not None

    def _assemble(self) -> ChatResponse:
        if not self._blocks and self._id is None and self._stop_reason is None:
            raise DecodeError("the stream held no message", retryable=True)
        if self._stray is not None and any(block.call is not None and not block.raw_input() for block in self._blocks):
            raise DecodeError(f"a tool call got no arguments, and arguments came for another place, {self._stray}")
        ordered = self._blocks  # where a server uses an index twice, the order of coming is all there is
        if len(self._by_index) == len(ordered):
            ordered = sorted(ordered, key=lambda block: block.index)
        return response_of(
            [block.whole() for block in ordered],
            raw_inputs={position: "".join(block.json) for position, block in enumerate(ordered) if block.json},
            stop_reason=self._stop_reason,
            usage=self._usage,
            model=self._model,
            response_id=self._id,
            names=self._tool_names,
        )

    def _take(self, name: str, payload: bytes, events: list[StreamEvent]) -> None:
        if self._raw is not None:
            self._raw.append(payload)
        try:
            event = _events.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._take_odd(name, payload, events)
            return
        if event.type == "content_block_delta" and event.delta is not None:  # nearly all there is
            self._take_delta(event.index, event.delta, events)
        else:
            self._apply(event, name, payload, events)

    def _take_odd(self, name: str, payload: bytes, events: list[StreamEvent]) -> None:
        """A payload that is not plainly an event."""
        if name == "ping" or not payload.strip():
            return
        if payload.startswith(b"[DONE]"):  # some gateways add OpenAI's end
            self._end(events)
            return
        if name == "error":
            raise provider_error(self._provider, payload)
        kind = json_object(payload).get("type", name)
        if not isinstance(kind, str) or kind not in _KNOWN_EVENTS:
            return  # an event nobody knows may be of any shape
        self._odd_text = True
        self._apply(decode_json(payload, _events, _Event), name, payload, events)

    def _apply(self, event: _Event, name: str, payload: bytes, events: list[StreamEvent]) -> None:
        kind = event.type or name
        if kind == "content_block_delta":
            if event.delta is not None:
                self._take_delta(event.index, event.delta, events)
        elif kind == "content_block_start":
            self._open(event.index, event.content_block, events)
        elif kind == "content_block_stop":
            self._tell_input(self._by_index.get(as_int(event.index) or 0), events)
        elif kind == "message_start":
            self._take_message(event.message)
        elif kind == "message_delta":
            if event.delta is not None:
                self._stop_reason = as_text(event.delta.stop_reason) or self._stop_reason
            self._take_usage(event.usage)
        elif kind == "message_stop":
            self._end(events)
        elif kind == "error" or name == "error" or event.error or (not kind and is_failure(json_object(payload))):
            raise failure_error(self._provider, failure_of(json_object(payload), payload))

    def _end(self, events: list[StreamEvent]) -> None:
        if not self.done:
            self._close(events)
            self.done = True

    def _close(self, events: list[StreamEvent]) -> None:
        if not self._blocks:
            for index, block in enumerate(self._early):
                self._open(index, block, events)
        for block in self._blocks:
            self._tell_input(block, events)
        if self._held:  # half a character is given up
            self._held = ""
            self._text.append("\ufffd")
            events.append(TextDelta("\ufffd"))

    def _take_message(self, message: object) -> None:
        if not isinstance(message, dict):
            return
        known = cast("dict[str, Any]", message)
        self._id, self._model = known.get("id"), known.get("model")
        self._take_usage(known.get("usage"))
        self._early = blocks_of(known.get("content"))
        if self._early:  # the whole message at once; else a stop reason here announces nothing
            self._stop_reason = as_text(known.get("stop_reason"))

    def _take_usage(self, usage: object) -> None:
        if isinstance(usage, dict):  # later figures win, field by field
            known = cast("dict[str, Any]", usage)
            self._usage.update({key: value for key, value in known.items() if value is not None})

    def _open(self, given_index: object, content_block: object, events: list[StreamEvent]) -> None:
        if not isinstance(content_block, dict):
            return
        start = cast("dict[str, Any]", content_block)
        block = self._add(as_int(given_index), start)
        if block.kind == "text":
            text = as_text(start.get("text"))
            if text:
                self._put_text(text, events)
        elif block.kind == "thinking":
            thought = as_text(start.get("thinking"))
            if thought:
                events.append(ReasoningDelta(mend_surrogates(thought)))
        elif block.kind == "tool_use":
            block.call = self._calls
            self._calls += 1
            events.append(self._call_event(block, block.call, ""))

    def _add(self, index: int | None, start: dict[str, Any]) -> _Block:
        if len(self._blocks) >= MAX_BLOCKS:
            raise DecodeError(f"one reply with more than {MAX_BLOCKS} content blocks")
        block = _Block(len(self._blocks) if index is None else index, start)
        self._blocks.append(block)
        self._by_index[block.index] = block
        return block

    def _take_delta(self, given_index: Any, delta: _Delta, events: list[StreamEvent]) -> None:
        index = given_index if type(given_index) is int else as_int(given_index)
        if index is None:
            index = self._blocks[-1].index if self._blocks else 0
        block = self._by_index.get(index)
        kind = delta.type
        if kind == "text_delta":
            text = delta.text
            if type(text) is str and text:
                if block is None or block.kind != "text":  # a server that leaves the start of a block out
                    block = self._add(index, {"type": "text", "text": ""})
                block.text.append(text)
                if self._odd_text:
                    self._put_text(text, events)
                else:
                    self._text.append(text)
                    events.append(TextDelta(text))
        elif kind == "thinking_delta":
            thought = delta.thinking
            if type(thought) is str and thought:
                if block is None or block.kind != "thinking":
                    block = self._add(index, {"type": "thinking", "thinking": ""})
                block.text.append(thought)
                events.append(ReasoningDelta(mend_surrogates(thought) if self._odd_text else thought))
        elif kind == "input_json_delta":
            piece = delta.partial_json
            if piece is not None and type(piece) is not str:  # the arguments as a value
                piece = encode_json(piece).decode()
            if piece:
                self._put_input(block, index, piece, events)
        elif block is None:
            return
        elif kind == "signature_delta":
            if isinstance(delta.signature, str):
                block.signature.append(delta.signature)
        elif kind == "citations_delta" and delta.citation is not None:
            block.citations.append(delta.citation)

    def _put_input(self, block: _Block | None, index: int, piece: str, events: list[StreamEvent]) -> None:
        """A piece of a call's arguments."""
        if block is None or block.kind in ("text", "thinking"):
            if piece.strip() and self._stray is None:
                self._stray = f"content block {index}: {excerpt(piece)}"
            return
        block.json.append(piece)
        if block.call is not None:
            events.append(self._call_event(block, block.call, piece))

    def _tell_input(self, block: _Block | None, events: list[StreamEvent]) -> None:
        """The input of a call that came whole, at its start."""
        if block is None or block.call is None or block.json:
            return
        whole = block.start.get("input")
        if whole:
            piece = whole if isinstance(whole, str) else encode_json(whole).decode()
            block.json.append(piece)
            events.append(self._call_event(block, block.call, piece))

    def _put_text(self, text: str, events: list[StreamEvent]) -> None:
        """Deliver text that may hold halves of characters: a half waits for the other."""
        text, self._held = self._held + text, ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        text = mend_surrogates(text)
        if text:
            self._text.append(text)
            events.append(TextDelta(text))

    def _call_event(self, block: _Block, position: int, fragment: str) -> ToolCallDelta:
        name = as_text(block.start.get("name")) or ""
        call_id = as_text(block.start.get("id")) or ""
        return ToolCallDelta(position, call_id, self._tool_names.get(name, name), fragment)
