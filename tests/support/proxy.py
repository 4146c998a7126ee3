"""A proxy before a server that holds back what passes, or cuts the connections, when a test says so."""

import asyncio
from types import TracebackType
from typing import Self


class Gate:
    """One direction: open, or holding back what comes, which it tells of."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self.reached = asyncio.Event()

    def close(self) -> None:
        """Hold back from now on."""
        self.reached.clear()
        self._open.clear()

    def open(self) -> None:
        """Let through what was held back, and what comes."""
        self._open.set()

    async def passed(self) -> None:
        """Wait until it is open."""
        if not self._open.is_set():
            self.reached.set()
        await self._open.wait()


class Proxy:
    """Between clients and a server on this machine.

    Attributes:
        requests: what clients say.
        answers: what the server says.
    """

    def __init__(self, url: str) -> None:
        before, _, rest = url.rpartition(":")
        port, _, path = rest.partition("/")
        self._before, self._path, self._server_port = before, path, int(port)
        self.requests, self.answers = Gate(), Gate()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """The server's address, through the proxy."""
        return f"{self._before}:{self._server.sockets[0].getsockname()[1]}/{self._path}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Cut all connections; what was held back is lost."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server, by_server = None, None
        try:
            to_server, by_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, by_server}
        for source, target, gate in ((reader, by_server, self.requests), (to_server, writer, self.answers)):
            task = asyncio.ensure_future(_pass_on(source, target, gate))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter, gate: Gate) -> None:
    try:
        while data := await source.read(65536):
            await gate.passed()
            target.write(data)
            await target.drain()
    except OSError:
        pass  # one side is gone: so is the other
    finally:
        target.transport.abort()
