"""Real exchanges on record: `record` keeps what a provider said, `replay` says it again without a network.

    async with record("weather.json") as http_client:            # once, with a key
        model = OpenAIChatModel("gpt-5-mini", http_client=http_client)
        ...
    async with replay("weather.json") as http_client:            # ever after, without one
        model = OpenAIChatModel("gpt-5-mini", api_key="none", http_client=http_client)

Request headers are not kept, and of response headers only harmless ones; the key is taken out of URLs and bodies. One
of fewer than eight characters protects nothing, and would tear words apart: it stays. Requests made at once may come in
another order when they are replayed.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import msgspec
from msgspec import Struct, field

_KEPT_HEADERS = frozenset(
    ("content-type", "retry-after", "retry-after-ms", "x-request-id", "request-id", "location", "x-should-retry")
)
_SECRET_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
_SECRET_QUERY = re.compile(r"([?&](?:key|api[-_]?key|token)=)[^&#]*", re.IGNORECASE)
_HIDDEN = "[secret]"
_SHORTEST_SECRET = 8


class Exchange(Struct, frozen=True):
    """One request and its reply: bodies as text where they are UTF-8, reply chunks as the network cut them."""

    method: str
    url: str
    request: str
    status: int
    headers: dict[str, str]
    chunks: list[str]
    base64: bool = False


class Cassette(Struct):
    """The exchanges of one recording, in order."""

    exchanges: list[Exchange] = field(default_factory=lambda: list[Exchange]())


class CassetteError(AssertionError):
    """What was asked is not what was recorded."""


@asynccontextmanager
async def record(
    path: str | Path, transport: httpx.AsyncBaseTransport | None = None
) -> AsyncGenerator[httpx.AsyncClient, None]:
    """A client that keeps every exchange and writes them to `path` when the block ends without an error."""
    cassette = Cassette()
    recorder = _Recorder(cassette, transport or httpx.AsyncHTTPTransport())
    async with httpx.AsyncClient(transport=recorder, timeout=None) as client:  # noqa: S113 - every request has its own
        yield client
    cassette.exchanges = [exchange for exchange in cassette.exchanges if exchange is not _UNFINISHED]
    await anyio.Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(cassette), indent=1) + b"\n")


@asynccontextmanager
async def replay(path: str | Path) -> AsyncGenerator[httpx.AsyncClient, None]:
    """A client that answers from a recording: each request once, equal ones in the order they were recorded.

    Raises:
        CassetteError: from a request that is not on record, or not any more.
        FileNotFoundError: there is no such recording.
    """
    cassette = msgspec.json.decode(await anyio.Path(path).read_bytes(), type=Cassette)
    async with httpx.AsyncClient(transport=_Player(cassette, str(path))) as client:
        yield client


class _Recorder(httpx.AsyncBaseTransport):
    def __init__(self, cassette: Cassette, inner: httpx.AsyncBaseTransport) -> None:
        self._cassette = cassette
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.headers["accept-encoding"] = "identity"  # a recording is there to be read
        body = await request.aread()
        place = len(self._cassette.exchanges)  # in the order of asking, whoever is answered first
        self._cassette.exchanges.append(_UNFINISHED)
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        chunks: list[bytes] = []
        stream = _Tee(response.stream, chunks, lambda: self._keep(place, request, body, response, chunks))
        return httpx.Response(response.status_code, headers=response.headers, stream=stream, request=request)

    def _keep(
        self, place: int, request: httpx.Request, body: bytes, response: httpx.Response, chunks: list[bytes]
    ) -> None:
        hide = _hiding(request)
        if any(secret.encode() in b"".join(chunks) for secret in _secrets(request)):
            chunks = [b"".join(chunks)]  # it may be cut by the border of two chunks
        try:
            texts, encoded = [hide(text) for text in _texts(chunks)], False
        except UnicodeDecodeError:
            hidden = [_hide_bytes(chunk, request) for chunk in chunks]
            texts, encoded = [b64encode(chunk).decode() for chunk in hidden], True
        headers = {name: hide(value) for name, value in response.headers.items() if name in _KEPT_HEADERS}
        self._cassette.exchanges[place] = Exchange(
            request.method,
            hide(_url(request)),
            hide(body.decode("utf-8", "replace")),
            response.status_code,
            headers,
            texts,
            encoded,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Player(httpx.AsyncBaseTransport):
    def __init__(self, cassette: Cassette, name: str) -> None:
        self._left = list(cassette.exchanges)
        self._name = name
        self._played = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = _hiding(request)((await request.aread()).decode("utf-8", "replace"))
        self._played += 1
        if not self._left:
            raise CassetteError(f"{self._name} has {self._played - 1} exchanges; this is request {self._played}")
        asked = (request.method, httpx.URL(_url(request)).path, body)
        exchange = next((one for one in self._left if _asked(one) == asked), None)
        if exchange is None:
            raise CassetteError(
                f"request {self._played} is not on record in {self._name}, or not any more:\n  asked: {asked}\n"
                f"  next:  {_asked(self._left[0])}"
            )
        self._left.remove(exchange)
        decode = b64decode if exchange.base64 else str.encode
        stream = _Chunks([decode(chunk) for chunk in exchange.chunks])
        return httpx.Response(exchange.status, headers=exchange.headers, stream=stream, request=request)


_UNFINISHED = Exchange("", "", "", 0, {}, [])


def _asked(exchange: Exchange) -> tuple[str, str, str]:
    return exchange.method, httpx.URL(exchange.url).path, exchange.request


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
    def __init__(self, inner: httpx.AsyncByteStream, chunks: list[bytes], at_end: Callable[[], None]) -> None:
        self._inner = inner
        self._chunks = chunks
        self._at_end: Callable[[], None] | None = at_end

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._chunks.append(chunk)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
        at_end, self._at_end = self._at_end, None
        if at_end is not None:
            at_end()


class _Chunks(httpx.AsyncByteStream):
    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


def _texts(chunks: list[bytes]) -> list[str]:
    """The chunks as texts; a chunk that ends inside a character gives its rest to the next one."""
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")()
    texts = [decoder.decode(chunk) for chunk in chunks]
    decoder.decode(b"", final=True)
    return texts


def _url(request: httpx.Request) -> str:
    return _SECRET_QUERY.sub(rf"\g<1>{_HIDDEN}", str(request.url))
