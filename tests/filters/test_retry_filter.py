"""RetryFilter: again while nobody has seen anything, and never after."""

from typing import Any

import pytest

from agentcore import (
    AssistantMessage,
    ChatClient,
    InMemoryChatMemory,
    MemoryFilter,
    ProviderError,
    ReasoningDelta,
    ToolCall,
    UserMessage,
)
from agentcore.filters.retry import RetryFilter
from agentcore.providers.retries import RetryEvent, RetryPolicy
from agentcore.testing import Reply, ScriptedModel

pytestmark = pytest.mark.asyncio


def busy(**details: Any) -> ProviderError:
    return ProviderError("busy", kind="overloaded", retryable=True, **details)


def retrying(waits: list[float] | None = None, **settings: Any) -> RetryFilter:
    async def sleep(seconds: float) -> None:
        if waits is not None:
            waits.append(seconds)

    return RetryFilter(RetryPolicy(sleep=sleep, random=lambda: 0.0, **settings))


@pytest.mark.parametrize("streamed", [False, True], ids=["invoke", "stream"])
@pytest.mark.parametrize("outside", [False, True], ids=["inside-memory", "outside-memory"])
async def test_call_that_failed_is_made_again_and_stored_once(streamed: bool, outside: bool) -> None:
    waits: list[float] = []
    told: list[RetryEvent] = []
    memory, model = InMemoryChatMemory(), ScriptedModel([busy(), busy(retry_after=7.0), "ok"])
    filters: list[Any] = [MemoryFilter(memory)]
    filters.insert(0 if outside else 1, retrying(waits, on_retry=told.append))
    client = ChatClient(model, filters=filters)
    if streamed:
        async with client.stream("hi", conversation_id="u") as turn:
            assert [piece async for piece in turn.text] == ["ok"]
    else:
        assert (await client.invoke("hi", conversation_id="u")).text == "ok"
    assert waits == [0.5, 7.0]
    assert [event.attempt for event in told] == [1, 2]
    assert list(await memory.get("u")) == [UserMessage("hi"), AssistantMessage("ok")]


async def test_attempts_are_bounded() -> None:
    model = ScriptedModel([busy()], repeat_last=True)
    with pytest.raises(ProviderError):
        await ChatClient(model, filters=[retrying(max_retries=3)]).invoke("hi")
    assert model.calls == 4


async def test_error_that_will_not_pass_comes_out_at_once() -> None:
    model = ScriptedModel([ProviderError("who?", kind="auth")])
    with pytest.raises(ProviderError, match="who"):
        await ChatClient(model, filters=[retrying()]).invoke("hi")
    assert model.calls == 1


@pytest.mark.parametrize("outside", [False, True], ids=["inside-memory", "outside-memory"])
@pytest.mark.parametrize(
    "reply",
    [Reply(text=["He", "l"], error=busy()), Reply(reasoning="hm", error=busy())],
    ids=["text", "reasoning"],
)
async def test_reply_of_which_something_was_delivered_is_not_asked_for_again(reply: Reply, outside: bool) -> None:
    memory, model = InMemoryChatMemory(), ScriptedModel([reply, "never"])
    filters: list[Any] = [MemoryFilter(memory)]
    filters.insert(0 if outside else 1, retrying())
    seen: list[Any] = []
    with pytest.raises(ProviderError, match="busy"):
        async with ChatClient(model, filters=filters).stream("hi", conversation_id="u") as turn:
            async for event in turn:
                seen.append(event)
    assert model.calls == 1
    assert seen
    kept = (await memory.get("u"))[-1]
    assert isinstance(kept, AssistantMessage)
    assert kept.finish_reason == "interrupted"


async def test_later_call_of_the_turn_may_be_made_again_though_the_first_was_delivered() -> None:
    from agentcore import tool

    @tool
    async def act() -> str:
        """Act."""
        return "done"

    model = ScriptedModel([Reply(text="I act", reasoning="hm", tool_calls=[ToolCall("c", "act")]), busy(), "ok"])
    async with ChatClient(model, tools=[act], filters=[retrying()]).stream("hi") as turn:
        events = [event async for event in turn]
    assert turn.result.text == "ok"
    assert events[0] == ReasoningDelta("hm")


async def test_broken_reply_that_nobody_reads_along_is_asked_for_again() -> None:
    model = ScriptedModel([Reply(text=["He"], error=busy()), "Hello"])
    assert (await ChatClient(model, filters=[retrying()]).invoke("hi")).text == "Hello"
