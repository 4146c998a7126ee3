"""The limiters: the same answers from memory, Redis and PostgreSQL; processes, lost answers, cancellations, restarts."""

import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from enum import Enum
from ipaddress import ip_address
from math import inf
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from redis import asyncio as redis_asyncio

from agentcore.errors import ConfigurationError, StoreError
from agentcore.filters import rate_limiter_postgres
from agentcore.filters.rate_limiter import InMemoryRateLimiter, RateLimit, bucket_name
from agentcore.filters.rate_limiter_redis import RedisRateLimiter
from tests.support.proxy import Proxy
from tests.support.rate_limit_worker import SLOW, limiter_of
from tests.support.servers import PostgresServer, RedisServer, free_port, postgres_server, redis_server

pytestmark = pytest.mark.asyncio

ROOT = Path(__file__).parents[2]
INTERVAL = 1000.0
"""Of the limits here: so slow that it does not matter how fast a test runs."""


@pytest.fixture(params=["postgres", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of a server of each kind."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_dsn")
    server: RedisServer = request.getfixturevalue("redis_of_run")
    return server.url


@asynccontextmanager
async def behind_a_proxy(url: str, namespace: str, *, patience: float = 15.0) -> AsyncGenerator[tuple[Any, Any, Proxy]]:
    """A limiter, another one that goes straight to the server, and the proxy before the first."""
    async with (
        limiter_of(url, namespace) as straight,
        Proxy(url) as proxy,
        limiter_of(proxy.url, namespace, patience=patience) as limiter,
    ):
        assert await limiter.take(SLOW, "somebody else") == 0  # what is held back later is no preparation
        await limiter.give_back(SLOW, "somebody else")
        yield limiter, straight, proxy


async def places_left(limiter: Any, key: Hashable = "kim") -> int:
    """How many places can be had at once; it takes them."""
    left = 0
    while await limiter.take(SLOW, key) == 0:
        left += 1
    return left


def in_intervals(seconds: float) -> float:
    return round(seconds / INTERVAL, 1)


@pytest.mark.parametrize("burst", [1, 3])
async def test_limiters_agree(url: str, namespace: str, burst: int) -> None:
    limit, now, chance = RateLimit("agree", 1, INTERVAL, burst), 50.0, random.Random(burst)
    memory = InMemoryRateLimiter(clock=lambda: now)
    async with limiter_of(url, namespace) as one, limiter_of(url, namespace) as other:
        for _ in range(80):
            key, server = chance.choice(["kim", "lee"]), chance.choice([one, other])
            if chance.random() < 0.3:
                await memory.give_back(limit, key)
                await server.give_back(limit, key)
            else:
                most = chance.choice([0.0, INTERVAL * 2.5, INTERVAL * 4.5, inf])
                expected = await memory.take(limit, key, max_wait=most)
                assert in_intervals(await server.take(limit, key, max_wait=most)) == in_intervals(expected)


async def test_burst_and_then_the_wait_until_the_next_place(url: str, namespace: str) -> None:
    async with limiter_of(url, namespace) as limiter:
        assert await places_left(limiter) == SLOW.burst
        wait = await limiter.take(SLOW, "kim")
        assert INTERVAL - 60 < wait <= INTERVAL
        assert await limiter.take(SLOW, "kim", max_wait=wait - 60) > wait - 60  # and nothing is taken
        assert await limiter.take(SLOW, "kim", max_wait=wait) <= wait
        assert in_intervals(await limiter.take(SLOW, "kim", max_wait=inf)) == 2
        assert in_intervals(await limiter.take(SLOW, "kim")) == 3


async def test_places_come_back_with_time(url: str, namespace: str) -> None:
    limit = RateLimit("quick", 1, 0.05)
    async with limiter_of(url, namespace) as limiter:
        begun = time.monotonic()
        for _ in range(5):
            while wait := await limiter.take(limit, "kim"):
                assert wait <= 0.05
        assert time.monotonic() - begun > 0.2 - 0.001


async def test_processes_share_one_limit(url: str, namespace: str) -> None:
    async def process() -> dict[str, Any]:
        command = [sys.executable, "-m", "tests.support.rate_limit_worker", url, namespace, "30"]
        made = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
        output, _ = await made.communicate()
        assert made.returncode == 0
        return json.loads(output)

    told = await asyncio.gather(*(process() for _ in range(3)))
    assert sum(one["taken"] for one in told) == SLOW.burst
    assert all(INTERVAL - 100 < one["shortest"] <= INTERVAL for one in told)


async def test_many_tasks_get_places_of_their_own(url: str, namespace: str) -> None:
    async with limiter_of(url, namespace) as one, limiter_of(url, namespace) as other:
        takes = [limiter.take(SLOW, "kim", max_wait=inf) for limiter in (one, other) for _ in range(40)]
        waits = sorted(in_intervals(wait) for wait in await asyncio.gather(*takes))
        assert waits == [0] * SLOW.burst + list(range(1, 81 - SLOW.burst))


async def test_clocks_of_clients_do_not_matter(url: str, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with limiter_of(url, namespace) as one, limiter_of(url, namespace) as other:
        for _ in range(SLOW.burst):
            assert await one.take(SLOW, "kim") == 0
        for wrong in (0.0, 4e9):
            monkeypatch.setattr(time, "time", lambda wrong=wrong: wrong)
            assert in_intervals(await other.take(SLOW, "kim")) == 1


async def test_limits_that_differ_in_anything_are_counted_apart(url: str, namespace: str) -> None:
    limits = [
        RateLimit("a", 1, INTERVAL),
        RateLimit("b", 1, INTERVAL),
        RateLimit("a", 2, INTERVAL),
        RateLimit("a", 2, INTERVAL * 2),
        RateLimit("a", 1, INTERVAL, 2),
    ]
    async with limiter_of(url, namespace) as limiter:
        for one in (InMemoryRateLimiter(), limiter):
            assert [await one.take(limit, "kim") for limit in limits] == [0] * len(limits)
        assert await limiter.take(RateLimit("a", 1.0, INTERVAL), "kim") > 0


async def test_namespaces_of_one_redis_are_apart(redis_url: str, namespace: str) -> None:
    limit = RateLimit("n", 1, INTERVAL)
    async with limiter_of(redis_url, namespace) as one, limiter_of(redis_url, f"{namespace}b") as other:
        assert [await limiter.take(limit, "kim") for limiter in (one, other)] == [0, 0]


class Colour(Enum):
    RED = "red"


KEYS: list[Any] = [
    None,
    "",
    "null",
    "(null)",
    "(",
    "kim",
    "Kim",
    "kim ",
    1,
    "1",
    2.5,
    2**70,
    ("kim", 1),
    '(["kim",1])',
    ("kim", "1"),
    "{kim}:*",
    "a:b/c d\r\n'\"%",
    "käthe",
    "ka\u0308the",
    "🐘",
    "a\0b",
    "a\0c",
    "\ud83d",
    "\ude00",
    "(\ud83d",
    ("\ud83d",),
    "x" * 5000,
    "x" * 5001,
    "sha256:" + "0" * 64,
    UUID(int=7),
    Colour.RED,
]


async def test_odd_keys_are_counted_each_for_itself(url: str, namespace: str) -> None:
    limit = RateLimit("od:d/", 1, INTERVAL)
    async with limiter_of(url, namespace) as one, limiter_of(url, namespace) as other:
        assert [await one.take(limit, key) for key in KEYS] == [0] * len(KEYS)
        assert all([await other.take(limit, key) > 0 for key in KEYS])


async def test_names_of_buckets_are_short_and_their_own() -> None:
    names = [bucket_name(SLOW, key) for key in KEYS]
    assert len(set(names)) == len(KEYS)
    assert max(map(len, names)) < 300
    assert bucket_name(SLOW, "kim") == "test:1.0/1000.0/20:kim"
    assert bucket_name(SLOW, frozenset({"b", "a"})) == 'test:1.0/1000.0/20:(["a","b"])'


@pytest.mark.parametrize("key", [ip_address("::1"), object()], ids=["address", "object"])
async def test_key_without_a_text_of_its_own_is_refused(key: Hashable) -> None:
    assert await InMemoryRateLimiter().take(SLOW, key) == 0
    async with RedisRateLimiter("redis://127.0.0.1:1") as limiter:
        with pytest.raises(ConfigurationError, match="returns a str"):
            await limiter.take(SLOW, key)


async def test_redis_keys_expire_when_their_bucket_is_full(redis_url: str, namespace: str) -> None:
    client: Any = redis_asyncio.Redis.from_url(redis_url)
    async with limiter_of(redis_url, namespace) as limiter:
        for number in range(1, 4):
            await limiter.take(SLOW, "kim")
            [name] = [key async for key in client.scan_iter(match=f"{namespace}:*")]
            assert name.decode() == f"{namespace}:rate:test:1.0/1000.0/20:kim"
            assert number * INTERVAL - 60 < await client.pttl(name) / 1000 <= number * INTERVAL + 0.001
        for _ in range(3):
            await limiter.give_back(SLOW, "kim")
        assert await client.exists(name) == 0
        await limiter.give_back(SLOW, "kim")
        assert await client.exists(name) == 0
        for limit in (RateLimit("long", 1e-300, 1e5), RateLimit("short", 1e9, 1e-9)):
            assert await limiter.take(limit, "kim") == 0
        assert await limiter.take(RateLimit("long", 1e-300, 1e5), "kim") > 1e300
    await client.aclose()


async def test_postgres_rows_that_are_over_go_with_those_who_come(postgres_dsn: str) -> None:
    async with limiter_of(postgres_dsn, "") as limiter:
        for number in range(50):
            assert await limiter.take(RateLimit("over at once", 1e9, 1.0), number) == 0
        assert await limiter.take(SLOW, "kim") == 0
        assert await limiter.take(SLOW, "lee") == 0
        connection = await asyncpg.connect(postgres_dsn)
        rows = [row[0] for row in await connection.fetch("select bucket from ac_rate_limit order by full_at desc")]
        await connection.close()
    assert rows[:2] == [bucket_name(SLOW, "lee"), bucket_name(SLOW, "kim")]
    assert len(rows) <= 4


async def test_sweep_reads_no_rows_that_are_not_over(postgres_dsn: str) -> None:
    async with limiter_of(postgres_dsn, "") as limiter:
        await limiter.take(SLOW, "kim")
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute(
        "insert into ac_rate_limit select 'k' || n, extract(epoch from clock_timestamp()) + 5000, 'x' "
        "from generate_series(1, 20000) n"
    )
    await connection.execute("analyze ac_rate_limit")
    explained = "explain (analyze, timing off, costs off, format text) " + rate_limiter_postgres._TAKE
    lines = [row[0] for row in await connection.fetch(explained, "new", 1.0, 0.0, 0.0, "me")]
    await connection.close()
    assert any("Index Cond: (full_at <" in line for line in lines)
    assert not any("Rows Removed" in line or "Seq Scan" in line for line in lines)


async def test_tasks_that_take_and_sweep_do_not_stand_in_a_circle(postgres_dsn: str) -> None:
    limit = RateLimit("over at once", 1e9, 1.0)
    async with limiter_of(postgres_dsn, "", pool_size=10, patience=30.0) as limiter:
        keys = [f"k{number % 7}" for number in range(600)]
        assert max(await asyncio.gather(*(limiter.take(limit, key) for key in keys))) < 0.001


TAKES: dict[str, Callable[[Any], Awaitable[float]]] = {
    "at once": lambda limiter: limiter.take(SLOW, "kim"),
    "later": lambda limiter: limiter.take(SLOW, "kim", max_wait=inf),
}


@pytest.mark.parametrize("held", ["requests", "answers"])
@pytest.mark.parametrize("take", TAKES.values(), ids=list(TAKES))
async def test_cancelled_take_takes_nothing(url: str, namespace: str, take: Any, held: str) -> None:
    async with behind_a_proxy(url, namespace) as (limiter, straight, proxy):
        if take is TAKES["later"]:
            assert await places_left(straight) == SLOW.burst
        gate = getattr(proxy, held)
        gate.close()
        task = asyncio.ensure_future(take(limiter))
        await gate.reached.wait()
        task.cancel()
        gate.open()
        await asyncio.wait([task])
        assert task.cancelled()
        if take is TAKES["later"]:
            assert in_intervals(await straight.take(SLOW, "kim")) == 1
        else:
            assert await places_left(straight) == SLOW.burst


@pytest.mark.parametrize("take", TAKES.values(), ids=list(TAKES))
async def test_take_whose_answer_is_lost_is_counted_once(url: str, namespace: str, take: Any) -> None:
    async with behind_a_proxy(url, namespace) as (limiter, straight, proxy):
        if take is TAKES["later"]:
            assert await places_left(straight) == SLOW.burst
        proxy.answers.close()
        task = asyncio.ensure_future(take(limiter))
        await proxy.answers.reached.wait()
        proxy.cut()
        proxy.answers.open()
        if take is TAKES["later"]:
            assert in_intervals(await task) == 1
            assert in_intervals(await straight.take(SLOW, "kim")) == 2
        else:
            assert await task == 0
            assert await places_left(straight) == SLOW.burst - 1


async def test_place_whose_return_is_lost_is_not_given_back_twice(url: str, namespace: str) -> None:
    async with behind_a_proxy(url, namespace) as (limiter, straight, proxy):
        assert await places_left(straight) == SLOW.burst
        proxy.answers.close()
        task = asyncio.ensure_future(limiter.give_back(SLOW, "kim"))
        await proxy.answers.reached.wait()
        proxy.cut()
        proxy.answers.open()
        with pytest.raises(StoreError):
            await task
        assert await places_left(straight) == 1


async def test_cancelled_take_ends_although_the_server_is_silent(url: str, namespace: str) -> None:
    async with behind_a_proxy(url, namespace, patience=0.3) as (limiter, _, proxy):
        proxy.answers.close()
        task = asyncio.ensure_future(limiter.take(SLOW, "kim"))
        await proxy.answers.reached.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


async def test_server_that_is_away_is_an_error_that_passes(url: str, namespace: str) -> None:
    kind, _, rest = url.rpartition(":")
    gone = f"{kind}:{free_port()}/{rest.partition('/')[2]}"
    async with limiter_of(gone, namespace, patience=0.1) as limiter:
        with pytest.raises(StoreError, match="127.0.0.1") as caught:
            await limiter.take(SLOW, "kim")
        assert caught.value.retryable
        with pytest.raises(StoreError):
            await limiter.give_back(SLOW, "kim")
        assert "127.0.0.1" in repr(limiter)


@pytest.mark.parametrize("make", [redis_server, postgres_server], ids=["redis", "postgres"])
async def test_server_that_restarts_is_found_again(make: Any, request: pytest.FixtureRequest, namespace: str) -> None:
    request.getfixturevalue("redis_of_run" if make is redis_server else "postgres")  # is there such a server here?
    with make() as server:
        address = server.dsn if isinstance(server, PostgresServer) else server.url
        async with limiter_of(address, namespace, patience=30.0) as limiter:
            assert await places_left(limiter) == SLOW.burst
            server.stop()
            waiting = asyncio.ensure_future(limiter.take(SLOW, "kim"))
            await asyncio.sleep(0)
            await asyncio.to_thread(server.start)
            wait = await waiting
            # Redis has its log; the table of PostgreSQL is empty after a crash.
            assert in_intervals(wait) == (1 if make is redis_server else 0)
            await limiter.take(SLOW, "lee")
            assert await places_left(limiter, "lee") == SLOW.burst - 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RateLimit("x", 0, 1), "lets nobody through"),
        (lambda: RateLimit("x", 1, -1), "lets nobody through"),
        (lambda: RateLimit("x", 1, 1, 0), "lets nobody through"),
        (lambda: RateLimit("x", inf, 1), "or everybody"),
        (lambda: RateLimit("x", float("nan"), 1), "lets nobody through"),
        (lambda: InMemoryRateLimiter(max_keys=0), "counts nobody"),
        (lambda: RedisRateLimiter("redis://host", namespace=""), "a namespace is some text"),
        (lambda: limiter_of("redis://host", "x", patience=0), "patience is positive"),
        (lambda: limiter_of("mysql://host", "x"), "reads postgresql://"),
    ],
)
async def test_wrong_settings_are_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()


@pytest.mark.parametrize(("turns", "per"), [(3, 1), (7, 60), (0.3, 0.7), (1e9, 1), (11, 86400)])
async def test_burst_goes_through_whole_whatever_the_numbers(turns: float, per: float) -> None:
    limiter, limit = InMemoryRateLimiter(clock=lambda: 1234567.891), RateLimit("x", turns, per, burst=50)
    assert [await limiter.take(limit, "kim") for _ in range(50)] == [0] * 50
