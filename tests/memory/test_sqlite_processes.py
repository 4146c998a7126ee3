"""Several processes on one SQLite file: none loses, doubles or tears apart what another one writes."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from agentcore.memory.sqlite import SQLiteChatMemory
from agentcore.messages import AssistantMessage, UserMessage

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.asyncio


@contextmanager
def worker(path: Path, what: str, *arguments: object) -> Iterator["subprocess.Popen[str]"]:
    """A process that is ready and waits for the word to begin."""
    command = [sys.executable, "-m", "tests.support.sqlite_worker", str(path), what, *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def begin(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def end(process: "subprocess.Popen[str]") -> list[str]:
    """What it has said."""
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return said.splitlines()


def at_once(path: Path, count: int, what: str, *arguments: object) -> list[list[str]]:
    """Let processes that are all ready begin at the same moment."""
    with ExitStack() as stack:
        processes = [stack.enter_context(worker(path, what, f"p{n}", *arguments)) for n in range(count)]
        for process in processes:
            begin(process)
        return [end(process) for process in processes]


async def test_eight_processes_open_a_new_file_at_once(tmp_path: Path) -> None:
    at_once(tmp_path / "a.db", 8, "append_alone", 5)
    async with SQLiteChatMemory(tmp_path / "a.db") as memory:
        for name in [f"p{n}" for n in range(8)]:
            assert list(await memory.get(name)) == [UserMessage(f"{name} {number}") for number in range(5)]
        shared = await memory.read("all")
        assert [record.seq for record in shared] == list(range(1, 41))
        assert len({record.turn_id for record in shared}) == 40


async def test_same_append_from_several_processes_is_stored_once(tmp_path: Path) -> None:
    said = at_once(tmp_path / "a.db", 3, "append_same")
    async with SQLiteChatMemory(tmp_path / "a.db") as memory:
        assert sorted(text for message in await memory.get("c") for text in [message.content]) == list("0123456789")
    assert [len(lines) for lines in said] == [10, 10, 10]


async def test_turns_of_several_processes_never_interleave(tmp_path: Path) -> None:
    at_once(tmp_path / "a.db", 3, "take_turns", 8)
    async with SQLiteChatMemory(tmp_path / "a.db") as memory:
        messages = list(await memory.get("c"))
    turns = [str(message.content) for message in messages[::2]]
    assert messages == [m for turn in turns for m in (UserMessage(turn), AssistantMessage(turn))]
    assert sorted(turns) == sorted(f"p{n}-{number}" for n in range(3) for number in range(8))


async def test_one_of_many_processes_gets_a_lease(tmp_path: Path) -> None:
    said = at_once(tmp_path / "a.db", 4, "take_lease")
    assert sorted(said) == [["False"], ["False"], ["False"], ["True"]]


async def test_one_of_many_processes_appends_to_the_expected_version(tmp_path: Path) -> None:
    said = at_once(tmp_path / "a.db", 4, "expect")
    assert sorted(said) == [["VersionConflictError 1"]] * 3 + [["won"]]


POINTS = [
    "before an append",
    "before the statements",
    "before the commit",
    "before the reply",
    "after the reply",
    "between two of a turn",
]


@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize("point", POINTS)
async def test_killed_process_leaves_all_that_it_was_told_was_stored(tmp_path: Path, point: str, after: int) -> None:
    path = tmp_path / "a.db"
    with worker(path, "hang", point, after) as process:
        begin(process)
        assert process.stdout is not None
        acknowledged = 0
        while (line := process.stdout.readline()) != "here\n":
            acknowledged = int(line)
        process.kill()
    async with SQLiteChatMemory(path) as memory:
        stored = await memory.read("c")
        assert [record.message for record in stored] == [UserMessage(str(n)) for n in range(len(stored))]
        assert len(stored) in (acknowledged, acknowledged + 1)
        # Nobody knows whether the last one was stored: sent again, it is stored once.
        turn_id, position = f"t{acknowledged // 2}", acknowledged % 2
        await memory.append("c", [UserMessage(str(acknowledged))], turn_id=turn_id, position=position)
        assert await memory.append("c", [UserMessage("next")], turn_id="next", position=0) == acknowledged + 2
        assert [m.content for m in await memory.get("c")] == [*map(str, range(acknowledged + 1)), "next"]


async def test_process_that_leaves_without_closing_loses_nothing(tmp_path: Path) -> None:
    with worker(tmp_path / "a.db", "leave", "p") as process:
        begin(process)
        assert end(process) == ["1", "1"]
    async with SQLiteChatMemory(tmp_path / "a.db") as memory:
        assert list(await memory.get("c")) == [UserMessage("a")]


async def test_file_that_may_not_grow_is_told_and_works_again_when_it_may(tmp_path: Path) -> None:
    with worker(tmp_path / "a.db", "outgrow", "p") as process:
        begin(process)
        refusal, counts, last = end(process)
    assert "a.db could not be read or written (SQLITE_IOERR" in refusal
    stored, held = map(int, counts.strip("[]").split(","))
    assert 0 < stored == held
    assert int(last) == stored + 1


@pytest.mark.parametrize("folder_mode", [0o755, 0o777], ids=["read-only folder", "writable folder"])
async def test_read_only_file_is_told_and_left_alone(tmp_path: Path, folder_mode: int) -> None:
    path = tmp_path / "a.db"
    async with SQLiteChatMemory(path) as memory:
        await memory.add("c", [UserMessage("a")])
    for folder in tmp_path.parents[:2]:
        folder.chmod(0o755)
    tmp_path.chmod(folder_mode)
    path.chmod(0o444)
    with worker(path, "read_and_write", "p") as process:
        begin(process)
        reading, writing = end(process)
    refusal = f"{path} may only be read; make the file and its directory writable for this user"
    assert reading == ("done" if folder_mode == 0o777 else refusal)  # readers, too, keep files beside it
    assert writing == refusal
    path.chmod(0o644)
    async with SQLiteChatMemory(path) as memory:
        assert list(await memory.get("c")) == [UserMessage("a")]
