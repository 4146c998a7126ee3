"""What happens to servers and the way to them: hangs, cut connections, lost acknowledgements, cancelled callers."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from agentcore.errors import ConfigurationError, StoreError
from agentcore.memory import postgres, redis
from agentcore.memory.base import Lease
from agentcore.memory.postgres import PostgresChatMemory
from agentcore.memory.redis import RedisChatMemory
from agentcore.messages import AssistantMessage, UserMessage
from tests.support.proxy import Proxy
from tests.support.servers import PostgresServer, RedisServer, postgres_server, redis_server

pytestmark = pytest.mark.asyncio

_names = count(1)

Open = Callable[..., Any]


@pytest.fixture(params=["postgres", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty store of each kind, with a namespace where it is shared."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_dsn")
    server: RedisServer = request.getfixturevalue("redis_of_run")
    return server.url


@asynccontextmanager
async def opened(url: str, **settings: Any) -> AsyncGenerator[Any]:
    if url.startswith("redis"):
        settings.setdefault("namespace", f"faults{next(_names)}")
        store: Any = RedisChatMemory(url, **settings)
    else:
        store = PostgresChatMemory(url, **settings)
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def behind_a_proxy(url: str, **settings: Any) -> AsyncGenerator[tuple[Any, Any, Proxy]]:
    """The store, a second one that goes straight to the server, and the proxy before the first."""
    if url.startswith("redis"):
        settings["namespace"] = f"faults{next(_names)}"
    async with opened(url, **settings) as straight, Proxy(url) as proxy, opened(proxy.url, **settings) as store:
        await store.add("other", [UserMessage("of the other")])
        yield store, straight, proxy


def contents(messages: Any) -> list[Any]:
    return [message.content for message in messages]


READS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "get": lambda store: store.get("c"),
    "get_tail": lambda store: store.get_tail("c", 2),
    "read": lambda store: store.read("c"),
    "version": lambda store: store.version("c"),
    "conversation_info": lambda store: store.conversation_info("c"),
    "list_conversations": lambda store: store.list_conversations(),
    "list_records": lambda store: store.list_records("c", "k"),
    "take_lease": lambda store: store.take_lease("c", 1),
    "request_lease": lambda store: store.request_lease("c"),
    "leases_to_give_up": lambda store: store.leases_to_give_up([Lease("c", 1, 0)]),
}


@pytest.mark.parametrize("held", ["requests", "answers"])
@pytest.mark.parametrize("read", READS.values(), ids=list(READS))
async def test_cancelled_read_leaves_no_answer_for_the_next_one(url: str, read: Any, held: str) -> None:
    async with behind_a_proxy(url, pool_size=1) as (store, _, proxy):
        await store.add("c", [UserMessage("of c")])
        gate = getattr(proxy, held)
        gate.close()
        task = asyncio.ensure_future(read(store))
        await gate.reached.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        gate.open()
        assert contents(await store.get("other")) == ["of the other"]
        assert contents(await store.get("c")) == ["of c"]


WRITES: dict[str, tuple[Callable[[Any], Awaitable[Any]], list[str]]] = {
    "add": (lambda store: store.add("c", [UserMessage("new"), AssistantMessage("NEW")]), ["old", "new", "NEW", "last"]),
    "append": (
        lambda store: store.append("c", [UserMessage("new")], turn_id="t", position=0),
        ["old", "new", "last"],
    ),
    "clear": (lambda store: store.clear("c"), ["last"]),
    "rollback": (lambda store: store.rollback("c", to=0), ["last"]),
}


@pytest.mark.parametrize("held", ["requests", "answers"])
@pytest.mark.parametrize(("write", "after"), WRITES.values(), ids=list(WRITES))
async def test_cancelled_write_ends_when_its_outcome_is_known(
    url: str, write: Any, after: list[str], held: str
) -> None:
    async with behind_a_proxy(url, pool_size=2) as (store, straight, proxy):
        await store.add("c", [UserMessage("old")])
        gate = getattr(proxy, held)
        gate.close()
        task = asyncio.ensure_future(write(store))
        await gate.reached.wait()
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        gate.open()
        await asyncio.wait([task])
        assert task.cancelled()
        assert contents(await straight.get("c")) == after[:-1]
        await straight.add("c", [UserMessage("last")])  # nothing comes in before it, or takes it away
        assert contents(await store.get("c")) == after


async def test_append_whose_acknowledgement_is_lost_is_sent_again_and_stored_once(url: str) -> None:
    async with behind_a_proxy(url) as (store, straight, proxy):
        proxy.answers.close()
        task = asyncio.ensure_future(store.append("c", [UserMessage("x")], turn_id="t", position=0))
        await proxy.answers.reached.wait()
        assert contents(await straight.get("c")) == ["x"]
        proxy.cut()
        proxy.answers.open()
        assert await task == 1
        assert contents(await store.get("c")) == ["x"]


async def test_lease_whose_acknowledgement_is_lost_is_had(url: str) -> None:
    async with behind_a_proxy(url) as (store, straight, proxy):
        proxy.answers.close()
        task = asyncio.ensure_future(store.take_lease("c", 60))
        await proxy.answers.reached.wait()
        proxy.cut()
        proxy.answers.open()
        lease = await task
        assert await straight.take_lease("c", 60) is None
        await store.append("c", [UserMessage("x")], turn_id="t", position=0, lease=lease)


async def test_what_may_not_be_sent_twice_is_an_error_when_its_answer_is_lost(url: str) -> None:
    async with behind_a_proxy(url) as (store, straight, proxy):
        await store.put_record("c", "k", "taken", "1")
        calls: list[Callable[[str], Any]] = [
            lambda key: store.take_record("c", "k", key),
            lambda key: store.put_record("c", key, "put", "2", if_absent=True),
        ]
        for call, key in zip(calls, ("taken", "k"), strict=True):
            await call("before")  # so that there is a connection, and the statement is known
            proxy.answers.close()
            task = asyncio.ensure_future(call(key))
            await proxy.answers.reached.wait()
            proxy.cut()
            proxy.answers.open()
            with pytest.raises(StoreError) as caught:
                await task
            assert caught.value.retryable
        assert [one.key for one in await straight.list_records("c", "k")] == ["put"]


async def test_connections_cut_between_calls_are_made_anew(url: str) -> None:
    async with behind_a_proxy(url) as (store, _, proxy):
        await asyncio.gather(*(store.get("other") for _ in range(5)))
        proxy.cut()
        assert contents(await store.get("other")) == ["of the other"]


async def test_pool_without_a_free_connection_waits_and_then_says_so(url: str) -> None:
    async with behind_a_proxy(url, pool_size=1, patience=0.3) as (store, _, proxy):
        proxy.answers.close()
        calls = await asyncio.gather(*(store.get("other") for _ in range(3)), return_exceptions=True)
        assert all(isinstance(one, StoreError) and one.retryable for one in calls)
        assert sum("pool_size=1 may be too small" in str(one) for one in calls) >= 2
        proxy.answers.open()
        assert contents(await store.get("other")) == ["of the other"]


@pytest.mark.parametrize("kind", ["postgres", "redis"])
async def test_server_that_hangs_is_an_error_in_time(kind: str, request: pytest.FixtureRequest) -> None:
    if kind in request.config.getoption("--without"):
        pytest.skip(f"--without {kind}")
    serving: Any = postgres_server if kind == "postgres" else redis_server
    with serving() as server:
        own: PostgresServer | RedisServer = server
        async with opened(own.dsn if isinstance(own, PostgresServer) else own.url, patience=0.5) as store:
            await store.add("c", [UserMessage("x")])
            own.freeze()
            try:
                for call in (store.get("c"), store.get("c"), store.take_lease("c", 1)):
                    with pytest.raises(StoreError) as caught:
                        async with asyncio.timeout(3):
                            await call
                    assert caught.value.retryable
            finally:
                own.thaw()
            assert contents(await store.get("c")) == ["x"]


async def test_traces_go_when_no_lease_can_be_left_and_no_number_comes_twice(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = postgres if url.startswith("postgresql") else redis
    async with opened(url, lease_seconds=0.001) as store:
        await store.add("gone", [UserMessage("x"), AssistantMessage("X")])
        await store.put_record("recorded", "k", "a", "1")
        leased = await store.take_lease("leased", 60)
        lost = await store.take_lease("gone", 60, steal=True)
        await store.clear("gone")
        assert await store.delete_inactive(-1) == 0
        assert await store.list_records("recorded", "k") == []
        assert await store.version("gone") == 2  # a trace, for as long as a lease could be left
        monkeypatch.setattr(module, "LEASE_SECONDS", 0.0)
        await asyncio.sleep(0.002)  # the server's clock, past the longest lease
        assert await store.delete_inactive(3600) == 0
        assert await store.version("gone") == 0
        assert await store.renew_lease(leased, 60)
        with pytest.raises(Exception, match="no longer held"):
            await store.append("gone", [UserMessage("late")], turn_id="late", position=0, lease=lost)
        assert await store.append("gone", [UserMessage("y")], turn_id="t", position=0) == 3
        assert (await store.take_lease("gone", 60)).fence > lost.fence


@pytest.mark.parametrize("kind", ["postgres", "redis"])
async def test_refusal_that_does_not_pass_is_told_at_once(kind: str, request: pytest.FixtureRequest) -> None:
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        address, word = server.dsn_of("not_there"), "not_there"
    else:
        own: RedisServer = request.getfixturevalue("redis_of_run")
        address, word = own.url.replace("//", "//kim:s3cret-word@"), "AuthenticationError"
    async with opened(address, patience=60) as store:
        async with asyncio.timeout(20):
            with pytest.raises(StoreError, match=word) as caught:
                await store.get("c")
    assert not caught.value.retryable
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    ["postgresql://127.0.0.1:1/db?sslmode=bogus", "redis://127.0.0.1:1/?bogus=1", "redis://127.0.0.1:1/?db=x"],
)
async def test_option_that_there_is_not_is_told_at_once(address: str) -> None:
    async with opened(address, patience=60) as store:
        async with asyncio.timeout(20):
            with pytest.raises(ConfigurationError, match=r"127\.0\.0\.1:1"):
                await store.get("c")
