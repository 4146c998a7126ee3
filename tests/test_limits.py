"""Limits, loop guards and eligibility: how a turn ends early, with everything done so far kept."""

from collections.abc import Sequence
from typing import Any

import pytest

from agentcore import (
    AssistantMessage,
    ChatClient,
    ChatResponse,
    InMemoryChatMemory,
    Limits,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    check_history,
    tool,
)
from agentcore.pricing import cost_of
from agentcore.testing import Reply, ScriptedModel
from agentcore.turn import Turn

pytestmark = pytest.mark.asyncio


@tool
async def look(at: str = "here") -> str:
    """Look."""
    return f"seen {at}"


def call(number: int, at: str = "here") -> ToolCall:
    return ToolCall(f"c{number}", "look", {"at": at})


async def run(script: Sequence[Any], limits: Limits, **settings: Any) -> tuple[Any, ScriptedModel, InMemoryChatMemory]:
    memory, model = InMemoryChatMemory(), ScriptedModel(list(script))
    client = ChatClient(model, tools=[look], memory=memory, limits=limits, **settings)
    result = await client.invoke("go", conversation_id="u1")
    assert check_history(await memory.get("u1")) == []
    return result, model, memory


async def test_call_made_again_and_again_is_reported_once_and_then_ends_the_turn() -> None:
    result, model, _ = await run([call(n) for n in range(4)], Limits(repeated_calls=3))
    assert (result.status, result.limit, result.tool_calls) == ("limit", "repeated_calls", 2)
    results = [m for m in result.messages if isinstance(m, ToolMessage)]
    assert [m.content for m in results[:2]] == ["seen here", "seen here"]
    assert results[2].is_error
    assert "3 times in a row" in str(results[2].content)
    assert len(model.requests) == 4


async def test_model_that_heeds_the_report_goes_on() -> None:
    script = [call(1), call(2), call(3), call(4, "there"), "done"]
    result, _, _ = await run(script, Limits(repeated_calls=3))
    assert (result.status, result.text, result.tool_calls) == ("completed", "done", 3)


async def test_other_arguments_or_another_order_of_keys_count_as_what_they_are() -> None:
    different = [call(n, f"place {n}") for n in range(5)]
    result, _, _ = await run([*different, "done"], Limits(repeated_calls=2))
    assert result.status == "completed"

    @tool
    async def two(a: int, b: int) -> int:
        return a + b

    script = [ToolCall("1", "two", {"a": 1, "b": 2}), ToolCall("2", "two", {"b": 2, "a": 1}), "done"]
    model = ScriptedModel(script)
    again = await ChatClient(model, tools=[two], limits=Limits(repeated_calls=2)).invoke("go")
    assert (again.text, again.tool_calls) == ("done", 1)


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (Limits(model_calls=2, closing_answer=True), "model_calls"),
        (Limits(tool_calls=1, closing_answer=True), "tool_calls"),
        (Limits(tokens=15, closing_answer=True), "tokens"),
    ],
    ids=["model_calls", "tool_calls", "tokens"],
)
async def test_closing_answer_is_asked_for_without_tools(limits: Limits, limit: str) -> None:
    usage = Usage(input_tokens=10, output_tokens=1)
    script = [Reply(tool_calls=[call(1)], usage=usage), Reply(tool_calls=[call(2)], usage=usage), "as far as I know"]
    result, model, _ = await run(script, limits)
    assert (result.status, result.limit, result.text) == ("limit", limit, "as far as I know")
    assert model.requests[-1].options.tool_choice == "none"
    assert len(model.requests[-1].tools) == 1  # some services want them named as long as the history has calls


async def test_closing_answer_with_calls_leaves_a_whole_history() -> None:
    result, _, memory = await run([call(1), call(2)], Limits(model_calls=1, closing_answer=True))
    assert (result.status, result.limit) == ("limit", "model_calls")
    assert isinstance((await memory.get("u1"))[-1], ToolMessage)


async def test_without_it_a_limit_ends_the_turn_at_once() -> None:
    result, model, _ = await run([call(1), "more"], Limits(model_calls=1))
    assert (result.limit, len(model.requests)) == ("model_calls", 1)


class Priced(ScriptedModel):
    """A script whose replies name a model that has a price."""

    async def chat(self, request: Any) -> ChatResponse:
        from msgspec.structs import replace

        return replace(await super().chat(request), model="gpt-5-mini")


async def test_cost_is_counted_and_limits_the_turn() -> None:
    pytest.importorskip("genai_prices")
    usage = Usage(input_tokens=1_000_000, output_tokens=1000)
    memory = InMemoryChatMemory()
    model = Priced([Reply(tool_calls=[call(n)], usage=usage) for n in range(9)])
    price = cost_of(usage, "gpt-5-mini")
    assert price is not None
    client = ChatClient(model, tools=[look], memory=memory, limits=Limits(cost=price * 2.5))
    result = await client.invoke("go", conversation_id="u1")
    assert (result.status, result.limit, result.model_calls) == ("limit", "cost", 3)
    assert result.cost == pytest.approx(3 * price)
    assert check_history(await memory.get("u1")) == []


async def test_price_nobody_knows_limits_nothing_and_is_said(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("genai_prices")
    result, _, _ = await run([Reply(text="hi", usage=Usage(input_tokens=5))], Limits(cost=0.01))
    assert (result.status, result.cost) == ("completed", None)
    assert "no price is known" in caplog.text


@pytest.mark.parametrize("waits", [False, True], ids=["sync", "async"])
async def test_eligibility_may_end_the_turn_instead_of_running_tools(waits: bool) -> None:
    def few(response: ChatResponse, turn: Turn) -> Any:
        return turn.tool_calls < 1

    async def few_async(response: ChatResponse, turn: Turn) -> bool:
        return few(response, turn)

    memory = InMemoryChatMemory()
    model = ScriptedModel([call(1), call(2), "and on"])
    client = ChatClient(model, tools=[look], memory=memory, run_tools_if=few_async if waits else few)
    result = await client.invoke("go", conversation_id="u1")
    assert (result.status, result.tool_calls) == ("stopped", 1)
    assert result.message == AssistantMessage(None, (call(2),))
    assert (await client.invoke("again", conversation_id="u1")).text == "and on"
    assert check_history(await memory.get("u1")) == []


async def test_caller_may_run_the_tools_of_a_turn_that_was_stopped() -> None:
    memory = InMemoryChatMemory()
    model = ScriptedModel([call(1), "seen"])
    client = ChatClient(model, tools=[look], memory=memory, run_tools_if=lambda response, turn: False)
    stopped = await client.invoke("go", conversation_id="u1")
    assert stopped.message is not None
    batch = await client.run_tools(stopped.message)
    result = await client.invoke(batch.messages, conversation_id="u1")
    assert (result.status, result.text) == ("completed", "seen")
    stored = list(await memory.get("u1"))
    assert stored == [UserMessage("go"), stopped.message, *batch.messages, AssistantMessage("seen")]
    assert not any(isinstance(message, ToolMessage) and message.is_error for message in stored)
