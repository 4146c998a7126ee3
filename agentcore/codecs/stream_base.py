"""EventStreamDecoder: what every decoder of server-sent events does around the events themselves."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from agentcore.chat import ChatResponse, events_of
from agentcore.codecs.sse import SSEParser
from agentcore.errors import DecodeError, ProviderError
from agentcore.events import StreamEvent

BLANK = b"\xef\xbb\xbf \r\n\t"
"""What may stand before the first byte that counts: white space, and a byte order mark."""

_LEAST_LINE = 8


def holds_events(body: bytes) -> bool:
    """Whether a whole body is a stream of events, though none was asked for."""
    return body[:64].lstrip(BLANK).startswith((b"data:", b"event:", b"id:", b"retry:", b":"))


class EventStreamDecoder(ABC):
    """A `StreamDecoder` over server-sent events; a format says what one event means and when the end was announced.

    It keeps a decoder at its first error, reads a plain body that came in place of a stream, and calls a connection
    broken that was closed before the end was announced.

    Args:
        provider: name for errors.
        decode_body: reads a whole body, where a server answers with one though a stream was asked for.
        max_event_bytes: largest single event.
        keep_raw: keep the event payloads on the response.
    """

    def __init__(
        self, provider: str, decode_body: Callable[[bytes], ChatResponse], *, max_event_bytes: int, keep_raw: bool
    ) -> None:
        self.error: ProviderError | None = None
        self.done = False
        self._provider = provider
        self._decode_body = decode_body
        self._parser = SSEParser(max_event_bytes)
        self._head: bytes = b""
        self._started = False
        self._plain: list[bytes] | None = None
        self._whole: ChatResponse | None = None
        self._raw: list[bytes] | None = [] if keep_raw else None

    @property
    @abstractmethod
    def text(self) -> str:
        """The text so far."""

    @abstractmethod
    def _take(self, name: str, payload: bytes, events: list[StreamEvent]) -> None:
        """One event of the stream; sets `done` when it announces the end."""

    @abstractmethod
    def _take_rest(self, events: list[StreamEvent]) -> None:
        """The connection is closed: a last event without its blank line, or half an event."""

    @abstractmethod
    def _close(self, events: list[StreamEvent]) -> None:
        """Nothing more comes: what was held back is delivered or given up."""

    @abstractmethod
    def _announced(self) -> bool:
        """The end was announced, if not by the event made for it, then by a reason to stop."""

    @abstractmethod
    def _assemble(self) -> ChatResponse:
        """The whole reply of a stream that ended well."""

    def feed(self, data: bytes) -> Sequence[StreamEvent]:
        """The events in the next bytes; see `StreamDecoder.feed`."""
        if self.error is not None or self.done:
            return ()
        if not self._started:
            data = self._head + data
            told = data.lstrip(BLANK)
            self._head = _open_line(data[: len(data) - len(told)])
            if not told:
                return ()
            self._started = True
            data, self._head = self._head + told, b""
            if told[:1] in (b"{", b"[", b"<"):
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
        except (ProviderError, RecursionError) as error:
            self._fail(error)
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
                self._close(events)
            if not self.done and not self._announced():
                raise closed_early()
            self.done = True
        except (ProviderError, RecursionError) as error:
            self._fail(error)
        return events

    def response(self) -> ChatResponse:
        """The whole reply; see `StreamDecoder.response`."""
        if self._whole is None and self.error is None:
            try:
                if not self.done:
                    raise closed_early()
                response = self._assemble()
                self._whole = response if self._raw is None else replace(response, raw=b"\n".join(self._raw))
            except (ProviderError, RecursionError) as error:
                self._fail(error)
        if self._whole is not None:
            return self._whole
        assert self.error is not None
        raise self.error

    def _fail(self, error: ProviderError | RecursionError) -> None:
        if isinstance(error, RecursionError):
            deep = DecodeError("the answer is nested too deeply")
            deep.__cause__ = error
            error = deep
        error.provider = error.provider or self._provider
        error.partial_text = self.text
        self.error = error


def _open_line(blank: bytes) -> bytes:
    """Of what is blank, the line that is not over yet, and of that no more than tells it from an empty one.

    Servers keep a connection alive with empty lines, for as long as they like: none of them may be kept.
    """
    return blank[max(blank.rfind(b"\n"), blank.rfind(b"\r")) + 1 :][:_LEAST_LINE]


def closed_early() -> ProviderError:
    """The error of a connection that was closed before the end of the stream was announced."""
    return ProviderError(
        "the connection was closed before the end of the stream was announced", kind="network", retryable=True
    )
