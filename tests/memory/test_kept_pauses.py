"""A pause that is over: what the calls that waited are answered with, by whichever turn comes to it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentcore import ChatClient, PauseError, tool
from agentcore.memory.history import ABANDONED_RESULT
from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.memory.sqlite import SQLiteChatMemory
from agentcore.messages import ToolCall, ToolMessage
from agentcore.pairing import INTERRUPTED_RESULT
from agentcore.testing import ScriptedModel

pytestmark = pytest.mark.asyncio


class ModelDownError(Exception):
    pass


@tool(approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


@tool
async def look() -> str:
    """Look."""
    return "seen"


PAY, LOOK = ToolCall("c1", "pay"), ToolCall("c1", "look")


@pytest.fixture(params=["in memory", "in a file"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    if request.param == "in memory":
        return InMemoryChatMemory
    return lambda: SQLiteChatMemory(tmp_path / "a.db", synchronous="NORMAL")


async def close(memory: Any) -> None:
    if isinstance(memory, SQLiteChatMemory):
        await memory.aclose()


def client(memory: Any, *script: Any) -> ChatClient:
    return ChatClient(ScriptedModel(list(script)), tools=[pay, look], memory=memory)


async def test_turn_after_one_whose_model_failed_still_knows_that_nothing_ran(make: Callable[[], Any]) -> None:
    memory = make()
    await client(memory, PAY).invoke("pay", conversation_id="u1")
    for _ in range(2):
        with pytest.raises(ModelDownError):
            await client(memory, ModelDownError()).invoke("never mind", conversation_id="u1")
    with pytest.raises(PauseError) as caught:
        await client(memory).resume("u1", [])
    assert caught.value.reason == "stale"
    await client(memory, "well").invoke("never mind", conversation_id="u1")
    assert (await memory.get("u1"))[2] == ToolMessage("c1", "pay", ABANDONED_RESULT, is_error=True)
    await close(memory)


async def test_calls_that_came_after_a_pause_are_none_of_its_own(make: Callable[[], Any]) -> None:
    memory = make()
    await client(memory, PAY).invoke("pay", conversation_id="u1")
    # Somebody answers for the tool from outside, and the next calls break off.
    answer = [ToolMessage("c1", "pay", "paid elsewhere")]
    await client(memory, LOOK).invoke_chat(answer, conversation_id="u1")
    await client(memory, "well").invoke("and?", conversation_id="u1")
    results = [message.content for message in await memory.get("u1") if isinstance(message, ToolMessage)]
    assert results == ["paid elsewhere", INTERRUPTED_RESULT]
    await close(memory)
