"""Sockets for httpcore's connections, on asyncio's own transports.

httpcore comes with a backend on anyio. With this one a request costs a fifth less (365 instead of 470 µs on loopback):
a read that finds its bytes there waits for nothing, a write that fits the buffer does not visit the event loop, and a
time limit is one timer instead of a cancel scope. A socket whose TLS handshake is cancelled is closed, which httpcore's
own backend forgets.
"""

import asyncio
import select
import socket
import ssl
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any, cast

import httpcore

_HIGH_WATER = 256 * 1024
_NEXT_ADDRESS_SECONDS = 0.25  # RFC 8305, section 5


class AsyncioBackend(httpcore.AsyncNetworkBackend):
    """Opens connections on the running event loop."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                stream = await _connect(host, port, local_address)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        for option in socket_options or ():
            stream.get_extra_info("socket").setsockopt(*option)
        return stream


async def _connect(host: str, port: int, local_address: str | None) -> "_Stream":
    """Connect to the first address that answers, trying the next whenever one is slow (RFC 8305).

    asyncio's own `happy_eyeballs_delay` loses sockets when it is cancelled (CPython 3.11).
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    by_family = [[a for a in found if a[0] == family] for family in dict.fromkeys(a[0] for a in found)]
    addresses = [address for row in zip_longest(*by_family) for address in row if address is not None]
    local = None if local_address is None else (local_address, 0)
    if len(addresses) == 1:
        return await _connect_to(addresses[0], local)
    attempts: list[asyncio.Task[_Stream]] = []
    winner: asyncio.Task[_Stream] | None = None
    try:
        for number, address in enumerate(addresses, 1):
            attempts.append(loop.create_task(_connect_to(address, local)))
            running = [attempt for attempt in attempts if not attempt.done()]
            while running and winner is None:
                seconds = _NEXT_ADDRESS_SECONDS if number < len(addresses) else None
                done, pending = await asyncio.wait(running, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                winner = next((attempt for attempt in done if attempt.exception() is None), None)
                running = list(pending)
                if number < len(addresses):
                    break
            if winner is not None:
                return winner.result()
        raise OSError("; ".join(dict.fromkeys(str(attempt.exception()) for attempt in attempts)) or "no address")
    finally:
        losers = [attempt for attempt in attempts if attempt is not winner]
        for loser in losers:
            loser.cancel()
            loser.add_done_callback(_abort)
        if losers:
            try:
                await asyncio.wait(losers)
            except asyncio.CancelledError:
                if winner is not None:
                    _abort(winner)
                raise


def _abort(attempt: "asyncio.Task[_Stream]") -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().abort()


async def _connect_to(address: tuple[Any, ...], local: tuple[str, int] | None) -> "_Stream":
    family, _, protocol, _, (host, port, *_) = address
    loop = asyncio.get_running_loop()
    _, stream = await loop.create_connection(_Stream, host, port, family=family, proto=protocol, local_addr=local)
    return stream


class _Stream(asyncio.Protocol, httpcore.AsyncNetworkStream):
    """One connection: what arrives is kept until it is read."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._arrived = bytearray()
        self._ended = False
        self._error: Exception | None = None
        self._reading: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._may_write = True
        self._may_arrive = True

    # What asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._arrived += data
        if len(self._arrived) > _HIGH_WATER and self._may_arrive and self._transport is not None:
            self._may_arrive = False
            self._transport.pause_reading()
        _wake(self._reading)

    def eof_received(self) -> bool:
        self._ended = True
        _wake(self._reading)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._error = exc
        _wake(self._reading)
        _wake(self._writing)

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        _wake(self._writing)

    # What httpcore asks

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        if not self._arrived and not self._ended:
            self._reading = self._loop.create_future()
            try:
                await self._wait(self._reading, timeout, httpcore.ReadTimeout)
            finally:
                self._reading = None
        if not self._arrived:
            if self._error is not None:
                raise httpcore.ReadError(str(self._error)) from self._error
            return b""
        data = bytes(self._arrived[:max_bytes])
        del self._arrived[:max_bytes]
        if not self._may_arrive and len(self._arrived) < _HIGH_WATER and self._transport is not None:
            self._may_arrive = True
            if not self._transport.is_closing():
                self._transport.resume_reading()
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        if not buffer:
            return
        if self._transport is None or self._transport.is_closing():
            raise httpcore.WriteError(str(self._error or "the connection is closed")) from self._error
        self._transport.write(buffer)
        if not self._may_write:
            self._writing = self._loop.create_future()
            try:
                await self._wait(self._writing, timeout, httpcore.WriteTimeout)
            finally:
                self._writing = None
            if self._error is not None:
                raise httpcore.WriteError(str(self._error)) from self._error

    async def aclose(self) -> None:
        self.abort()
        await asyncio.sleep(0)  # asyncio lets go of the socket in the next round

    def abort(self) -> None:
        """Close at once, whatever is still to be sent."""
        if self._transport is not None:
            self._transport.abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
    ) -> httpcore.AsyncNetworkStream:
        assert self._transport is not None
        try:
            async with asyncio.timeout(timeout):
                encrypted = await self._loop.start_tls(
                    self._transport, self, ssl_context, server_hostname=server_hostname
                )
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:  # ssl.SSLError and certificates that do not fit are among them
            raise httpcore.ConnectError(str(error)) from error
        if encrypted is None:
            raise httpcore.ConnectError("the connection was closed within the TLS handshake")
        self._transport = encrypted
        return self

    def get_extra_info(self, info: str) -> Any:
        if self._transport is None:
            return None
        if info == "is_readable":  # asked of an idle connection: the server has closed it, or speaks out of turn
            return self._ended or bool(self._arrived) or _is_readable(self._transport.get_extra_info("socket"))
        names = {"client_addr": "sockname", "server_addr": "peername"}
        return self._transport.get_extra_info(names.get(info, info))

    async def _wait(self, waiter: asyncio.Future[None], seconds: float | None, late: type[Exception]) -> None:
        if seconds is None:
            await waiter
            return
        timer = self._loop.call_later(seconds, _fail, waiter, late)
        try:
            await waiter
        finally:
            timer.cancel()


def _wake(waiter: "asyncio.Future[None] | None") -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _fail(waiter: "asyncio.Future[None]", late: type[Exception]) -> None:
    if not waiter.done():
        waiter.set_exception(late("timed out"))


def _is_readable(connected: Any) -> bool:
    """Whether the socket has something the event loop has not seen yet."""
    if connected is None or connected.fileno() < 0:
        return True
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([connected], [], [], 0)[0])
    poll = select.poll()
    poll.register(connected.fileno(), select.POLLIN)
    return bool(poll.poll(0))
