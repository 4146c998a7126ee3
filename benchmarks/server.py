"""A model on loopback that answers at once: canned Chat Completions replies, in a process of its own."""

import asyncio
import multiprocessing
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

DELTAS = 2000
TOOLS = 8
ROUNDS = 3

_encode = msgspec.json.encode


def _reply(message: dict[str, object], finish: str) -> bytes:
    body = _encode(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "bench",
            "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }
    )
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def _calls(round_: int) -> list[dict[str, object]]:
    return [
        {"id": f"c{round_}_{n}", "type": "function", "function": {"name": "add", "arguments": f'{{"a":{n},"b":1}}'}}
        for n in range(TOOLS)
    ]


def _event(delta: dict[str, object], finish: str | None = None) -> bytes:
    chunk = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "bench",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    return b"data: " + _encode(chunk) + b"\n\n"


def _chunked(parts: list[bytes]) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def _stream(per_chunk: int) -> bytes:
    events = [_event({"content": f"word{n} "}) for n in range(DELTAS)]
    parts = [b"".join(events[n : n + per_chunk]) for n in range(0, DELTAS, per_chunk)]
    return _chunked([*parts, _event({}, "stop") + b"data: [DONE]\n\n"])


TEXT = _reply({"content": "The answer is 42."}, "stop")
CALLS = [_reply({"content": None, "tool_calls": _calls(n)}, "tool_calls") for n in range(ROUNDS)]
STREAM = _stream(per_chunk=16)
STREAM_SINGLE = _stream(per_chunk=1)


class _Connection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end]
            lower = head.lower()
            at = lower.find(b"content-length:")
            size = int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.buffer) < end + 4 + size:
                return
            body = self.buffer[end + 4 : end + 4 + size]
            self.buffer = self.buffer[end + 4 + size :]
            self.answer(head.split(b" ", 2)[1], body)

    def answer(self, path: bytes, body: bytes) -> None:
        if path.startswith(b"/tools"):
            done = body.count(b'"role":"tool"') // TOOLS
            self.transport.write(CALLS[done] if done < ROUNDS else TEXT)
        elif path.startswith(b"/single"):
            self.transport.write(STREAM_SINGLE)
        elif path.startswith(b"/stream"):
            self.transport.write(STREAM)
        elif path.startswith(b"/slow"):
            asyncio.get_running_loop().call_later(0.1, self.transport.write, TEXT)
        else:
            self.transport.write(TEXT)


def more_files() -> None:
    """A thousand conversations need a thousand sockets."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384) if hard > 0 else 16384, hard))


def _serve(ready: "multiprocessing.Queue[int]") -> None:
    more_files()

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", 0, backlog=4096)
        ready.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


@contextmanager
def serving() -> Iterator[int]:
    """The server's port, for the length of the block."""
    context = multiprocessing.get_context("spawn")
    ready: multiprocessing.Queue[int] = context.Queue()
    process = context.Process(target=_serve, args=(ready,), daemon=True)
    process.start()
    try:
        yield ready.get(timeout=30)
    finally:
        process.terminate()
        process.join(5)
