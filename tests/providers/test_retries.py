"""When a failed request is sent again, and after how long."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore import ProviderError
from agentcore.providers.retries import RetryEvent, RetryPolicy, retry_after, with_retries

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)


def failure(
    *, retryable: bool = True, wait: float | None = None, partial_text: str = "", quota: bool = False
) -> ProviderError:
    kind = "quota" if quota else "rate_limit"
    return ProviderError("x", kind=kind, retryable=retryable, retry_after=wait, partial_text=partial_text)


class Service:
    """Fails with the given errors, one an attempt, then answers; also the clock that only notes."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        self.errors = list(errors)
        self.attempts = 0
        self.waits: list[float] = []

    async def send(self) -> str:
        self.attempts += 1
        if self.errors:
            raise self.errors.pop(0)
        return "ok"

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


def policy(service: Service, max_retries: int = 2, chance: float = 0.0, **settings: float) -> RetryPolicy:
    return RetryPolicy(max_retries=max_retries, sleep=service.sleep, random=lambda: chance, **settings)  # type: ignore[arg-type]


@pytest.mark.asyncio
async def test_backoff_doubles_up_to_its_bound() -> None:
    service = Service([failure() for _ in range(6)])
    assert await with_retries(service.send, policy(service, 6)) == "ok"
    assert service.waits == [0.5, 1, 2, 4, 8, 8]


@pytest.mark.asyncio
async def test_chance_takes_at_most_half_of_the_backoff() -> None:
    service = Service([failure(), failure()])
    await with_retries(service.send, policy(service, chance=1.0))
    assert service.waits == [0.25, 0.5]


@pytest.mark.asyncio
async def test_last_error_comes_out_when_the_attempts_are_used_up() -> None:
    errors = [failure(), failure(), failure()]
    last = errors[-1]
    service = Service(errors)
    with pytest.raises(ProviderError) as caught:
        await with_retries(service.send, policy(service))
    assert caught.value is last
    assert service.attempts == 3


@pytest.mark.parametrize(
    "error",
    [
        failure(retryable=False),
        failure(quota=True),
        failure(partial_text="Once"),
        failure(wait=61),
        ValueError("not a provider's"),
    ],
    ids=["not-retryable", "quota", "text-was-delivered", "asked-wait-above-cap", "another-error"],
)
@pytest.mark.asyncio
async def test_error_comes_at_once_when_another_attempt_is_not_worth_it(error: Exception) -> None:
    service = Service([error])
    with pytest.raises(type(error)):
        await with_retries(service.send, policy(service))
    assert (service.attempts, service.waits) == (1, [])


@pytest.mark.asyncio
async def test_second_failure_is_judged_like_the_first() -> None:
    service = Service([failure(), failure(retryable=False)])
    with pytest.raises(ProviderError):
        await with_retries(service.send, policy(service, 5))
    assert service.attempts == 2


@pytest.mark.asyncio
async def test_zero_retries_means_one_attempt() -> None:
    service = Service([failure()])
    with pytest.raises(ProviderError):
        await with_retries(service.send, policy(service, 0))
    assert service.attempts == 1


@pytest.mark.parametrize("asked", [0.0, 0.35, 60.0])
@pytest.mark.asyncio
async def test_wait_the_service_asks_for_is_obeyed(asked: float) -> None:
    service = Service([failure(wait=asked)])
    await with_retries(service.send, policy(service))
    assert service.waits == [asked]


@pytest.mark.asyncio
async def test_hook_is_told_attempt_wait_and_error() -> None:
    told: list[RetryEvent] = []
    first, second = failure(wait=3), failure()
    service = Service([first, second])
    await with_retries(service.send, RetryPolicy(sleep=service.sleep, random=lambda: 0.0, on_retry=told.append))
    assert told == [RetryEvent(1, 3, first), RetryEvent(2, 1, second)]


@pytest.mark.asyncio
async def test_cancellation_while_waiting_takes_effect_at_once() -> None:
    service = Service([failure(wait=30)])
    waiting = asyncio.Event()
    task = asyncio.create_task(with_retries(service.send, RetryPolicy(on_retry=lambda _: waiting.set())))
    await waiting.wait()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 1)
    assert service.attempts == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "5"}, 5),
        ({"retry-after": " 2.5 "}, 2.5),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "3600"}, 3600),
        ({"retry-after-ms": "350", "retry-after": "5"}, 0.35),
        ({"retry-after-ms": "soon", "retry-after": "5"}, 5),
        ({"retry-after": "Tue, 01 Dec 2026 12:00:03 GMT"}, 3),
        ({"retry-after": "Tue, 01 Dec 2026 14:00:03 +0200"}, 3),
        ({"retry-after": "Tue, 01 Dec 2026 12:00:03"}, 3),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        *[
            ({"retry-after": value}, None)
            for value in ("-5", "nan", "inf", "-inf", "1e400", "soon", "", " ", "1_000", "٣", "5, 10", "0x10")
        ],
        ({"retry-after": "Tue, 99 Foo 2026 12:00:03 GMT"}, None),
        ({"retry-after": "Tue, 01 Dec 2026 12:00:03 +99999999"}, None),
    ],
    ids=lambda value: str(value)[:60],
)
def test_retry_after_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, lambda: NOW) == seconds


@given(st.text(max_size=40))
def test_no_header_breaks_the_reader_or_gives_a_wait_that_is_none(text: str) -> None:
    seconds = retry_after({"retry-after": text, "retry-after-ms": text}, lambda: NOW)
    assert seconds is None or 0 <= seconds < float("inf")
