"""The stream of OpenAI Chat Completions: bytes cut anywhere in, events out, the whole reply at the end."""

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from agentcore.chat import ChatResponse, events_of
from agentcore.codecs.base import WireRequest
from agentcore.codecs.failures import failure_error, is_failure, provider_error, read_failure
from agentcore.codecs.openai_chat_reply import Chunk, Reply, chunks
from agentcore.codecs.shared import decode_json
from agentcore.codecs.sse import SSEParser
from agentcore.errors import DecodeError, ProviderError
from agentcore.events import StreamEvent

_HEARTBEATS = frozenset(("ping", "heartbeat", "keepalive", "keep-alive", "keep_alive"))
_BLANK = b"\xef\xbb\xbf \r\n\t"
_CLOSED = "the connection was closed before the end of the stream was announced"


class OpenAIChatStreamDecoder:
    """Decodes one stream; see `StreamDecoder`.

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
        self.error: ProviderError | None = None
        self.done = False
        self._provider = provider
        self._decode_body = decode_body
        self._parser = SSEParser(max_event_bytes)
        self._reply = Reply(provider, wire.tool_names)
        self._head: bytes = b""
        self._started = False
        self._plain: list[bytes] | None = None
        self._whole: ChatResponse | None = None
        self._raw: list[bytes] | None = [] if keep_raw else None

    @property
    def text(self) -> str:
        """The text so far."""
        return str(self._reply.text)

    def feed(self, data: bytes) -> Sequence[StreamEvent]:
        """The events in the next bytes; see `StreamDecoder.feed`."""
        if self.error is not None or self.done:
            return ()
        if not self._started:
            data, self._head = self._head + data, b""
            first = data.lstrip(_BLANK)[:1]
            if not first:
                self._head = data
                return ()
            self._started = True
            if first in (b"{", b"[", b"<"):
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
        except RecursionError as error:
            self._fail(_too_deep(error))
        return events

    def finish(self) -> Sequence[StreamEvent]:
        """The end of the connection; see `StreamDecoder.finish`."""
        if self.error is not None or self._whole is not None:
            return ()
        events: list[StreamEvent] = []
        try:
            if self._plain is not None:
                self._whole = self._decode_body(b"".join(self._plain))
                self.done = True
                return events_of(self._whole.message)
            if not self.done:
                self._take_rest(events)
                self._reply.end(events)
            if not self.done and self._reply.finish is None:
                raise ProviderError(_CLOSED, kind="network", retryable=True)
            self.done = True
        except ProviderError as error:
            self._fail(error)
        except RecursionError as error:
            self._fail(_too_deep(error))
        return events

    def response(self) -> ChatResponse:
        """The whole reply; see `StreamDecoder.response`."""
        if self._whole is not None:
            return self._whole
        if self.error is None:
            try:
                if not self.done:
                    raise ProviderError(_CLOSED, kind="network", retryable=True)
                response = self._reply.response()
                self._whole = response if self._raw is None else replace(response, raw=b"\n".join(self._raw))
                return self._whole
            except ProviderError as error:
                self._fail(error)
            except RecursionError as error:
                self._fail(_too_deep(error))
        assert self.error is not None
        raise self.error

    def _fail(self, error: ProviderError) -> None:
        error.provider = error.provider or self._provider
        error.partial_text = self.text
        self.error = error

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
            payload = payload.strip()
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
            chunk = decode_json(payload, chunks, Chunk)
            self._reply.odd = True
        if self._raw is not None:
            self._raw.append(payload)
        if chunk.error or (not chunk.choices and chunk.id is None and is_failure(_value(payload))):
            raise failure_error(self._provider, read_failure(payload))
        self._reply.take(chunk, events)


_json_value: "msgspec.json.Decoder[object]" = msgspec.json.Decoder(object)


def _value(payload: bytes) -> object:
    return decode_json(payload, _json_value, object)


def _is_json(payload: bytes) -> bool:
    try:
        _value(payload)
    except DecodeError:
        return False
    return True


def _too_deep(cause: RecursionError) -> DecodeError:
    error = DecodeError("the answer is nested too deeply")
    error.__cause__ = cause
    return error
