"""OutputGuard: stored is what was seen, and nobody saw what was blocked."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore import (
    AssistantMessage,
    ChatClient,
    ConfigurationError,
    InMemoryChatMemory,
    MemoryFilter,
    ProviderError,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    Usage,
    UserMessage,
    tool,
)
from agentcore.events import ReplyRestarted
from agentcore.filters.output_guard import OutputGuard
from agentcore.filters.verdict import Block
from agentcore.testing import Reply, ScriptedModel
from tests.test_reentry import Again

pytestmark = pytest.mark.asyncio

RAN: list[str] = []


@tool
async def act() -> str:
    """Act."""
    RAN.append("act")
    return "done"


def polite(text: str) -> Block | None:
    return Block("rude") if "damn" in text else None


async def polite_async(text: str) -> Block | None:
    await asyncio.sleep(0)
    return polite(text)


async def test_blocked_reply_is_replaced_in_the_result_and_the_record() -> None:
    memory = InMemoryChatMemory()
    usage = Usage(output_tokens=4)
    model = ScriptedModel([Reply(text="oh damn", usage=usage), "fine"])
    client = ChatClient(model, memory=memory, filters=[OutputGuard(polite_async)])
    result = await client.invoke("hi", conversation_id="u")
    assert (result.status, result.reason, result.text) == ("blocked", "rude", "[withheld]")
    assert (result.finish_reason, result.usage) == ("content_filter", usage)
    withheld = AssistantMessage("[withheld]", finish_reason="content_filter")
    assert list(await memory.get("u")) == [UserMessage("hi"), withheld]
    assert (await client.invoke("and now?", conversation_id="u")).status == "completed"


async def test_calls_of_a_blocked_reply_do_not_run() -> None:
    RAN.clear()
    model = ScriptedModel([Reply(text="damn", tool_calls=[ToolCall("c", "act")])])
    result = await ChatClient(model, tools=[act], filters=[OutputGuard(polite)]).invoke("hi")
    assert (result.status, RAN) == ("blocked", [])


async def test_stream_holds_text_back_until_it_is_judged() -> None:
    judged: list[str] = []
    memory = InMemoryChatMemory()
    guard = OutputGuard(lambda text: judged.append(text), every=4)
    client = ChatClient(ScriptedModel([Reply(text=["ab", "cd", "ef"], reasoning="hm")]), memory=memory, filters=[guard])
    async with client.stream("hi", conversation_id="u") as turn:
        events = [event async for event in turn]
    assert events == [ReasoningDelta("hm"), TextDelta("ab"), TextDelta("cd"), TextDelta("ef")]
    assert judged == ["abcd", "abcdef"]
    assert (await memory.get("u"))[-1] == AssistantMessage("abcdef", reasoning="hm")


async def test_blocked_stream_is_broken_off_and_the_record_is_what_was_seen() -> None:
    memory = InMemoryChatMemory()
    pieces = ["all ", "good ", "da", "mn", "never read"]
    model = ScriptedModel([Reply(text=pieces, reasoning="hm")])
    client = ChatClient(model, memory=memory, filters=[OutputGuard(polite, every=4)])
    async with client.stream("hi", conversation_id="u") as turn:
        seen = "".join([piece async for piece in turn.text])
    assert seen == "all good [withheld]"
    assert (turn.result.status, turn.result.reason, turn.result.text) == ("blocked", "rude", seen)
    stored = AssistantMessage(seen, reasoning="hm", finish_reason="content_filter")
    assert (await memory.get("u"))[-1] == stored


async def test_last_piece_is_judged_however_short() -> None:
    client = ChatClient(ScriptedModel([Reply(text=["fine, ", "damn"])]), filters=[OutputGuard(polite, every=1000)])
    async with client.stream("hi") as turn:
        assert [piece async for piece in turn.text] == ["[withheld]"]


async def test_what_is_held_when_the_reader_leaves_is_not_stored() -> None:
    memory = InMemoryChatMemory()
    model = ScriptedModel([Reply(text=["abcd", "ef", "gh"], wait_between=asyncio.Event().wait)])
    client = ChatClient(model, memory=memory, filters=[OutputGuard(polite, every=4)])
    async with client.stream("hi", conversation_id="u") as turn:
        async for _ in turn:
            break
    assert (await memory.get("u"))[-1] == AssistantMessage("abcd", finish_reason="interrupted")


async def test_attempt_given_up_inside_the_guard_is_not_delivered_as_far_as_it_was_held() -> None:
    memory = InMemoryChatMemory()
    broken = ProviderError("reset", kind="network")
    model = ScriptedModel([Reply(text=["abcd", "ef"], error=broken), Reply(text=["good"])])
    client = ChatClient(model, memory=memory, filters=[OutputGuard(polite, every=4), Again()])
    async with client.stream("hi", conversation_id="u") as turn:
        events = [event async for event in turn]
    assert events == [TextDelta("abcd"), ReplyRestarted(), TextDelta("good")]
    assert [m.content for m in await memory.get("u")] == ["hi", "abcd", "good"]


@given(st.lists(st.text("abx", max_size=4), max_size=8), st.integers(1, 9))
@settings(max_examples=60)
async def test_whatever_the_pieces_stored_is_seen_and_nothing_blocked_is(pieces: list[str], every: int) -> None:
    memory = InMemoryChatMemory()
    guard = OutputGuard(lambda text: Block("x") if "x" in text else None, replacement="#", every=every)
    client = ChatClient(ScriptedModel([Reply(text=pieces)]), memory=memory, filters=[guard])
    async with client.stream("hi", conversation_id="u") as turn:
        seen = "".join([piece async for piece in turn.text])
    whole = "".join(pieces)
    assert turn.result.status == ("blocked" if "x" in whole else "completed")
    assert ((await memory.get("u"))[-1].content or "") == seen == turn.result.text
    assert "x" not in seen
    assert whole.startswith(seen.removesuffix("#"))


async def test_guard_that_fails_fails_the_turn_and_delivers_nothing() -> None:
    def broken(text: str) -> Block | None:
        raise ConnectionError("the guard is away")

    memory, seen = InMemoryChatMemory(), list[str]()
    client = ChatClient(ScriptedModel(["secret"]), memory=memory, filters=[OutputGuard(broken)])
    with pytest.raises(ConnectionError):
        async with client.stream("hi", conversation_id="u") as turn:
            async for piece in turn.text:
                seen.append(piece)
    assert (seen, list(await memory.get("u"))) == ([], [])


async def test_outside_the_memory_it_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="OutputGuard belongs inside the memory"):
        ChatClient(ScriptedModel([]), filters=[OutputGuard(polite), MemoryFilter(InMemoryChatMemory())])


async def test_nothing_to_hold_back_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="every=0"):
        OutputGuard(polite, every=0)
