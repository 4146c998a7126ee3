"""Who counts for a RateLimitFilter: the protocol, and the limiter of one process."""

import asyncio
import hashlib
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Protocol

import anyio
import msgspec
from msgspec import Struct

from agentcore.errors import ConfigurationError, StoreError
from agentcore.memory.finishing import finish

logger = logging.getLogger(__name__)

NO_TIME = 1e-6
"""Seconds that are none: arithmetic leaves them where two times are the same."""

_LONGEST_KEY = 200
_GIVE_BACK_SECONDS = 5.0


class RateLimit(Struct, frozen=True):
    """A limit: so many turns a time for each key. Limits that differ in anything are counted apart.

    Attributes:
        name: which one it is, among others with the same numbers.
        turns: how many may begin in `per` seconds.
        per: seconds.
        burst: how many may begin at once after a quiet time.

    Raises:
        ConfigurationError: a number that leaves nothing to go through, or anything.
    """

    name: str
    turns: float
    per: float
    burst: int = 1

    def __post_init__(self) -> None:
        if not (0 < self.turns < math.inf and 0 < self.per < math.inf and self.burst >= 1):
            raise ConfigurationError(
                f"turns={self.turns}, per={self.per}, burst={self.burst} lets nobody through, or everybody; "
                "give positive numbers"
            )

    @property
    def interval(self) -> float:
        """Seconds from one turn to the next where they come without a pause."""
        return self.per / self.turns

    @property
    def tolerance(self) -> float:
        """Seconds by which a turn may come before its time."""
        return self.per / self.turns * (self.burst - 1)


class RateLimiter(Protocol):
    """Counts turns. One for a process, or one that processes share; `InMemoryRateLimiter` and others ship."""

    async def take(self, limit: RateLimit, key: Hashable, *, max_wait: float = 0.0) -> float:
        """Take a place for a turn, in one step for everybody else.

        The place is the next that is free, which may be later: then whoever took it waits for it, and those who come
        after get the places behind it. A call that is cancelled takes nothing.

        Args:
            limit: the limit.
            key: who is counted; `bucket_name` makes a text of both.
            max_wait: the longest wait that is worth a place; infinite if any is.

        Returns:
            Seconds until the place, 0 if that is now. More than `max_wait`: nothing was taken.

        Raises:
            StoreError: what counts is away or refuses; nothing is known to be taken.
            ConfigurationError: a key of no use.
        """
        ...

    async def give_back(self, limit: RateLimit, key: Hashable) -> None:
        """Give back a place that was taken and will not be used, so that the next who comes has it.

        Raises:
            StoreError: what counts is away or refuses.
        """
        ...


class InMemoryRateLimiter:
    """Counts in this process; any key that can be hashed.

    Args:
        max_keys: keys that are kept; beyond that the one not seen for longest is forgotten, and begins anew.
        clock: seconds that only go forward.

    Raises:
        ConfigurationError: it would keep no key.
    """

    def __init__(self, *, max_keys: int = 10_000, clock: Callable[[], float] = time.monotonic) -> None:
        if max_keys < 1:
            raise ConfigurationError(f"max_keys={max_keys} counts nobody; give at least 1")
        self._max_keys, self._clock = max_keys, clock
        # When the bucket of a key is full again: all there is to know of it (the generic cell rate algorithm, the token
        # bucket's other form: ITU-T I.371, annex A).
        self._full_at: OrderedDict[tuple[RateLimit, Hashable], float] = OrderedDict()

    async def take(self, limit: RateLimit, key: Hashable, *, max_wait: float = 0.0) -> float:
        """Take a place for a turn; see `RateLimiter.take`."""
        bucket, now = (limit, key), self._clock()
        full_at = max(self._full_at.get(bucket, now), now)
        wait = full_at - limit.tolerance - now
        if wait < NO_TIME:
            wait = 0.0
        if wait <= max_wait:
            self._full_at[bucket] = full_at + limit.interval
            self._full_at.move_to_end(bucket)
            if len(self._full_at) > self._max_keys:
                self._full_at.popitem(last=False)
        return wait

    async def give_back(self, limit: RateLimit, key: Hashable) -> None:
        """Give back a place; see `RateLimiter.give_back`."""
        if (limit, key) in self._full_at:
            self._full_at[limit, key] -= limit.interval


def bucket_name(limit: RateLimit, key: Hashable) -> str:
    """A text for a limit and a key, short, the same in every process, and fit for any store.

    A text that is long, or holds what stores refuse (NUL and half characters), is in it as its SHA-256.

    Raises:
        ConfigurationError: a key that other processes could not make the same text of.
    """
    return f"{limit.name}:{float(limit.turns)!r}/{float(limit.per)!r}/{limit.burst}:{_short(_text(key))}"


async def take_or_leave(
    taking: Coroutine[Any, Any, float], giving_back: Callable[[], Coroutine[Any, Any, None]], max_wait: float
) -> float:
    """Take a place at a server; one that was got although the task was cancelled meanwhile is given back.

    Args:
        taking: asks for the place; a cancellation takes effect when its outcome is known.
        giving_back: gives it back.
        max_wait: the longest wait with which it was taken.
    """
    taken = False

    async def take() -> float:
        nonlocal taken
        wait = await taking
        taken = wait <= max_wait
        return wait

    try:
        return await finish(take())
    except asyncio.CancelledError:
        if taken:
            await leave(giving_back())
        raise


async def leave(giving_back: Coroutine[Any, Any, None]) -> None:
    """Give a place back, shielded and bounded, and let the cause go on; a place that is lost so is logged."""
    with anyio.move_on_after(_GIVE_BACK_SECONDS, shield=True) as scope:
        try:
            await giving_back
        except StoreError as error:
            logger.warning("a turn that never began is counted all the same: %s", error)
    if scope.cancelled_caught:
        logger.warning("a turn that never began is counted all the same: no answer in %g s", _GIVE_BACK_SECONDS)


def _text(key: Hashable) -> str:
    # A text is itself. What is none is JSON in parentheses, and so are the texts that look like it.
    if isinstance(key, str) and not key.startswith("("):
        return key
    try:
        return f"({msgspec.json.encode(key, order='deterministic').decode()})"
    except UnicodeEncodeError:  # half a character in it
        return f"({key!r})"
    except TypeError as error:
        raise ConfigurationError(
            f"a key of type {type(key).__name__} is not surely the same text in every process; give RateLimitFilter a "
            "key=lambda context: … that returns a str"
        ) from error


def _short(text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    fits = len(data) <= _LONGEST_KEY and "\0" not in text and not text.startswith("sha256:")
    if fits and not any("\ud800" <= letter <= "\udfff" for letter in text):
        return text
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
