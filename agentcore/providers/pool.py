"""PooledTransport: connections for an `httpx.AsyncClient` with a thousand requests in flight.

httpcore's own pool looks through all its connections and all waiting requests whenever one of them changes, which makes
n concurrent requests cost n² (a thousand requests of 100 ms take some twenty seconds). This transport keeps the idle
connections of each origin on a stack: taking one and giving it back do not depend on how many there are. The
connections themselves are httpcore's, their sockets asyncio's.
"""

import asyncio
import functools
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeAlias, cast

import httpcore
import httpx
from anyio import move_on_after
from httpx import AsyncByteStream, Request, Response

from agentcore.providers.sockets import AsyncioBackend

MAX_CONNECTIONS = 2000
KEEPALIVE_SECONDS = 30.0
CLOSE_SECONDS = 2.0
_PRUNED = 4
_BACKEND = AsyncioBackend()

_Origin: TypeAlias = tuple[bytes, bytes, int | None]

_EXCEPTIONS: dict[type[Exception], type[httpx.RequestError]] = {
    httpcore.ConnectTimeout: httpx.ConnectTimeout,
    httpcore.ReadTimeout: httpx.ReadTimeout,
    httpcore.WriteTimeout: httpx.WriteTimeout,
    httpcore.PoolTimeout: httpx.PoolTimeout,
    httpcore.ConnectError: httpx.ConnectError,
    httpcore.ReadError: httpx.ReadError,
    httpcore.WriteError: httpx.WriteError,
    httpcore.LocalProtocolError: httpx.LocalProtocolError,
    httpcore.RemoteProtocolError: httpx.RemoteProtocolError,
    httpcore.UnsupportedProtocol: httpx.UnsupportedProtocol,
}


class PooledTransport(httpx.AsyncBaseTransport):
    """An httpx transport that hands out kept connections in constant time.

    Args:
        verify: certificates are checked against httpx's defaults, not at all (`False`), or by your own context.
        max_connections: requests in flight at once; more wait their turn, bounded by the request's pool timeout.
        keepalive: seconds an idle connection is kept.
    """

    def __init__(
        self,
        *,
        verify: bool | ssl.SSLContext = True,
        max_connections: int = MAX_CONNECTIONS,
        keepalive: float = KEEPALIVE_SECONDS,
    ) -> None:
        self._verify = verify
        self._ssl_context: ssl.SSLContext | None = verify if isinstance(verify, ssl.SSLContext) else None
        self._keepalive = keepalive
        self._free = max_connections
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle: dict[_Origin, deque[httpcore.AsyncHTTPConnection]] = {}
        self._busy: set[httpcore.AsyncHTTPConnection] = set()
        self._closed = False

    async def handle_async_request(self, request: Request) -> Response:
        """Send a request on a kept or a new connection."""
        url = request.url
        key = (url.raw_scheme, url.raw_host, url.port)
        await self._take_place(request.extensions.get("timeout", {}).get("pool"))
        connection: httpcore.AsyncHTTPConnection | None = None
        try:
            connection = await self._connection(key)
            self._busy.add(connection)
            response = await connection.handle_async_request(
                httpcore.Request(
                    request.method,
                    httpcore.URL(scheme=key[0], host=key[1], port=key[2], target=url.raw_path),
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        except BaseException as error:
            await self._discard(connection)
            mapped = _EXCEPTIONS.get(type(error)) if isinstance(error, Exception) else None
            if mapped is None:
                raise
            raise mapped(str(error), request=request) from error
        stream = _PooledStream(response.stream, functools.partial(self._give_back, key, connection))
        extensions = cast("dict[str, Any]", response.extensions)  # type: ignore[reportUnknownMemberType] - httpcore's is open
        return Response(response.status, headers=response.headers, stream=stream, extensions=extensions)

    async def aclose(self) -> None:
        """Close all connections, those in use included."""
        self._closed = True
        connections = [connection for idle in self._idle.values() for connection in idle] + list(self._busy)
        self._idle.clear()
        for connection in connections:
            await connection.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.aclose()

    async def _take_place(self, seconds: float | None) -> None:
        if self._free > 0:
            self._free -= 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():
                self._give_place()  # it came just as we stopped waiting
            elif waiter in self._waiting:
                self._waiting.remove(waiter)
            if isinstance(error, TimeoutError):
                raise httpx.PoolTimeout("all connections of the pool are in use") from error
            raise

    def _give_place(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1

    async def _connection(self, key: _Origin) -> httpcore.AsyncHTTPConnection:
        idle = self._idle.get(key)
        while idle:
            connection = idle.pop()
            if connection.is_idle() and not connection.has_expired():
                return connection
            await connection.aclose()
        scheme, host, port = key
        return httpcore.AsyncHTTPConnection(
            httpcore.Origin(scheme, host, port or (443 if scheme == b"https" else 80)),
            ssl_context=self._ssl() if scheme == b"https" else None,
            keepalive_expiry=self._keepalive,
            network_backend=_BACKEND,
        )

    def _ssl(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            self._ssl_context = httpx.create_ssl_context(verify=self._verify)
        return self._ssl_context

    async def _discard(self, connection: httpcore.AsyncHTTPConnection | None) -> None:
        self._give_place()
        if connection is not None:
            self._busy.discard(connection)
            with move_on_after(CLOSE_SECONDS, shield=True):  # also when we are being cancelled: nothing may leak
                await connection.aclose()

    async def _give_back(self, key: _Origin, connection: httpcore.AsyncHTTPConnection) -> None:
        if self._closed or not connection.is_idle():
            await self._discard(connection)
            return
        self._busy.discard(connection)
        idle = self._idle.setdefault(key, deque())
        idle.append(connection)
        self._give_place()
        # The stack's bottom grows old first: close what has been idle too long, a few at a time, so that no request
        # pays for a thousand others.
        for _ in range(_PRUNED):
            if len(idle) < 2 or not idle[0].has_expired():
                break
            await idle.popleft().aclose()


class _PooledStream(AsyncByteStream):
    """A response's body; closing it gives the connection back."""

    def __init__(self, stream: Any, give_back: Callable[[], Awaitable[None]]) -> None:
        self._stream = stream
        self._give_back = give_back
        self._open = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                yield part
        except Exception as error:
            mapped = _EXCEPTIONS.get(type(error))
            if mapped is None:
                raise
            raise mapped(str(error)) from error

    async def aclose(self) -> None:
        if not self._open:
            return
        self._open = False
        try:
            await self._stream.aclose()
        finally:
            await self._give_back()
