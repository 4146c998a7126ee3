"""Forgotten conversations leave no byte of content in the file or its log, wherever SQLite has moved their rows."""

import random
import sqlite3
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from agentcore.memory.sqlite import SQLiteChatMemory
from agentcore.messages import Message, UserMessage

pytestmark = pytest.mark.asyncio


def bytes_of(folder: Path) -> bytes:
    """All files of the database, read by another process: one that closes them here would drop SQLite's locks."""
    return subprocess.run(["cat", *map(str, folder.iterdir())], check=True, capture_output=True).stdout


def content(name: str, size: int) -> str:
    return f"<{name}>" * size


async def fill(memory: SQLiteChatMemory, names: list[str], chance: random.Random, count: int) -> None:
    """Messages of all sizes, interleaved, so that pages are split and shared."""
    for number in range(count):
        name = chance.choice(names)
        size = chance.choice([1, 3, 10, 20, 30, 50, 100, 300, 1000])
        await memory.append(name, [UserMessage(content(name, size))], turn_id=f"{chance.random()}", position=0)
        await memory.put_record(name, "summary", f"{number % 7}", f'"{content(name, size)}"')


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("id_size", [0, 60], ids=["short ids", "long ids"])
async def test_cleared_conversations_leave_no_content(tmp_path: Path, seed: int, id_size: int) -> None:
    chance = random.Random(seed)
    names = [f"c{n:02d}" + "-" * id_size for n in range(20)]
    gone, kept = names[:10], names[10:]
    async with SQLiteChatMemory(tmp_path / "a.db", synchronous="NORMAL") as memory:
        await fill(memory, names, chance, 1500)
        before = bytes_of(tmp_path)
        assert all(f"<{name}>".encode() in before for name in names)
        held = {name: await memory.get(name) for name in kept}
        for name in chance.sample(gone, len(gone)):
            await memory.clear(name)
            await fill(memory, kept[:3], chance, 5)  # rows go on being moved
        after = bytes_of(tmp_path)
        assert [name for name in gone if f"<{name}>".encode() in after] == []
        for name in kept[3:]:
            assert await memory.get(name) == held[name]
            assert f"<{name}>".encode() in after


Forget = Callable[[SQLiteChatMemory], Awaitable[object]]


@pytest.mark.parametrize(
    "forget",
    [
        lambda memory: memory.rollback("c", to=0),
        lambda memory: memory.delete_inactive(0),
        lambda memory: memory.clear("c"),
    ],
    ids=["rollback", "delete_inactive", "clear"],
)
async def test_every_way_of_forgetting_leaves_no_content(tmp_path: Path, forget: Forget) -> None:
    messages: list[Message] = [UserMessage(content("secret", size)) for size in (1, 10, 100, 1000)]
    times = iter(range(1, 1000))
    async with SQLiteChatMemory(tmp_path / "a.db", clock=lambda: float(next(times))) as memory:
        await memory.append("c", messages, turn_id="t", position=0)
        await memory.put_record("c", "k", "a", f'"{content("secret", 50)}"', seq=4)
        assert b"secret" in bytes_of(tmp_path)
        await forget(memory)
        assert b"secret" not in bytes_of(tmp_path)


async def test_taken_and_replaced_records_leave_no_content(tmp_path: Path) -> None:
    async with SQLiteChatMemory(tmp_path / "a.db") as memory:
        await memory.put_record("c", "k", "a", '"first secret"')
        await memory.put_record("c", "k", "a", '"second secret"')
        assert await memory.take_record("c", "k", "a") is not None
        assert b"secret" not in bytes_of(tmp_path)


async def test_log_that_somebody_reads_is_emptied_with_a_later_commit(tmp_path: Path) -> None:
    async with SQLiteChatMemory(tmp_path / "a.db") as memory:
        await memory.add("c", [UserMessage("secret")])
        with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM ac_message").fetchall()
            await memory.clear("c")
            assert list(await memory.get("c")) == []
            assert b"secret" in bytes_of(tmp_path)
            reader.execute("COMMIT")
        await memory.add("d", [UserMessage("other")])
        assert b"secret" not in bytes_of(tmp_path)


async def test_forks_keep_their_own_content_out_of_what_moves(tmp_path: Path) -> None:
    chance = random.Random(7)
    async with SQLiteChatMemory(tmp_path / "a.db", synchronous="NORMAL") as memory:
        await fill(memory, ["a", "b"], chance, 200)
        for n in range(10):
            await memory.fork("a", f"fork {n}")
            await fill(memory, ["b"], chance, 20)
        for n in range(10):
            await memory.clear(f"fork {n}")
            await fill(memory, ["b"], chance, 10)
        await memory.clear("a")
        assert b"<a>" not in bytes_of(tmp_path)
