"""The stores on servers: appends, tail reads and places of a rate limit, interleaved with the bare driver, medians.

python -m benchmarks.store_servers [--quick] [--only WORD] [--rounds N]

The servers are started for it, on this machine, and wait for the disk: PostgreSQL with fsync, Redis with `appendfsync
always`. The drivers send the same statement or script and decode the same messages; they have no leases, no order among
the appends of a conversation, no repeats and no errors of their own.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec
from redis import asyncio as redis_asyncio

from agentcore.filters import rate_limiter_postgres, rate_limiter_redis
from agentcore.filters.rate_limiter import RateLimit, RateLimiter, bucket_name
from agentcore.filters.rate_limiter_postgres import PostgresRateLimiter
from agentcore.filters.rate_limiter_redis import RedisRateLimiter
from agentcore.memory import postgres_statements as sql
from agentcore.memory import redis_scripts as scripts
from agentcore.memory.postgres import PostgresChatMemory
from agentcore.memory.redis import RedisChatMemory
from agentcore.messages import Message
from benchmarks.stores import ANSWER, CROWD, LAST, QUESTION, Row, Run, by_a_crowd, one_by_one, repeated
from tests.support.servers import postgres_server, redis_server

BODY = msgspec.json.encode(QUESTION).decode()
LIMIT = RateLimit("bench", 1e6, 1.0, burst=1_000_000)
Append = Callable[[str, str], Awaitable[object]]
Tail = Callable[[str], Awaitable[object]]
decode = msgspec.json.Decoder(Message).decode


def rows(name: str, store: Any, driver: str, append: Append, tail: Tail, long: int, quick: bool) -> list[Row]:
    async def ours(conversation_id: str, turn_id: str) -> None:
        await store.append(conversation_id, [QUESTION], turn_id=turn_id, position=0)

    ways = {"agentcore": ours, driver: append}
    made = [
        Row(
            f"{name}: append",
            "µs",
            f"aim ≤ ×1.3 of {driver}",
            {way: lambda count, one=one: one_by_one(one, count) for way, one in ways.items()},
            3 if quick else 300,
        ),
        Row(
            f"{name}: appends by {CROWD} tasks",
            "a second",
            "",
            {way: lambda count, one=one: by_a_crowd(one, count) for way, one in ways.items()},
            2 if quick else 30,
        ),
    ]
    for conversation, size in (("short", 100), ("long", long)):
        reads: dict[str, Run] = {
            "agentcore": lambda count, one=conversation: repeated(lambda: store.get_tail(one, LAST), count),
            driver: lambda count, one=conversation: repeated(lambda: tail(one), count),
        }
        made.append(Row(f"{name}: last {LAST} of {size:,}, decoded", "µs", "", reads, 3 if quick else 300))
    return made


def limit_row(name: str, limiter: RateLimiter, driver: str, take: Append, quick: bool) -> Row:
    async def ours(key: str, _: str) -> None:
        await limiter.take(LIMIT, key)

    ways: dict[str, Run] = {
        way: lambda count, one=one: one_by_one(one, count) for way, one in {"agentcore": ours, driver: take}.items()
    }
    return Row(f"{name}: place of a rate limit", "µs", "", ways, 3 if quick else 300)


async def fill(store: Any, long: int) -> None:
    history: list[Message] = [QUESTION if n % 2 == 0 else ANSWER for n in range(long)]
    await store.add("short", history[:100])
    await store.add("long", history)


@asynccontextmanager
async def postgres_rows(dsn: str, quick: bool) -> AsyncIterator[list[Row]]:
    long = 200 if quick else 10_000
    async with (
        PostgresChatMemory(dsn) as store,
        PostgresRateLimiter(dsn) as limiter,
        asyncpg.create_pool(dsn, min_size=1, max_size=10) as pool,
    ):
        await fill(store, long)

        async def append(conversation_id: str, turn_id: str) -> None:
            async with pool.acquire() as connection:
                await connection.fetch(sql.APPEND, conversation_id, turn_id, 0, ["user"], [BODY], None)

        async def tail(name: str) -> list[Message]:
            async with pool.acquire() as connection:
                return [decode(row[0]) for row in await connection.fetch(sql.TAIL, name, LAST)]

        async def take(key: str, by: str) -> None:
            arguments = (bucket_name(LIMIT, key), LIMIT.interval, LIMIT.tolerance, 0.0, by)
            async with pool.acquire() as connection:
                await connection.fetchrow(rate_limiter_postgres._TAKE, *arguments)

        yield [
            *rows("PostgreSQL", store, "asyncpg", append, tail, long, quick),
            limit_row("PostgreSQL", limiter, "asyncpg", take, quick),
        ]


@asynccontextmanager
async def redis_rows(url: str, quick: bool) -> AsyncIterator[list[Row]]:
    long = 200 if quick else 10_000
    pool = redis_asyncio.BlockingConnectionPool.from_url(url, max_connections=50)
    client = redis_asyncio.Redis.from_pool(pool)
    script, taking = client.register_script(scripts.APPEND), client.register_script(rate_limiter_redis._TAKE)
    async with RedisChatMemory(url) as store, RedisRateLimiter(url) as limiter:
        await fill(store, long)

        async def append(conversation_id: str, turn_id: str) -> None:
            arguments = [conversation_id, turn_id, 0, "", "", "user", BODY]
            await script(keys=store._keys(conversation_id), args=arguments)

        async def tail(name: str) -> list[Message]:
            entries: Any = await client.xrevrange(store._keys(name)[1], count=LAST)
            return [decode(fields[b"body"]) for _, fields in reversed(entries)]

        async def take(key: str, by: str) -> None:
            name = f"agentcore:rate:{bucket_name(LIMIT, key)}"
            await taking(keys=[name], args=[LIMIT.interval, LIMIT.tolerance, 0.0, by])

        try:
            yield [
                *rows("Redis", store, "redis-py", append, tail, long, quick),
                limit_row("Redis", limiter, "redis-py", take, quick),
            ]
        finally:
            await client.aclose()


async def run(args: argparse.Namespace) -> None:
    with postgres_server(durable=True) as postgres, redis_server() as redis:
        for opening in (postgres_rows(postgres.dsn, args.quick), redis_rows(redis.url, args.quick)):
            async with opening as made:
                for row in made:
                    if args.only in row.name:
                        await row.measure(1 if args.quick else args.rounds)
                        row.print()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="once, to see that it runs")
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--rounds", type=int, default=5)
    asyncio.run(run(parser.parse_args(argv)))


if __name__ == "__main__":
    main()
