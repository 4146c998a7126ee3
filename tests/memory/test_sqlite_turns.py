"""Whole turns over SQLiteChatMemory: what a client says is kept, in order, over restarts and cancellation."""

import asyncio
from pathlib import Path

import pytest

from agentcore import ChatClient, tool
from agentcore.memory.sqlite import SQLiteChatMemory
from agentcore.memory.windowed import WindowedChatMemory
from agentcore.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage, check_history
from agentcore.testing import Reply, ScriptedModel

pytestmark = pytest.mark.asyncio


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_turns_are_kept_over_a_restart(tmp_path: Path) -> None:
    model = ScriptedModel([ToolCall("c1", "add", {"a": 1, "b": 2}), "three", "you asked for 1 + 2"])
    async with SQLiteChatMemory(tmp_path / "a.db") as memory, ChatClient(model, tools=[add], memory=memory) as client:
        assert (await client.invoke("1 + 2?", conversation_id="c")).text == "three"
    async with SQLiteChatMemory(tmp_path / "a.db") as memory:
        windowed = WindowedChatMemory(memory, max_messages=20)
        async with ChatClient(model, tools=[add], memory=windowed) as client:
            await client.invoke("what did I ask?", conversation_id="c")
        history = list(await memory.get("c"))
        records = await memory.read("c")
    assert history == [
        UserMessage("1 + 2?"),
        AssistantMessage(None, (ToolCall("c1", "add", {"a": 1, "b": 2}),)),
        ToolMessage("c1", "add", "3"),
        AssistantMessage("three"),
        UserMessage("what did I ask?"),
        AssistantMessage("you asked for 1 + 2"),
    ]
    assert list(model.requests[-1].messages) == history[:5]
    assert [record.position for record in records] == [0, 1, 2, 3, 0, 1]
    assert len({record.turn_id for record in records}) == 2


async def test_many_conversations_at_once_are_each_whole(tmp_path: Path) -> None:
    model = ScriptedModel([lambda request: f"to {request.messages[-1].content}"] * 60)
    async with SQLiteChatMemory(tmp_path / "a.db") as memory, ChatClient(model, memory=memory) as client:
        await asyncio.gather(
            *(client.invoke(f"{turn}", conversation_id=f"c{n}") for n in range(20) for turn in range(3))
        )
        for n in range(20):
            contents = [m.content for m in await memory.get(f"c{n}")]
            assert contents == ["0", "to 0", "1", "to 1", "2", "to 2"]


async def test_cancelled_turn_leaves_a_whole_history_and_a_free_place(tmp_path: Path) -> None:
    asked, never = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        asked.set()
        await never.wait()

    model = ScriptedModel([ToolCall("c1", "add", {"a": 1, "b": 2}), Reply(text="late", wait_for=hang), "again"])
    async with SQLiteChatMemory(tmp_path / "a.db") as memory, ChatClient(model, tools=[add], memory=memory) as client:
        turn = asyncio.ensure_future(client.invoke("1 + 2?", conversation_id="c"))
        await asked.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert check_history(await memory.get("c")) == []
        assert (await asyncio.wait_for(client.invoke("again?", conversation_id="c"), 20)).text == "again"
        assert check_history(await memory.get("c")) == []


async def test_clearing_stops_a_turn_from_writing(tmp_path: Path) -> None:
    memory = SQLiteChatMemory(tmp_path / "a.db")

    async def forget() -> None:
        await memory.clear("c")

    model = ScriptedModel([Reply(text="too late", wait_for=forget)])
    async with memory, ChatClient(model, memory=memory) as client:
        assert (await client.invoke("hello", conversation_id="c")).status == "cancelled"
        assert list(await memory.get("c")) == []
