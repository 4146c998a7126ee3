"""A turn cancelled at every step of the event loop: the history is whole, nothing is doubled, the next turn works."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest

from agentcore import (
    AssistantMessage,
    ChatClient,
    InMemoryChatMemory,
    InvokeResult,
    Message,
    TextDelta,
    ToolCall,
    UserMessage,
    check_history,
    tool,
)
from agentcore.testing import Reply, ScriptedModel

pytestmark = pytest.mark.asyncio

MOST_STEPS = 200


class SlowMemory(InMemoryChatMemory):
    """Takes a few steps for everything, as a database does; an append is done, or not, whatever is cancelled."""

    async def get(self, conversation_id: str) -> Sequence[Message]:
        await asyncio.sleep(0)
        held = await super().get(conversation_id)
        await asyncio.sleep(0)
        return held

    async def add(self, conversation_id: str, messages: Sequence[Message]) -> None:
        await asyncio.sleep(0)
        await super().add(conversation_id, messages)


async def pause() -> None:
    await asyncio.sleep(0)


@tool
async def work(name: str) -> str:
    """Work for a while."""
    for _ in range(3):
        await asyncio.sleep(0)
    return name


def script() -> ScriptedModel:
    calls = [ToolCall("c1", "work", {"name": "a"}), ToolCall("c2", "work", {"name": "b"})]
    return ScriptedModel(
        [
            Reply(text=["Let ", "me ", "see."], tool_calls=calls, wait_for=pause, wait_between=pause),
            Reply(text=["It ", "is ", "done."], wait_for=pause, wait_between=pause),
            "next",
        ],
        repeat_last=True,
    )


async def invoke(client: ChatClient, seen: list[str]) -> Any:
    return await client.invoke("go", conversation_id="u1")


async def stream(client: ChatClient, seen: list[str]) -> Any:
    async with client.stream("go", conversation_id="u1") as turn:
        async for event in turn:
            if isinstance(event, TextDelta):
                seen.append(event.text)
    return turn.result


async def by_task(run: Callable[[], Awaitable[Any]], steps: int) -> bool:
    task = asyncio.ensure_future(run())
    for _ in range(steps):
        await asyncio.sleep(0)
    ended = task.done()
    task.cancel()
    if ended:
        await task
    else:
        with pytest.raises(asyncio.CancelledError):
            await task
    return ended


async def by_scope(run: Callable[[], Awaitable[Any]], steps: int) -> bool:
    ended = False
    with anyio.CancelScope() as scope:

        async def stop() -> None:
            for _ in range(steps):
                await asyncio.sleep(0)
            scope.cancel()

        stopper = asyncio.ensure_future(stop())
        try:
            await run()
            ended = True
        finally:
            stopper.cancel()
            await asyncio.wait([stopper])
    return ended


@pytest.mark.parametrize("memory_type", [InMemoryChatMemory, SlowMemory], ids=["memory", "slow-store"])
@pytest.mark.parametrize("cancel", [by_task, by_scope], ids=["task", "scope"])
@pytest.mark.parametrize("how", [invoke, stream], ids=["invoke", "stream"])
async def test_turn_cancelled_anywhere_leaves_a_conversation_that_works(
    how: Callable[[ChatClient, list[str]], Awaitable[InvokeResult]],
    cancel: Callable[[Callable[[], Awaitable[Any]], int], Awaitable[bool]],
    memory_type: type[InMemoryChatMemory],
) -> None:
    for steps in range(MOST_STEPS):
        memory, model, seen = memory_type(), script(), list[str]()
        client = ChatClient(model, tools=[work], memory=memory)
        ended = await cancel(lambda client=client, seen=seen: how(client, seen), steps)

        stored = list(await memory.get("u1"))
        assert check_history(stored) == [], (steps, stored)
        assert [m for m in stored if isinstance(m, UserMessage)] == [UserMessage("go")][: len(stored)], (steps, stored)
        text = "".join(m.content or "" for m in stored if isinstance(m, AssistantMessage))
        assert text.startswith("".join(seen)), (steps, text, seen)
        assert "Let me see.It is done.".startswith(text)

        assert (await client.invoke("and now?", conversation_id="u1")).status == "completed"
        assert check_history(await memory.get("u1")) == []
        assert asyncio.all_tasks() == {asyncio.current_task()}
        if ended:
            assert [m.content for m in stored if isinstance(m, AssistantMessage)] == ["Let me see.", "It is done."]
            break
    else:
        raise AssertionError("the turn never came to its end")
