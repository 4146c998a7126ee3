"""RateLimitFilter: who is let through, who waits, who is turned away, on a clock of the test's own."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agentcore import (
    ChatClient,
    ConfigurationError,
    InMemoryChatMemory,
    MemoryFilter,
    ProviderError,
    StoreError,
    ToolCall,
    tool,
)
from agentcore.filters.rate_limit import RateLimitFilter
from agentcore.filters.rate_limiter import InMemoryRateLimiter, RateLimit
from agentcore.testing import ScriptedModel
from tests.support.rate_limit_worker import limiter_of
from tests.support.servers import RedisServer, redis_server

pytestmark = pytest.mark.asyncio


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def limited(clock: Clock, turns: float = 6, **settings: Any) -> RateLimitFilter:
    return RateLimitFilter(turns, clock=clock, sleep=clock.sleep, **settings)


def client_of(*filters: Any, memory: InMemoryChatMemory | None = None, **settings: Any) -> ChatClient:
    return ChatClient(ScriptedModel(["ok"], repeat_last=True), filters=filters, memory=memory, **settings)


async def status(client: ChatClient, user: str | None = "kim") -> str:
    return (await client.invoke("hi", tool_context={} if user is None else {"user_id": user})).status


async def test_burst_goes_through_and_the_rest_is_blocked_until_there_is_a_token() -> None:
    clock = Clock()
    client = client_of(limited(clock, burst=2))
    assert [await status(client) for _ in range(3)] == ["completed", "completed", "blocked"]
    clock.now += 9.9
    assert await status(client) == "blocked"
    clock.now += 0.2
    assert [await status(client) for _ in range(2)] == ["completed", "blocked"]
    clock.now += 1000
    assert [await status(client) for _ in range(3)] == ["completed", "completed", "blocked"]


async def test_blocked_turn_stores_nothing_and_says_when_to_come_again() -> None:
    memory = InMemoryChatMemory()
    client = client_of(limited(Clock()), memory=memory)
    await client.invoke("one", conversation_id="u")
    result = await client.invoke("two", conversation_id="u")
    assert (result.status, result.reason) == ("blocked", "too many turns; the next one can begin in 10.0 s")
    assert [m.content for m in await memory.get("u")] == ["one", "ok"]


async def test_keys_do_not_wait_for_each_other_and_those_without_share_one() -> None:
    client = client_of(limited(Clock()))
    users = ["kim", "lee", "kim", None, None]
    assert [await status(client, user) for user in users] == [
        "completed",
        "completed",
        "blocked",
        "completed",
        "blocked",
    ]


async def test_key_may_be_a_function_of_the_context() -> None:
    client = client_of(limited(Clock(), key=lambda context: context["user_id"][0]))
    assert [await status(client, user) for user in ("kim", "kai", "lee")] == ["completed", "blocked", "completed"]


async def test_one_filter_in_two_clients_is_one_limit() -> None:
    limit = limited(Clock())
    assert [await status(client_of(limit)), await status(client_of(limit))] == ["completed", "blocked"]


async def test_turns_wait_first_come_first_served() -> None:
    clock = Clock()
    client = client_of(limited(clock, on_limit="wait"))
    assert [await status(client) for _ in range(3)] == ["completed"] * 3
    assert clock.slept == [10.0, 10.0]


async def test_turn_that_would_wait_too_long_is_blocked_at_once() -> None:
    clock = Clock()
    client = client_of(limited(clock, on_limit="wait", max_wait=5))
    assert [await status(client) for _ in range(2)] == ["completed", "blocked"]
    clock.now += 5
    assert await status(client) == "completed"
    assert clock.slept == [5.0]


async def test_waiting_turn_that_is_cancelled_gives_its_place_back() -> None:
    clock, waiting = Clock(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        clock.slept.append(seconds)
        if len(clock.slept) == 1:
            waiting.set()
            await asyncio.Event().wait()

    client = client_of(RateLimitFilter(6, clock=clock, sleep=sleep, on_limit="wait"))
    await status(client)
    second = asyncio.ensure_future(status(client))
    await waiting.wait()
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    await status(client)
    assert clock.slept == [10.0, 10.0]


async def test_key_not_seen_for_longest_is_forgotten() -> None:
    client = client_of(limited(Clock(), max_keys=2))
    users = ["a", "b", "c", "b", "a"]
    assert [await status(client, user) for user in users] == ["completed"] * 3 + ["blocked", "completed"]


async def test_single_model_call_comes_too_early_with_an_error() -> None:
    client = client_of(limited(Clock()))
    await client.invoke_chat("hi")
    with pytest.raises(ProviderError) as caught:
        await client.invoke_chat("hi")
    assert (caught.value.kind, caught.value.retryable, caught.value.retry_after) == ("rate_limit", True, 10.0)


async def test_tool_rounds_of_a_turn_count_once() -> None:
    @tool
    async def act() -> str:
        """Act."""
        return "done"

    model = ScriptedModel([ToolCall("c", "act"), "ok"])
    client = ChatClient(model, tools=[act], filters=[limited(Clock())])
    async with client.stream("x") as turn:
        async for _ in turn:
            pass
    assert (turn.result.status, model.calls) == ("completed", 2)


async def test_turn_that_is_resumed_is_not_counted_again() -> None:
    @tool(approval=True)
    async def act() -> str:
        """Act."""
        return "done"

    model = ScriptedModel([ToolCall("c", "act"), "ok"])
    client = ChatClient(model, tools=[act], filters=[limited(Clock())], memory=InMemoryChatMemory())
    paused = await client.invoke("x", conversation_id="u")
    assert paused.pause is not None
    assert (await client.resume("u", paused.pause.calls[0].approve())).status == "completed"


async def test_filters_of_one_limiter_and_name_are_one_limit() -> None:
    limiter = InMemoryRateLimiter(clock=Clock())
    one = limited(Clock(), limiter=limiter)
    others = [
        limited(Clock(), limiter=limiter),
        limited(Clock(), limiter=limiter, key=lambda context: context["user_id"], name="user_id"),
        limited(Clock(), limiter=limiter, name="summaries"),
        limited(Clock(), limiter=limiter, per=120),
    ]
    assert await status(client_of(one)) == "completed"
    assert [await status(client_of(other)) for other in others] == ["blocked", "blocked", "completed", "completed"]


class Unsteady:
    """A limiter that is away when it is told to be."""

    def __init__(self) -> None:
        self.away = False
        self._counts = InMemoryRateLimiter()

    def __repr__(self) -> str:
        return "Unsteady()"

    async def take(self, limit: RateLimit, key: Hashable, *, max_wait: float = 0.0) -> float:
        self._check()
        return await self._counts.take(limit, key, max_wait=max_wait)

    async def give_back(self, limit: RateLimit, key: Hashable) -> None:
        self._check()
        await self._counts.give_back(limit, key)

    def _check(self) -> None:
        if self.away:
            raise StoreError("nobody is there", retryable=True)


async def test_turns_go_through_while_the_limiter_is_away_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "agentcore.filters")
    limiter = Unsteady()
    client = client_of(RateLimitFilter(1, limiter=limiter))
    for away, expected in ((False, "completed"), (True, "completed"), (True, "completed"), (False, "blocked")):
        limiter.away = away
        assert await status(client) == expected
    limiter.away = True
    await client.invoke_chat("hi", tool_context={"user_id": "kim"})
    went = "turns go through uncounted until Unsteady() is back: nobody is there"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", went),
        ("INFO", "Unsteady() counts turns again"),
        ("ERROR", went),
    ]


async def test_limiter_that_is_away_may_stop_the_turns() -> None:
    limiter, memory = Unsteady(), InMemoryChatMemory()
    limiter.away = True
    client = client_of(RateLimitFilter(1, limiter=limiter, on_error="raise"), memory=memory)
    with pytest.raises(StoreError, match="nobody is there"):
        await client.invoke("hi", conversation_id="c")
    with pytest.raises(StoreError, match="nobody is there"):
        await client.invoke_chat("hi")
    assert await memory.get("c") == ()


class Waiting:
    """Waits that a test ends, or cancels."""

    def __init__(self) -> None:
        self.begun, self.over = asyncio.Event(), asyncio.Event()
        self.seconds: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.begun.set()
        await self.over.wait()


async def test_place_that_cannot_be_given_back_is_logged_and_the_cancellation_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limiter, waiting = Unsteady(), Waiting()
    client = client_of(RateLimitFilter(1, limiter=limiter, on_limit="wait", sleep=waiting.sleep))
    await status(client)
    turn = asyncio.ensure_future(status(client))
    await waiting.begun.wait()
    limiter.away = True
    turn.cancel()
    await asyncio.wait([turn])
    assert turn.cancelled()
    assert caplog.messages == ["a turn that never began is counted all the same: nobody is there"]


async def test_place_whose_return_gets_no_answer_holds_nobody_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcore.filters.rate_limiter._GIVE_BACK_SECONDS", 0.05)
    limiter, waiting = InMemoryRateLimiter(), Waiting()

    async def for_ever(limit: RateLimit, key: Hashable) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(limiter, "give_back", for_ever)
    client = client_of(RateLimitFilter(1, limiter=limiter, on_limit="wait", sleep=waiting.sleep))
    await status(client)
    turn = asyncio.ensure_future(status(client))
    await waiting.begun.wait()
    turn.cancel()
    await asyncio.wait([turn])
    assert turn.cancelled()
    assert caplog.messages == ["a turn that never began is counted all the same: no answer in 0.05 s"]


@pytest.fixture(params=["postgres", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of a server of each kind."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_dsn")
    server: RedisServer = request.getfixturevalue("redis_of_run")
    return server.url


@asynccontextmanager
async def two_clients(url: str, namespace: str, **settings: Any) -> AsyncGenerator[list[ChatClient]]:
    """Clients as two processes have them: with filters and connections of their own."""
    async with limiter_of(url, namespace) as one, limiter_of(url, namespace) as other:
        yield [client_of(RateLimitFilter(1, per=1000, limiter=limiter, **settings)) for limiter in (one, other)]


async def test_filters_share_a_limit_at_a_server(url: str, namespace: str) -> None:
    async with two_clients(url, namespace, burst=2) as (one, other):
        assert [await status(client) for client in (one, other, one, other)] == ["completed"] * 2 + ["blocked"] * 2
        assert [await status(client, None) for client in (other, one, other)] == ["completed"] * 2 + ["blocked"]
        result = await other.invoke("hi", tool_context={"user_id": "kim"})
        assert result.reason is not None
        assert 900 < float(result.reason.removeprefix("too many turns; the next one can begin in ").split()[0]) <= 1000


async def test_turns_of_two_processes_wait_one_behind_the_other(url: str, namespace: str) -> None:
    waiting = Waiting()
    waiting.over.set()
    async with two_clients(url, namespace, on_limit="wait", max_wait=2500, sleep=waiting.sleep) as (one, other):
        said = [await status(client) for client in (one, other, one, other)]
    assert said == ["completed"] * 3 + ["blocked"]
    assert [round(seconds, -2) for seconds in waiting.seconds] == [1000, 2000]


async def test_cancelled_wait_takes_nothing_from_other_processes(url: str, namespace: str) -> None:
    waiting = Waiting()
    async with two_clients(url, namespace, on_limit="wait", sleep=waiting.sleep) as (one, other):
        await status(one)
        turn = asyncio.ensure_future(status(one))
        await waiting.begun.wait()
        turn.cancel()
        await asyncio.wait([turn])
        assert turn.cancelled()
        waiting.over.set()
        assert await status(other) == "completed"
    assert [round(seconds, -2) for seconds in waiting.seconds] == [1000, 1000]


async def test_server_that_goes_and_comes_back_counts_again(redis_of_run: RedisServer, namespace: str) -> None:
    with redis_server() as server:
        async with limiter_of(server.url, namespace, patience=0.2) as limiter:
            client = client_of(RateLimitFilter(1, per=1000, limiter=limiter))
            strict = client_of(RateLimitFilter(1, per=1000, limiter=limiter, on_error="raise"))
            assert [await status(client), await status(client)] == ["completed", "blocked"]
            server.stop()
            assert await status(client) == "completed"
            with pytest.raises(StoreError):
                await status(strict)
            await asyncio.to_thread(server.start)
            assert [await status(client), await status(strict)] == ["blocked", "blocked"]


async def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="lets nobody through"):
        RateLimitFilter(0)
    with pytest.raises(ConfigurationError, match="RateLimitFilter belongs outside the memory"):
        client_of(MemoryFilter(InMemoryChatMemory()), limited(Clock()))
