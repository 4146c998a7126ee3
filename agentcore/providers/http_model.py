"""HTTPChatModel: a codec at the end of an endpoint. Every provider is one of these with other data."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio
from msgspec.structs import replace

from agentcore.chat import ChatOptions, ChatRequest, ChatResponse, ChatStream, events_of
from agentcore.codecs.base import Codec, StreamDecoder, WireRequest
from agentcore.errors import ProviderError
from agentcore.events import StreamEvent
from agentcore.messages import Message
from agentcore.providers.http_service import MAX_RESPONSE_BYTES, SILENCE_SECONDS, HTTPService, request_id
from agentcore.providers.retries import RetryPolicy, with_retries

if TYPE_CHECKING:  # httpx takes half of the time of `import agentcore`; whoever makes a model brings it
    from agentcore.providers.http import Endpoint, HTTPResponse

__all__ = ["MAX_RESPONSE_BYTES", "SILENCE_SECONDS", "HTTPChatModel", "HTTPChatStream", "silence_of"]

DRAIN_SECONDS = 0.1


class HTTPChatModel(HTTPService):
    """A chat model behind HTTP. Share one between all conversations; close it with `aclose` or `async with`.

    Args:
        codec: the wire format.
        endpoint: where requests go.
        options: settings of every call, unless the request says otherwise; `model` must be among them.
        retries: when a failed request is sent again.
    """

    def __init__(self, codec: Codec, endpoint: "Endpoint", *, options: ChatOptions, retries: RetryPolicy) -> None:
        super().__init__(endpoint, retries)
        self.codec = codec
        self.options = options

    @property
    def provider(self) -> str:
        """Name of the provider."""
        return self.codec.provider

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.options.model or ""

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """The reply at once.

        Raises:
            ProviderError: after the retries.
            UnsupportedContentError: a part the provider cannot carry; nothing was sent.
        """
        request = self._complete(request)
        wire = await self.codec.encode(request, stream=False)
        return await with_retries(partial(self._chat_once, wire, silence_of(request)), self.retries)

    @asynccontextmanager
    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatStream, None]:
        """The reply as it comes. Leaving the block early closes the connection.

        Raises:
            ProviderError: before the first event, after the retries; later, from the iteration, with `partial_text`.
            UnsupportedContentError: a part the provider cannot carry; nothing was sent.
        """
        request = self._complete(request)
        wire = await self.codec.encode(request, stream=True)
        stream = await with_retries(partial(self._open_stream, wire, silence_of(request)), self.retries)
        try:
            yield stream
        finally:
            await stream.aclose()

    def check(self, history: Sequence[Message]) -> list[str]:
        """What this model could not carry of a history, one line each; empty if nothing. Makes no request."""
        return self.codec.check(history)

    def decode_error(self, status: int, body: bytes) -> ProviderError:
        """An error status and its body as an error."""
        return self.codec.decode_error(status, body)

    def _complete(self, request: ChatRequest) -> ChatRequest:
        return replace(request, options=request.options.over(self.options))

    async def _chat_once(self, wire: WireRequest, silence: float) -> ChatResponse:
        response = await self.post(wire, silence)
        try:
            if "event-stream" in response.headers.get("content-type", ""):  # though none was asked for
                return await self._collect(response, wire, silence)
            return await self._decode(response, wire, silence)
        except ProviderError as error:
            error.partial_text = ""  # nobody was given anything, so another attempt does no harm
            raise self.complete_error(error, response) from error.__cause__

    async def _decode(self, response: "HTTPResponse", wire: WireRequest, silence: float) -> ChatResponse:
        decoded = self.codec.decode(await self.endpoint.read(response, silence), wire)
        id_ = request_id(response.headers)
        return decoded if id_ is None else replace(decoded, request_id=id_)

    async def _collect(self, response: "HTTPResponse", wire: WireRequest, silence: float) -> ChatResponse:
        stream = HTTPChatStream(self, response, self.codec.stream_decoder(wire), silence)
        try:
            async for _ in stream.batches():
                pass
        finally:
            await stream.aclose()
        return stream.response

    async def _open_stream(self, wire: WireRequest, silence: float) -> "HTTPChatStream":
        """A stream of which the first events are there: until then a failure may be retried."""
        response = await self.post(wire, silence)
        try:
            kind = response.headers.get("content-type", "")
            if "json" in kind or "html" in kind:  # a server that does not stream
                return HTTPChatStream(self, response, None, silence, await self._decode(response, wire, silence))
            stream = HTTPChatStream(self, response, self.codec.stream_decoder(wire), silence)
            await stream.read_first()
        except ProviderError as error:
            await self.endpoint.close(response)
            raise self.complete_error(error, response) from error.__cause__
        except BaseException:
            await self.endpoint.close(response)
            raise
        return stream


class HTTPChatStream:
    """One streamed reply; satisfies `ChatStream` and `BatchedChatStream`."""

    def __init__(
        self,
        model: HTTPChatModel,
        response: "HTTPResponse",
        decoder: StreamDecoder | None,
        silence: float,
        whole: ChatResponse | None = None,
    ) -> None:
        self._model = model
        self._http_response = response
        self._decoder = decoder
        self._silence = silence
        self._whole = whole
        self._chunks = model.endpoint.chunks(response, silence)
        self._first: Sequence[StreamEvent] = () if whole is None else events_of(whole.message)
        self._at_end = False
        self._broken: ProviderError | None = None

    @property
    def response(self) -> ChatResponse:
        """The response that `chat` would have given; there when the iteration is over."""
        if self._whole is None:
            raise RuntimeError("the stream has not been read to its end; iterate it first")
        return self._whole

    async def __aiter__(self) -> AsyncIterator[StreamEvent]:
        while batch := await self._next():
            for event in batch:
                yield event

    async def batches(self) -> AsyncIterator[Sequence[StreamEvent]]:
        """All events of one network read at a time."""
        while batch := await self._next():
            yield batch

    async def read_first(self) -> None:
        """Read until there are events, or the reply has ended without any."""
        decoder = self._decoder
        assert decoder is not None
        self._first = await self._read(decoder)
        if not self._first:
            self._whole_reply(decoder)  # an empty stream that is an error is one now, while it can be retried

    async def aclose(self) -> None:
        """Close the connection, or give it back if the reply was read whole."""
        await self._chunks.aclose()
        await self._model.endpoint.close(self._http_response)

    async def _next(self) -> Sequence[StreamEvent]:
        """The next events; none at the end."""
        if self._first:
            first, self._first = self._first, ()
            return first
        decoder = self._decoder
        if decoder is None or self._whole is not None:
            return ()
        try:
            events = await self._read(decoder)
            if events:
                return events
            whole = self._whole_reply(decoder)
        except ProviderError as error:
            error.partial_text = error.partial_text or decoder.text
            raise self._model.complete_error(error, self._http_response) from error.__cause__
        self._whole = replace(whole, request_id=request_id(self._http_response.headers))
        await self._drain()
        return ()

    async def _read(self, decoder: StreamDecoder) -> Sequence[StreamEvent]:
        """The events of the next network read that has any; none at the end, and after an error of the decoder's."""
        asked = time.monotonic()  # by the reader: the time it takes between two reads is not the service's silence
        try:
            while not self._at_end and decoder.error is None:
                events = self._finish(decoder) if decoder.done else await self._feed(decoder)
                if events:
                    return events
                waiting = not self._at_end and not decoder.done and decoder.error is None
                if waiting and time.monotonic() - asked > self._silence:
                    raise self._silent()
        except ProviderError as error:
            events = self._finish(decoder)
            if decoder.error is not None:  # else the end had been announced: the reply is whole, whatever came then
                self._broken = error
            return events
        return ()

    async def _feed(self, decoder: StreamDecoder) -> Sequence[StreamEvent]:
        data = await anext(self._chunks, None)
        return self._finish(decoder) if data is None else decoder.feed(data)

    def _finish(self, decoder: StreamDecoder) -> Sequence[StreamEvent]:
        self._at_end = True
        return decoder.finish()

    def _whole_reply(self, decoder: StreamDecoder) -> ChatResponse:
        if self._broken is not None:
            raise self._broken
        return decoder.response()

    def _silent(self) -> ProviderError:
        # Comments and pings keep the connection alive, not the generation.
        return ProviderError(
            f"the stream brought no event for {self._silence:g} s",
            kind="timeout",
            provider=self._model.provider,
            retryable=True,
        )

    async def _drain(self) -> None:
        """Read what stands behind the end, so that the connection can be used again; do not wait for it."""
        try:
            with anyio.move_on_after(DRAIN_SECONDS):
                async for _ in self._chunks:
                    pass
        except ProviderError:
            pass  # the reply is whole; a connection that breaks behind it is closed, not complained about


def silence_of(request: ChatRequest) -> float:
    """Seconds that the service may say nothing to this request."""
    return request.options.timeout if request.options.timeout is not None else SILENCE_SECONDS
