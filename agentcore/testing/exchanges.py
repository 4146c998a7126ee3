"""Exchanges with a provider as they went over the network: taken down without keys, and played again."""

import re
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

import httpx
from msgspec import Struct

_KEPT_HEADERS = frozenset(
    ("content-type", "retry-after", "retry-after-ms", "x-request-id", "request-id", "location", "x-should-retry")
)
_SECRET_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
_SECRET_QUERY = re.compile(r"([?&](?:key|api[-_]?key|token)=)[^&#]*", re.IGNORECASE)
_HIDDEN = "[secret]"
_SHORTEST_SECRET = 8


class Exchange(Struct, frozen=True, omit_defaults=True):
    """One request and its reply: bodies as text where they are UTF-8, reply chunks as the network cut them.

    Attributes:
        status: 0 if there was no reply.
        base64: the chunks are no text, so they are kept in this form.
        error: name of httpx's error, if the connection failed, before the reply or in it.
        cut: the reply was not read to its end.
    """

    method: str
    url: str
    request: str
    status: int
    headers: dict[str, str]
    chunks: list[str]
    base64: bool = False
    error: str | None = None
    cut: bool = False

    @property
    def asked(self) -> tuple[str, str, str]:
        """Method, path and body: what makes a request the same one, wherever it is sent."""
        return self.method, httpx.URL(self.url).path, self.request

    @property
    def refused(self) -> bool:
        """Whether nothing good came at all, so that a client may have sent the request again."""
        return not 200 <= self.status < 300

    def body(self) -> list[bytes]:
        """The reply's chunks."""
        return [b64decode(chunk) if self.base64 else chunk.encode() for chunk in self.chunks]


Keep: TypeAlias = Callable[[Exchange], None]
"""Takes an exchange down when it is over."""


class RecordingTransport(httpx.AsyncBaseTransport):
    """Sends requests on, and hands each exchange to whoever wants to keep it.

    Args:
        begin: asked at each request; what it returns gets the exchange, None leaves it alone.
        inner: sends the requests.
    """

    def __init__(self, begin: Callable[[], Keep | None], inner: httpx.AsyncBaseTransport) -> None:
        self._begin = begin
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request on."""
        keep = self._begin()
        if keep is None:
            return await self._inner.handle_async_request(request)
        request.headers["accept-encoding"] = "identity"  # a recording is there to be read
        body = await request.aread()
        try:
            response = await self._inner.handle_async_request(request)
        except httpx.TransportError as error:
            keep(_exchange(request, body, None, [], error, ended=False))
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        stream = _Tee(
            response.stream,
            lambda chunks, error, ended: keep(_exchange(request, body, response, chunks, error, ended=ended)),
        )
        return httpx.Response(response.status_code, headers=response.headers, stream=stream, request=request)

    async def aclose(self) -> None:
        """Close the transport that sends the requests."""
        await self._inner.aclose()


async def asked_by(request: httpx.Request) -> tuple[str, str, str]:
    """What a request asks, in the words of `Exchange.asked`."""
    body = (await request.aread()).decode("utf-8", "replace")
    return request.method, httpx.URL(_url(request)).path, _hiding(request)(body)


def played(exchange: Exchange, request: httpx.Request) -> httpx.Response:
    """The reply of an exchange again.

    Raises:
        httpx.TransportError: the connection failed before there was a reply.
    """
    if exchange.status == 0:
        raise _error(exchange)
    error = _error(exchange) if exchange.error is not None or exchange.cut else None
    stream = _Chunks(exchange.body(), error)
    return httpx.Response(exchange.status, headers=exchange.headers, stream=stream, request=request)


def _exchange(
    request: httpx.Request,
    body: bytes,
    response: httpx.Response | None,
    chunks: list[bytes],
    error: httpx.TransportError | None,
    *,
    ended: bool,
) -> Exchange:
    hide = _hiding(request)
    if any(secret.encode() in b"".join(chunks) for secret in _secrets(request)):
        chunks = [b"".join(chunks)]  # it may be cut by the border of two chunks
    try:
        texts, encoded = [hide(text) for text in _texts(chunks)], False
    except UnicodeDecodeError:
        hidden = [_hide_bytes(chunk, request) for chunk in chunks]
        texts, encoded = [b64encode(chunk).decode() for chunk in hidden], True
    received = httpx.Headers() if response is None else response.headers
    return Exchange(
        request.method,
        hide(_url(request)),
        hide(body.decode("utf-8", "replace")),
        0 if response is None else response.status_code,
        {name: hide(value) for name, value in received.items() if name in _KEPT_HEADERS},
        texts,
        encoded,
        None if error is None else type(error).__name__,
        cut=response is not None and error is None and not ended,
    )


def _error(exchange: Exchange) -> httpx.TransportError:
    kind = getattr(httpx, exchange.error or "ReadError", httpx.ReadError)
    why = "the reply was not read any further" if exchange.cut else "the connection failed here"
    return kind(f"{why} when it was recorded")


def _secrets(request: httpx.Request) -> list[str]:
    values = [value.removeprefix("Bearer ") for name in _SECRET_HEADERS if (value := request.headers.get(name))]
    return [value for value in values if len(value) >= _SHORTEST_SECRET]


def _hiding(request: httpx.Request) -> Callable[[str], str]:
    secrets = _secrets(request)

    def hide(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, _HIDDEN)
        return text

    return hide


def _hide_bytes(data: bytes, request: httpx.Request) -> bytes:
    for secret in _secrets(request):
        data = data.replace(secret.encode(), _HIDDEN.encode())
    return data


class _Tee(httpx.AsyncByteStream):
    def __init__(
        self,
        inner: httpx.AsyncByteStream,
        at_end: Callable[[list[bytes], httpx.TransportError | None, bool], None],
    ) -> None:
        self._inner = inner
        self._at_end: Callable[[list[bytes], httpx.TransportError | None, bool], None] | None = at_end
        self._chunks: list[bytes] = []
        self._error: httpx.TransportError | None = None
        self._ended = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                self._chunks.append(chunk)
                yield chunk
        except httpx.TransportError as error:
            self._error = error
            raise
        self._ended = True

    async def aclose(self) -> None:
        at_end, self._at_end = self._at_end, None
        try:
            await self._inner.aclose()
        finally:
            if at_end is not None:
                at_end(self._chunks, self._error, self._ended)


class _Chunks(httpx.AsyncByteStream):
    def __init__(self, chunks: list[bytes], error: httpx.TransportError | None) -> None:
        self._chunks = chunks
        self._error = error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk
        if self._error is not None:
            raise self._error


def _texts(chunks: list[bytes]) -> list[str]:
    """The chunks as texts; a chunk that ends inside a character gives its rest to the next one."""
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")()
    texts = [decoder.decode(chunk) for chunk in chunks]
    decoder.decode(b"", final=True)
    return texts


def _url(request: httpx.Request) -> str:
    return _SECRET_QUERY.sub(rf"\g<1>{_HIDDEN}", str(request.url))
