"""The stores: appends and tail reads by agentcore beside the bare driver doing the same, interleaved, medians.

python -m benchmarks.stores [--quick] [--only WORD] [--rounds N] [--directory D]
"""

import argparse
import asyncio
import contextlib
import sqlite3
import statistics
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from agentcore.memory.sqlite import SQLiteChatMemory
from agentcore.messages import AssistantMessage, Message, UserMessage

QUESTION = UserMessage("a question, about as long as one is: " + "what about this, and why? " * 6)
ANSWER = AssistantMessage("an answer, about as long as one is: " + "because of that, and so on. " * 12)
CROWD = 64
LAST = 50

Run = Callable[[int], Awaitable[float]]


class Row:
    """One line: a job done by a store, and by its bare driver in the ways one would write it."""

    def __init__(self, name: str, unit: str, aim: str, ways: dict[str, Run], count: int) -> None:
        self.name, self.unit, self.aim, self.ways, self.count = name, unit, aim, ways, count
        self.figures: dict[str, list[float]] = {way: [] for way in ways}

    async def measure(self, rounds: int) -> None:
        for _ in range(rounds):
            for way, run in self.ways.items():
                self.figures[way].append(await run(self.count))

    def print(self) -> None:
        ours = statistics.median(self.figures["agentcore"])
        cells = [f"{self.name:<44} {ours:>10.1f}"]
        for way, figures in self.figures.items():
            if way != "agentcore":
                figure = statistics.median(figures)
                cells.append(f"{way} {figure:.1f} (×{ours / figure:.2f})")
        noise = 100 * statistics.stdev(self.figures["agentcore"]) / ours if len(self.figures["agentcore"]) > 1 else 0
        print("  ".join([cells[0], f"{self.unit:<10}", f"±{noise:.0f} %", *cells[1:], self.aim]))


def micros(seconds: list[float]) -> float:
    return statistics.median(seconds) * 1e6


class BareSQLite:
    """The same append and the same read, written by hand on sqlite3: no leases, no repeats, no errors of its own."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            self.connection.execute(f"PRAGMA {pragma}").fetchall()
        self.connection.executescript(
            """
            CREATE TABLE IF NOT EXISTS conversation (
                id TEXT PRIMARY KEY, version INTEGER, updated_at REAL
            ) WITHOUT ROWID;
            CREATE INDEX IF NOT EXISTS by_update ON conversation (updated_at, id);
            CREATE TABLE IF NOT EXISTS message (
                conversation_id TEXT REFERENCES conversation, seq INTEGER, turn_id TEXT, position INTEGER, role TEXT,
                body TEXT, created_at REAL, PRIMARY KEY (conversation_id, seq),
                UNIQUE (conversation_id, turn_id, position)
            ) WITHOUT ROWID;
            """
        )

    def append(self, conversation_id: str, message: Message, turn_id: str) -> None:
        execute, now = self.connection.execute, time.time()
        body = msgspec.json.encode(message).decode()
        execute("BEGIN IMMEDIATE")
        found = execute("SELECT version FROM conversation WHERE id = ?", (conversation_id,)).fetchone()
        version = (found[0] if found else 0) + 1
        execute(
            "INSERT INTO conversation VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET version = excluded.version, "
            "updated_at = excluded.updated_at",
            (conversation_id, version, now),
        )
        execute(
            "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?)",
            (conversation_id, version, turn_id, 0, "user", body, now),
        )
        execute("COMMIT")

    def tail(self, conversation_id: str) -> list[Message]:
        rows = self.connection.execute(
            "SELECT body FROM message WHERE conversation_id = ? ORDER BY seq DESC LIMIT ?", (conversation_id, LAST)
        ).fetchall()
        return [msgspec.json.decode(body, type=Message) for (body,) in reversed(rows)]

    def fill(self, conversation_id: str, messages: list[Message]) -> None:
        execute = self.connection.execute
        execute("BEGIN")
        execute("INSERT INTO conversation VALUES (?, ?, ?)", (conversation_id, len(messages), 0.0))
        for seq, message in enumerate(messages, 1):
            body = msgspec.json.encode(message).decode()
            execute(
                "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?)", (conversation_id, seq, "fill", seq, "u", body, 0.0)
            )
        execute("COMMIT")


async def one_by_one(append: Callable[[str, str], Awaitable[object]], count: int) -> float:
    times: list[float] = []
    conversation_id = uuid.uuid4().hex
    for _ in range(count):
        start = time.perf_counter()
        await append(conversation_id, uuid.uuid4().hex)
        times.append(time.perf_counter() - start)
    return micros(times)


async def by_a_crowd(append: Callable[[str, str], Awaitable[object]], count: int) -> float:
    async def task() -> None:
        conversation_id = uuid.uuid4().hex
        for _ in range(count):
            await append(conversation_id, uuid.uuid4().hex)

    start = time.perf_counter()
    await asyncio.gather(*(task() for _ in range(CROWD)))
    return CROWD * count / (time.perf_counter() - start)


async def repeated(read: Callable[[], Awaitable[object]], count: int) -> float:
    times: list[float] = []
    for _ in range(count):
        start = time.perf_counter()
        await read()
        times.append(time.perf_counter() - start)
    return micros(times)


@contextlib.asynccontextmanager
async def sqlite_rows(directory: Path, quick: bool) -> AsyncIterator[list[Row]]:
    store, bare = SQLiteChatMemory(directory / "agentcore.db"), BareSQLite(directory / "bare.db")
    history: list[Message] = [QUESTION if n % 2 == 0 else ANSWER for n in range(200 if quick else 10_000)]
    for name, messages in (("short", history[:100]), ("long", history)):
        await store.add(name, messages)
        bare.fill(name, messages)

    async def ours(conversation_id: str, turn_id: str) -> None:
        await store.append(conversation_id, [QUESTION], turn_id=turn_id, position=0)

    async def straight(conversation_id: str, turn_id: str) -> None:
        bare.append(conversation_id, QUESTION, turn_id)

    thread = ThreadPoolExecutor(1)  # a connection is used by one thread at a time

    async def in_thread(conversation_id: str, turn_id: str) -> None:
        await asyncio.get_running_loop().run_in_executor(thread, bare.append, conversation_id, QUESTION, turn_id)

    async def tail_in_thread(name: str) -> None:
        await asyncio.get_running_loop().run_in_executor(thread, bare.tail, name)

    appends = {"agentcore": ours, "sqlite3": straight, "in a thread": in_thread}
    rows = [
        Row(
            "SQLite: append",
            "µs",
            "aim ≤ ×1.3 of in a thread",
            {way: lambda count, one=one: one_by_one(one, count) for way, one in appends.items()},
            3 if quick else 300,
        ),
        Row(
            f"SQLite: appends by {CROWD} tasks",
            "a second",
            "aim ≥ ×5",
            {way: lambda count, one=one: by_a_crowd(one, count) for way, one in appends.items() if way != "sqlite3"},
            2 if quick else 20,
        ),
    ]
    for name, messages in (("short", 100), ("long", len(history))):
        ways: dict[str, Run] = {
            "agentcore": lambda count, name=name: repeated(lambda: store.get_tail(name, LAST), count),
            "in a thread": lambda count, name=name: repeated(lambda: tail_in_thread(name), count),
        }
        rows.append(Row(f"SQLite: last {LAST} of {messages:,}, decoded", "µs", "", ways, 3 if quick else 500))
    try:
        yield rows
    finally:
        await store.aclose()
        thread.shutdown()
        bare.connection.close()


async def run(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(dir=args.directory) as directory:
        async with sqlite_rows(Path(directory), args.quick) as rows:
            for row in rows:
                if args.only in row.name:
                    await row.measure(1 if args.quick else args.rounds)
                    row.print()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="once, to see that it runs")
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", help="where the files are to be: the disk counts")
    asyncio.run(run(parser.parse_args(argv)))


if __name__ == "__main__":
    main()
