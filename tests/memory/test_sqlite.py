"""What is SQLite's own about SQLiteChatMemory: shared commits, threads, event loops, cancellation, closing."""

import asyncio
import gc
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agentcore.errors import ConfigurationError, InvalidInputError, LeaseLostError, StoreError
from agentcore.memory import sqlite_heads, sqlite_log, sqlite_threads
from agentcore.memory.base import (
    Lease,
)
from agentcore.memory.sqlite import SQLiteChatMemory
from agentcore.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage

pytestmark = pytest.mark.asyncio


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest_asyncio.fixture
async def memory(path: Path) -> AsyncIterator[SQLiteChatMemory]:
    async with SQLiteChatMemory(path) as memory:
        yield memory


@pytest.fixture
def threads_end() -> Iterator[None]:
    """No thread is left behind."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        assert thread.name.startswith("asyncio"), thread


class Gate:
    """Holds the thread that passes it until it is opened."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.reached.set()
        assert self.opened.wait(30)
        return self._function(*args, **kwargs)


async def reached(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.reached.wait, 30)


async def spin(times: int = 5) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


@pytest.mark.parametrize("path", ["", ":memory:"])
async def test_memory_without_a_file_is_refused_with_a_pointer(path: str) -> None:
    with pytest.raises(ConfigurationError, match=r"InMemoryChatMemory\(\)"):
        SQLiteChatMemory(path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"synchronous": "OFF"}, "'FULL' or 'NORMAL', not 'OFF'"),
        ({"lease_seconds": 0}, "lease_seconds"),
        ({"busy_timeout": -1}, "busy_timeout"),
    ],
)
async def test_options_of_no_use_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        SQLiteChatMemory("a.db", **options)


@pytest.mark.parametrize(("synchronous", "level"), [("FULL", 2), ("NORMAL", 1)])
async def test_connections_have_the_pragmas_that_are_promised(path: Path, synchronous: Any, level: int) -> None:
    async with SQLiteChatMemory(path, synchronous=synchronous) as memory:
        for run in (memory._write, memory._read):

            def ask(given: Any) -> list[Any]:
                connection: sqlite3.Connection = getattr(given, "connection", given)
                names = ("journal_mode", "synchronous", "foreign_keys", "secure_delete")
                return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

            assert await run(ask) == ["wal", level, 1, 1]


async def test_path_does_not_move_with_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with SQLiteChatMemory("a.db") as memory:
        monkeypatch.chdir("/")
        await memory.add("c", [UserMessage("a")])
    assert (tmp_path / "a.db").exists()
    assert repr(memory) == f"SQLiteChatMemory('{tmp_path}/a.db')"


# Shared commits


async def test_appends_that_wait_share_a_commit(memory: SQLiteChatMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    commit = sqlite_threads._Writer._commit

    def counted(self: Any, transaction: Any, batch: list[Any]) -> Any:
        batches.append(len(batch))
        return commit(self, transaction, batch)

    monkeypatch.setattr(sqlite_threads._Writer, "_commit", counted)
    gate = Gate(sqlite_log.add)
    monkeypatch.setattr(sqlite_log, "add", gate)
    first = asyncio.ensure_future(memory.add("first", [UserMessage("a")]))
    await reached(gate)
    tasks = [
        asyncio.ensure_future(memory.append(f"c{n % 8}", [UserMessage(str(n))], turn_id=f"t{n}", position=0))
        for n in range(64)
    ]
    await spin()
    gate.opened.set()
    await first
    versions = await asyncio.gather(*tasks)
    assert batches == [1, 64]
    for conversation in range(8):
        mine = range(conversation, 64, 8)
        assert [versions[n] for n in mine] == list(range(1, 9))
        assert [m.content for m in await memory.get(f"c{conversation}")] == [str(n) for n in mine]


async def test_one_refused_append_does_not_harm_those_it_shares_a_commit_with(
    memory: SQLiteChatMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(sqlite_log.add)
    monkeypatch.setattr(sqlite_log, "add", gate)
    first = asyncio.ensure_future(memory.add("first", [UserMessage("a")]))
    await reached(gate)

    def fails_half_way(transaction: Any) -> None:
        sqlite_heads.take_lease(transaction, "half", 10, False)
        raise KeyError("mine")

    stale = Lease("c", 77, 0)
    calls = [
        memory.append("c", [UserMessage("1")], turn_id="t1", position=0),
        memory.append("c", [UserMessage("2")], turn_id="t2", position=0, lease=stale),
        memory._write(fails_half_way),
        memory.append("c\ud800", [UserMessage("3")], turn_id="t3", position=0),
        memory.append("c", [UserMessage("4")], turn_id="t4", position=2**70),
        memory.append("c", [UserMessage("5")], turn_id="t5", position=0),
    ]
    tasks = [asyncio.ensure_future(call) for call in calls]
    await spin()
    gate.opened.set()
    await first
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [
        int,
        LeaseLostError,
        KeyError,
        InvalidInputError,
        InvalidInputError,
        int,
    ]
    assert [m.content for m in await memory.get("c")] == ["1", "5"]
    assert await memory.take_lease("half", 10) == Lease("half", 1, 0)


async def test_batch_that_fails_as_a_whole_is_done_one_by_one(
    memory: SQLiteChatMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(sqlite_log.add)
    monkeypatch.setattr(sqlite_log, "add", gate)
    first = asyncio.ensure_future(memory.add("first", [UserMessage("a")]))
    await reached(gate)

    def breaks(transaction: Any) -> None:
        transaction.connection.execute("ROLLBACK")  # what SQLite does by itself when the disk is full
        transaction.connection.execute("SELECT no_such_function()")

    calls = [
        memory.append("c", [UserMessage("1")], turn_id="t1", position=0),
        memory._write(breaks),
        memory.append("c", [UserMessage("2")], turn_id="t2", position=0),
    ]
    tasks = [asyncio.ensure_future(call) for call in calls]
    await spin()
    gate.opened.set()
    await first
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert outcomes[0] == 1
    assert isinstance(outcomes[1], StoreError)
    assert outcomes[2] == 2
    assert [m.content for m in await memory.get("c")] == ["1", "2"]


# Content


TEXTS = ["", "a\x00b", "half \ud83d", "\ud83d\ude00", "😀", "x" * 5_000_000, "ü" * 3_000_000]


@pytest.mark.parametrize("text", TEXTS, ids=[f"{len(text)} characters {n}" for n, text in enumerate(TEXTS)])
async def test_messages_read_back_equal(memory: SQLiteChatMemory, text: str) -> None:
    args = {"z": 1.0, "a": 1, "big": 10**40, "text": text, "key " + text[:9]: None}
    messages: list[Message] = [
        SystemMessage(text),
        UserMessage(text),
        AssistantMessage(None, (ToolCall("c1", "f", args),), text),
        ToolMessage("c1", "f", text, True, {"x": [text]}),
    ]
    assert await memory.append("c", messages, turn_id="t", position=0) == 4
    assert await memory.append("c", messages, turn_id="t", position=0) == 4
    read = await memory.get("c")
    assert list(read) == messages
    assert isinstance(read[2], AssistantMessage)
    assert [(key, repr(value)) for key, value in read[2].tool_calls[0].args.items()] == [
        (key, repr(value)) for key, value in args.items()
    ]
    assert list(await memory.get_tail("c", 2)) == [messages[0], *messages[2:]]
    assert [record.message for record in await memory.read("c", after=1, limit=2)] == messages[1:3]


async def test_operators_can_read_the_messages(memory: SQLiteChatMemory, path: Path) -> None:
    await memory.append("c", [UserMessage("grüße"), AssistantMessage("x")], turn_id="t", position=0)
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT seq, turn_id, position, role, body, body ->> 'content' FROM ac_message ORDER BY seq"
        assert connection.execute(query).fetchall() == [
            (1, "t", 0, "user", '{"role":"user","content":"grüße"}', "grüße"),
            (2, "t", 1, "assistant", '{"role":"assistant","content":"x"}', "x"),
        ]


@pytest.mark.parametrize("odd", ["a\x00b", "%_", "", "😀", "x" * 10_000, "\U0010ffff"])
async def test_ids_may_be_any_text(memory: SQLiteChatMemory, odd: str) -> None:
    await memory.append(odd, [UserMessage("mine")], turn_id=odd, position=0)
    await memory.add(odd + "c", [UserMessage("other")])
    assert list(await memory.get(odd)) == [UserMessage("mine")]
    page = await memory.list_conversations(prefix=odd)
    assert {info.conversation_id for info in page.conversations} == {odd, odd + "c"}


@pytest.mark.parametrize("prefix", ["ten/", "ten\ud7ff", "ten\U0010ffff", "\U0010ffff", "%", "a\x00"])
async def test_listing_by_prefix_holds_what_begins_with_it_and_nothing_else(
    memory: SQLiteChatMemory, prefix: str
) -> None:
    others = ["", "te", "ten", "ten.", "ten0", "u", "ten\ue000", "a", "b", "\U0010fffe"]
    mine = [prefix, prefix + "a", prefix + "\U0010ffff", prefix + "\x00"]
    for name in {*others, *mine}:
        await memory.add(name, [UserMessage("a")])
    found: list[str] = []
    after = None
    while True:
        page = await memory.list_conversations(limit=2, after=after, order="created", prefix=prefix)
        found += [info.conversation_id for info in page.conversations]
        after = page.after
        if after is None:
            break
    assert sorted(found) == sorted(name for name in {*others, *mine} if name.startswith(prefix))
    assert len(found) == len(set(found))


@pytest.mark.parametrize("call", ["get", "clear", "version", "conversation_info"])
async def test_lone_surrogate_in_an_id_is_refused(memory: SQLiteChatMemory, call: str) -> None:
    with pytest.raises(InvalidInputError, match="lone surrogate"):
        await getattr(memory, call)("a\ud800")


async def test_tail_is_read_by_index(memory: SQLiteChatMemory) -> None:
    def plan(connection: sqlite3.Connection) -> str:
        rows = connection.execute("EXPLAIN QUERY PLAN " + sqlite_log._TAIL, ("c", 50, 1)).fetchall()
        return "\n".join(row[3] for row in rows)

    steps = await memory._read(plan)
    assert "SEARCH ac_message USING PRIMARY KEY (conversation_id=?)" in steps
    assert "SEARCH ac_message USING INDEX ac_message_system (conversation_id=? AND seq<?)" in steps
    assert "SCAN ac_message" not in steps


async def test_listing_is_read_by_index(memory: SQLiteChatMemory) -> None:
    plans: list[str] = []

    def explained(connection: sqlite3.Connection) -> None:
        class Explaining:
            def execute(self, statement: str, values: Any) -> list[Any]:
                plans.append(connection.execute("EXPLAIN QUERY PLAN " + statement, values).fetchall()[0][3])
                return []

        for order in ("updated", "created"):
            for start, prefix in ((None, ""), ((1.0, "c"), ""), ((1.0, "c"), "ten/")):
                sqlite_heads.page(Explaining(), order, start, prefix, 10)  # type: ignore[arg-type]

    await memory._read(explained)
    for by, index in ((0, "ac_conversation_by_update"), (3, "ac_conversation_by_creation")):
        assert f"INDEX {index}" in plans[by]
        assert plans[by + 1].startswith(f"SEARCH ac_conversation USING INDEX {index}")
        assert plans[by + 2].startswith("SEARCH ac_conversation USING PRIMARY KEY (conversation_id>?")


# Forgetting and numbers


async def test_numbers_are_never_given_again_after_the_last_trace_is_gone(path: Path) -> None:
    clock = Clock()
    async with SQLiteChatMemory(path, clock=clock, lease_seconds=60) as memory:
        stale = await memory.take_lease("c", 60)
        assert stale is not None
        await memory.append("c", [UserMessage("1"), UserMessage("2")], turn_id="t", position=0, lease=stale)
        await memory.clear("c")
        assert await memory.version("c") == 2
        clock.now += 59
        assert await memory.delete_inactive(1e9) == 0
        assert await memory.version("c") == 2  # a lease may be left over
        clock.now += 2
        assert await memory.delete_inactive(1e9) == 0
        assert await memory.version("c") == 0  # nothing is known of it any more
        with pytest.raises(LeaseLostError):
            await memory.append("c", [UserMessage("3")], turn_id="t", position=2, lease=stale)
        assert not await memory.renew_lease(stale, 60)
        fresh = await memory.take_lease("c", 60)
        assert fresh is not None
        assert fresh.fence > stale.fence
        assert fresh.version == await memory.version("c") == 0
        with pytest.raises(LeaseLostError):
            await memory.append("c", [UserMessage("3")], turn_id="t", position=2, lease=stale)
        assert await memory.append("c", [UserMessage("new")], turn_id="n", position=0, lease=fresh) == 3
        assert await memory.append("d", [UserMessage("new")], turn_id="n", position=0) == 3
        assert await memory.fork("d", "e") == await memory.conversation_info("e")


async def test_retention_forgets_in_steps_and_spares_what_a_turn_holds(path: Path) -> None:
    clock = Clock()
    async with SQLiteChatMemory(path, clock=clock) as memory:
        for n in range(sqlite_heads._AT_ONCE * 2 + 5):
            await memory.append(f"c{n}", [UserMessage("a")], turn_id="t", position=0)
            await memory.put_record(f"c{n}", "k", "a", "{}")
        await memory.put_record("records only", "k", "a", "{}")
        clock.now += 100
        await memory.put_record("records only, young", "k", "a", "{}")
        await memory.take_lease("c7", 30)
        await memory.append("c8", [UserMessage("b")], turn_id="u", position=0)
        assert await memory.delete_inactive(50) == sqlite_heads._AT_ONCE * 2 + 3
        page = await memory.list_conversations()
        assert {info.conversation_id for info in page.conversations} == {"c7", "c8"}
        assert await memory.get_record("c6", "k", "a") is None
        assert await memory.get_record("records only", "k", "a") is None
        assert await memory.get_record("records only, young", "k", "a") is not None
        clock.now += 100
        assert await memory.delete_inactive(50) == 2
        assert await memory.delete_inactive(50) == 0
        clock.now += 100
        await memory.delete_inactive(50)

    with closing(sqlite3.connect(path)) as connection:
        for table in ("ac_conversation", "ac_message", "ac_record"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


async def test_expired_records_are_removed_by_retention(path: Path) -> None:
    clock = Clock()
    async with SQLiteChatMemory(path, clock=clock) as memory:
        await memory.add("c", [UserMessage("a")])
        await memory.put_record("c", "k", "short", "{}", expires_in=10)
        await memory.put_record("c", "k", "long", "{}")
        clock.now += 11
        assert await memory.get_record("c", "k", "short") is None
        assert await memory.put_record("c", "k", "short", "[]", if_absent=True, expires_in=10)
        clock.now += 11
        await memory.delete_inactive(1000)
        assert [record.key for record in await memory.list_records("c", "k")] == ["long"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT key FROM ac_record").fetchall() == [("long",)]


async def test_places_to_fork_at_are_found_without_reading_it_all(
    memory: SQLiteChatMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(30):
        turn: list[Message] = [
            UserMessage("q"),
            AssistantMessage(None, (ToolCall("c", "f"),)),
            ToolMessage("c", "f", "r"),
        ]
        await memory.append("c", turn, turn_id=f"t{n}", position=0)
    monkeypatch.delattr(sqlite_log, "check_fork_point")
    assert (await memory.fork("c", "d", at=45)).version == 45
    await memory.rollback("c", to=6)
    monkeypatch.undo()
    assert len(await memory.get("c")) == 6
    with pytest.raises(InvalidInputError, match="message 5 .* is not the end of a turn; the nearest are 3 or 6"):
        await memory.rollback("c", to=5)
    with pytest.raises(InvalidInputError, match="message 7 .* is not the end of a turn; the nearest are 6"):
        await memory.fork("c", "e", at=7)


# Event loops and threads


async def test_event_loops_share_a_memory(path: Path, threads_end: None) -> None:
    memory = SQLiteChatMemory(path)
    order: list[str] = []

    async def turns(name: str) -> None:
        for n in range(5):
            async with memory.lock_turn("c") as lease:
                order.append(f"{name} in")
                await memory.append("c", [UserMessage(name)], turn_id=f"{name}{n}", position=0, lease=lease)
                await memory.append("c", [AssistantMessage(name)], turn_id=f"{name}{n}", position=1, lease=lease)
                order.append(f"{name} out")

    threads = [threading.Thread(target=asyncio.run, args=(turns(name),)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    messages = await memory.get("c")
    assert len(messages) == 20
    assert all(messages[n].content == messages[n + 1].content for n in range(0, 20, 2))
    assert all(order[n].replace("in", "out") == order[n + 1] for n in range(0, 20, 2))
    await memory.aclose()


async def test_loop_that_is_gone_does_not_harm_the_threads(
    memory: SQLiteChatMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(sqlite_log.add)
    monkeypatch.setattr(sqlite_log, "add", gate)

    def ask_and_go() -> None:
        loop = asyncio.new_event_loop()
        asking = memory.add("c", [UserMessage("a")])

        def ask() -> None:
            asking.send(None)
            loop.stop()

        loop.call_soon(ask)
        loop.run_forever()
        loop.close()
        asking.close()

    await asyncio.to_thread(ask_and_go)
    await reached(gate)
    gate.opened.set()
    await memory.add("c", [UserMessage("b")])
    assert [m.content for m in await memory.get("c")] == ["a", "b"]


async def test_closing_writes_what_was_asked_for_and_ends_the_threads(path: Path, threads_end: None) -> None:
    memory = SQLiteChatMemory(path)
    await asyncio.gather(*(memory.get("c") for _ in range(5)))
    tasks = [asyncio.ensure_future(memory.add("c", [UserMessage(str(n))])) for n in range(20)]
    await asyncio.sleep(0)
    await memory.aclose()
    await asyncio.gather(*tasks)
    await memory.aclose()
    assert not any(thread.name.startswith("agentcore") for thread in threading.enumerate())
    assert sorted(os.listdir(path.parent)) == ["a.db"]
    assert len(await memory.get("c")) == 20  # opened again
    await memory.aclose()


async def test_calls_during_closing_come_after_those_before_it(path: Path, threads_end: None) -> None:
    memory = SQLiteChatMemory(path)
    tasks: list[asyncio.Future[None]] = []
    for n in range(10):
        tasks.append(asyncio.ensure_future(memory.add("c", [UserMessage(str(n))])))
        await asyncio.sleep(0)
        tasks.append(asyncio.ensure_future(memory.aclose()))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert [m.content for m in await memory.get("c")] == [str(n) for n in range(10)]
    await memory.aclose()


async def test_memory_that_nobody_closed_ends_its_threads(path: Path) -> None:
    memory = SQLiteChatMemory(path)
    await memory.add("c", [UserMessage("a")])
    await memory.get("c")
    async with memory.lock_turn("c"):
        pass
    mine = [thread for thread in threading.enumerate() if thread.name.startswith("agentcore")]
    assert mine
    del memory
    gc.collect()
    for thread in mine:
        await asyncio.to_thread(thread.join, 30)
        assert not thread.is_alive()


async def test_process_that_was_forked_is_told_not_to_go_on(memory: SQLiteChatMemory, monkeypatch: Any) -> None:
    await memory.add("c", [UserMessage("a")])
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(StoreError, match="opened before this process was forked"):
            await memory.get("c")
        await memory.aclose()  # it is the other process that does it
    assert list(await memory.get("c")) == [UserMessage("a")]


# Cancellation


async def test_append_that_nobody_has_begun_is_withdrawn(
    memory: SQLiteChatMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(sqlite_log.append)
    monkeypatch.setattr(sqlite_log, "append", gate)
    first = asyncio.ensure_future(memory.append("c", [UserMessage("1")], turn_id="t1", position=0))
    await reached(gate)
    second = asyncio.ensure_future(memory.append("c", [UserMessage("2")], turn_id="t2", position=0))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.opened.set()
    await first
    await memory.add("c", [UserMessage("3")])
    assert [m.content for m in await memory.get("c")] == ["1", "3"]


@pytest.mark.parametrize("times", [1, 3])
async def test_append_that_was_begun_is_waited_for(
    memory: SQLiteChatMemory, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    gate = Gate(sqlite_log.append)
    monkeypatch.setattr(sqlite_log, "append", gate)
    task = asyncio.ensure_future(memory.append("c", [UserMessage("1")], turn_id="t1", position=0))
    await reached(gate)
    for _ in range(times):
        task.cancel()
        await spin()
    assert not task.done()
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [m.content for m in await memory.get("c")] == ["1"]


async def test_refusal_of_an_abandoned_append_gives_way_to_the_cancellation(
    memory: SQLiteChatMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(sqlite_log.append)
    monkeypatch.setattr(sqlite_log, "append", gate)
    task = asyncio.ensure_future(memory.append("c", [], turn_id="t1", position=0, expected_version=7))
    await reached(gate)
    task.cancel()
    await spin()
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("steps", range(12))
async def test_append_cancelled_at_any_step_has_an_outcome_that_stands(memory: SQLiteChatMemory, steps: int) -> None:
    await memory.add("c", [UserMessage("0")])
    task = asyncio.ensure_future(memory.append("c", [UserMessage("1")], turn_id="t", position=0))
    await spin(steps)
    task.cancel()
    outcome = (await asyncio.gather(task, return_exceptions=True))[0]
    version = await memory.version("c")
    assert version in (1, 2)
    assert outcome == 2 if not isinstance(outcome, BaseException) else isinstance(outcome, asyncio.CancelledError)
    assert await memory.append("c", [UserMessage("1")], turn_id="t", position=0) == 2
    assert [m.content for m in await memory.get("c")] == ["0", "1"]


async def test_cancelled_closing_is_carried_on(path: Path, monkeypatch: pytest.MonkeyPatch, threads_end: None) -> None:
    memory = SQLiteChatMemory(path)
    gate = Gate(sqlite_log.add)
    monkeypatch.setattr(sqlite_log, "add", gate)
    adding = asyncio.ensure_future(memory.add("c", [UserMessage("a")]))
    await reached(gate)
    closing_it = asyncio.ensure_future(memory.aclose())
    await spin()
    closing_it.cancel()
    await spin()
    gate.opened.set()
    await asyncio.gather(closing_it, return_exceptions=True)
    await adding
    assert list(await memory.get("c")) == [UserMessage("a")]
    await memory.aclose()
