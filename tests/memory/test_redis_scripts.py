"""RedisChatMemory's own: pieces that are read one by one, lists in exact order, guards, scripts that are forgotten."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis import asyncio as redis_asyncio
from redis.crc import key_slot

from agentcore.errors import ConfigurationError, InvalidInputError, StoreError
from agentcore.memory import redis
from agentcore.memory import redis_scripts as scripts
from agentcore.memory.redis import RedisChatMemory
from agentcore.messages import AssistantMessage, SystemMessage, UserMessage
from tests.support.servers import RedisServer, redis_server

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def opened(url: str, namespace: str, **settings: Any) -> AsyncGenerator[RedisChatMemory]:
    async with RedisChatMemory(url, namespace=namespace, **settings) as store:
        yield store


@asynccontextmanager
async def client_of(url: str) -> AsyncGenerator[Any]:
    client = redis_asyncio.Redis.from_url(url)
    try:
        yield client
    finally:
        await client.aclose()


def contents(messages: Any) -> list[Any]:
    return [message.content for message in messages]


async def test_long_conversation_is_read_in_pieces(
    redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis, "_READ_AT_ONCE", 30)
    async with opened(redis_url, namespace) as store:
        await store.add("c", [UserMessage(str(number)) for number in range(95)])
        assert contents(await store.get("c")) == [str(number) for number in range(95)]
        for after, limit in ((0, 95), (0, 30), (29, 31), (90, 30), (95, 5), (3, 0)):
            records = await store.read("c", after=after, limit=limit)
            assert [one.seq for one in records] == list(range(after + 1, min(95, after + limit) + 1))
        assert [one.seq for one in await store.read("c", after=40)] == list(range(41, 96))


async def test_large_messages_make_small_pieces(redis_url: str, namespace: str) -> None:
    large = "x" * 1_500_000
    async with opened(redis_url, namespace) as store:
        for number in range(24):  # more than a script reads at once
            await store.add("c", [UserMessage(large if number % 7 == 0 else str(number))])
        assert [one if len(one) < 9 else "large" for one in contents(await store.get("c"))] == [
            "large" if number % 7 == 0 else str(number) for number in range(24)
        ]


@pytest.mark.parametrize("change", ["clear", "rollback"])
async def test_what_is_taken_back_during_a_read_is_not_mixed_with_what_comes(
    redis_url: str, namespace: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis, "_READ_AT_ONCE", 3)
    async with opened(redis_url, namespace) as store, opened(redis_url, namespace) as other:
        await store.add("c", [UserMessage("old") for _ in range(5)])
        run, changed = store._script, False

        async def after_the_first_piece(source: str, *arguments: Any, **settings: Any) -> Any:
            nonlocal changed
            answer = await run(source, *arguments, **settings)
            if source is scripts.READ and not changed:
                changed = True
                await (other.clear("c") if change == "clear" else other.rollback("c", to=0))
                await other.add("c", [UserMessage("new") for _ in range(4)])
            return answer

        monkeypatch.setattr(store, "_script", after_the_first_piece)
        assert contents(await store.get("c")) == ["new"] * 4
        assert changed


@pytest.mark.parametrize("change", ["clear", "append"])
async def test_change_between_look_and_fork_is_noticed(
    redis_url: str, namespace: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(redis_url, namespace) as store, opened(redis_url, namespace) as other:
        await store.append("c", [UserMessage("a")], turn_id="t", position=0)
        run, changed = store._script, False

        async def before(source: str, *arguments: Any, **settings: Any) -> Any:
            nonlocal changed
            if source in (scripts.FORK, scripts.ROLLBACK) and not changed:
                changed = True
                if change == "clear":
                    await other.clear("c")
                else:  # the turn goes on: its first message is no place any more
                    await other.append("c", [AssistantMessage("A")], turn_id="t", position=1)
            return await run(source, *arguments, **settings)

        monkeypatch.setattr(store, "_script", before)
        for call in (lambda: store.fork("c", "copy", at=1), lambda: store.rollback("c", to=1)):
            changed = False
            with pytest.raises(InvalidInputError):
                await call()
            await other.clear("c")
            await other.append("c", [UserMessage("a")], turn_id="t", position=0)
        assert list(await store.get("copy")) == []


@pytest.mark.parametrize("order", ["updated", "created"])
async def test_list_is_exact_where_many_share_a_time(redis_url: str, namespace: str, order: Any) -> None:
    async with opened(redis_url, namespace) as store, client_of(redis_url) as client:
        names = [f"c{number:04}" for number in range(700)]
        async with client.pipeline(transaction=False) as pipeline:
            for number, name in enumerate(names):
                at = "1700000000.000001" if number < 650 else f"17000000{number % 100:02}.5"
                head = {"version": 1, "fence": 0, "created": at, "updated": at}
                pipeline.hset(store._keys(name)[0], mapping=head)
                for key in store._lists[:2]:
                    pipeline.zadd(key, {name: float(at)})
            await pipeline.execute()
        for limit, prefix in ((7, ""), (333, ""), (9, "c00"), (1000, "")):
            seen: list[str] = []
            after: str | None = None
            while True:
                page = await store.list_conversations(limit=limit, after=after, order=order, prefix=prefix)
                seen += [info.conversation_id for info in page.conversations]
                after = page.after
                if after is None:
                    break
            expected = [name for name in names if name.startswith(prefix)]
            assert sorted(seen) == expected
            assert [one for one in seen if one < "c0650"] == [one for one in reversed(expected) if one < "c0650"]


async def test_retention_passes_over_hundreds_that_are_leased(
    redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis, "_DELETED_AT_ONCE", 5)
    async with opened(redis_url, namespace) as store:
        for number in range(24):
            await store.add(f"c{number}", [UserMessage("x")])
            if number % 2 == 0:
                await store.take_lease(f"c{number}", 60)
        assert await store.delete_inactive(-1) == 12
        left = (await store.list_conversations(limit=100)).conversations
        assert {info.conversation_id for info in left} == {f"c{number}" for number in range(0, 24, 2)}


async def test_scripts_that_the_server_forgot_are_given_again(redis_url: str, namespace: str) -> None:
    async with opened(redis_url, namespace) as store, client_of(redis_url) as client:
        await store.add("c", [UserMessage("a")])
        await client.script_flush()
        await store.add("c", [UserMessage("b")])
        await client.script_flush()
        assert contents(await store.get("c")) == ["a", "b"]


async def test_thousands_of_messages_go_in_and_are_known_again_at_once(redis_url: str, namespace: str) -> None:
    messages = [
        SystemMessage(str(number)) if number % 1000 == 0 else UserMessage(str(number)) for number in range(9000)
    ]
    async with opened(redis_url, namespace) as store:
        assert await store.append("c", messages, turn_id="t", position=0) == 9000
        assert await store.append("c", messages, turn_id="t", position=0) == 9000
        assert list(await store.get("c")) == messages
        await store.fork("c", "copy")
        assert list(await store.get("copy")) == messages
        tail = [*(messages[number] for number in range(0, 9000, 1000)), *messages[-10:]]
        assert list(await store.get_tail("copy", 10)) == tail
        await store.rollback("copy", to=0)
        assert list(await store.get_tail("copy", 10)) == []


async def test_namespaces_are_apart_and_all_keys_of_one_lie_in_one_slot(redis_url: str, namespace: str) -> None:
    async with opened(redis_url, namespace) as store, opened(redis_url, f"{namespace}x") as other:
        for name in ("c", "}c{", "{}", ""):
            await store.append(name, [UserMessage("x")], turn_id="t", position=0)
            assert list(await other.get(name)) == []
        await store.put_record("c", "k", "a", "1")
        await store.fork("c", "d")
        async with client_of(redis_url) as client:
            keys = [key async for key in client.scan_iter(f"{{{namespace}}}*")]
            assert len({key_slot(key) for key in keys}) == 1
            assert len(keys) > 10
        assert (await other.list_conversations()).conversations == ()


@pytest.mark.parametrize("namespace", ["", "a{b", "a}b"])
async def test_namespace_with_braces_is_refused(namespace: str) -> None:
    with pytest.raises(ConfigurationError, match="braces"):
        RedisChatMemory("redis://localhost", namespace=namespace)


@pytest.fixture
def own_redis(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    if "redis" in request.config.getoption("--without"):
        pytest.skip("--without redis")
    with redis_server() as server:
        yield server


async def test_writes_wait_for_a_server_that_is_a_replica_for_a_while(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(own_redis.url, "n", patience=20) as store, client_of(own_redis.url) as client:
        await store.add("c", [UserMessage("a")])
        await client.execute_command("REPLICAOF", "127.0.0.1", "1")
        writing = asyncio.ensure_future(store.add("c", [UserMessage("b")]))
        while "READONLY" not in caplog.text:
            await asyncio.sleep(0.01)
        await client.execute_command("REPLICAOF", "NO", "ONE")
        await writing
        assert contents(await store.get("c")) == ["a", "b"]


async def test_server_that_stays_a_replica_is_an_error_in_time(own_redis: RedisServer) -> None:
    async with opened(own_redis.url, "n", patience=0.2) as store, client_of(own_redis.url) as client:
        await store.add("c", [UserMessage("a")])
        await client.execute_command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(StoreError, match="READONLY") as caught:
            await store.add("c", [UserMessage("b")])
        assert caught.value.retryable


async def test_full_memory_is_an_error_and_what_is_stored_stays(own_redis: RedisServer) -> None:
    async with opened(own_redis.url, "n", patience=5) as store, client_of(own_redis.url) as client:
        await store.add("c", [UserMessage("a")])
        await client.config_set("maxmemory", "1")
        with pytest.raises(StoreError, match="maxmemory"):
            await store.append("c", [UserMessage("b")], turn_id="t", position=0)
        assert contents(await store.get("c")) == ["a"]
        await client.config_set("maxmemory", "0")
        await store.append("c", [UserMessage("b")], turn_id="t", position=0)
        assert contents(await store.get("c")) == ["a", "b"]
