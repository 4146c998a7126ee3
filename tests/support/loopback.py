"""A server on this machine that plays scripted bytes, so that what is tested is a real connection.

    async with Loopback(json_reply(body), sse(chunk("hi"), DONE)) as server:
        ...  # first request: the JSON; second and every later one: the stream

A reply is a list of steps: bytes are sent as one write, an `asyncio.Event` is waited for (nothing here waits for time),
`RESET` breaks the connection, `CLOSE` ends it, `HALF_CLOSE` ends the server's side only, `HANG` says no more.
"""

import asyncio
import gzip
import json
import socket
import ssl
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias

import brotli
import zstandard

_ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}

RESET: Literal["reset"] = "reset"
CLOSE: Literal["close"] = "close"
HALF_CLOSE: Literal["half-close"] = "half-close"
HANG: Literal["hang"] = "hang"
Step: TypeAlias = "bytes | asyncio.Event | Literal['reset', 'close', 'half-close', 'hang']"
Reply: TypeAlias = Sequence[Step]

DONE = b"data: [DONE]\n\n"
SSE_HEADERS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-request-id: req_1\r\n"


class Received:
    """A request as it came."""

    def __init__(self, head: bytes, body: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = lines[0].split(" ", 2)
        self.header_lines = lines[1:]
        self.headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:] if line)}
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Loopback:
    """The server; the last reply is given to all further requests.

    Attributes:
        requests: what came, in order.
        connections: how many were made. open: how many are open now. most_open: how many were at once.
        arrived: set at each request, for whoever waits for one.
    """

    def __init__(self, *replies: Reply, tls: ssl.SSLContext | None = None, greeting: bytes = b"") -> None:
        self.replies = list(replies)
        self.requests: list[Received] = []
        self.connections = 0
        self.open = 0
        self.most_open = 0
        self.arrived = asyncio.Event()
        self.all_closed = asyncio.Event()
        self._tls = tls
        self._greeting = greeting  # sent before anything was asked
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls, backlog=2048)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Not a coroutine: its task would be the stream protocol's, which complains when it is cancelled.
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        self.all_closed.clear()
        try:
            writer.write(self._greeting)
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client left
        finally:
            writer.transport.abort()
            self.open -= 1
            if not self.open:
                self.all_closed.set()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        received = Received(head[:-4], b"")
        received.body = await reader.readexactly(int(received.headers.get("content-length", "0")))
        reply = self.replies[min(len(self.requests), len(self.replies) - 1)]
        self.requests.append(received)
        self.arrived.set()
        for step in reply:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif isinstance(step, asyncio.Event):
                await _first(step.wait(), _left(reader))
            elif step == RESET:
                linger = struct.pack("ii", 1, 0)  # closing now sends RST instead of FIN
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                return False
            elif step == CLOSE:
                writer.close()
                await writer.wait_closed()
                return False
            elif step == HALF_CLOSE:
                writer.write_eof()
                await _left(reader)
                return False
            else:
                await _left(reader)
                return False
        return True


async def _left(reader: asyncio.StreamReader) -> None:
    """Until the client closes its side."""
    while not reader.at_eof():
        await reader.read(1024)
    raise ConnectionResetError("the client left")


async def _first(*waits: Any) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def reply(
    body: bytes,
    *,
    status: int = 200,
    content_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
    encoding: str | None = None,
) -> Reply:
    """A whole reply with its length; `encoding` names a `content-encoding` to compress it with."""
    if encoding is not None:
        body = _ENCODERS[encoding](body)
        headers = {**(headers or {}), "content-encoding": encoding}
    lines = [f"HTTP/1.1 {status} X", f"content-type: {content_type}", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ["\r\n".join([*lines, "", ""]).encode() + body]


def json_reply(
    value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None, encoding: str | None = None
) -> Reply:
    """A whole JSON reply."""
    return reply(json.dumps(value).encode(), status=status, headers=headers, encoding=encoding)


def completion(text: str = "ok") -> dict[str, Any]:
    """The body of a Chat Completions reply."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": "c1", "object": "chat.completion", "model": "m", "choices": [choice]}


def chunk(text: str = "", *, finish: str | None = None) -> bytes:
    """One event of a Chat Completions stream."""
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "c1", "model": "m", "choices": [choice]}).encode() + b"\n\n"


def sse(*steps: Step) -> Reply:
    """A chunked event stream: bytes become one chunk each, and the end is announced unless a step ends it otherwise."""
    made: list[Step] = [SSE_HEADERS + b"transfer-encoding: chunked\r\n\r\n"]
    made += [b"%x\r\n%s\r\n" % (len(step), step) if isinstance(step, bytes) else step for step in steps]
    ends = isinstance(steps[-1], str) if steps else False
    return made if ends else [*made, b"0\r\n\r\n"]
