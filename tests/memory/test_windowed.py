"""Windows: what reaches the model is whole, begins well, keeps the system text and the newest turn."""

from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given

from agentcore.errors import ConfigurationError
from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.memory.windowed import WindowedChatMemory, window
from agentcore.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    check_history,
)

S = SystemMessage("S")


def u(text: str) -> UserMessage:
    return UserMessage(text)


def a(text: str) -> AssistantMessage:
    return AssistantMessage(text)


def round_of(*ids: str) -> list[Message]:
    return [AssistantMessage(None, tuple(ToolCall(i, "f") for i in ids)), *(ToolMessage(i, "f", i) for i in ids)]


@pytest.mark.parametrize(
    ("history", "size", "expected"),
    [
        ([u("1"), *round_of("x"), a("1"), u("2"), a("2")], 4, [u("2"), a("2")]),
        ([u("1"), *round_of("x", "y"), a("1"), u("2")], 3, [u("2")]),
        ([S, u("1"), a("1"), u("2"), a("2"), u("3")], 3, [S, u("3")]),
        ([S, u("1"), a("1"), u("2")], 1, [S, u("2")]),
        ([u("1"), a("1"), u("2"), *round_of("x", "y")], 2, [u("2"), *round_of("x", "y")]),
        ([u("1"), a("1"), u("2"), *round_of("x"), *round_of("y")], 4, [u("2"), *round_of("x"), *round_of("y")]),
        ([u("1"), a("1")], 2, [u("1"), a("1")]),
        ([a("1"), *round_of("x"), a("2")], 2, [a("2")]),
        ([u("1"), a("1"), S, u("2")], 2, [S, u("2")]),
    ],
    ids=[
        "whole-turns",
        "batch-is-one",
        "system",
        "window-of-one",
        "large-turn",
        "rounds",
        "fits",
        "no-user",
        "late-system",
    ],
)
def test_window_is_cut_at_turns(history: list[Message], size: int, expected: list[Message]) -> None:
    assert list(window(history, size)) == expected


turns = st.lists(
    st.tuples(st.text("abc", min_size=1, max_size=2), st.lists(st.integers(1, 3), max_size=3), st.booleans()),
    max_size=8,
)


def history_of(turns: Sequence[tuple[str, list[int], bool]], system: bool) -> list[Message]:
    history: list[Message] = [S] if system else []
    for number, (text, rounds, finished) in enumerate(turns):
        history.append(u(text))
        for position, size in enumerate(rounds):
            history += round_of(*(f"{number}-{position}-{index}" for index in range(size)))
        if finished:
            history.append(a("done"))
    return history


@given(turns, st.booleans(), st.integers(1, 12))
def test_any_window_is_whole_and_holds_the_newest_turn(
    turns: list[tuple[str, list[int], bool]], system: bool, size: int
) -> None:
    history = history_of(turns, system)
    cut = list(window(history, size))
    assert check_history(cut) == []
    if turns:
        newest = max(index for index, message in enumerate(history) if isinstance(message, UserMessage))
        assert cut[len(cut) - (len(history) - newest) :] == history[newest:]
        assert len(cut) <= max(size, system + len(history) - newest)
        assert isinstance(cut[int(system)], UserMessage)
    if system:
        assert cut[0] == S


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
async def test_tail_reading_gives_the_same_window_as_the_whole_history(size: int) -> None:
    history = history_of([("a", [1, 2], True), ("b", [3, 1, 1, 2], False), ("c", [], True), ("d", [2] * 6, True)], True)
    store = InMemoryChatMemory()
    await store.add("u1", history)
    memory = WindowedChatMemory(store, max_messages=size)
    assert list(await memory.get("u1")) == list(window(history, size))
    assert list(await store.get("u1")) == history


@pytest.mark.asyncio
async def test_window_makes_room_for_what_is_about_to_be_said() -> None:
    store = InMemoryChatMemory()
    await store.add("u1", [u("1"), a("1"), u("2"), a("2")])
    memory = WindowedChatMemory(store, max_messages=3)
    assert list(await memory.view("u1", [u("3")])) == [u("2"), a("2")]
    assert list(await WindowedChatMemory(store, max_messages=1).view("u1", [u("3")])) == []


@pytest.mark.asyncio
async def test_windowed_read_does_not_touch_the_whole_conversation() -> None:
    class Counting(InMemoryChatMemory):
        read = 0

        async def get(self, conversation_id: str) -> Sequence[Message]:
            raise AssertionError("the whole conversation was read")

        async def get_tail(self, conversation_id: str, count: int) -> Sequence[Message]:
            tail = await super().get_tail(conversation_id, count)
            self.read += len(tail)
            return tail

    store = Counting()
    for number in range(500):
        await store.add("u1", [u(str(number)), a(str(number))])
    memory = WindowedChatMemory(store, max_messages=20)
    assert len(await memory.view("u1", [u("x")])) == 18
    assert store.read <= 25


def test_window_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        WindowedChatMemory(InMemoryChatMemory(), max_messages=0)
