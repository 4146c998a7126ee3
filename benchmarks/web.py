"""Many simultaneous streams over one app process: chat_routes beside a bare Starlette handler doing the same.

python -m benchmarks.web [--conversations N] [--deltas N] [--seconds S] [--quick]

Three processes: a model on loopback that says one delta at a time, the app (uvicorn), and this one, which reads. The
bare handler speaks to the model over a plain socket, decodes each delta and passes it on; it has no memory, no lock, no
tools and no re-joining. Both are asked for the same streams, each in a conversation of its own; they begin within the
first fifth of the time, as people do, and are all open at once for the rest of it.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import multiprocessing
import os
import time
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route

from agentcore import ChatClient, InMemoryChatMemory, OpenAIChatModel
from agentcore.web import allow_everyone, chat_routes

LAG_AIM = 50.0
GC_THRESHOLD = (700, 10, 1_000)
"""All objects looked through hardly ever, the young ones as always: what the rows marked `gc` run with."""


# The model: a stream of deltas, evenly over a time.


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    event = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    data = b"data: " + msgspec.json.encode(event) + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


async def _say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, deltas: int, seconds: float) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
            )
            await reader.readexactly(length)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            for number in range(deltas):
                writer.write(_chunk({"content": f"word{number} "}))
                await writer.drain()
                await asyncio.sleep(seconds / deltas)
            done = b"data: [DONE]\n\n"
            writer.write(_chunk({}, "stop") + b"%x\r\n%b\r\n0\r\n\r\n" % (len(done), done))
    writer.close()


def serve_model(deltas: int, seconds: float, port: Connection) -> None:
    async def main() -> None:
        server = await asyncio.start_server(
            lambda reader, writer: _say(reader, writer, deltas, seconds), "127.0.0.1", 0, backlog=4096
        )
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


# The app, in two ways.


def _bare(model_port: int) -> list[BaseRoute]:
    body = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True})
    request = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body

    async def events() -> AsyncIterator[bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", model_port)
        try:
            writer.write(request)
            await reader.readuntil(b"\r\n\r\n")
            text = ""
            while True:
                line = await reader.readline()
                if not line.startswith(b"data: "):
                    continue
                if line.startswith(b"data: [DONE]"):
                    break
                piece = msgspec.json.decode(line[6:])["choices"][0]["delta"].get("content", "")
                if piece:
                    text += piece
                    yield b"event: text\ndata: " + msgspec.json.encode({"text": piece}) + b"\n\n"
            yield b"event: result\ndata: " + msgspec.json.encode({"text": text}) + b"\n\n"
        finally:
            writer.close()

    async def turn(request: Request) -> Response:
        await request.json()
        return StreamingResponse(events(), media_type="text/event-stream")

    return [Route("/chat/conversations/{conversation_id}/turns", turn, methods=["POST"])]


class Lag:
    """How late the event loop wakes a sleeper, in milliseconds."""

    def __init__(self) -> None:
        self.late: list[float] = []

    async def watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + 0.01
            await asyncio.sleep(0.01)
            self.late.append((loop.time() - due) * 1e3)

    def quantile(self, part: float) -> float:
        return sorted(self.late)[int(part * (len(self.late) - 1))] if self.late else 0.0


def _memory_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def serve_app(way: str, model_port: int, port: Connection) -> None:
    lag = Lag()
    routes: list[BaseRoute]
    served: list[uvicorn.Server] = []

    async def figures(request: Request) -> Response:
        spans = {"p50": lag.quantile(0.5), "p99": lag.quantile(0.99), "max": lag.quantile(1.0)}
        lag.late.clear()
        tasks, open_ = len(asyncio.all_tasks()), len(served[0].server_state.connections) - 1
        return JSONResponse({**spans, "tasks": tasks, "memory": _memory_bytes(), "open": open_})

    if way.endswith("gc"):
        gc.set_threshold(*GC_THRESHOLD)
    chat = None
    if way.startswith("bare"):
        routes = _bare(model_port)
    else:
        model = OpenAIChatModel("m", base_url=f"http://127.0.0.1:{model_port}/v1", api_key="none")
        client = ChatClient(model, memory=InMemoryChatMemory())
        chat = chat_routes(client, authorize=allow_everyone, on_disconnect="cancel")
        routes = [Mount("/chat", chat)]

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        watching = asyncio.create_task(lag.watch())
        async with chat.lifespan(app) if chat is not None else contextlib.nullcontext():
            yield
        watching.cancel()

    app = Starlette(routes=[*routes, Route("/figures", figures)], lifespan=lifespan)

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            served.append(self)
            port.send(self.servers[0].sockets[0].getsockname()[1])

    config = uvicorn.Config(app, port=0, log_level="warning", backlog=4096, timeout_graceful_shutdown=5)
    asyncio.run(Server(config).serve())


# The readers.


async def read_stream(port: int, number: int, leave_after: int | None = None) -> bool:
    """Whether the whole answer came; with `leave_after`, break off after so many events."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"message": "hi"}).encode()
    writer.write(
        f"POST /chat/conversations/c{number}/turns HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        + body
    )
    seen = 0
    while True:
        line = await reader.readline()
        if not line:
            break
        seen += line.startswith(b"event: text")
        if leave_after is not None and seen >= leave_after:
            writer.transport.abort()
            return False
        if line.startswith(b"event: result"):
            writer.close()
            return True
    writer.close()
    return False


async def figures_of(port: int) -> dict[str, float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /figures HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return msgspec.json.decode(answer.partition(b"\r\n\r\n")[2])


async def settled(port: int, tasks: float) -> dict[str, float]:
    """The figures once the streams' connections and tasks are gone, or as they are after five seconds."""
    until = time.monotonic() + 5
    while True:
        figures = await figures_of(port)
        if (not figures["open"] and figures["tasks"] <= tasks) or time.monotonic() > until:
            return figures
        await asyncio.sleep(0.1)


async def load(port: int, conversations: int, seconds: float) -> dict[str, Any]:
    await asyncio.gather(*[read_stream(port, -number) for number in range(1, 6)])  # what is loaded once is loaded
    before = await settled(port, 20)
    started = time.perf_counter()
    streams: list[asyncio.Task[bool]] = []
    for number in range(conversations):
        streams.append(asyncio.create_task(read_stream(port, number)))
        await asyncio.sleep(max(0.0, started + seconds / 5 * number / conversations - time.perf_counter()))
    await asyncio.sleep(seconds / 5)
    during = await figures_of(port)
    whole = sum(await asyncio.gather(*streams))
    took = time.perf_counter() - started
    lag = await figures_of(port)
    vanish = [asyncio.create_task(read_stream(port, conversations + n, 3)) for n in range(conversations // 5)]
    await asyncio.gather(*vanish)
    after = await settled(port, before["tasks"])
    return {
        "whole": whole,
        "took": took,
        "p99": max(during["p99"], lag["p99"]),
        "max": max(during["max"], lag["max"]),
        "kib": (during["memory"] - before["memory"]) / conversations / 1024,
        "tasks": after["tasks"] - before["tasks"],
        "open": after["open"],
    }


def _started(spawn: Any, target: Any, *args: Any) -> tuple[Any, int]:
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=target, args=(*args, theirs), daemon=True)
    process.start()
    return process, ours.recv()


def main(conversations: int, deltas: int, seconds: float) -> None:
    spawn = multiprocessing.get_context("spawn")
    model, model_port = _started(spawn, serve_model, deltas, seconds)
    print(
        f"{conversations:,} streams at once, {deltas} deltas each over {seconds:g} s (aim: lag p99 < {LAG_AIM:g} ms)\n"
    )
    head = ("whole", "took s", "lag p99 ms", "lag max ms", "KiB/stream", "tasks left", "still open")
    print(f"{'':<20}" + "".join(f"{one:>13}" for one in head))
    for way in ("bare Starlette", "chat_routes", "bare Starlette, gc", "chat_routes, gc"):
        app, port = _started(spawn, serve_app, way, model_port)
        got = asyncio.run(load(port, conversations, seconds))
        print(
            f"{way:<20}{got['whole']:>13,}{got['took']:>13.2f}{got['p99']:>13.1f}{got['max']:>13.1f}"
            f"{got['kib']:>13.1f}{got['tasks']:>13.0f}{got['open']:>13.0f}"
        )
        app.terminate()
        app.join()
    model.terminate()
    model.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=1_000)
    parser.add_argument("--deltas", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--quick", action="store_true", help="small: to see that it works")
    given = parser.parse_args()
    if given.quick:
        main(50, 5, 0.5)
    else:
        main(given.conversations, given.deltas, given.seconds)
