"""A windowed turn on a long conversation beside the same turn on a short one, on every store that is at hand.

python -m benchmarks.windows [--quick] [--only WORD] [--rounds N] [--directory D] [--postgres DSN] [--redis URL]
"""

import argparse
import asyncio
import statistics
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from agentcore import ChatClient, InMemoryChatMemory
from agentcore.memory.urls import chat_memory
from agentcore.memory.windowed import WindowedChatMemory
from agentcore.messages import AssistantMessage, Message, SystemMessage, UserMessage
from agentcore.testing import ScriptedModel

SHORT, LONG, WINDOW = 100, 10_000, 50
AIM = 1.5
FILLED_AT_ONCE = 1000


def history(count: int) -> list[Message]:
    question = UserMessage("a question, about as long as one is: " + "what about this, and why? " * 6)
    answer = AssistantMessage("an answer, about as long as one is: " + "because of that, and so on. " * 12)
    turns = [question, answer] * (count // 2)
    return [SystemMessage("Be brief."), *turns[1:]]


async def fill(store: Any, name: str, messages: list[Message]) -> None:
    for start in range(0, len(messages), FILLED_AT_ONCE):
        await store.add(name, messages[start : start + FILLED_AT_ONCE])


class Row:
    """One line: a windowed turn, and a turn that sees all, on a short and a long conversation."""

    def __init__(self, name: str, store: Any) -> None:
        self.name, self.store = name, store
        prefix = uuid.uuid4().hex
        self.conversations = {size: f"{prefix}-{size}" for size in (SHORT, LONG)}
        self.figures: dict[int, list[float]] = {SHORT: [], LONG: []}

    async def prepare(self, quick: bool) -> None:
        for size, name in self.conversations.items():
            await fill(self.store, name, history(min(size, 500) if quick else size))

    async def measure(self, rounds: int, turns: int) -> None:
        model = ScriptedModel(["an answer"], repeat_last=True)
        client = ChatClient(model, memory=WindowedChatMemory(self.store, max_messages=WINDOW))
        for _ in range(rounds):
            for size, name in self.conversations.items():
                times: list[float] = []
                for _ in range(turns):
                    start = time.perf_counter()
                    await client.invoke("and now?", conversation_id=name)
                    times.append(time.perf_counter() - start)
                self.figures[size].append(statistics.median(times) * 1e6)
            model.requests.clear()

    async def forget(self) -> None:
        for name in self.conversations.values():
            await self.store.clear(name)

    def print(self) -> None:
        short, long = (statistics.median(self.figures[size]) for size in (SHORT, LONG))
        noise = 100 * statistics.stdev(self.figures[LONG]) / long if len(self.figures[LONG]) > 1 else 0
        print(
            f"{self.name:<12} windowed turn ({WINDOW}) at {LONG:,}: {long:>9.1f} µs ±{noise:.0f} %   "
            f"at {SHORT}: {short:>9.1f} µs   ×{long / short:.2f}   aim ≤ ×{AIM}"
        )


@asynccontextmanager
async def rows(directory: Path, args: argparse.Namespace) -> AsyncIterator[list[Row]]:
    urls = {"SQLite": f"sqlite:///{directory}/windows.db", "PostgreSQL": args.postgres, "Redis": args.redis}
    async with AsyncExitStack() as stack:
        found = [Row("in memory", InMemoryChatMemory())]
        for name, url in urls.items():
            if url is not None:
                store: Any = chat_memory(url)
                stack.push_async_callback(store.aclose)
                found.append(Row(name, store))
        yield found


async def run(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(dir=args.directory) as directory:
        async with rows(Path(directory), args) as found:
            for row in found:
                if args.only in row.name:
                    await row.prepare(args.quick)
                    await row.measure(1 if args.quick else args.rounds, 3 if args.quick else 60)
                    row.print()
                    await row.forget()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="once, to see that it runs")
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", help="where the file is to be: the disk counts")
    parser.add_argument("--postgres", help="the address of a PostgreSQL database")
    parser.add_argument("--redis", help="the address of a Redis")
    asyncio.run(run(parser.parse_args(argv)))


if __name__ == "__main__":
    main()
