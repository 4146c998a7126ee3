"""What InMemoryChatMemory does beyond what every store does: it leaves nothing behind."""

import asyncio
from typing import Any

import pytest

from agentcore import ChatClient, tool
from agentcore.errors import InvalidInputError
from agentcore.memory import in_memory
from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.messages import AssistantMessage, ToolCall, UserMessage
from agentcore.testing import ScriptedModel

pytestmark = pytest.mark.asyncio


async def test_what_is_read_cannot_be_used_to_write() -> None:
    memory = InMemoryChatMemory()
    await memory.add("u1", [UserMessage("a")])
    read = await memory.get("u1")
    with pytest.raises((TypeError, AttributeError)):
        read.pop()  # type: ignore[attr-defined]


async def test_tool_that_changes_its_arguments_does_not_change_the_record() -> None:
    @tool
    async def drain(items: list[dict[str, int]]) -> str:
        items[0].clear()
        items.clear()
        return "done"

    memory = InMemoryChatMemory()
    call = ToolCall("c1", "drain", {"items": [{"n": 1}]})
    client = ChatClient(ScriptedModel([call, "ok"]), tools=[drain], memory=memory)
    await client.invoke("go", conversation_id="u1")
    asked = (await memory.get("u1"))[1]
    assert isinstance(asked, AssistantMessage)
    assert asked.tool_calls[0].args == {"items": [{"n": 1}]}


async def test_cancelled_waiter_leaves_no_trace() -> None:
    memory = InMemoryChatMemory()

    async def wait() -> None:
        async with memory.lock_turn("u1"):
            raise AssertionError

    async with memory.lock_turn("u1"):
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(memory._turns) == 0
    assert memory._held == {}


async def test_threads_may_share_it() -> None:
    memory = InMemoryChatMemory()

    async def write(worker: int) -> None:
        for number in range(50):
            await memory.append(
                "u1", [UserMessage("q"), AssistantMessage("a")], turn_id=f"{worker}", position=number * 2
            )

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, write(worker)) for worker in range(4)))
    records = await memory.read("u1")
    assert [record.seq for record in records] == list(range(1, 401))
    assert [record.message.content for record in records] == ["q", "a"] * 200


async def test_cleared_conversations_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_memory, "_CLEARED_KNOWN", 3)
    memory = InMemoryChatMemory()
    for number in range(10):
        await memory.add(f"u{number}", [UserMessage("x")] * (number + 1))
        await memory.clear(f"u{number}")
    assert len(memory._cleared) == 3
    assert memory._conversations == {}


async def test_number_of_a_conversation_no_longer_remembered_is_not_given_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_memory, "_CLEARED_KNOWN", 1)
    memory = InMemoryChatMemory()
    first = await memory.append("u1", [UserMessage("x")] * 5, turn_id="t1", position=0)
    await memory.clear("u1")
    await memory.add("u2", [UserMessage("x")])
    await memory.clear("u2")
    assert await memory.append("u1", [UserMessage("y")], turn_id="t2", position=0) > first


def nested(levels: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for _ in range(levels):
        made = {"a": made}
    return made


async def test_message_that_cannot_be_copied_leaves_the_conversation_as_it_was() -> None:
    memory = InMemoryChatMemory()
    await memory.add("u1", [UserMessage("a")])
    deep = [UserMessage("b"), AssistantMessage(None, (ToolCall("c1", "f", nested(5000)),))]
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        await memory.add("u1", deep)
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        await memory.append("u2", deep, turn_id="t", position=0)
    await memory.add("u1", [UserMessage("c")])
    assert await memory.get_tail("u1", 2) == (UserMessage("a"), UserMessage("c"))
    assert [one.seq for one in await memory.read("u1")] == [1, 2]
    assert await memory.conversation_info("u2") is None


async def test_conversation_whose_id_holds_half_a_character_is_listed() -> None:
    memory = InMemoryChatMemory()
    names = ["a", "b\ud83d", "c"]
    for name in names:
        await memory.add(name, [UserMessage("x")])
    found: list[str] = []
    after: str | None = None
    while True:
        page = await memory.list_conversations(limit=1, after=after)
        found += [one.conversation_id for one in page.conversations]
        after = page.after
        if after is None:
            break
    assert sorted(found) == names
