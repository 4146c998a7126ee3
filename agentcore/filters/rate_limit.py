"""RateLimitFilter: so many turns a time for each user, tenant or whatever else the context names."""

import logging
import math
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import ClassVar, Literal

import anyio

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.context import ToolContext
from agentcore.errors import ProviderError, StoreError
from agentcore.exchange import InvokeResult, TurnRequest, turn_result
from agentcore.filters.base import ChatCall, Filter, MemorySide, TurnCall
from agentcore.filters.rate_limiter import InMemoryRateLimiter, RateLimit, RateLimiter, leave

logger = logging.getLogger(__name__)


class RateLimitFilter(Filter):
    """Bounds how often turns begin: a token bucket for each key. Share one instance between clients to share the limit.

        limit = RateLimitFilter(60, per=3600, burst=5, key="user_id")
        client = ChatClient(model, memory=store, filters=[limit])
        result = await client.invoke("hi", tool_context={"user_id": "kim"})       # result.status may be "blocked"

    A turn that comes too early waits its turn, first come, first served, or ends with status `blocked` and a `reason`
    that says when to come again; in `invoke_chat`, which has no status, that is a `ProviderError` of kind `rate_limit`
    with `retry_after`. Nothing is stored, no place in the conversation is taken meanwhile. A turn that is cancelled
    while it waits gives its place to the next that comes. A turn that is resumed is not counted again.

    It counts in its own process, unless a `limiter` is given that processes share: `RedisRateLimiter(url)` or
    `PostgresRateLimiter(dsn)`. Then the limit is one for all filters of the same name and numbers at that server.

    Args:
        turns: how many turns may begin in `per` seconds.
        per: seconds.
        burst: how many may begin at once after a quiet time.
        key: the slot of the tool context that names whose limit it is, or a function of the context. A context without
            it shares one limit with all others without it.
        on_limit: what happens to a turn that comes too early: `block`, or `wait`.
        max_wait: seconds that a turn waits at most; one that would have to wait longer is blocked at once.
        max_keys: keys that are kept; beyond that the one not seen for longest is forgotten, and begins anew. Of the
            filter's own limiter, as is `clock`.
        clock: seconds that only go forward.
        sleep: waits.
        limiter: who counts. Whoever made it closes it.
        on_error: what happens to a turn while the limiter is away (a `StoreError`): `allow`, it goes through uncounted,
            and the log says so once, as an error, and once when the limiter is back; or `raise`. By default a server
            that only counts takes no service down with it; where the limit guards money, let it raise.
        name: which limit this is, among others of the same numbers and the same limiter; by default the name of the
            slot.

    Raises:
        ConfigurationError: a number that leaves nothing to go through.
    """

    memory_side: ClassVar[MemorySide | None] = "outside"

    def __init__(
        self,
        turns: float,
        *,
        per: float = 60.0,
        burst: int = 1,
        key: str | Callable[[ToolContext], Hashable] = "user_id",
        on_limit: Literal["block", "wait"] = "block",
        max_wait: float | None = None,
        max_keys: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
        limiter: RateLimiter | None = None,
        on_error: Literal["allow", "raise"] = "allow",
        name: str | None = None,
    ) -> None:
        if name is None:
            name = key if isinstance(key, str) else ""
        self._limit = RateLimit(name, turns, per, burst)
        if limiter is None:
            limiter = InMemoryRateLimiter(max_keys=max_keys, clock=clock)
        self._limiter: RateLimiter = limiter
        self._key = key if callable(key) else _slot(key)
        self._most_waiting = 0.0 if on_limit == "block" else math.inf if max_wait is None else max_wait
        self._sleep, self._raises = sleep, on_error == "raise"
        self._away = False

    async def around_turn(self, request: TurnRequest, call_next: TurnCall) -> InvokeResult:
        """Take a token, or wait for one, or end the turn.

        Raises:
            StoreError: the limiter is away, and that is not to be allowed.
        """
        if request.resumption is None:
            wait = await self._take(request.context)
            if wait is not None:
                return turn_result(request.turn, "blocked", reason=_reason(wait))
        return await call_next(request)

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        """The same for a model call that belongs to no turn.

        Raises:
            ProviderError: it came too early.
            StoreError: the limiter is away, and that is not to be allowed.
        """
        if request.turn is None or request.turn.model_calls == 0:
            wait = await self._take(request.context)
            if wait is not None:
                raise ProviderError(
                    _reason(wait), kind="rate_limit", provider="RateLimitFilter", retryable=True, retry_after=wait
                )
        return await call_next(request)

    async def _take(self, context: ToolContext) -> float | None:
        """Take a token, waiting for it if that is allowed; else the seconds until there is one."""
        key = self._key(context)
        try:
            wait = await self._limiter.take(self._limit, key, max_wait=self._most_waiting)
        except StoreError as error:
            if self._raises:
                raise
            self._is_away(error)
            return None
        if self._away:
            self._away = False
            logger.info("%r counts turns again", self._limiter)
        if wait > self._most_waiting:
            return wait
        if wait > 0:
            try:
                await self._sleep(wait)
            except BaseException:  # it never began: those who come later need not wait for it
                await leave(self._limiter.give_back(self._limit, key))
                raise
        return None

    def _is_away(self, error: StoreError) -> None:
        if not self._away:
            self._away = True
            logger.error("turns go through uncounted until %r is back: %s", self._limiter, error)


def _slot(name: str) -> Callable[[ToolContext], Hashable]:
    return lambda context: context.get(name)


def _reason(wait: float) -> str:
    return f"too many turns; the next one can begin in {wait:.1f} s"
