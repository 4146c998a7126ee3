"""PostgresRateLimiter: a limit that many processes share, in PostgreSQL. Needs the extra `postgres`."""

import math
from collections.abc import Hashable
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from agentcore.filters.rate_limiter import NO_TIME, RateLimit, bucket_name, take_or_leave
from agentcore.memory.postgres_pool import PostgresPool

_NOW = "extract(epoch from clock_timestamp())::float8"

# $1 bucket, $2 interval, $3 tolerance, $4 the longest wait, $5 who takes. Returns whether it was taken, and the wait.
# A row is locked before its time is read. One that asks again is known by its name. Rows that are over go two at a
# time, after the place is taken: whoever waits for a row holds none, so that nobody waits in a circle. The clock is a
# select of its own there: the index cannot look for what may change from row to row, and all rows would be read.
_TAKE = f"""
with taken as (
    insert into ac_rate_limit as held (bucket, full_at, taker) values ($1, {_NOW} + $2::float8, $5)
    on conflict (bucket) do update set (full_at, taker) = (
        select case when goes then greatest(held.full_at, now) + $2::float8 else held.full_at end,
               case when goes then $5 else held.taker end
        from (
            select now, held.taker <> $5 and (
                held.full_at - $3::float8 - now < {NO_TIME} or held.full_at - $3::float8 - now <= $4::float8
            ) as goes
            from (select {_NOW} as now offset 0) as clock offset 0
        ) as decided
    )
    returning taker = $5 as ours, full_at - $3::float8 - {_NOW} as until
),
swept as (
    delete from ac_rate_limit where bucket in (
        select bucket from ac_rate_limit
        where full_at < (select {_NOW}) and bucket <> $1 and exists (select from taken)
        order by full_at limit 2 for update skip locked
    )
)
select ours, case when ours then until - $2::float8 else until end from taken
"""  # noqa: S608 - put together of constants

_GIVE_BACK = "update ac_rate_limit set full_at = full_at - $2::float8 where bucket = $1"


class PostgresRateLimiter:
    """Counts in a PostgreSQL database, for all that use the same one. Time is the database's alone.

        async with PostgresRateLimiter("postgresql://user:password@host/database") as limiter:
            limit = RateLimitFilter(60, per=3600, burst=5, limiter=limiter)

    One statement a turn. The table is not logged: it costs no WAL, and is empty after a crash of the server, when
    everybody begins anew. Rows whose buckets are full again are taken away by those who come after. The tables are
    those of `PostgresChatMemory`, made by the first who comes; the same database will do. Connections are made at
    first use, in a pool of one event loop; a statement whose answer is lost is sent again, and counted once.

    Args:
        dsn: `postgresql://user:password@host/database`.
        pool_size: connections at most.
        patience: seconds to wait for a free connection, to go on trying while the server is away, and for an answer.
            Every turn waits that long while it is away.
        pooler: there is a pooler in transaction mode (PgBouncer) between us and the server.
        verify_only: never change the schema: one that is missing or older is refused. For roles without DDL rights.

    Raises:
        ConfigurationError: the address or another argument is of no use.
    """

    def __init__(
        self, dsn: str, *, pool_size: int = 10, patience: float = 2.0, pooler: bool = False, verify_only: bool = False
    ) -> None:
        self._pool = PostgresPool(dsn, size=pool_size, patience=patience, pooler=pooler, verify_only=verify_only)

    def __repr__(self) -> str:
        return f"PostgresRateLimiter({self._pool.where!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. Twice is harmless, and a later call opens new ones."""
        await self._pool.aclose()

    async def take(self, limit: RateLimit, key: Hashable, *, max_wait: float = 0.0) -> float:
        """Take a place for a turn; see `RateLimiter.take`."""
        arguments = (bucket_name(limit, key), limit.interval, limit.tolerance, max_wait, uuid4().hex)

        async def statement(connection: Any) -> Any:
            return await connection.fetchrow(_TAKE, *arguments)

        async def taking() -> float:
            ours, wait = await self._pool.run(statement)
            wait = max(0.0, wait)
            # The clock goes on between the decision and the answer: each keeps to its side of what was asked for.
            return min(wait, max_wait) if ours else max(wait, math.nextafter(max_wait, math.inf))

        return await take_or_leave(taking(), lambda: self.give_back(limit, key), max_wait)

    async def give_back(self, limit: RateLimit, key: Hashable) -> None:
        """Give back a place; see `RateLimiter.give_back`."""
        arguments = (bucket_name(limit, key), limit.interval)
        await self._pool.run(lambda connection: connection.execute(_GIVE_BACK, *arguments), again=False)
