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

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import msgspec
from msgspec import Struct, field

from agentcore.testing.exchanges import Exchange, Keep, RecordingTransport, asked_by, played


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
    kept: list[Exchange | None] = []

    def begin() -> Keep:
        place = len(kept)  # in the order of asking, whoever is answered first
        kept.append(None)

        def keep(exchange: Exchange) -> None:
            kept[place] = exchange

        return keep

    recorder = RecordingTransport(begin, transport or httpx.AsyncHTTPTransport())
    async with httpx.AsyncClient(transport=recorder, timeout=None) as client:  # noqa: S113 - every request has its own
        yield client
    cassette = Cassette([exchange for exchange in kept if exchange is not None])
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


class _Player(httpx.AsyncBaseTransport):
    def __init__(self, cassette: Cassette, name: str) -> None:
        self._left = list(cassette.exchanges)
        self._name = name
        self._played = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        asked = await asked_by(request)
        self._played += 1
        if not self._left:
            raise CassetteError(f"{self._name} has {self._played - 1} exchanges; this is request {self._played}")
        exchange = next((one for one in self._left if one.asked == asked), None)
        if exchange is None:
            raise CassetteError(
                f"request {self._played} is not on record in {self._name}, or not any more:\n  asked: {asked}\n"
                f"  next:  {self._left[0].asked}"
            )
        self._left.remove(exchange)
        return played(exchange, request)
