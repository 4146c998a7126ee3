"""The table: each job by agentcore, by hand on httpx and by hand on a socket, interleaved, medians of one run.

python -m benchmarks.table [--quick] [--slow] [--only WORD]
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from agentcore import (
    AssistantMessage,
    ChatClient,
    InMemoryChatMemory,
    OpenAIChatModel,
    TextDelta,
    UserMessage,
    tool,
)
from benchmarks import by_hand
from benchmarks.server import DELTAS, more_files, serving

Job = Callable[[], Awaitable[None]]
ADD = tool(by_hand.add)


def client(
    port: int, path: str, memory: InMemoryChatMemory, http_client: Any = None, tools: Any = (ADD,)
) -> ChatClient:
    model = OpenAIChatModel(
        "bench", api_key="sk-none", base_url=f"http://127.0.0.1:{port}{path}", http_client=http_client
    )
    return ChatClient(model, tools=tools, memory=memory)


class Row:
    """One line: a job done in several ways."""

    def __init__(
        self, name: str, unit: str, aim: float | None, ways: dict[str, Callable[[], Awaitable[float]]]
    ) -> None:
        self.name, self.unit, self.aim, self.ways = name, unit, aim, ways
        self.figures: dict[str, list[float]] = {way: [] for way in ways}

    async def measure(self, rounds: int) -> None:
        for _ in range(rounds):
            for way, run in self.ways.items():
                self.figures[way].append(await run())

    def median(self, way: str) -> float | None:
        return statistics.median(self.figures[way]) if self.figures.get(way) else None

    def print(self) -> None:
        ours, reference = self.median("agentcore"), self.median("httpx")
        cells = [f"{self.name:<42}"]
        for way in ("agentcore", "httpx", "socket", "aiohttp"):
            figure = self.median(way)
            cells.append(f"{figure:>10.2f}" if figure is not None else f"{'':>10}")
        ratio = f"{ours / reference:>7.2f}" if ours is not None and reference else f"{'':>7}"
        spread = ""
        if ours is not None and len(self.figures["agentcore"]) > 1:
            spread = f"±{100 * statistics.stdev(self.figures['agentcore']) / ours:.0f} %"
        print(
            " ".join(
                [*cells, ratio, f"{self.aim if self.aim is not None else '':>6}", f"{self.unit:>9}", f"{spread:>7}"]
            )
        )


async def _timed(run: Callable[[], Awaitable[object]], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        await run()
    return (time.perf_counter() - start) / count * 1e6


def _history(length: int) -> list[Any]:
    return [
        UserMessage(f"question {n}, about as long as one is")
        if n % 2 == 0
        else AssistantMessage(f"answer {n}, likewise")
        for n in range(length)
    ]


def turn_row(port: int, path: str, name: str, aim: float, count: int, history: int = 0, unit: str = "µs") -> Row:
    prepared = _history(history)
    plain = [{"role": "user" if n % 2 == 0 else "assistant", "content": m.content} for n, m in enumerate(prepared)]
    tools = (ADD,)

    async def ours() -> float:
        memory = InMemoryChatMemory()
        async with client(port, path, memory, tools=tools) as one:
            await one.invoke("warm", conversation_id="w")
            times = []
            for n in range(count):
                await memory.add(str(n), prepared)
                start = time.perf_counter()
                await one.invoke("hello", conversation_id=str(n))
                times.append(time.perf_counter() - start)
            return statistics.fmean(times) * 1e6

    def by(make: Callable[[], by_hand.Post]) -> Callable[[], Awaitable[float]]:
        async def run() -> float:
            http = make()
            await by_hand.turn(http, path, [], "warm")
            times = []
            for _ in range(count):
                messages = list(plain)
                start = time.perf_counter()
                await by_hand.turn(http, path, messages, "hello")
                times.append(time.perf_counter() - start)
            await http.aclose()
            return statistics.fmean(times) * 1e6

        return run

    ways = {
        "agentcore": ours,
        "httpx": by(lambda: by_hand.HTTPXPost(port)),
        "socket": by(lambda: by_hand.SocketPost(port)),
    }
    return Row(name, unit, aim, ways)


def stream_row(port: int, path: str, name: str, aim: float, count: int) -> Row:
    async def ours() -> float:
        async with client(port, path, InMemoryChatMemory(), tools=()) as one:

            async def run() -> None:
                length = 0
                async with one.stream("go") as turn:
                    async for event in turn:
                        if isinstance(event, TextDelta):
                            length += len(event.text)
                assert length

            await run()
            return await _timed(run, count) / DELTAS

    def by(make: Callable[[], by_hand.Post]) -> Callable[[], Awaitable[float]]:
        async def run() -> float:
            http = make()
            await by_hand.stream(http, path)
            figure = await _timed(lambda: by_hand.stream(http, path), count) / DELTAS
            await http.aclose()
            return figure

        return run

    ways = {
        "agentcore": ours,
        "httpx": by(lambda: by_hand.HTTPXPost(port)),
        "socket": by(lambda: by_hand.SocketPost(port)),
    }
    return Row(name, "µs/delta", aim, ways)


def crowd_row(port: int, people: int, slow: bool) -> Row:
    def ours(make: Callable[[], Any]) -> Callable[[], Awaitable[float]]:
        async def run() -> float:
            http_client = make()
            async with client(port, "/slow", InMemoryChatMemory(), http_client) as one:
                start = time.perf_counter()
                await asyncio.gather(*(one.invoke("hi", conversation_id=str(n)) for n in range(people)))
                figure = time.perf_counter() - start
            if http_client is not None:
                await http_client.aclose()
            return figure

        return run

    def by(make: Callable[[], by_hand.Post]) -> Callable[[], Awaitable[float]]:
        async def run() -> float:
            http = make()
            start = time.perf_counter()
            await asyncio.gather(*(by_hand.turn(http, "/slow", [], "hi") for _ in range(people)))
            figure = time.perf_counter() - start
            await http.aclose()
            return figure

        return run

    def aiohttp() -> Any:
        from httpx_aiohttp import AiohttpTransport

        limits = httpx.Limits(max_connections=2000, max_keepalive_connections=2000)
        return httpx.AsyncClient(transport=AiohttpTransport(limits=limits), timeout=60)

    ways = {"agentcore": ours(lambda: None), "socket": by(lambda: by_hand.SocketPost(port)), "aiohttp": ours(aiohttp)}
    if slow:
        ways["httpx"] = by(lambda: by_hand.HTTPXPost(port))
    return Row(f"{people:,} concurrent turns of 100 ms", "s", None, ways)


def import_row() -> Row:
    def importing(what: str) -> Callable[[], Awaitable[float]]:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        code = f"import time; t = time.perf_counter(); import {what}; print((time.perf_counter() - t) * 1000)"

        async def run() -> float:
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment)
            return float(done.stdout)

        return run

    ways = {"agentcore": importing("agentcore"), "httpx": importing("httpx, msgspec, anyio")}
    return Row("import (beside httpx, msgspec, anyio)", "ms", 1.2, ways)


def rows(port: int, *, quick: bool, slow: bool) -> list[Row]:
    many = 3 if quick else 200
    return [
        turn_row(port, "/turn", "turn", 1.10, many),
        turn_row(port, "/tools", "turn of 3 rounds × 8 tools", 1.25, max(2, many // 4)),
        stream_row(port, "/stream", "stream, 16 events a network chunk", 2.0, 1 if quick else 5),
        stream_row(port, "/single", "stream, 1 event a network chunk", 2.0, 1 if quick else 3),
        turn_row(port, "/turn", "turn at 200 messages", 1.3, many // 2, 200),
        turn_row(port, "/turn", "turn at 1,000 messages", 1.3, max(2, many // 4), 1000),
        crowd_row(port, 20 if quick else 1000, slow),
        import_row(),
    ]


async def run(args: argparse.Namespace, port: int) -> None:
    ways = " ".join(f"{way:>10}" for way in ("agentcore", "httpx", "socket", "aiohttp"))
    print(f"{'':<42} {ways} {'ratio':>7} {'aim':>6} {'unit':>9} {'noise':>7}")
    for row in rows(port, quick=args.quick, slow=args.slow):
        if args.only in row.name:
            await row.measure(1 if args.quick else args.rounds)
            row.print()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="once, to see that it runs")
    parser.add_argument(
        "--slow", action="store_true", help="also what takes minutes: a thousand turns on httpx's own pool"
    )
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args(argv)
    more_files()
    with serving() as port:
        asyncio.run(run(args, port))


if __name__ == "__main__":
    main()
