"""RateLimitFilter: so many turns a time for each user, tenant or whatever else the context names."""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import ClassVar, Literal

import anyio

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.context import ToolContext
from agentcore.errors import ConfigurationError, ProviderError
from agentcore.exchange import InvokeResult, TurnRequest, turn_result
from agentcore.filters.base import ChatCall, Filter, MemorySide, TurnCall


class RateLimitFilter(Filter):
    """Bounds how often turns begin: a token bucket for each key. Share one instance between clients to share the limit.

        limit = RateLimitFilter(60, per=3600, burst=5, key="user_id")
        client = ChatClient(model, memory=store, filters=[limit])
        result = await client.invoke("hi", tool_context={"user_id": "kim"})       # result.status may be "blocked"

    A turn that comes too early waits its turn, first come, first served, or ends with status `blocked` and a `reason`
    that says when to come again; in `invoke_chat`, which has no status, that is a `ProviderError` of kind `rate_limit`
    with `retry_after`. Nothing is stored, no place in the conversation is taken meanwhile. Of one process: limits
    across processes need a store that counts. A turn that is resumed is not counted again.

    Args:
        turns: how many turns may begin in `per` seconds.
        per: seconds.
        burst: how many may begin at once after a quiet time.
        key: the slot of the tool context that names whose limit it is, or a function of the context. A context without
            it shares one limit with all others without it.
        on_limit: what happens to a turn that comes too early: `block`, or `wait`.
        max_wait: seconds that a turn waits at most; one that would have to wait longer is blocked at once.
        max_keys: keys that are kept; beyond that the one not seen for longest is forgotten, and begins anew.
        clock: seconds that only go forward.
        sleep: waits.

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
    ) -> None:
        if not (turns > 0 and per > 0 and burst >= 1 and max_keys >= 1):
            raise ConfigurationError(
                f"turns={turns}, per={per}, burst={burst}, max_keys={max_keys} lets nobody through; "
                "give positive numbers"
            )
        self._interval, self._tolerance = per / turns, per / turns * (burst - 1)
        self._key = key if callable(key) else _slot(key)
        self._most_waiting = 0.0 if on_limit == "block" else max_wait
        self._max_keys, self._clock, self._sleep = max_keys, clock, sleep
        # When the bucket of a key is full again: all there is to know of it (the generic cell rate algorithm, the token
        # bucket's other form: ITU-T I.371, annex A).
        self._full_at: OrderedDict[Hashable, float] = OrderedDict()

    async def around_turn(self, request: TurnRequest, call_next: TurnCall) -> InvokeResult:
        """Take a token, or wait for one, or end the turn."""
        if request.resumption is None:
            wait = await self._take(request.context)
            if wait is not None:
                return turn_result(request.turn, "blocked", reason=_reason(wait))
        return await call_next(request)

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        """The same for a model call that belongs to no turn.

        Raises:
            ProviderError: it came too early.
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
        key, now = self._key(context), self._clock()
        full_at = max(self._full_at.get(key, now), now)
        wait = full_at - self._tolerance - now
        if wait > 0 and self._most_waiting is not None and wait > self._most_waiting:
            return wait
        self._full_at[key] = full_at + self._interval
        self._full_at.move_to_end(key)
        if len(self._full_at) > self._max_keys:
            self._full_at.popitem(last=False)
        if wait > 0:
            try:
                await self._sleep(wait)
            except BaseException:  # it never began: those who come later need not wait for it
                if key in self._full_at:
                    self._full_at[key] -= self._interval
                raise
        return None


def _slot(name: str) -> Callable[[ToolContext], Hashable]:
    return lambda context: context.get(name)


def _reason(wait: float) -> str:
    return f"too many turns; the next one can begin in {wait:.1f} s"
