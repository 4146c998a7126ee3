"""InputGuard: nothing is stored, nobody is asked, and it stands where it can see to that."""

from collections.abc import Sequence
from typing import Any

import pytest

from agentcore import (
    ChatClient,
    ConfigurationError,
    InMemoryChatMemory,
    MemoryFilter,
    Message,
    ToolCall,
    UserMessage,
    tool,
)
from agentcore.filters.input_guard import InputGuard
from agentcore.filters.verdict import Block
from agentcore.messages import text_of
from agentcore.testing import ScriptedModel

pytestmark = pytest.mark.asyncio


def no_keys(messages: Sequence[Message]) -> Block | None:
    return Block("a key was pasted") if any("sk-" in text_of(m.content) for m in messages) else None


async def no_keys_async(messages: Sequence[Message]) -> Block | None:
    return no_keys(messages)


@pytest.mark.parametrize("judge", [no_keys, no_keys_async], ids=["sync", "async"])
async def test_blocked_turn_stores_nothing_and_asks_nobody(judge: Any) -> None:
    memory, model = InMemoryChatMemory(), ScriptedModel([])
    client = ChatClient(model, memory=memory, filters=[InputGuard(judge)])
    result = await client.invoke("it is sk-123", conversation_id="u")
    assert (result.status, result.reason, result.text, result.messages) == ("blocked", "a key was pasted", "", ())
    assert (result.conversation_id, model.calls) == ("u", 0)
    assert list(await memory.get("u")) == []


async def test_blocked_stream_delivers_nothing_and_has_a_result() -> None:
    async with ChatClient(ScriptedModel([]), filters=[InputGuard(no_keys)]).stream("sk-1") as turn:
        assert [event async for event in turn] == []
    assert turn.result.status == "blocked"


async def test_turn_that_passes_is_judged_once_and_by_its_own_words_alone() -> None:
    seen: list[Sequence[Message]] = []

    @tool
    async def leak() -> str:
        """Leak."""
        return "sk-123"

    memory = InMemoryChatMemory()
    await memory.add("u", [UserMessage("sk-old")])
    client = ChatClient(
        ScriptedModel([ToolCall("c", "leak"), "done"]),
        tools=[leak],
        memory=memory,
        filters=[InputGuard(lambda messages: seen.append(messages) or no_keys(messages))],
    )
    assert (await client.invoke("hi", conversation_id="u")).status == "completed"
    assert [[m.content for m in messages] for messages in seen] == [["hi"]]


async def test_single_model_call_is_refused_in_words() -> None:
    memory, model = InMemoryChatMemory(), ScriptedModel(["hello"])
    client = ChatClient(model, memory=memory, filters=[InputGuard(no_keys)])
    response = await client.invoke_chat("sk-1", conversation_id="u")
    assert (response.finish_reason, response.text) == ("content_filter", "a key was pasted")
    assert list(await memory.get("u")) == []
    assert (await client.invoke_chat("hi", conversation_id="u")).text == "hello"


async def test_guard_that_gives_no_verdict_lets_nothing_pass() -> None:
    model = ScriptedModel([])
    with pytest.raises(TypeError, match="not bool"):
        await ChatClient(model, filters=[InputGuard(lambda _: False)]).invoke("hi")  # type: ignore[arg-type,return-value]
    assert model.calls == 0


async def test_inside_the_memory_it_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="InputGuard belongs outside the memory"):
        ChatClient(ScriptedModel([]), filters=[MemoryFilter(InMemoryChatMemory()), InputGuard(no_keys)])


async def test_turn_that_is_resumed_brings_nothing_to_judge() -> None:
    judged: list[Sequence[Message]] = []

    @tool(approval=True)
    async def act() -> str:
        """Act."""
        return "done"

    guard = InputGuard(lambda messages: judged.append(messages))
    model = ScriptedModel([ToolCall("c", "act"), "ok"])
    client = ChatClient(model, tools=[act], memory=InMemoryChatMemory(), filters=[guard])
    paused = await client.invoke("act", conversation_id="u")
    assert paused.pause is not None
    assert (await client.resume("u", paused.pause.calls[0].approve())).status == "completed"
    assert len(judged) == 1
