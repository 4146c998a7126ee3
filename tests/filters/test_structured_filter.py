"""StructuredOutputFilter: repair inside the memory, with every attempt counted and none of them stored."""

from typing import Any

import pytest
from msgspec import Struct

from agentcore import (
    AssistantMessage,
    ChatClient,
    ChatOptions,
    ChatRequest,
    ConfigurationError,
    InMemoryChatMemory,
    Limits,
    MemoryFilter,
    OutputError,
    ProviderError,
    ToolCall,
    Usage,
    UserMessage,
    check_history,
    tool,
)
from agentcore.events import ReplyRestarted, TextDelta
from agentcore.filters.structured import StructuredOutputFilter
from agentcore.testing import Reply, ScriptedModel

pytestmark = pytest.mark.asyncio


class Person(Struct):
    name: str
    age: int


GOOD = '{"name":"Kim","age":30}'
BAD = '{"name":"Kim","age":"thirty"}'
AS_PERSON = ChatOptions(response_format=Person)


def client_of(script: list[Any], memory: InMemoryChatMemory, **settings: Any) -> tuple[ChatClient, ScriptedModel]:
    model = ScriptedModel(script)
    filters = settings.pop("filters", [StructuredOutputFilter()])
    return ChatClient(model, memory=memory, filters=filters, options=AS_PERSON, **settings), model


async def test_good_answer_is_asked_for_once() -> None:
    client, model = client_of([GOOD], InMemoryChatMemory())
    result = await client.invoke("who?", conversation_id="u")
    assert result.parse(Person) == Person("Kim", 30)
    assert model.calls == 1


async def test_bad_answer_is_repaired_and_not_stored() -> None:
    memory = InMemoryChatMemory()
    client, model = client_of([BAD, GOOD], memory)
    result = await client.invoke("who?", conversation_id="u")
    assert result.parse(Person) == Person("Kim", 30)
    assert list(await memory.get("u")) == [UserMessage("who?"), AssistantMessage(GOOD)]
    assert result.messages == tuple(await memory.get("u"))
    question, answer, told = model.requests[1].messages
    assert (question, answer) == (UserMessage("who?"), AssistantMessage(BAD))
    assert isinstance(told, UserMessage)
    assert "age" in str(told.content)
    assert "int" in str(told.content)


async def test_second_repair_is_told_of_the_last_fault_alone() -> None:
    client, model = client_of(["no json", BAD, GOOD], InMemoryChatMemory())
    await client.invoke("who?", conversation_id="u")
    assert [m.content for m in model.requests[2].messages][:2] == ["who?", BAD]
    assert len(model.requests[2].messages) == 3


async def test_every_attempt_is_counted() -> None:
    usage = Usage(input_tokens=10, output_tokens=5)
    client, _ = client_of([Reply(text=BAD, usage=usage), Reply(text=GOOD, usage=usage)], InMemoryChatMemory())
    result = await client.invoke("who?")
    assert result.usage == Usage(input_tokens=20, output_tokens=10)
    assert result.model_calls == 2


async def test_attempt_that_fails_leaves_no_trace_in_the_history() -> None:
    memory = InMemoryChatMemory()
    client, _ = client_of([BAD, ProviderError("down", kind="server")], memory)
    with pytest.raises(ProviderError):
        await client.invoke("who?", conversation_id="u")
    assert list(await memory.get("u")) == []


async def test_attempts_are_bounded_and_the_last_answer_stands() -> None:
    memory = InMemoryChatMemory()
    client, model = client_of([BAD, BAD, "still bad"], memory)
    result = await client.invoke("who?", conversation_id="u")
    assert (result.status, result.text, model.calls) == ("completed", "still bad", 3)
    with pytest.raises(OutputError):
        result.parse(Person)
    assert [m.content for m in await memory.get("u")] == ["who?", "still bad"]


async def test_limit_of_model_calls_ends_the_repair() -> None:
    client, model = client_of([BAD, BAD, GOOD], InMemoryChatMemory())
    result = await client.invoke("who?", limits=Limits(model_calls=2))
    assert (result.text, model.calls, result.model_calls) == (BAD, 2, 2)


@pytest.mark.parametrize(
    ("reply", "wanted"),
    [
        (Reply(text="I will not.", finish_reason="content_filter"), Person),
        ("free text", None),
        ("free text", "json"),
        ("free text", {"type": "object"}),
    ],
    ids=["refusal", "nothing-asked", "json", "schema"],
)
async def test_what_cannot_or_need_not_be_validated_is_left_alone(reply: Any, wanted: Any) -> None:
    model = ScriptedModel([reply])
    client = ChatClient(model, filters=[StructuredOutputFilter()], options=ChatOptions(response_format=wanted))
    await client.invoke("who?")
    assert model.calls == 1


async def test_tools_run_before_the_answer_is_validated() -> None:
    @tool
    async def look_up() -> str:
        """Look up."""
        return "Kim, 30"

    memory = InMemoryChatMemory()
    client, model = client_of([ToolCall("c", "look_up"), BAD, GOOD], memory, tools=[look_up])
    result = await client.invoke("who?", conversation_id="u")
    assert result.parse(Person).age == 30
    stored = await memory.get("u")
    assert [m.content for m in stored] == ["who?", None, "Kim, 30", GOOD]
    assert check_history(stored) == []
    assert model.calls == 3


async def test_stream_marks_where_an_attempt_was_given_up_and_keeps_what_was_seen() -> None:
    memory = InMemoryChatMemory()
    client, _ = client_of([BAD, GOOD], memory)
    async with client.stream("who?", conversation_id="u") as turn:
        events = [event async for event in turn]
    assert events == [TextDelta(BAD), ReplyRestarted(), TextDelta(GOOD)]
    assert list(await memory.get("u"))[1:] == [
        AssistantMessage(BAD, finish_reason="interrupted"),
        AssistantMessage(GOOD),
    ]


async def test_outside_the_memory_it_is_refused_and_left_to_the_client_it_comes_inside() -> None:
    with pytest.raises(ConfigurationError, match="StructuredOutputFilter belongs inside the memory"):
        ChatClient(ScriptedModel([]), filters=[StructuredOutputFilter(), MemoryFilter(InMemoryChatMemory())])
    lines = ChatClient(ScriptedModel([]), filters=[StructuredOutputFilter()]).describe().splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == ["MemoryFilter", "StructuredOutputFilter"]


async def test_negative_retries_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="max_retries"):
        StructuredOutputFilter(max_retries=-1)


async def test_call_outside_of_any_turn_is_repaired_too() -> None:
    model = ScriptedModel([BAD, GOOD])
    request = ChatRequest([UserMessage("who?")], options=AS_PERSON)
    assert (await StructuredOutputFilter().around_chat(request, model.chat)).parse(Person) == Person("Kim", 30)
    with pytest.raises(ProviderError):
        failing = ScriptedModel([BAD, ProviderError("down", kind="server")])
        await StructuredOutputFilter().around_chat(request, failing.chat)
