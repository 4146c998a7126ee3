"""Real exchanges on record: `record` keeps what a provider said, `replay` says it again without a network.

    async with record("weather.json") as http_client:            # once, with a key
        model = OpenAIChatModel("gpt-5-mini", http_client=http_client)
        ...
    async with replay("weather.json") as http_client:            # ever after, without one
        model = OpenAIChatModel("gpt-5-mini", api_key="none", http_client=http_client)

Request headers are not kept, and of response headers only harmless ones; the key is taken out of URLs and bodies.
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
    await anyio.Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(cassette), indent=1) + b"\n")


@asynccontextmanager
async def replay(path: str | Path) -> AsyncGenerator[httpx.AsyncClient, None]:
    """A client that answers from a recording: the same requests, in the same order.

    Raises:
        CassetteError: from the request that is not the next one on record, or comes after the last.
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
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        chunks: list[bytes] = []
        stream = _Tee(response.stream, chunks, lambda: self._keep(request, body, response, chunks))
        return httpx.Response(response.status_code, headers=response.headers, stream=stream, request=request)

    def _keep(self, request: httpx.Request, body: bytes, response: httpx.Response, chunks: list[bytes]) -> None:
        secrets = [value for name in _SECRET_HEADERS if (value := request.headers.get(name))]
        secrets += [value.removeprefix("Bearer ") for value in secrets]

        def hide(text: str) -> str:
            for secret in secrets:
                text = text.replace(secret, _HIDDEN)
            return text

        try:
            texts, encoded = [hide(text) for text in _texts(chunks)], False
        except UnicodeDecodeError:
            texts, encoded = [b64encode(chunk).decode() for chunk in chunks], True
        headers = {name: hide(value) for name, value in response.headers.items() if name in _KEPT_HEADERS}
        self._cassette.exchanges.append(
            Exchange(
                request.method,
                hide(_url(request)),
                hide(body.decode("utf-8", "replace")),
                response.status_code,
                headers,
                texts,
                encoded,
            )
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Player(httpx.AsyncBaseTransport):
    def __init__(self, cassette: Cassette, name: str) -> None:
        self._left = list(cassette.exchanges)
        self._name = name
        self._played = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = (await request.aread()).decode("utf-8", "replace")
        self._played += 1
        if not self._left:
            raise CassetteError(f"{self._name} has {self._played - 1} exchanges; this is request {self._played}")
        exchange = self._left.pop(0)
        asked = (request.method, httpx.URL(_url(request)).path, body)
        recorded = (exchange.method, httpx.URL(exchange.url).path, exchange.request)
        if asked != recorded:
            raise CassetteError(
                f"request {self._played} is not the one on record in {self._name}:\n  asked:    {asked}\n"
                f"  recorded: {recorded}"
            )
        decode = b64decode if exchange.base64 else str.encode
        stream = _Chunks([decode(chunk) for chunk in exchange.chunks])
        return httpx.Response(exchange.status, headers=exchange.headers, stream=stream, request=request)


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
