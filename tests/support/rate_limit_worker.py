"""A process that takes places of a shared limit: `python -m tests.support.rate_limit_worker URL NAMESPACE TAKES`."""

import asyncio
import json
import sys
from typing import Any

from agentcore.filters.rate_limiter import RateLimit
from agentcore.filters.rate_limiter_postgres import PostgresRateLimiter
from agentcore.filters.rate_limiter_redis import RedisRateLimiter

SLOW = RateLimit("test", 1, 1000, burst=20)


def limiter_of(url: str, namespace: str, **settings: Any) -> Any:
    if url.startswith("redis"):
        return RedisRateLimiter(url, namespace=namespace, **settings)
    return PostgresRateLimiter(url, **settings)


async def main(url: str, namespace: str, takes: str) -> None:
    async with limiter_of(url, namespace, patience=30.0) as limiter:
        waits = await asyncio.gather(*(limiter.take(SLOW, "kim") for _ in range(int(takes))))
    sys.stdout.write(json.dumps({"taken": waits.count(0.0), "shortest": min(filter(None, waits), default=0.0)}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
