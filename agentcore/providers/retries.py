"""When a failed request is sent again, and after how long.

The policy is tenacity's (attempts, exponential backoff). It is imported and entered only after a first failure: its
`AsyncRetrying` costs some 18 µs a call even when nothing fails, and its import 5 ms; entered so, a request that
succeeds pays 0.1 µs (tenacity 9.2, CPython 3.11).
"""

import random
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

import anyio
from msgspec import Struct

from agentcore.errors import ProviderError

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")

MAX_RETRY_AFTER = 60.0
"""Longest wait a service may ask for, in seconds; what asks for more gets its error at once."""

# `float` would also take nan, inf, 1e400, 1_000 and other alphabets' digits.
_NUMBER = re.compile(r"\s*\d{1,12}(\.\d{0,12})?\s*", re.ASCII)


class RetryEvent(Struct, frozen=True):
    """Told to `on_retry` before each wait.

    Attributes:
        attempt: the attempt that failed, from 1.
        wait: seconds until the next one.
        error: why it failed.
    """

    attempt: int
    wait: float
    error: ProviderError


RetryHook: TypeAlias = Callable[[RetryEvent], None]


def _utc_now() -> datetime:
    return datetime.now(UTC)


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How often and how long.

    Attributes:
        max_retries: attempts after the first.
        max_retry_after: longest `Retry-After` that is waited for, in seconds.
        initial, maximum: bounds of the backoff in seconds; it doubles, and up to half of it is left out by chance, so
            that those who failed together do not come back together.
        on_retry: told of each wait.
        sleep, now, random: how to wait, the time of day, and chance from 0 to 1; tests bring their own.
    """

    max_retries: int = 2
    max_retry_after: float = MAX_RETRY_AFTER
    initial: float = 0.5
    maximum: float = 8.0
    on_retry: RetryHook | None = None
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    now: Callable[[], datetime] = _utc_now
    random: Callable[[], float] = random.random


async def with_retries(send: Callable[[], Awaitable[T]], policy: RetryPolicy) -> T:
    """Send, and send again while the policy allows it.

    Raises:
        ProviderError: of the last attempt.
    """
    try:
        return await send()
    except ProviderError as error:
        if policy.max_retries < 1 or not _worth_it(error, policy):
            raise
        first = error
    return await _send_again(send, first, policy)


async def _send_again(send: Callable[[], Awaitable[T]], first: ProviderError, policy: RetryPolicy) -> T:
    import tenacity

    backoff = tenacity.wait_exponential(multiplier=policy.initial, max=policy.maximum)
    failed: list[ProviderError] = [first]

    async def attempt() -> T:
        if failed:  # the attempt that brought us here counts as tenacity's first
            raise failed.pop()
        return await send()

    def error_of(state: "RetryCallState") -> ProviderError:
        assert state.outcome is not None
        return cast("ProviderError", state.outcome.exception())

    def wait(state: "RetryCallState") -> float:
        asked = error_of(state).retry_after
        return asked if asked is not None else backoff(state) * (1 - policy.random() / 2)

    def before_sleep(state: "RetryCallState") -> None:
        if policy.on_retry is not None:
            policy.on_retry(RetryEvent(state.attempt_number, state.upcoming_sleep, error_of(state)))

    retrying = tenacity.AsyncRetrying(
        stop=tenacity.stop_after_attempt(policy.max_retries + 1),
        wait=wait,
        retry=tenacity.retry_if_exception(lambda e: isinstance(e, ProviderError) and _worth_it(e, policy)),
        before_sleep=before_sleep,
        sleep=policy.sleep,
        reraise=True,
    )
    return await retrying(attempt)


def _worth_it(error: ProviderError, policy: RetryPolicy) -> bool:
    if not error.retryable or error.kind == "quota" or error.partial_text:
        return False
    return error.retry_after is None or error.retry_after <= policy.max_retry_after


def retry_after(headers: Mapping[str, str], now: Callable[[], datetime] = _utc_now) -> float | None:
    """Seconds a reply asks to wait.

    `retry-after-ms` (OpenAI's and Azure's services), or `Retry-After` as seconds or as an HTTP date (RFC 9110, 10.2.3).
    None for nothing, and for what cannot be a wait: negative, not a number, endless, no date. A past date is 0.
    """
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _seconds(value)
    if seconds is not None or not value:
        return seconds
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - now()).total_seconds())


def _seconds(value: str | None) -> float | None:
    if value is None or _NUMBER.fullmatch(value) is None:
        return None
    return float(value)
