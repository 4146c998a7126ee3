"""The schema of a SQLite file: made once by whoever comes first, upgraded step by step, never downgraded."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agentcore.errors import StoreError
from agentcore.memory.schema_versions import SchemaStep, missing_steps, newest
from agentcore.memory.sqlite import SQLiteChatMemory
from agentcore.memory.sqlite_schema import STEPS, prepare_schema
from agentcore.messages import SystemMessage, UserMessage

THREE = tuple(SchemaStep(number, ()) for number in (1, 2, 3))


def connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def tables(path: Path) -> dict[str, str]:
    with closing(connect(path)) as connection:
        return dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"))


def test_steps_are_numbered_without_gaps() -> None:
    assert [step.number for step in STEPS] == list(range(1, len(STEPS) + 1))
    assert newest(STEPS) == len(STEPS)
    assert newest(()) == 0


@pytest.mark.parametrize("applied", [0, 1, 2, 3])
def test_missing_steps_are_those_after_the_last_one(applied: int) -> None:
    assert [step.number for step in missing_steps(THREE, applied, "it")] == [1, 2, 3][applied:]


def test_newer_schema_is_refused_naming_both_versions() -> None:
    with pytest.raises(
        StoreError, match=r"it has schema version 7, and this agentcore knows versions up to 3: .*upgrade"
    ):
        missing_steps(THREE, 7, "it")


def test_verifying_refuses_what_is_missing() -> None:
    assert not missing_steps(THREE, 3, "it", verify_only=True)
    with pytest.raises(StoreError, match="it has schema version 2, and version 3 is needed"):
        missing_steps(THREE, 2, "it", verify_only=True)
    with pytest.raises(StoreError, match="it has no schema of agentcore, and version 3 is needed"):
        missing_steps(THREE, 0, "it", verify_only=True)


def test_step_that_fails_leaves_nothing_of_itself(tmp_path: Path) -> None:
    steps = (SchemaStep(1, ("CREATE TABLE a (x)",)), SchemaStep(2, ("CREATE TABLE b (x)", "CREATE TABLE a (x)")))
    with closing(connect(tmp_path / "a.db")) as connection, pytest.raises(sqlite3.OperationalError):
        prepare_schema(connection, "it", steps=steps)
    assert set(tables(tmp_path / "a.db")) == {"ac_schema", "a"}


@pytest.mark.asyncio
@pytest.mark.parametrize("version", range(len(STEPS) + 1))
async def test_file_of_every_older_version_is_upgraded_with_its_data(tmp_path: Path, version: int) -> None:
    path = tmp_path / "a.db"
    with closing(connect(path)) as connection:
        prepare_schema(connection, "it", steps=STEPS[:version])
        if version:
            connection.execute(
                "INSERT INTO ac_conversation (conversation_id, version, fence, created_at, updated_at) "
                "VALUES ('c', 2, 5, 1.0, 2.0)"
            )
            for seq, role in ((1, "system"), (2, "user")):
                body = f'{{"role":"{role}","content":"text {seq}"}}'
                connection.execute(
                    "INSERT INTO ac_message VALUES ('c', ?, 't', ?, ?, 1.5, x'', ?)", (seq, seq - 1, role, body)
                )
    async with SQLiteChatMemory(path) as memory:
        held = [SystemMessage("text 1"), UserMessage("text 2")] if version else []
        assert list(await memory.get("c")) == held
        assert await memory.append("c", [UserMessage("more")], turn_id="u", position=0) == len(held) + 1
        assert await memory.put_record("c", "k", "a", "{}")
    async with SQLiteChatMemory(tmp_path / "new.db") as fresh:
        await fresh.get("c")
    assert tables(path) == tables(tmp_path / "new.db")


@pytest.mark.asyncio
async def test_file_with_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with SQLiteChatMemory(path) as memory:
        await memory.add("c", [UserMessage("a")])
    with closing(connect(path)) as connection:
        connection.execute("INSERT INTO ac_schema VALUES (99, 0.0)")
    async with SQLiteChatMemory(path) as memory:
        for call in (memory.get("c"), memory.add("c", [UserMessage("b")])):
            with pytest.raises(StoreError, match=f"a.db has schema version 99, and .* up to {newest(STEPS)}"):
                await call
    with closing(connect(path)) as connection:
        connection.execute("DELETE FROM ac_schema WHERE version = 99")
    async with SQLiteChatMemory(path) as memory:
        assert list(await memory.get("c")) == [UserMessage("a")]


@pytest.mark.asyncio
async def test_verify_only_makes_neither_files_nor_tables(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with SQLiteChatMemory(path, verify_only=True) as memory:
        with pytest.raises(StoreError, match=r"a\.db does not exist, and verify_only=True"):
            await memory.get("c")
    assert not path.exists()
    with closing(connect(path)) as connection:
        prepare_schema(connection, "it", steps=STEPS[:1])
    before = tables(path)
    async with SQLiteChatMemory(path, verify_only=True) as memory:
        with pytest.raises(StoreError, match="has schema version 1, and version"):
            await memory.add("c", [UserMessage("a")])
    assert tables(path) == before


@pytest.mark.asyncio
async def test_verify_only_works_on_a_file_that_is_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with SQLiteChatMemory(path) as memory:
        await memory.get("c")
    async with SQLiteChatMemory(path, verify_only=True) as memory:
        await memory.add("c", [UserMessage("a")])
        assert list(await memory.get("c")) == [UserMessage("a")]


@pytest.mark.asyncio
async def test_tables_of_the_application_may_be_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA user_version = 42")
        connection.execute("CREATE TABLE mine (x)")
        connection.execute("INSERT INTO mine VALUES (1)")
    async with SQLiteChatMemory(path) as memory:
        await memory.add("c", [UserMessage("a")])
    with closing(connect(path)) as connection:
        assert connection.execute("SELECT x FROM mine").fetchall() == [(1,)]
        assert connection.execute("PRAGMA user_version").fetchall() == [(42,)]
