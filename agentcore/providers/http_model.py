"""HTTPChatModel: a codec at the end of an endpoint. Every provider is one of these with other data."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Self

import anyio
from msgspec.structs import replace

from agentcore.chat import ChatOptions, ChatRequest, ChatResponse, ChatStream, events_of
from agentcore.codecs.base import Codec, StreamDecoder, WireRequest
from agentcore.errors import ProviderError
from agentcore.events import StreamEvent
from agentcore.messages import Message
from agentcore.providers.http import MAX_ERROR_BYTES, Endpoint, HTTPResponse, request_url
from agentcore.providers.retries import RetryPolicy, retry_after, with_retries

SILENCE_SECONDS = 600.0
"""How long a service may say nothing. Reasoning models think for minutes before the first byte."""

DRAIN_SECONDS = 0.1
_REQUEST_ID_HEADERS = ("x-request-id", "request-id", "x-amzn-requestid", "apim-request-id", "x-goog-request-id", "cf-ray")


class HTTPChatModel:
    """A chat model behind HTTP. Share one between all conversations; close it with `aclose` or `async with`.

    Args:
        codec: the wire format.
        endpoint: where requests go.
        options: settings of every call, unless the request says otherwise; `model` must be among them.
        retries: when a failed request is sent again.
    """

    def __init__(self, codec: Codec, endpoint: Endpoint, *, options: ChatOptions, retries: RetryPolicy) -> None:
        self.codec = codec
        self.endpoint = endpoint
        self.options = options
        self.retries = retries
        request_url(endpoint.base_url, "/")  # a URL that cannot work is reported where the model is made

    @property
    def provider(self) -> str:
        """Name of the provider."""
        return self.codec.provider

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.options.model or ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, base_url={self.endpoint.base_url!r})"

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """The reply at once.

        Raises:
            ProviderError: after the retries.
            UnsupportedContentError: a part the provider cannot carry; nothing was sent.
        """
        request = self._complete(request)
        wire = await self.codec.encode(request, stream=False)
        return await with_retries(partial(self._chat_once, wire, self._silence(request)), self.retries)

    @asynccontextmanager
    async def stream(self, request: ChatRequest) -> AsyncIterator[ChatStream]:
        """The reply as it comes. Leaving the block early closes the connection.

        Raises:
            ProviderError: before the first event, after the retries; later, from the iteration, with `partial_text`.
        """
        request = self._complete(request)
        wire = await self.codec.encode(request, stream=True)
        stream = await with_retries(partial(self._open_stream, wire, self._silence(request)), self.retries)
        try:
            yield stream
        finally:
            await stream.aclose()

    def check(self, history: Sequence[Message]) -> list[str]:
        """What this model could not carry of a history, one line each; empty if nothing. Makes no request."""
        return self.codec.check(history)

    async def aclose(self) -> None:
        """Close the connections; twice is harmless."""
        await self.endpoint.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def _complete(self, request: ChatRequest) -> ChatRequest:
        return replace(request, options=request.options.over(self.options))

    def _silence(self, request: ChatRequest) -> float:
        return request.options.timeout if request.options.timeout is not None else SILENCE_SECONDS

    async def _chat_once(self, wire: WireRequest, silence: float) -> ChatResponse:
        response = await self._post(wire, silence)
        request_id = _request_id(response)
        body = await self.endpoint.read(response)
        try:
            decoded = self.codec.decode(body, wire)
        except ProviderError as error:
            raise self._complete_error(error, response) from error.__cause__
        return decoded if request_id is None else replace(decoded, request_id=request_id)

    async def _open_stream(self, wire: WireRequest, silence: float) -> "_HTTPStream":
        """A stream of which the first events are there: until then a failure may be retried."""
        response = await self._post(wire, silence)
        try:
            if "json" in response.headers.get("content-type", "") or "html" in response.headers.get("content-type", ""):
                body = await self.endpoint.read(response)  # a server that does not stream
                decoded = replace(self.codec.decode(body, wire), request_id=_request_id(response))
                return _HTTPStream(self, response, None, silence, decoded)
            stream = _HTTPStream(self, response, self.codec.stream_decoder(wire), silence, None)
            await stream.read_first()
        except ProviderError as error:
            await response.aclose()
            raise self._complete_error(error, response) from error.__cause__
        except BaseException:
            with anyio.move_on_after(1, shield=True):
                await response.aclose()
            raise
        return stream

    async def _post(self, wire: WireRequest, silence: float) -> HTTPResponse:
        response = await self.endpoint.post(wire.path, wire.body, wire.headers, silence)
        if response.status_code < 300:  # noqa: PLR2004
            return response
        body = await self.endpoint.read(response, MAX_ERROR_BYTES)
        if response.status_code < 400:  # noqa: PLR2004
            target = response.headers.get("location", "nowhere")
            raise ProviderError(
                f"redirected to {self.endpoint.redacted(target)}; redirects are not followed, set base_url to the target",
                kind="invalid_request",
                provider=self.provider,
                status=response.status_code,
                request_id=_request_id(response),
            )
        raise self._complete_error(self.codec.decode_error(response.status_code, body), response)

    def _complete_error(self, error: ProviderError, response: HTTPResponse) -> ProviderError:
        """Add what only the HTTP reply knows, and take the key out of what the provider says."""
        error.message = self.endpoint.redacted(error.message)
        error.args = (error.message,)
        error.provider = error.provider or self.provider
        error.request_id = error.request_id or _request_id(response)
        if error.retry_after is None:
            error.retry_after = retry_after(response.headers)
        if response.headers.get("x-should-retry") == "false":  # OpenAI's and Anthropic's services say it so
            error.retryable = False
        return error


class _HTTPStream:
    """One streamed reply; satisfies `ChatStream` and `BatchedChatStream`."""

    def __init__(
        self,
        model: HTTPChatModel,
        response: HTTPResponse,
        decoder: StreamDecoder | None,
        silence: float,
        whole: ChatResponse | None,
    ) -> None:
        self._model = model
        self._response = response
        self._decoder = decoder
        self._silence = silence
        self._whole = whole
        self._chunks = model.endpoint.chunks(response, silence)
        self._first: Sequence[StreamEvent] = events_of(whole.message) if whole is not None else ()
        self._last_event = time.monotonic()
        self._ended = False

    @property
    def response(self) -> ChatResponse:
        if self._whole is None:
            raise RuntimeError("the stream has not been read to its end; iterate it first")
        return self._whole

    async def __aiter__(self) -> AsyncIterator[StreamEvent]:
        async for batch in self.batches():
            for event in batch:
                yield event

    async def batches(self) -> AsyncIterator[Sequence[StreamEvent]]:
        """All events of one network read at a time."""
        if self._first:
            first, self._first = self._first, ()
            yield first
        decoder = self._decoder
        if decoder is None:
            return
        try:
            self._raise_error(decoder)
            if not decoder.done:
                async for data in self._chunks:
                    events = self._decode(decoder, data)
                    if events:
                        yield events
                    if decoder.error is not None or decoder.done:
                        break
            self._raise_error(decoder)
            events = decoder.finish()
            if events:
                yield events
            self._raise_error(decoder)
            response = decoder.response()
        except ProviderError as error:
            error.partial_text = error.partial_text or decoder.text
            raise self._model._complete_error(error, self._response) from error.__cause__  # noqa: SLF001
        await self._drain()
        self._whole = replace(response, request_id=_request_id(self._response))

    async def read_first(self) -> None:
        """Read until there are events, or the end."""
        decoder = self._decoder
        assert decoder is not None
        async for data in self._chunks:
            self._first = self._decode(decoder, data)
            if self._first or decoder.error is not None or decoder.done:
                break
        else:
            self._first = decoder.finish()
            self._ended = True
        if not self._first:
            self._raise_error(decoder)

    async def aclose(self) -> None:
        """Close the connection, or give it back if the reply was read whole."""
        with anyio.move_on_after(2, shield=True):
            if isinstance(self._chunks, AsyncGenerator):
                await self._chunks.aclose()
            await self._response.aclose()

    def _decode(self, decoder: StreamDecoder, data: bytes) -> Sequence[StreamEvent]:
        events = decoder.feed(data)
        if events:
            self._last_event = time.monotonic()
        elif time.monotonic() - self._last_event > self._silence and not decoder.done and decoder.error is None:
            # Comments and pings keep the connection alive, not the generation.
            raise ProviderError(
                f"the stream brought no event for {self._silence:g} s",
                kind="timeout",
                provider=self._model.provider,
                retryable=True,
            )
        return events

    def _raise_error(self, decoder: StreamDecoder) -> None:
        if decoder.error is not None:
            raise decoder.error

    async def _drain(self) -> None:
        """Read what stands behind the end, so that the connection can be used again; do not wait for it."""
        if self._ended:
            return
        with anyio.move_on_after(DRAIN_SECONDS):
            async for _ in self._chunks:
                pass


def _request_id(response: HTTPResponse) -> str | None:
    headers = response.headers
    for name in _REQUEST_ID_HEADERS:
        value = headers.get(name)
        if value:
            return value
    return None
