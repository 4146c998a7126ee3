"""Windows: what reaches the model is whole, begins well, keeps the system text and the newest turn."""

from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given

from agentcore import ChatClient, tool
from agentcore.errors import ConfigurationError
from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.memory.windowed import WindowedChatMemory, fit_results, window
from agentcore.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    check_history,
)
from agentcore.testing import ScriptedModel
from agentcore.tokens import ESTIMATE

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


def words(count: int) -> str:
    return "word " * count


def tokens_of(messages: Sequence[Message]) -> int:
    return sum(map(ESTIMATE.count_message, messages))


@given(turns, st.booleans(), st.integers(1, 120), st.integers(1, 12), st.integers(1, 6))
def test_bounds_combine_and_each_is_kept_unless_the_newest_turn_alone_breaks_it(
    turns: list[tuple[str, list[int], bool]], system: bool, max_tokens: int, max_messages: int, max_turns: int
) -> None:
    history = history_of(turns, system)
    cut = list(window(history, max_messages, max_tokens=max_tokens, max_turns=max_turns))
    assert check_history(cut) == []
    starts = [index for index, message in enumerate(cut) if isinstance(message, UserMessage)]
    if len(starts) > 1:  # more than the newest turn is shown, so all bounds hold
        assert len(cut) <= max_messages
        assert tokens_of(cut) <= max_tokens
        assert len(starts) <= max_turns
    wider = list(window(history, max_messages + 1, max_tokens=max_tokens + 20, max_turns=max_turns + 1))
    assert cut[int(system) :] == wider[len(wider) - len(cut) + int(system) :]


def test_turns_are_counted_and_the_running_one_is_among_them() -> None:
    history = [u("1"), *round_of("x"), a("1"), u("2"), a("2"), u("3"), a("3")]
    assert list(window(history, max_turns=2)) == history[4:]
    assert list(window([S, *history], max_turns=1)) == [S, u("3"), a("3")]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "bounds", [{"max_tokens": 1}, {"max_tokens": 40}, {"max_tokens": 400}, {"max_turns": 1}, {"max_turns": 3}], ids=str
)
async def test_every_bound_reads_the_tail_as_it_would_the_whole(bounds: dict[str, int]) -> None:
    history = history_of([(f"t{n}", [n % 3 + 1] * (n % 4), n % 5 > 0) for n in range(40)], True)
    store = InMemoryChatMemory()
    await store.add("u1", history)
    assert list(await WindowedChatMemory(store, **bounds).get("u1")) == list(window(history, **bounds))  # type: ignore[arg-type]


@pytest.mark.asyncio
async def test_input_counts_before_history_does() -> None:
    store = InMemoryChatMemory()
    await store.add("u1", [u(words(20)), a(words(20)), u(words(20)), a(words(20))])
    memory = WindowedChatMemory(store, max_tokens=120)
    assert len(await memory.view("u1", [u("hi")])) == 4
    assert len(await memory.view("u1", [u(words(40))])) == 2
    assert len(await memory.view("u1", [u(words(500))])) == 0
    two = WindowedChatMemory(store, max_turns=2)
    assert len(await two.view("u1", [u("hi")])) == 2


@pytest.mark.asyncio
async def test_result_larger_than_the_window_is_shortened_where_the_model_sees_it_and_nowhere_else() -> None:
    @tool
    async def grep(q: str) -> str:
        return "x" * 400_000

    store = InMemoryChatMemory()
    model = ScriptedModel([ToolCall("c1", "grep", {"q": "x"}), "found"])
    client = ChatClient(model, tools=[grep], memory=WindowedChatMemory(store, max_tokens=2000))
    assert (await client.invoke("find the bug", conversation_id="u1")).text == "found"
    seen = model.requests[1].messages
    assert [type(m).__name__ for m in seen] == ["UserMessage", "AssistantMessage", "ToolMessage"]
    assert tokens_of(seen) <= 2000
    assert isinstance(seen[2], ToolMessage)
    assert str(seen[2].content).endswith("of 400000 characters left out here)")
    assert (await store.get("u1"))[2].content == "x" * 400_000


def test_largest_results_are_shortened_first_and_users_never() -> None:
    large, small = ToolMessage("a", "f", words(900)), ToolMessage("b", "f", words(50))
    question = u(words(300))
    fitted = fit_results([question, large, small], 800, ESTIMATE)
    assert fitted[0] is question
    assert fitted[2] is small
    assert tokens_of(fitted) <= 800
    assert fit_results([question], 10, ESTIMATE) == [question]
    whole = [question, small]
    assert fit_results(whole, 10_000, ESTIMATE) is whole


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ({}, "needs a bound"),
        ({"max_tokens": 0}, "max_tokens is at least 1"),
        ({"max_turns": -1}, "max_turns is at least 1"),
    ],
    ids=str,
)
def test_window_without_room_is_refused_by_name(bounds: dict[str, int], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        WindowedChatMemory(InMemoryChatMemory(), **bounds)  # type: ignore[arg-type]
