"""What ends a process is no tool error: it comes out of the event loop as it is."""

import asyncio

import pytest

from agentcore import ChatClient, InMemoryChatMemory, ToolCall, check_history, tool
from agentcore.testing import ScriptedModel
from agentcore.tools.tool import Tool


@tool
async def leave_async(code: int) -> None:
    """Leave."""
    raise SystemExit(code)


@tool
def leave_sync(code: int) -> None:
    """Leave."""
    raise SystemExit(code)


@tool
async def interrupt(code: int) -> None:
    """Interrupt."""
    raise KeyboardInterrupt


@tool
async def wait() -> None:
    """Wait."""
    await asyncio.Event().wait()


@pytest.mark.parametrize("beside", [[], [ToolCall("w", "wait")]], ids=["alone", "in-a-batch"])
@pytest.mark.parametrize(
    ("leaving", "expected"),
    [(leave_async, SystemExit), (leave_sync, SystemExit), (interrupt, KeyboardInterrupt)],
    ids=["async", "sync", "keyboard"],
)
def test_exit_comes_out_bare(leaving: Tool, expected: type[BaseException], beside: list[ToolCall]) -> None:
    client = ChatClient(ScriptedModel([]), tools=[leaving, wait])
    with pytest.raises(expected) as caught:
        asyncio.run(client.run_tools([ToolCall("c1", leaving.name, {"code": 3}), *beside]))
    assert not isinstance(caught.value, BaseExceptionGroup)


def test_history_is_whole_after_an_exit() -> None:
    memory = InMemoryChatMemory()
    model = ScriptedModel([[ToolCall("c1", "leave_async", {"code": 3}), ToolCall("c2", "wait")]])
    client = ChatClient(model, tools=[leave_async, wait], memory=memory)
    with pytest.raises(SystemExit):
        asyncio.run(client.invoke("go", conversation_id="u1"))
    history = asyncio.run(memory.get("u1"))
    assert [message.tool_call_id for message in history[2:]] == ["c1", "c2"]  # type: ignore[union-attr]
    assert check_history(history) == []
