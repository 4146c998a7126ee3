"""PostgreSQL and Redis as servers: several processes, restarts, full pools, old and new schemas, whole turns."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from redis import asyncio as redis_asyncio

from agentcore import (
    AssistantMessage,
    ChatClient,
    ConfigurationError,
    InvalidInputError,
    StoreError,
    ToolCall,
    ToolMessage,
    UserMessage,
    check_history,
    tool,
)
from agentcore.memory.postgres import PostgresChatMemory
from agentcore.memory.postgres_pool import PostgresPool
from agentcore.memory.postgres_schema import STEPS, prepare_schema
from agentcore.memory.redis import RedisChatMemory
from agentcore.memory.schema_versions import SchemaStep
from agentcore.memory.urls import chat_memory
from agentcore.testing import ScriptedModel
from tests.support.servers import PostgresServer, RedisServer, postgres_server, redis_server

pytestmark = pytest.mark.asyncio

ROOT = Path(__file__).parents[2]
_databases = cycle(range(1, 16))


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


@pytest.fixture(params=["postgres", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty store of each kind."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_dsn")
    server: RedisServer = request.getfixturevalue("redis_of_run")
    url = f"{server.url.removesuffix('/0')}/{next(_databases)}"

    async def empty() -> None:
        client = redis_asyncio.Redis.from_url(url)
        await client.flushdb()
        await client.aclose()

    asyncio.run(empty())
    return url


@asynccontextmanager
async def opened(url: str, **settings: Any) -> AsyncGenerator[Any]:
    store: Any = (PostgresChatMemory if url.startswith("postgresql") else RedisChatMemory)(url, **settings)
    try:
        yield store
    finally:
        await store.aclose()


async def process(url: str, *arguments: str) -> dict[str, Any]:
    made = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.store_worker", url, *arguments, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    output, _ = await made.communicate()
    assert made.returncode == 0
    return json.loads(output)


async def test_turns_pauses_and_restarts_of_the_program(url: str) -> None:
    model = ScriptedModel([ToolCall("c1", "add", {"a": 1, "b": 2}), "three", ToolCall("c2", "pay"), "done"])
    async with opened(url) as store:
        client = ChatClient(model, tools=[add, pay], memory=store)
        assert (await client.invoke("1+2?", conversation_id="c")).text == "three"
        result = await client.invoke("pay", conversation_id="c")
        assert result.pause is not None
    async with opened(url) as store:
        client = ChatClient(model, tools=[add, pay], memory=store)
        assert (await client.resume("c", result.pause.calls[0].approve())).text == "done"
        history = await store.get("c")
        records = await store.read("c")
        await store.clear("c")
    assert [m.content for m in history] == ["1+2?", None, "3", "three", "pay", None, "paid", "done"]
    assert check_history(history) == []
    assert [record.position for record in records] == [0, 1, 2, 3, 0, 1, 2, 3]


async def test_two_processes_hammer_three_conversations(url: str) -> None:
    told = await asyncio.gather(*(process(url, "hammer", name, "12", "20") for name in ("p", "q")))
    acknowledged = sorted(one for each in told for one in each["acknowledged"])
    assert sum(each["stale"] for each in told) > 3
    assert sum(each["repeats"] for each in told) > 10
    async with opened(url) as store:
        rows = [record for name in range(3) for record in await store.read(f"c{name}")]
        assert sorted(f"{record.turn_id}/{record.position}" for record in rows) == acknowledged
        for name in range(3):
            records = await store.read(f"c{name}")
            assert [record.seq for record in records] == list(range(1, len(records) + 1))
            turns = [record.turn_id for record in records]
            assert len({turn for turn, before in zip(turns, [None, *turns], strict=False) if turn != before}) == len(
                [1 for turn, before in zip(turns, [None, *turns], strict=False) if turn != before]
            )


async def test_several_processes_use_an_empty_database_at_once(url: str) -> None:
    told = await asyncio.gather(*(process(url, "open") for _ in range(4)))
    assert sorted(one["version"] for one in told)[-1] == 4


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 13, 21])
async def test_cancelled_command_leaves_the_pool_its_own_answers(url: str, steps: int) -> None:
    async with opened(url, pool_size=1) as store:
        await store.add("a", [UserMessage("of a")])
        await store.add("b", [UserMessage("of b")])
        for call in (
            lambda: store.get("a"),
            lambda: store.append("a", [UserMessage("x")], turn_id=f"t{steps}", position=0),
            lambda: store.take_record("a", "k", "x"),
        ):
            task = asyncio.ensure_future(call())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert [m.content for m in await store.get("b")] == ["of b"]
        await store.append("a", [UserMessage("x")], turn_id=f"t{steps}", position=0)
        assert [m.content for m in await store.get("a")] == ["of a", "x"]


async def test_second_event_loop_is_told_the_cure(url: str) -> None:
    async with opened(url) as store:
        await store.get("c")
        with pytest.raises(ConfigurationError, match="in another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(store.get("c")))
        await store.aclose()
        await store.aclose()
        assert list(await store.get("c")) == []


async def test_id_that_no_server_can_hold_is_refused(url: str) -> None:
    async with opened(url) as store:
        with pytest.raises(InvalidInputError, match="half characters"):
            await store.get("a\ud800")


@pytest.mark.parametrize("make", [PostgresChatMemory, RedisChatMemory])
async def test_password_is_never_shown(make: Any) -> None:
    scheme = "postgresql" if make is PostgresChatMemory else "redis"
    store = make(f"{scheme}://kim:s3cret-word@127.0.0.1:1/db", patience=0.2)
    with pytest.raises(StoreError, match="127.0.0.1:1") as caught:
        await store.get("c")
    assert caught.value.retryable
    assert "s3cret" not in f"{store!r} {caught.value} {caught.value!r}"
    await store.aclose()


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (PostgresChatMemory, {"dsn": "mysql://x"}),
        (PostgresChatMemory, {"dsn": "postgresql://x", "pool_size": 0}),
        (PostgresChatMemory, {"dsn": "postgresql://x", "lease_seconds": 0}),
        (RedisChatMemory, {"url": "http://x"}),
        (RedisChatMemory, {"url": "redis://x", "patience": 0}),
    ],
)
async def test_what_is_of_no_use_is_refused(make: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        make(**arguments)


async def test_urls_name_their_store() -> None:
    assert repr(chat_memory("postgresql://u:p@host:5/db")) == "PostgresChatMemory('postgresql://host:5/db')"
    assert repr(chat_memory("rediss://:p@host/0")) == "RedisChatMemory('rediss://host/0')"


# Restarts, on servers of their own


@pytest.fixture
def own_postgres(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    if "postgres" in request.config.getoption("--without"):
        pytest.skip("--without postgres")
    with postgres_server() as server:
        yield server


@pytest.fixture
def own_redis(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    if "redis" in request.config.getoption("--without"):
        pytest.skip("--without redis")
    with redis_server() as server:
        yield server


@pytest.mark.parametrize("kind", ["postgres", "redis"])
async def test_server_that_restarts_twice_in_the_middle_loses_and_doubles_nothing(
    kind: str, request: pytest.FixtureRequest
) -> None:
    server: Any = request.getfixturevalue(f"own_{kind}")
    url = server.dsn if kind == "postgres" else server.url
    acknowledged = 0
    async with opened(url, patience=30) as store:
        marks = {60: asyncio.Event(), 120: asyncio.Event()}

        async def write(name: str) -> None:
            nonlocal acknowledged
            for number in range(60):
                await store.append(name, [UserMessage(f"{number}")], turn_id=f"t{number}", position=0)
                acknowledged += 1
                if acknowledged in marks:
                    marks[acknowledged].set()

        async with asyncio.TaskGroup() as group:
            for name in ("a", "b", "c"):
                group.create_task(write(name))
            for mark in marks.values():
                await mark.wait()
                await asyncio.to_thread(server.stop)
                await asyncio.to_thread(server.start)
        for name in ("a", "b", "c"):
            records = await store.read(name)
            assert [record.message.content for record in records] == [str(number) for number in range(60)]
            assert [record.seq for record in records] == list(range(1, 61))


@pytest.mark.parametrize("kind", ["postgres", "redis"])
async def test_server_that_is_gone_for_good_is_an_error_in_time(kind: str, request: pytest.FixtureRequest) -> None:
    server: Any = request.getfixturevalue(f"own_{kind}")
    async with opened(server.dsn if kind == "postgres" else server.url, patience=0.5) as store:
        await store.add("c", [UserMessage("hi")])
        await asyncio.to_thread(server.stop)
        async with asyncio.timeout(20):
            with pytest.raises(StoreError) as caught:
                await store.get("c")
        assert caught.value.retryable
        client = ChatClient(ScriptedModel([]), memory=store)
        with pytest.raises(StoreError):
            await client.invoke("hi", conversation_id="c")
        await asyncio.to_thread(server.start)
        assert len(await store.get("c")) == 1


# PostgreSQL's own


async def test_pool_without_a_free_connection_waits_and_then_says_so(postgres_dsn: str) -> None:
    pool = PostgresPool(postgres_dsn, size=1, patience=0.3, pooler=False, verify_only=False)
    gate, holding = asyncio.Event(), asyncio.Event()

    async def hold(connection: Any) -> None:
        holding.set()
        await gate.wait()

    held = asyncio.ensure_future(pool.run(hold))
    await holding.wait()
    try:
        with pytest.raises(StoreError, match="pool_size=1 may be too small") as caught:
            await pool.run(lambda connection: connection.fetch("select 1"))
        assert caught.value.retryable
    finally:
        gate.set()
        await held
        await pool.aclose()


async def test_schema_is_upgraded_step_by_step_and_data_stays(postgres_dsn: str) -> None:
    connection = await asyncpg.connect(postgres_dsn)
    try:
        await prepare_schema(connection, "here", steps=STEPS[:1])
        await connection.execute(
            "insert into ac_conversation (conversation_id, version, created_at, updated_at) values ('c', 1, now(), now());"
            "insert into ac_message values ('c', 1, 't', 0, 'user', '{\"role\":\"user\",\"content\":\"old\"}', now())"
        )
        async with opened(postgres_dsn) as store:
            assert list(await store.get("c")) == [UserMessage("old")]
            assert await store.put_record("c", "k", "a", "1")
        newer = (*STEPS, SchemaStep(len(STEPS) + 1, ("create table ac_new (x int)",)))
        await prepare_schema(connection, "here", steps=newer)
        async with opened(postgres_dsn) as store:
            with pytest.raises(StoreError, match=f"schema version {len(STEPS) + 1}, and this agentcore knows"):
                await store.get("c")
    finally:
        await connection.close()


async def test_role_without_the_right_to_change_the_schema_may_verify_it(
    postgres_dsn: str, postgres: PostgresServer
) -> None:
    async with opened(postgres_dsn, verify_only=True) as store:
        with pytest.raises(StoreError, match="verify_only=True forbids"):
            await store.get("c")
    async with opened(postgres_dsn) as store:
        await store.add("c", [UserMessage("hi")])
    database = postgres_dsn.rpartition("/")[2]
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute(
        f'create role "writer_{database}" login; grant select, insert, update, delete on all tables in schema public '
        f'to "writer_{database}"'
    )
    await connection.close()
    async with opened(postgres.dsn_of(database, f"writer_{database}"), verify_only=True) as store:
        await store.add("c", [AssistantMessage("ho")])
        assert len(await store.get("c")) == 2


@pytest.mark.parametrize(
    "error", [asyncpg.DuplicatePreparedStatementError("x"), asyncpg.InvalidSQLStatementNameError("y")], ids=repr
)
async def test_pooler_that_was_not_named_is_told_of(postgres_dsn: str, error: Exception) -> None:
    async def refused(connection: Any) -> None:
        raise error

    async with opened(postgres_dsn) as store:
        with pytest.raises(StoreError, match="pooler=True"):
            await store._pool.run(refused)


async def test_operators_can_read_the_messages(postgres_dsn: str) -> None:
    async with opened(postgres_dsn) as store:
        await store.add("c", [UserMessage("hi"), ToolMessage("c1", "f", "ü")])
    connection = await asyncpg.connect(postgres_dsn)
    rows = await connection.fetch("select role, body->>'role' as told, body::text from ac_message order by seq")
    await connection.close()
    assert [(row["role"], row["told"]) for row in rows] == [("user", "user"), ("tool", "tool")]
    assert rows[0]["body"] == '{"role":"user","content":"hi"}'


async def test_forgotten_conversation_leaves_no_content_in_the_tables(postgres_dsn: str) -> None:
    async with opened(postgres_dsn) as store:
        await store.add("c", [UserMessage("private words")])
        await store.put_record("c", "k", "a", '"private words"')
        await store.clear("c")
        connection = await asyncpg.connect(postgres_dsn)
        for table in ("ac_message", "ac_record"):
            assert await connection.fetchval(f"select count(*) from {table}") == 0
        head = await connection.fetchrow("select * from ac_conversation")
        await connection.close()
        assert (head["version"], head["created_at"], head["parent_id"]) == (1, None, None)
