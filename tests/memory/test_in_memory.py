"""InMemoryChatMemory behaves as an atom, and keeps turns of one conversation apart."""

import asyncio

import pytest

from agentcore.errors import ConversationBusyError, InvalidInputError
from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage

pytestmark = pytest.mark.asyncio

TURN: list[Message] = [
    UserMessage("a"),
    AssistantMessage(None, (ToolCall("c1", "f"),)),
    ToolMessage("c1", "f", "1"),
    AssistantMessage("A"),
]


async def test_unknown_conversation_is_empty() -> None:
    memory = InMemoryChatMemory()
    assert list(await memory.get("u1")) == []
    await memory.clear("u1")


async def test_appends_keep_order_and_conversations_are_apart() -> None:
    memory = InMemoryChatMemory()
    await memory.add("u1", TURN[:1])
    await memory.add("u2", [UserMessage("other")])
    await memory.add("u1", TURN[1:])
    assert list(await memory.get("u1")) == TURN
    await memory.clear("u1")
    assert list(await memory.get("u1")) == []
    assert list(await memory.get("u2")) == [UserMessage("other")]


async def test_callers_list_is_not_kept() -> None:
    memory = InMemoryChatMemory()
    messages = list(TURN)
    await memory.add("u1", messages)
    messages.clear()
    assert list(await memory.get("u1")) == TURN


async def test_what_is_read_cannot_be_used_to_write() -> None:
    memory = InMemoryChatMemory()
    await memory.add("u1", TURN)
    read = await memory.get("u1")
    with pytest.raises((TypeError, AttributeError)):
        read.pop()  # type: ignore[attr-defined]
    await memory.add("u1", [UserMessage("b")])
    assert list(read) == TURN


async def test_append_is_all_or_nothing() -> None:
    memory = InMemoryChatMemory()
    with pytest.raises(InvalidInputError, match="item 2 .* is a object"):
        await memory.add("u1", [*TURN[:2], object()])  # type: ignore[list-item]
    assert list(await memory.get("u1")) == []


async def test_readers_never_see_half_an_append() -> None:
    memory = InMemoryChatMemory()
    seen: set[int] = set()

    async def read() -> None:
        for _ in range(50):
            seen.add(len(await memory.get("u1")))
            await asyncio.sleep(0)

    async def write() -> None:
        for _ in range(20):
            await memory.add("u1", TURN)
            await asyncio.sleep(0)

    await asyncio.gather(write(), *(read() for _ in range(20)))
    assert all(count % len(TURN) == 0 for count in seen)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 6, 99])
async def test_tail_brings_the_system_messages_along(count: int) -> None:
    memory = InMemoryChatMemory()
    history = [SystemMessage("s1"), UserMessage("a"), AssistantMessage("A"), SystemMessage("s2"), UserMessage("b")]
    await memory.add("u1", history)
    start = max(0, len(history) - count)
    expected = [m for m in history[:start] if isinstance(m, SystemMessage)] + history[start:]
    assert list(await memory.get_tail("u1", count)) == expected
    assert list(await memory.get_tail("nobody", count)) == []


async def test_turns_of_one_conversation_wait_in_order() -> None:
    memory = InMemoryChatMemory()
    order: list[str] = []
    gate = asyncio.Event()

    async def turn(name: str, wait: asyncio.Event | None = None) -> None:
        async with memory.lock_turn("u1"):
            order.append(f"{name} in")
            if wait:
                await wait.wait()
            order.append(f"{name} out")

    tasks = [asyncio.create_task(turn("1", gate))]
    await asyncio.sleep(0)
    tasks += [asyncio.create_task(turn("2")), asyncio.create_task(turn("3"))]
    await asyncio.sleep(0)
    async with memory.lock_turn("u2"):
        order.append("other")
    gate.set()
    await asyncio.gather(*tasks)
    assert order == ["1 in", "other", "1 out", "2 in", "2 out", "3 in", "3 out"]


async def test_busy_conversation_can_be_refused() -> None:
    memory = InMemoryChatMemory()
    async with memory.lock_turn("u1"):
        with pytest.raises(ConversationBusyError, match="'u1' has a running turn"):
            async with memory.lock_turn("u1", on_busy="reject"):
                raise AssertionError
    async with memory.lock_turn("u1", on_busy="reject"):
        pass


async def test_wait_for_a_busy_conversation_is_bounded() -> None:
    memory = InMemoryChatMemory()
    async with memory.lock_turn("u1"):
        with pytest.raises(ConversationBusyError, match="still busy after 0.01 s"):
            async with memory.lock_turn("u1", timeout=0.01):
                raise AssertionError


async def test_superseding_turn_stops_the_running_one() -> None:
    memory = InMemoryChatMemory()
    stopped = asyncio.Event()
    order: list[str] = []

    async def first() -> None:
        async with memory.lock_turn("u1", supersede=stopped.set):
            order.append("first")
            await stopped.wait()
            order.append("stopped")

    task = asyncio.create_task(first())
    await asyncio.sleep(0)
    async with memory.lock_turn("u1", on_busy="supersede"):
        order.append("second")
    await task
    assert order == ["first", "stopped", "second"]


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
    async with memory.lock_turn("u1", timeout=0.01):
        pass
    assert len(memory._turns) == 0
