"""PostgresChatMemory's own: poolers, plans of its statements, tables that were changed from outside."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from agentcore.errors import InvalidInputError, StoreError
from agentcore.memory import postgres
from agentcore.memory import postgres_statements as sql
from agentcore.memory.postgres import PostgresChatMemory
from agentcore.messages import SystemMessage, UserMessage
from tests.support.servers import PgBouncer, PostgresServer, ServerMissingError, pgbouncer

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def connected(dsn: str) -> AsyncGenerator[Any]:
    connection: Any = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
def pooler(postgres: PostgresServer) -> Iterator[PgBouncer]:
    try:
        with pgbouncer(postgres) as running:
            yield running
    except ServerMissingError as error:
        pytest.skip(str(error))


async def appends(store: PostgresChatMemory) -> None:
    """More tasks than the pooler has connections, so that each statement may come to another one."""

    async def write(name: str) -> None:
        for number in range(20):
            await store.append(name, [UserMessage(str(number))], turn_id=f"t{number}", position=0)
            await store.get_tail(name, 5)
        await store.fork(name, f"{name}-copy")

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(write(f"c{number}"))


async def test_pooler_in_transaction_mode_works_when_it_is_named(pooler: PgBouncer, postgres_dsn: str) -> None:
    async with PostgresChatMemory(pooler.dsn_of(postgres_dsn.rpartition("/")[2]), pooler=True, pool_size=8) as store:
        await appends(store)
        for number in range(8):
            for name in (f"c{number}", f"c{number}-copy"):
                assert [m.content for m in await store.get(name)] == [str(n) for n in range(20)]


async def test_pooler_that_was_not_named_is_told_of(pooler: PgBouncer, postgres_dsn: str) -> None:
    async with PostgresChatMemory(pooler.dsn_of(postgres_dsn.rpartition("/")[2]), pool_size=8) as store:
        with pytest.raises(ExceptionGroup) as caught:
            await appends(store)
        assert all(isinstance(one, StoreError) for one in caught.value.exceptions)
        assert any("pooler=True" in str(one) for one in caught.value.exceptions)


async def test_reads_go_by_index_whatever_the_length(postgres_dsn: str) -> None:
    async with PostgresChatMemory(postgres_dsn) as store:
        history = [SystemMessage("s") if number % 500 == 0 else UserMessage("x") for number in range(3000)]
        await store.add("long", history)
        for number in range(40):
            await store.add(f"c{number}", [UserMessage("x")] * 20)
    async with connected(postgres_dsn) as connection:
        await connection.execute(
            "insert into ac_conversation (conversation_id, version, created_at, updated_at) "
            "select 'n' || n, 1, now() - n * interval '1 s', now() - n * interval '1 s' from generate_series(1, 5000) n"
        )
        await connection.execute("analyze")
        for statement, arguments in (
            (sql.TAIL, ("long", 50)),
            (sql.READ, ("long", 2900, 50)),
            (sql.HELD, ("long", "t", 0, 2)),
            (sql.page("updated", after=True, prefix=False, end=False), (10, 2e9, "x")),
        ):
            plan = "\n".join(row[0] for row in await connection.fetch(f"explain (analyze) {statement}", *arguments))
            assert "Seq Scan" not in plan
            rows = [float(found) for found in re.findall(r"actual time=\S+ rows=([\d.]+)", plan)]
            assert max(rows) < 150, plan


async def test_last_messages_cost_the_same_at_any_length(postgres_dsn: str) -> None:
    async with PostgresChatMemory(postgres_dsn) as store:
        await store.add("short", [UserMessage("x")] * 100)
        await store.add("long", [UserMessage("x")] * 10_000)
    async with connected(postgres_dsn) as connection:
        await connection.execute("vacuum analyze")
        pages: dict[str, int] = {}
        for name in ("short", "long"):
            plan = await connection.fetch(f"explain (analyze, buffers) {sql.TAIL}", name, 50)
            first = next(row[0] for row in plan if "Buffers" in row[0])
            pages[name] = sum(map(int, re.findall(r"(?:hit|read)=(\d+)", first)))
        assert pages["long"] <= 1.5 * pages["short"] + 2, pages


async def test_tables_that_were_changed_from_outside_are_told_of(postgres_dsn: str) -> None:
    async with PostgresChatMemory(postgres_dsn) as store, connected(postgres_dsn) as connection:
        await store.add("c", [UserMessage("a"), UserMessage("b")])
        await connection.execute("update ac_conversation set version = 1")
        with pytest.raises(StoreError, match="changed from outside"):
            await store.append("c", [UserMessage("x")], turn_id="t", position=0)
        assert len(await store.get("c")) == 2


async def test_append_is_one_statement_and_connection_is_not_reset_between_two(postgres_dsn: str) -> None:
    async with PostgresChatMemory(postgres_dsn, pool_size=1) as store:
        await store.add("c", [UserMessage("a")])
        sent: list[str] = []
        async with store._pool._pool.acquire() as connection:
            connection.add_query_logger(lambda record: sent.append(record.query))
        await store.append("c", [UserMessage("b")], turn_id="t", position=0)
        await store.get_tail("c", 5)
        assert sent[-2:] == [sql.APPEND, sql.TAIL]
        assert len(sent) == 2


@pytest.mark.parametrize("name", ["a\0b", "a\ud800"], ids=["NUL", "half a character"])
async def test_id_that_text_of_the_database_cannot_be_is_refused(postgres_dsn: str, name: str) -> None:
    async with PostgresChatMemory(postgres_dsn) as store:
        for call in (store.get(name), store.add(name, [UserMessage("x")]), store.take_lease(name, 1)):
            with pytest.raises(InvalidInputError, match="use other ids"):
                await call
        assert list(await store.get("c")) == []


@pytest.mark.parametrize("closed", [False, True], ids=["as it is", "closed first"])
async def test_store_whose_event_loop_has_ended_goes_on_in_another(postgres_dsn: str, closed: bool) -> None:
    store = PostgresChatMemory(postgres_dsn)

    async def in_the_first() -> None:
        await store.add("c", [UserMessage("a")])
        store._pool._pool.terminate()  # so that no socket is left behind, which would be warned of
        await asyncio.sleep(0)

    await asyncio.to_thread(lambda: asyncio.run(in_the_first()))
    if closed:
        await store.aclose()
    assert len(await store.get("c")) == 1
    await store.aclose()


async def test_closing_does_not_wait_for_ever_for_work_that_hangs(postgres_dsn: str) -> None:
    store = PostgresChatMemory(postgres_dsn, patience=0.2)
    begun = asyncio.Event()

    async def hang(connection: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(store._pool.run(hang))
    await begun.wait()
    async with asyncio.timeout(5):
        await store.aclose()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert list(await store.get("c")) == []
    await store.aclose()


async def test_hundreds_of_traces_go_in_small_steps(postgres_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_AT_ONCE", 5)
    monkeypatch.setattr(postgres, "LEASE_SECONDS", 0.0)
    async with PostgresChatMemory(postgres_dsn, lease_seconds=0.001) as store, connected(postgres_dsn) as connection:
        for number in range(12):
            await store.add(f"c{number}", [UserMessage("x")])
        assert await store.delete_inactive(-1) == 12
        await asyncio.sleep(0.002)  # the server's clock, past the longest lease
        assert await store.delete_inactive(3600) == 0
        assert await connection.fetchval("select count(*) from ac_conversation") == 0


async def test_work_that_fails_inside_a_transaction_leaves_none_open(postgres_dsn: str) -> None:
    async with PostgresChatMemory(postgres_dsn, pool_size=1) as store:
        await store.add("c", [UserMessage("a")])

        async def fail(connection: Any) -> None:
            async with connection.transaction():
                await connection.execute("delete from ac_message")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await store._pool.run(fail)
        assert len(await store.get("c")) == 1
        await store.add("c", [UserMessage("b")])
        async with connected(postgres_dsn) as connection:
            assert await connection.fetchval("select count(*) from ac_message") == 2
