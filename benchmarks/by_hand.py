"""The same jobs written by hand: an agent loop on httpx or on a bare socket, and msgspec."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Protocol

import httpx
import msgspec


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _Call(msgspec.Struct):
    id: str
    function: _Function


class _Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None


class _Body(msgspec.Struct):
    choices: list[_Choice]


_decode = msgspec.json.Decoder(_Body).decode
_encode = msgspec.json.encode
_arguments = msgspec.json.decode

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
        },
    }
]


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Post(Protocol):
    async def post(self, path: str, body: bytes) -> bytes: ...
    def stream(self, path: str, body: bytes) -> AsyncIterator[bytes]: ...
    async def aclose(self) -> None: ...


class HTTPXPost:
    """Over httpx, as one would write it."""

    def __init__(self, port: int, client: httpx.AsyncClient | None = None) -> None:
        limits = httpx.Limits(max_connections=2000, max_keepalive_connections=2000)
        self.client = client or httpx.AsyncClient(limits=limits, timeout=60)
        self.base = f"http://127.0.0.1:{port}"
        self.headers = {"authorization": "Bearer sk-none", "content-type": "application/json"}

    async def post(self, path: str, body: bytes) -> bytes:
        response = await self.client.post(self.base + path, content=body, headers=self.headers)
        response.raise_for_status()
        return response.content

    async def stream(self, path: str, body: bytes) -> AsyncIterator[bytes]:
        async with self.client.stream("POST", self.base + path, content=body, headers=self.headers) as response:
            async for chunk in response.aiter_bytes():
                yield chunk

    async def aclose(self) -> None:
        await self.client.aclose()


class SocketPost:
    """Over bare sockets: the limit."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def _send(self, path: str, body: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        pair = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", self.port)
        pair[1].write(b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(body)) + body)
        return pair

    async def post(self, path: str, body: bytes) -> bytes:
        reader, writer = await self._send(path, body)
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        data = await reader.readexactly(size)
        self.idle.append((reader, writer))
        return data

    async def stream(self, path: str, body: bytes) -> AsyncIterator[bytes]:
        reader, writer = await self._send(path, body)
        await reader.readuntil(b"\r\n\r\n")
        while size := int((await reader.readline()).strip(), 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
        self.idle.append((reader, writer))

    async def aclose(self) -> None:
        for _, writer in self.idle:
            writer.close()


async def turn(http: Post, path: str, history: list[Any], text: str) -> str:
    """One turn: the model, its tools, until it answers. `history` is kept up."""
    history.append({"role": "user", "content": text})
    while True:
        body = _encode({"model": "bench", "messages": history, "tools": TOOLS})
        message = _decode(await http.post(path, body)).choices[0].message
        assert message is not None
        calls = message.tool_calls
        if not calls:
            history.append({"role": "assistant", "content": message.content})
            return message.content or ""
        history.append(
            {
                "role": "assistant",
                "content": message.content,
                "tool_calls": [
                    {
                        "id": c.id,
                        "type": "function",
                        "function": {"name": c.function.name, "arguments": c.function.arguments},
                    }
                    for c in calls
                ],
            }
        )
        results = await asyncio.gather(*(add(**_arguments(call.function.arguments)) for call in calls))
        history.extend(
            {"role": "tool", "tool_call_id": call.id, "content": str(result)}
            for call, result in zip(calls, results, strict=True)
        )


async def stream(http: Post, path: str) -> int:
    """Read a stream, delta by delta; returns the length of the text."""
    body = _encode({"model": "bench", "messages": [{"role": "user", "content": "go"}], "stream": True})
    rest, text = b"", []
    async for chunk in http.stream(path, body):
        *blocks, rest = (rest + chunk).split(b"\n\n")
        for block in blocks:
            data = block[6:]
            if data == b"[DONE]":
                break
            delta = _decode(data).choices[0].delta
            if delta is not None and delta.content:
                text.append(delta.content)
    return len("".join(text))
