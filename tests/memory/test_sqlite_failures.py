"""What SQLite cannot do is told as a StoreError that names file and cure; afterwards the memory works again."""

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from agentcore.errors import StoreError
from agentcore.memory import sqlite_threads
from agentcore.memory.sqlite import SQLiteChatMemory
from agentcore.memory.sqlite_file import OpenFile
from agentcore.messages import UserMessage

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def memory(tmp_path: Path) -> AsyncIterator[SQLiteChatMemory]:
    async with SQLiteChatMemory(tmp_path / "a.db", busy_timeout=0.05) as memory:
        yield memory


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """Somebody else is writing."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


async def test_file_that_is_locked_too_long_is_told_to_all_that_wait(memory: SQLiteChatMemory, tmp_path: Path) -> None:
    await memory.add("c", [UserMessage("a")])
    with locked(tmp_path / "a.db"):
        outcomes = await asyncio.gather(
            *(memory.add("c", [UserMessage("b")]) for _ in range(20)), return_exceptions=True
        )
        assert list(await memory.get("c")) == [UserMessage("a")]  # readers do not wait
    for outcome in outcomes:
        assert isinstance(outcome, StoreError)
        assert "a.db was locked by another process for 0.05 s" in str(outcome)
        assert outcome.retryable
    assert len(set(map(id, outcomes))) == 20
    await memory.add("c", [UserMessage("c")])
    assert [m.content for m in await memory.get("c")] == ["a", "c"]


async def test_short_lock_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SQLiteChatMemory(tmp_path / "a.db", busy_timeout=30) as memory:
        await memory.add("c", [UserMessage("a")])
        waited = asyncio.Event()
        loop, pause = asyncio.get_running_loop(), sqlite_threads.time.sleep

        def sleep(seconds: float) -> None:
            loop.call_soon_threadsafe(waited.set)
            pause(seconds)

        monkeypatch.setattr(sqlite_threads.time, "sleep", sleep)
        with locked(tmp_path / "a.db") as other:
            task = asyncio.ensure_future(memory.add("c", [UserMessage("b")]))
            await waited.wait()
            assert not task.done()
            other.execute("COMMIT")
            await task


async def test_lock_during_the_first_opening_is_waited_for_and_told(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (x)")
    async with SQLiteChatMemory(path, busy_timeout=0.05) as memory:
        with locked(path), pytest.raises(StoreError, match=r"a\.db was locked by another process"):
            await memory.get("c")
        await memory.add("c", [UserMessage("a")])


async def test_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes\n" * 100)
    async with SQLiteChatMemory(path) as memory:
        with pytest.raises(StoreError, match=r"notes\.txt is no SQLite database; name another file"):
            await memory.get("c")
        with pytest.raises(StoreError, match="is no SQLite database"):
            await memory.add("c", [UserMessage("a")])
    assert path.read_text() == "these are my notes\n" * 100


async def test_missing_folder_is_named_and_works_once_it_is_there(tmp_path: Path) -> None:
    async with SQLiteChatMemory(tmp_path / "data" / "a.db") as memory:
        with pytest.raises(StoreError, match="cannot be opened; .*there is no directory .*data"):
            await memory.add("c", [UserMessage("a")])
        (tmp_path / "data").mkdir()
        await memory.add("c", [UserMessage("a")])


async def test_folder_in_place_of_a_file_is_told(tmp_path: Path) -> None:
    async with SQLiteChatMemory(tmp_path) as memory:
        with pytest.raises(StoreError, match="cannot be opened; .*it is a directory"):
            await memory.get("c")


async def test_damaged_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with SQLiteChatMemory(path) as memory:
        for n in range(50):
            await memory.add("c", [UserMessage(f"{n} " * 200)])
    content = path.read_bytes()
    path.write_bytes(content[:4096] + bytes(range(256)) * ((len(content) - 4096) // 256))
    async with SQLiteChatMemory(path) as memory:
        with pytest.raises(StoreError, match=r"a\.db is damaged; restore a backup"):
            await memory.get("c")


async def test_damaged_message_is_told_without_its_content(memory: SQLiteChatMemory, tmp_path: Path) -> None:
    await memory.add("c", [UserMessage("a")])
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute('UPDATE ac_message SET body = \'{"role":"user","content":"my secret\'')
        connection.commit()
    with pytest.raises(StoreError, match="a stored message cannot be read") as caught:
        await memory.get("c")
    assert "secret" not in str(caught.value)
    await memory.clear("c")
    assert list(await memory.get("c")) == []


async def test_file_that_was_replaced_is_told_once_and_then_used(memory: SQLiteChatMemory, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    await memory.add("c", [UserMessage("a")])
    await memory.get("c")
    for name in ("a.db", "a.db-wal", "a.db-shm"):
        os.unlink(tmp_path / name)
    async with SQLiteChatMemory(path) as other:
        await other.add("c", [UserMessage("restored")])
    for call in (memory.get("c"), memory.add("c", [UserMessage("lost")])):
        with pytest.raises(StoreError, match="was moved, deleted or replaced while it was in use; nothing was stored"):
            await call
    await memory.add("c", [UserMessage("b")])
    assert [m.content for m in await memory.get("c")] == ["restored", "b"]


async def test_full_disk_is_told_keeps_the_history_whole_and_works_again(
    memory: SQLiteChatMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = 400
    check_place = OpenFile.check_place

    def with_limit(self: OpenFile) -> None:
        self.connection.execute(f"PRAGMA max_page_count = {pages}")
        check_place(self)

    monkeypatch.setattr(OpenFile, "check_place", with_limit)
    stored = 0
    with pytest.raises(StoreError, match=r"a\.db has no room left on its disk; free some space") as caught:
        while True:
            await memory.append("c", [UserMessage("x" * 9000)], turn_id=f"t{stored}", position=0)
            stored += 1
    assert caught.value.retryable
    assert len(await memory.get("c")) == stored > 5
    pages += 20
    small = memory.append("c", [UserMessage("small")], turn_id="small", position=0)
    large = memory.append("d", [UserMessage("x" * 90_000)], turn_id="large", position=0)
    outcomes = await asyncio.gather(large, small, return_exceptions=True)
    assert isinstance(outcomes[0], StoreError)
    assert outcomes[1] == stored + 1  # what has room is stored
    pages = 100_000
    assert await memory.append("d", [UserMessage("x" * 90_000)], turn_id="large", position=0) == 1
    assert len(await memory.get("c")) == stored + 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("no right to mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def test_small_disk_that_is_full_is_told_and_used_again_when_there_is_space(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(300_000))
    async with SQLiteChatMemory(small_disk / "a.db") as memory:
        stored = 0
        with pytest.raises(StoreError, match=r"a\.db (has no room left|could not be read or written)"):
            while True:
                await memory.append("c", [UserMessage("x" * 9000)], turn_id=f"t{stored}", position=0)
                stored += 1
        assert len(await memory.get("c")) == stored > 5
        ballast.unlink()
        assert await memory.append("c", [UserMessage("y")], turn_id=f"t{stored}", position=0) == stored + 1
        assert len(await memory.get("c")) == stored + 1


async def test_old_sqlite_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    async with SQLiteChatMemory(tmp_path / "a.db") as memory:
        with pytest.raises(StoreError, match=r"3\.35\.0 or newer is needed"):
            await memory.get("c")
