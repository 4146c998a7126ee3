"""BodyCodec: how every codec takes a body that came whole, be it what was asked for, a stream or an error."""

from abc import ABC, abstractmethod

from msgspec.structs import replace

from agentcore.chat import ChatResponse
from agentcore.codecs.base import StreamDecoder, WireRequest
from agentcore.codecs.failures import provider_error
from agentcore.codecs.stream_base import holds_events
from agentcore.errors import DecodeError, ProviderError


class BodyCodec(ABC):
    """The base of a codec; a format says what one body means, and how its streams are decoded.

    Attributes:
        provider: name for errors.
        max_event_bytes: largest single event of a stream.
        keep_raw: keep the body (of a stream: its event payloads) on the response.
    """

    def __init__(self, provider: str, *, max_event_bytes: int, keep_raw: bool) -> None:
        self.provider = provider
        self.max_event_bytes = max_event_bytes
        self.keep_raw = keep_raw

    def decode(self, body: bytes, wire: WireRequest) -> ChatResponse:
        """A whole body as a response; see `Codec.decode`."""
        if holds_events(body):  # a stream, though none was asked for
            decoder = self.stream_decoder(wire)
            decoder.feed(body)
            decoder.finish()
            return decoder.response()
        try:
            response = self._decode_body(body, wire)
        except ProviderError as error:
            error.provider = error.provider or self.provider
            raise
        except RecursionError as error:
            raise DecodeError("the answer is nested too deeply", provider=self.provider) from error
        return replace(response, raw=body) if self.keep_raw else response

    def decode_error(self, status: int, body: bytes) -> ProviderError:
        """An error status and its body as an error."""
        return provider_error(self.provider, body, status=status)

    @abstractmethod
    def stream_decoder(self, wire: WireRequest) -> StreamDecoder:
        """A fresh decoder for one stream."""

    @abstractmethod
    def _decode_body(self, body: bytes, wire: WireRequest) -> ChatResponse:
        """What the body of one reply means.

        Raises:
            ProviderError: it is an error, or cannot be read (`DecodeError`).
        """
