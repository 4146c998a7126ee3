"""UsageFilter: who is told what, and where in the onion."""

from typing import Any

import pytest
from msgspec import Struct

from agentcore import ChatClient, ChatOptions, InMemoryChatMemory, ProviderError, ToolCall, Usage, tool
from agentcore.filters.cache import CacheFilter
from agentcore.filters.structured import StructuredOutputFilter
from agentcore.filters.usage import UsageFilter, UsageRecord
from agentcore.testing import Reply, ScriptedModel

pytestmark = pytest.mark.asyncio

SPENT = Usage(input_tokens=10, output_tokens=2)


@tool
async def act() -> str:
    """Act."""
    return "done"


async def test_every_model_call_is_told_with_its_key() -> None:
    told: list[UsageRecord] = []
    model = ScriptedModel([Reply(tool_calls=[ToolCall("c", "act")], usage=SPENT), Reply(text="ok", usage=SPENT)])
    client = ChatClient(model, tools=[act], memory=InMemoryChatMemory(), filters=[UsageFilter(told.append)])
    result = await client.invoke("hi", conversation_id="u", tool_context={"user_id": "kim"})
    one = UsageRecord(key="kim", conversation_id="u", turn_id=result.turn_id, model="scripted", usage=SPENT)
    assert told == [one, one]


async def test_sink_may_be_async_and_key_a_function() -> None:
    told: list[Any] = []

    async def book(record: UsageRecord) -> None:
        told.append(record.key)

    client = ChatClient(ScriptedModel(["ok"]), filters=[UsageFilter(book, key=lambda context: len(context))])
    async with client.stream("hi", tool_context={"a": 1, "b": 2}) as turn:
        async for _ in turn:
            pass
    assert told == [2]


class Answer(Struct):
    value: int


@pytest.mark.parametrize("outermost", [True, False], ids=["outermost", "innermost"])
async def test_inside_it_sees_each_attempt_and_outside_their_sum(outermost: bool) -> None:
    told: list[int | None] = []
    books = UsageFilter(lambda record: told.append(record.usage.input_tokens))
    model = ScriptedModel([Reply(text="bad", usage=SPENT), Reply(text='{"value":1}', usage=SPENT)])
    repair = StructuredOutputFilter()
    client = ChatClient(model, filters=[books, repair] if outermost else [repair, books])
    result = await client.invoke("hi", options=ChatOptions(response_format=Answer))
    assert told == ([20] if outermost else [10, 10])
    assert result.usage.input_tokens == 20


async def test_cached_reply_has_taken_nothing() -> None:
    told: list[int | None] = []
    books = UsageFilter(lambda record: told.append(record.usage.input_tokens))
    client = ChatClient(ScriptedModel([Reply(text="ok", usage=SPENT)]), filters=[books, CacheFilter()])
    await client.invoke("hi")
    await client.invoke("hi")
    assert told == [10, 0]


async def test_calls_that_fail_are_not_told() -> None:
    told: list[UsageRecord] = []
    client = ChatClient(ScriptedModel([ProviderError("x", kind="server")]), filters=[UsageFilter(told.append)])
    with pytest.raises(ProviderError):
        await client.invoke("hi")
    assert told == []


async def test_cost_is_told_when_it_is_asked_for_and_known() -> None:
    told: list[float | None] = []
    books = UsageFilter(lambda record: told.append(record.cost), with_cost=True)
    for name in ("gpt-4o", "nobody-knows-this-model"):
        model = ScriptedModel([Reply(text="ok", usage=Usage(input_tokens=1_000_000, output_tokens=0))], name=name)
        await ChatClient(model, filters=[books]).invoke("hi")
    assert told == [pytest.approx(2.5), None]
