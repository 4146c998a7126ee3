"""RateLimitFilter: who is let through, who waits, who is turned away, on a clock of the test's own."""

import asyncio
from typing import Any

import pytest

from agentcore import (
    ChatClient,
    ConfigurationError,
    InMemoryChatMemory,
    MemoryFilter,
    ProviderError,
    ToolCall,
    tool,
)
from agentcore.filters.rate_limit import RateLimitFilter
from agentcore.testing import ScriptedModel

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


async def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="lets nobody through"):
        RateLimitFilter(0)
    with pytest.raises(ConfigurationError, match="RateLimitFilter belongs outside the memory"):
        client_of(MemoryFilter(InMemoryChatMemory()), limited(Clock()))
