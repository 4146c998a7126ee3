"""The stream of OpenAI Chat Completions: bytes cut anywhere in, events out, the whole reply at the end."""

from collections.abc import Callable

import msgspec

from agentcore.chat import ChatResponse
from agentcore.codecs.base import WireRequest
from agentcore.codecs.failures import (
    failure_error,
    is_failure,
    is_plain_failure,
    provider_error,
    read_failure,
)
from agentcore.codecs.openai_chat_reply import Chunk, Reply, chunks
from agentcore.codecs.shared import decode_json, json_or_none
from agentcore.codecs.stream_base import EventStreamDecoder
from agentcore.errors import DecodeError
from agentcore.events import StreamEvent

_HEARTBEATS = frozenset(("ping", "heartbeat", "keepalive", "keep-alive", "keep_alive"))


class OpenAIChatStreamDecoder(EventStreamDecoder):
    """Decodes one stream; see `EventStreamDecoder`.

    Args:
        provider: name for errors.
        wire: the request that is answered.
        decode_body: reads a whole body, where a server answers with one though a stream was asked for.
        max_event_bytes: largest single event.
        keep_raw: keep the event payloads on the response.
    """

    def __init__(
        self,
        provider: str,
        wire: WireRequest,
        decode_body: Callable[[bytes], ChatResponse],
        *,
        max_event_bytes: int,
        keep_raw: bool = False,
    ) -> None:
        super().__init__(provider, decode_body, max_event_bytes=max_event_bytes, keep_raw=keep_raw)
        self._reply = Reply(provider, wire.tool_names)

    @property
    def text(self) -> str:
        """The text so far."""
        return str(self._reply.text)

    def _close(self, events: list[StreamEvent]) -> None:
        self._reply.end(events)

    def _announced(self) -> bool:
        return self._reply.finish is not None

    def _assemble(self) -> ChatResponse:
        return self._reply.response()

    def _take_rest(self, events: list[StreamEvent]) -> None:
        """A last event without its blank line, or half an event."""
        for name, payload in self._parser.finish():
            for line in [payload] if name == "error" or _is_json(payload) else payload.split(b"\n"):
                # Half an event is a symptom. The broken connection is the cause, and after an announced end not even
                # that.
                if name == "error" or line.strip()[:6] == b"[DONE]" or _is_json(line):
                    self._take(name, line, events)
                if self.done:
                    return

    def _take(self, name: str, payload: bytes, events: list[StreamEvent]) -> None:
        if payload[:1] != b"{":
            payload = payload.strip().removeprefix(b"data:").lstrip()  # some gateways wrap each line once more
            if payload[:6] == b"[DONE]":
                self._reply.end(events)
                self.done = True
                if not self._reply.seen_choice:
                    raise DecodeError("the stream ended without any choices", retryable=True)
                return
            if not payload:
                return
        if name:
            if name in _HEARTBEATS:
                return
            if name == "error":
                raise provider_error(self._provider, payload)
        try:
            chunk = chunks.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError):
            if b"\n" in payload:  # several values in one event: a server that leaves the blank lines out
                for line in payload.split(b"\n"):
                    self._take("", line, events)
                    if self.done:
                        break
                return
            if payload[:1] == b"[" and is_failure(json_or_none(payload)):  # Gemini
                raise failure_error(self._provider, read_failure(payload)) from None
            chunk = decode_json(payload, chunks, Chunk)
            self._reply.odd = True
        if self._raw is not None:
            self._raw.append(payload)
        if chunk.error or (not chunk.choices and _is_failure(chunk, payload)):
            raise failure_error(self._provider, read_failure(payload))
        self._reply.take(chunk, events)


def _is_failure(chunk: Chunk, payload: bytes) -> bool:
    """Whether a chunk without answers says why; one with an id is part of a reply, unless it plainly says otherwise."""
    value = _value(payload)
    return is_failure(value) if chunk.id is None else is_plain_failure(value)


_json_value: "msgspec.json.Decoder[object]" = msgspec.json.Decoder(object)


def _value(payload: bytes) -> object:
    return decode_json(payload, _json_value, object)


def _is_json(payload: bytes) -> bool:
    try:
        _value(payload)
    except DecodeError:
        return False
    return True
