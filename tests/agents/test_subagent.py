"""A client as a tool of another: own memory, own events, the caller's bounds, nothing that flows silently."""

import asyncio
from typing import Any

import pytest

from agentcore import (
    ChatClient,
    ConfigurationError,
    InMemoryChatMemory,
    Limits,
    TextDelta,
    ToolCall,
    ToolContext,
    ToolFinished,
    ToolMessage,
    ToolProgress,
    Usage,
    UserMessage,
    check_history,
    tool,
)
from agentcore.agents.subagent import agent_tool
from agentcore.events import AgentEvent
from agentcore.testing import Reply, ScriptedModel

pytestmark = pytest.mark.asyncio

ASK = ToolCall("c1", "researcher", {"task": "find the capital"})


def pair(inner: list[Any], *, tools: Any = (), memory: Any = None, **settings: Any) -> tuple[ChatClient, ScriptedModel]:
    model = ScriptedModel(inner)
    agent = ChatClient(model, tools=tools, memory=memory)
    ask = agent_tool(agent, name="researcher", description="Finds things out.", **settings)
    outer = ChatClient(ScriptedModel([ASK, "It is Oslo."]), tools=[ask], memory=InMemoryChatMemory())
    return outer, model


async def test_agent_gets_the_task_and_its_answer_is_the_result() -> None:
    outer, model = pair(["Oslo"])
    result = await outer.invoke("capital of Norway?", conversation_id="u1", tool_context={"secret": "s"})
    assert result.text == "It is Oslo."
    assert result.messages[2] == ToolMessage("c1", "researcher", "Oslo")
    assert list(model.requests[0].messages) == [UserMessage("find the capital")]
    assert dict(model.requests[0].context) == {}


async def test_model_is_told_what_the_agent_can_do_and_takes() -> None:
    outer, _ = pair([])
    [shown] = outer._tools.values()
    assert shown.description == "Finds things out."
    assert list(shown.parameters["properties"]) == ["task"]


async def test_only_what_is_shared_reaches_the_agent() -> None:
    outer, model = pair(["Oslo"], share=("user_id", "absent"))
    await outer.invoke("?", tool_context={"user_id": "kim", "secret": "s"})
    assert dict(model.requests[0].context) == {"user_id": "kim"}
    with pytest.raises(ConfigurationError, match="a conversation of its own"):
        agent_tool(ChatClient(model), name="a", description="b", share=("conversation_id",))


async def test_agent_may_remember_beside_each_conversation() -> None:
    memory = InMemoryChatMemory()
    model = ScriptedModel(["Oslo", "Bergen"])
    agent = ChatClient(model, memory=memory)
    ask = agent_tool(agent, name="researcher", description="d", remembers=True)
    outer = ChatClient(ScriptedModel([ASK, "1", ASK, "2"]), tools=[ask], memory=InMemoryChatMemory())
    await outer.invoke("a", conversation_id="u1")
    await outer.invoke("b", conversation_id="u1")
    assert [m.content for m in model.requests[1].messages] == ["find the capital", "Oslo", "find the capital"]
    assert [m.content for m in await memory.get("u1/researcher")][-1] == "Bergen"


async def test_events_reach_the_reader_with_the_agents_name() -> None:
    @tool
    async def dig() -> str:
        return "dug"

    outer, _ = pair([ToolCall("i1", "dig"), Reply(text=["Os", "lo"])], tools=[dig])
    async with outer.stream("?") as turn:
        events = [event async for event in turn]
    inside = [event for event in events if isinstance(event, AgentEvent)]
    assert {(event.agent, event.call_id) for event in inside} == {("researcher", "c1")}
    assert [event.event.text for event in inside if isinstance(event.event, TextDelta)] == ["Os", "lo"]
    assert any(isinstance(event.event, ToolFinished) for event in inside)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "It is Oslo."
    assert turn.result.text == "It is Oslo."


async def test_tokens_of_the_agent_count_as_the_callers() -> None:
    outer, _ = pair([Reply(text="Oslo", usage=Usage(input_tokens=100, output_tokens=10))])
    assert (await outer.invoke("?")).usage == Usage(input_tokens=100, output_tokens=10)


@pytest.mark.parametrize(
    ("own", "callers", "calls"),
    [(None, Limits(model_calls=3), 2), (Limits(model_calls=1), Limits(model_calls=9), 1), (Limits(), Limits(), 3)],
    ids=["callers", "own", "free"],
)
async def test_agent_works_within_what_is_left(own: Limits | None, callers: Limits, calls: int) -> None:
    @tool
    async def dig() -> str:
        return "dug"

    outer, model = pair([ToolCall("1", "dig"), ToolCall("2", "dig"), "Oslo"], tools=[dig], limits=own)
    result = await outer.invoke("?", limits=callers)
    assert len(model.requests) == calls
    message = result.messages[2]
    assert isinstance(message, ToolMessage)
    assert ("reached a limit" in str(message.content)) == (calls < 3)


async def test_cancelling_the_caller_cancels_the_agent_and_waits_for_it() -> None:
    started, cleaned = asyncio.Event(), []

    @tool
    async def slow() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)
        return ""

    memory = InMemoryChatMemory()
    outer, _ = pair([ToolCall("1", "slow")], tools=[slow], memory=memory, remembers=True)
    turn = asyncio.create_task(outer.invoke("?", conversation_id="u1"))
    await started.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert cleaned == [True]
    assert check_history(await memory.get("u1/researcher")) == []
    assert check_history(await outer.conversation("u1").history()) == []


async def test_failure_of_the_agents_model_is_an_error_result() -> None:
    outer, _ = pair([RuntimeError("kaput")])
    result = await outer.invoke("?")
    message = result.messages[2]
    assert isinstance(message, ToolMessage)
    assert (message.is_error, "kaput" in str(message.content)) == (True, True)


async def test_tool_tells_its_progress_to_whoever_reads_along() -> None:
    @tool
    async def count(context: ToolContext) -> str:
        for n in range(3):
            await context.emit({"done": n})
        return "counted"

    client = ChatClient(ScriptedModel([ToolCall("c1", "count"), "ok", ToolCall("c1", "count"), "ok"]), tools=[count])
    async with client.stream("go") as turn:
        told = [event async for event in turn if isinstance(event, ToolProgress)]
    assert told == [ToolProgress("c1", {"done": n}) for n in range(3)]
    assert (await client.invoke("go")).text == "ok"
    await ToolContext().emit("nobody reads")
