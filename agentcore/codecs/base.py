"""What every codec offers: a request as bytes, a body or a stream as values, an error body as an error."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.errors import ProviderError
from agentcore.events import StreamEvent
from agentcore.messages import Message

NO_NAMES: Mapping[str, str] = {}


class WireRequest(Struct, frozen=True):
    """A request ready to be sent.

    Attributes:
        path: appended to the base URL.
        body: JSON.
        tool_names: wire name → neutral name, for tools whose own name the service refuses; replies are mapped back.
        headers: what this request needs beyond the provider's own headers.
    """

    path: str
    body: bytes
    tool_names: Mapping[str, str] = NO_NAMES
    headers: Mapping[str, str] = NO_NAMES


class StreamDecoder(Protocol):
    """Bytes of one stream in, events out, the whole response at the end.

    An error that follows good events in the same bytes must not cost those events: `feed` returns them and keeps the
    error in `error`; the caller delivers the events, then raises it.
    """

    @property
    def error(self) -> ProviderError | None: ...

    @property
    def done(self) -> bool:
        """The stream announced its end; nothing more needs to be read."""
        ...

    @property
    def text(self) -> str:
        """The text decoded so far."""
        ...

    def feed(self, data: bytes) -> Sequence[StreamEvent]:
        """Decode the next bytes, cut anywhere. Never raises for what the bytes hold: see `error`."""
        ...

    def finish(self) -> Sequence[StreamEvent]:
        """The connection was closed: decode what is left. Sets `error` if the end was never announced."""
        ...

    def response(self) -> ChatResponse:
        """The whole reply, equal to what `Codec.decode` gives for the same reply.

        Raises:
            ProviderError: the stream did not end well.
        """
        ...


class Codec(Protocol):
    """One wire format."""

    @property
    def provider(self) -> str:
        """Name of the provider, for errors."""
        ...

    async def encode(self, request: ChatRequest, *, stream: bool) -> WireRequest:
        """Neutral to wire. Deterministic: the same history gives the same bytes, and appending keeps the prefix.

        Raises:
            UnsupportedContentError: a part this format cannot carry.
            InvalidInputError: there is nothing to send.
        """
        ...

    def decode(self, body: bytes, wire: WireRequest) -> ChatResponse:
        """A whole body to a response.

        Raises:
            ProviderError: an error inside a good status, or a body that cannot be read (`DecodeError`).
        """
        ...

    def stream_decoder(self, wire: WireRequest) -> StreamDecoder:
        """A fresh decoder for one stream."""
        ...

    def decode_error(self, status: int, body: bytes) -> ProviderError:
        """An error status and its body to an error; the HTTP layer adds request id and waiting time."""
        ...

    def check(self, messages: Sequence[Message]) -> list[str]:
        """What this format could not carry of a history: one line each, naming message and part; empty if nothing."""
        ...
