"""RedactingFilter: what is delivered is redacted however it was cut, and the record keeps the words."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore import (
    AgentEvent,
    AssistantMessage,
    ChatClient,
    ConfigurationError,
    InMemoryChatMemory,
    MemoryFilter,
    ProviderError,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolStarted,
    TurnEvent,
    tool,
)
from agentcore.filters.redacting import RedactingFilter
from agentcore.testing import Reply, ScriptedModel

CARD = r"\b\d{4}\b"


async def transformed(redacting: RedactingFilter, events: list[TurnEvent]) -> list[TurnEvent]:
    async def source() -> AsyncIterator[TurnEvent]:
        for event in events:
            yield event

    return [event async for event in redacting.transform_stream(source())]


def delivered(redacting: RedactingFilter, pieces: list[str]) -> str:
    events = asyncio.run(transformed(redacting, [TextDelta(piece) for piece in pieces]))
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@given(
    st.lists(st.text("ab12 \n", max_size=5), max_size=12),
    st.sampled_from([r"\d{1,4}", CARD, r"(?<!a)b+(?!b)a?", r"^a{1,3}", "ab|b1", r"a\s{1,4}b", "1$"]),
)
def test_stream_is_redacted_as_the_whole_text_would_be(pieces: list[str], pattern: str) -> None:
    whole = "".join(pieces)
    longest = 1 + max([len(m[0]) for m in re.finditer(pattern, whole)], default=5) + 5
    assert delivered(RedactingFilter([pattern], longest=longest), pieces) == re.sub(pattern, "[redacted]", whole)


@given(st.lists(st.text("ab1", max_size=5), max_size=12))
def test_each_pattern_is_applied_to_what_the_one_before_left(pieces: list[str]) -> None:
    redacting = RedactingFilter(["ab", "b1"], replacement="b", longest=4)
    assert delivered(redacting, pieces) == re.sub("b1", "b", re.sub("ab", "b", "".join(pieces)))


def test_no_more_is_held_back_than_was_said() -> None:
    redacting = RedactingFilter(["x"], longest=8)
    stage = redacting.stages()[0]
    assert [stage.feed(letter) for letter in "abcdefghijkl"] == [*[""] * 9, "ab", "", "cd"]
    assert (stage.flush(), stage.flush()) == ("efghijkl", "")


@pytest.mark.asyncio
async def test_place_that_matches_without_a_letter_is_left_alone() -> None:
    redacting = RedactingFilter(["(?<=a)(?=b)"])
    assert await transformed(redacting, [TextDelta("abab")]) == [TextDelta("abab")]
    assert (await ChatClient(ScriptedModel(["abab"]), filters=[redacting]).invoke("x")).text == "abab"


def test_match_beyond_reach_is_taken_out_as_far_as_it_lies_in_it() -> None:
    shown = delivered(RedactingFilter([r"\d+"], longest=4, replacement="#"), list("a" + "1" * 20 + "b"))
    assert set(shown) == {"a", "#", "b"}


@pytest.mark.parametrize("replacement", [r"\1", lambda match: match[0][:1] + "…"], ids=["text", "function"])
def test_replacement_is_taken_as_it_is(replacement: Any) -> None:
    shown = delivered(RedactingFilter(["secret"], replacement=replacement), ["a sec", "ret b"])
    assert shown == ("a \\1 b" if isinstance(replacement, str) else "a s… b")


@pytest.mark.asyncio
async def test_record_keeps_the_words_and_the_result_does_not_tell_them() -> None:
    memory = InMemoryChatMemory()
    script = [Reply(text="PIN 1234", reasoning="1234?"), Reply(text=["PIN 12", "34"], reasoning="1234?")]
    client = ChatClient(ScriptedModel(script), memory=memory, filters=[RedactingFilter([CARD])])
    result = await client.invoke("pin?", conversation_id="u")
    assert result.message == AssistantMessage("PIN [redacted]", reasoning="[redacted]?")
    async with client.stream("again?", conversation_id="u") as turn:
        assert "".join([piece async for piece in turn.text]) == "PIN [redacted]"
    assert turn.result.text == "PIN [redacted]"
    assert [m.content for m in await memory.get("u")] == ["pin?", "PIN 1234", "again?", "PIN 1234"]


@pytest.mark.asyncio
async def test_result_of_a_tool_that_is_the_answer_is_redacted() -> None:
    @tool(return_direct=True)
    async def pin() -> str:
        """Pin."""
        return "1234"

    client = ChatClient(ScriptedModel([ToolCall("c", "pin")]), tools=[pin], filters=[RedactingFilter([CARD])])
    assert (await client.invoke("pin?")).text == "[redacted]"


@pytest.mark.asyncio
async def test_single_model_call_is_redacted_for_the_caller_and_not_for_the_record() -> None:
    memory = InMemoryChatMemory()
    client = ChatClient(ScriptedModel(["PIN 1234"]), memory=memory, filters=[RedactingFilter([CARD])])
    assert (await client.invoke_chat("pin?", conversation_id="u")).text == "PIN [redacted]"
    assert (await memory.get("u"))[-1] == AssistantMessage("PIN 1234")


@pytest.mark.asyncio
async def test_model_sees_its_own_words_between_tools() -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedModel([Reply(text="PIN 1234", tool_calls=[ToolCall("c", "look")]), "done"])
    await ChatClient(model, tools=[look], filters=[RedactingFilter([CARD])]).invoke("pin?")
    assert model.requests[1].messages[1].content == "PIN 1234"


@pytest.mark.asyncio
async def test_text_comes_before_the_tools_it_announces() -> None:
    call = ToolStarted(ToolCall("c", "pin"))
    assert await transformed(RedactingFilter([CARD]), [TextDelta("I look"), call, TextDelta("1234")]) == [
        TextDelta("I look"),
        call,
        TextDelta("[redacted]"),
    ]


@pytest.mark.asyncio
async def test_agents_inside_and_thoughts_are_redacted_each_for_itself() -> None:
    events: list[TurnEvent] = []
    for half in ("12", "34"):
        events += [
            AgentEvent("a", "c1", TextDelta(half)),
            TextDelta(half),
            AgentEvent("a", "c2", TextDelta("99")),
            ReasoningDelta(half),
        ]
    assert await transformed(RedactingFilter([CARD], replacement="#"), events) == [
        AgentEvent("a", "c1", TextDelta("#")),
        TextDelta("#"),
        AgentEvent("a", "c2", TextDelta("#")),
        ReasoningDelta("#"),
    ]


@pytest.mark.asyncio
async def test_what_was_held_back_is_delivered_before_the_error() -> None:
    memory = InMemoryChatMemory()
    model = ScriptedModel([Reply(text=["PIN 1234", " is"], error=ProviderError("reset", kind="network"))])
    client = ChatClient(model, memory=memory, filters=[RedactingFilter([CARD])])
    seen = ""
    with pytest.raises(ProviderError):
        async with client.stream("pin?", conversation_id="u") as turn:
            async for piece in turn.text:
                seen += piece
    assert seen == "PIN [redacted] is"
    assert (await memory.get("u"))[-1] == AssistantMessage("PIN 1234 is", finish_reason="interrupted")


def test_what_cannot_be_a_pattern_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no regular expression"):
        RedactingFilter(["("])
    with pytest.raises(ConfigurationError, match="matches nothing"):
        RedactingFilter(["a*"])
    with pytest.raises(ConfigurationError, match="RedactingFilter belongs outside the memory"):
        ChatClient(ScriptedModel([]), filters=[MemoryFilter(), RedactingFilter([CARD])])
    with pytest.raises(ConfigurationError, match="longest=0"):
        RedactingFilter(["a"], longest=0)
