"""RedisRateLimiter: a limit that many processes share, in Redis. Needs the extra `redis`."""

import math
from collections.abc import Hashable
from types import TracebackType
from typing import Self
from uuid import uuid4

from agentcore.errors import ConfigurationError
from agentcore.filters.rate_limiter import NO_TIME, RateLimit, bucket_name, take_or_leave
from agentcore.memory.redis_connections import RedisConnections

# Of each bucket one string, `<when it is full again> <who took the last place>`, that is gone when it is full. Texts
# carry numbers whole: a wait that were rounded on its way could seem to be within what was asked for.
_HEAD = """
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local interval, full, taker = tonumber(ARGV[1]), now, ''
local held = redis.call('GET', KEYS[1])
if held then
    full, taker = string.match(held, '^(%S+) (.*)$')
    full = tonumber(full)
end
local function keep(value, who)
    local left = math.min(math.ceil((value - now) * 1000), 1e13)
    if left < 1 then return redis.call('DEL', KEYS[1]) end
    redis.call('SET', KEYS[1], string.format('%.17g %s', value, who), 'PX', string.format('%.0f', left))
end
"""

# ARGV interval, tolerance, the longest wait ('' = any), who takes. Returns the wait.
_TAKE = (
    _HEAD
    + f"""
local longest, wait = tonumber(ARGV[3]) or math.huge, 0
if taker == ARGV[4] then  -- the answer was lost
    wait = math.min(full - interval - tonumber(ARGV[2]) - now, longest)
else
    full = math.max(full, now)
    wait = full - tonumber(ARGV[2]) - now
    if wait < {NO_TIME} then wait = 0 end
    if wait <= longest then keep(full + interval, ARGV[4]) end
end
return string.format('%.17g', math.max(wait, 0))
"""
)

# ARGV interval.
_GIVE_BACK = _HEAD + "if held then keep(full - interval, taker) end"


class RedisRateLimiter:
    """Counts in Redis, for all that use the same server and namespace. Time is the server's alone.

        async with RedisRateLimiter("redis://host:6379/0") as limiter:
            limit = RateLimitFilter(60, per=3600, burst=5, limiter=limiter)

    One script on the server a turn. A key is gone when its bucket is full again. A server that loses its memory, by a
    crash or a failover or because it evicts keys, lets everybody begin anew. Redis 5 or newer. Connections are made at
    first use, in a pool of one event loop; a command whose answer is lost is sent again, and counted once.

    Args:
        url: `redis://:password@host:port/0`, or `rediss://` with TLS; a password is not shown in errors.
        pool_size: connections at most.
        patience: seconds to wait for a free connection, to go on trying while the server is away, and for an answer.
            Every turn waits that long while it is away.
        namespace: stands before every key.

    Raises:
        ConfigurationError: the address or another argument is of no use.
    """

    def __init__(self, url: str, *, pool_size: int = 50, patience: float = 2.0, namespace: str = "agentcore") -> None:
        if not namespace:
            raise ConfigurationError("a namespace is some text")
        self._redis = RedisConnections(url, size=pool_size, patience=patience)
        self._namespace = namespace

    def __repr__(self) -> str:
        return f"RedisRateLimiter({self._redis.where!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. Twice is harmless, and a later call opens new ones."""
        await self._redis.aclose()

    async def take(self, limit: RateLimit, key: Hashable, *, max_wait: float = 0.0) -> float:
        """Take a place for a turn; see `RateLimiter.take`."""
        name, longest = self._key(limit, key), "" if max_wait == math.inf else max_wait
        arguments = (limit.interval, limit.tolerance, longest, uuid4().hex)

        async def taking() -> float:
            return float(await self._redis.script(_TAKE, [name], arguments))

        return await take_or_leave(taking(), lambda: self.give_back(limit, key), max_wait)

    async def give_back(self, limit: RateLimit, key: Hashable) -> None:
        """Give back a place; see `RateLimiter.give_back`."""
        await self._redis.script(_GIVE_BACK, [self._key(limit, key)], [limit.interval], again=False)

    def _key(self, limit: RateLimit, key: Hashable) -> str:
        return f"{self._namespace}:rate:{bucket_name(limit, key)}"
