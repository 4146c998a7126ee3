"""Windows: what reaches the model is whole, begins well, keeps the system text and the newest turn."""

from collections.abc import Sequence
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from agentcore import ChatClient, tool
from agentcore.errors import ConfigurationError
from agentcore.memory.cutting import fit_results
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
from agentcore.testing import ScriptedModel
from agentcore.tokens import ESTIMATE
from tests.strategies import whole_histories

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
        ([u("1"), a("1"), u("2"), S, a("2")], 3, [u("2"), S, a("2")]),
        ([a("hello"), u("1"), a("1")], 3, [a("hello"), u("1"), a("1")]),
        ([a("hello"), u("1"), a("1")], 2, [u("1"), a("1")]),
        ([u("1"), a("1"), u("2"), u("3"), a("3")], 4, [u("2"), u("3"), a("3")]),
        ([u("1"), a("1"), u("2"), u("3"), a("3")], 2, [u("3"), a("3")]),
        ([ToolMessage("x", "f", "x"), u("1"), a("1")], 9, [u("1"), a("1")]),
        ([ToolMessage("x", "f", "x"), ToolMessage("y", "f", "y")], 1, []),
        ([], 1, []),
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
        "system-stays-in-its-place",
        "greeting",
        "greeting-is-oldest",
        "several-user-messages-are-one-input",
        "unless-they-are-too-much",
        "orphan-result-in-front",
        "orphans-alone",
        "empty",
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


def inputs(messages: Sequence[Message]) -> list[int]:
    """Where the turns begin: several user messages in a row are one input."""
    rest = [message for message in messages if not isinstance(message, SystemMessage)]
    return [
        index
        for index, message in enumerate(rest)
        if isinstance(message, UserMessage) and not (index and isinstance(rest[index - 1], UserMessage))
    ]


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
    starts = inputs(cut)
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


@given(whole_histories(max_turns=6), st.integers(1, 14), st.integers(1, 14))
def test_window_of_a_window_is_the_narrower_of_both(history: list[Message], one: int, other: int) -> None:
    assert list(window(list(window(history, one)), other)) == list(window(history, min(one, other)))


@given(whole_histories(max_turns=6), st.integers(1, 2000), st.integers(1, 5), st.integers(1, 9))
def test_wider_window_shows_at_least_as_much_in_steps_too(
    history: list[Message], max_tokens: int, more: int, step: int
) -> None:
    cut = [m for m in window(history, max_tokens=max_tokens, step=step) if not isinstance(m, SystemMessage)]
    wider = [m for m in window(history, max_tokens=max_tokens + more, step=step) if not isinstance(m, SystemMessage)]
    assert wider[len(wider) - len(cut) :] == cut
    assert check_history(cut) == []
    assert not isinstance(next(iter(cut), None), ToolMessage)


@given(turns.filter(bool), st.integers(1, 30), st.integers(1, 9), st.booleans())
def test_system_messages_stay_wherever_they_are(
    turns: list[tuple[str, list[int], bool]], max_messages: int, every: int, keep_newest: bool
) -> None:
    history: list[Message] = []
    for number, message in enumerate(history_of(turns, True)):
        history += [SystemMessage(str(number)), message] if isinstance(message, UserMessage) else [message]
    cut = window(history, max_messages, step=every, keep_newest_turn=keep_newest)
    system = [message for message in history if isinstance(message, SystemMessage)]
    assert [message for message in cut if isinstance(message, SystemMessage)] == system


@pytest.mark.asyncio
async def test_many_who_talk_in_a_row_do_not_break_the_bound() -> None:
    store = InMemoryChatMemory()
    await store.add("u1", [u(f"{n} {words(10)}") for n in range(500)])
    memory = WindowedChatMemory(store, max_messages=20, max_tokens=200)
    seen = [*await memory.view("u1", [u("and I")]), u("and I")]
    assert 5 < len(seen) <= 20
    assert tokens_of(seen) <= 200
    assert len(await memory.get("u1")) <= 20
    await store.add("u1", [u("f, please"), round_of("x")[0]])
    assert len(await memory.view("u1", round_of("x")[1:])) < 20


@pytest.mark.asyncio
async def test_running_turn_keeps_all_of_its_input() -> None:
    @tool
    async def look(q: str) -> str:
        return "found"

    model = ScriptedModel(["old", ToolCall("c1", "look", {"q": "x"}), "done"])
    client = ChatClient(model, tools=[look], memory=WindowedChatMemory(InMemoryChatMemory(), max_tokens=100))
    await client.invoke("before", conversation_id="u1")
    document, question = u(words(200)), u("what does it say?")
    await client.invoke([document, question], conversation_id="u1")
    assert list(model.requests[1].messages) == [document, question]
    assert list(model.requests[2].messages)[:2] == [document, question]


@pytest.mark.asyncio
async def test_turn_before_that_is_too_large_is_shown_as_question_and_answer() -> None:
    store = InMemoryChatMemory()
    rounds = [message for n in range(20) for message in round_of(f"c{n}")]
    await store.add("u1", [S, u("old"), a("old"), u("review"), *rounds, a("reviewed")])
    assert list(await WindowedChatMemory(store, max_messages=10).view("u1", [u("thanks")])) == [
        S,
        u("review"),
        a("reviewed"),
    ]
    assert list(await WindowedChatMemory(store, max_messages=3).view("u1", [u("thanks")])) == [S]
    assert list(await WindowedChatMemory(store, max_turns=1).view("u1", [u("thanks")])) == [S]


@pytest.mark.asyncio
async def test_turn_that_broke_off_is_shown_whole_so_that_it_can_be_healed() -> None:
    store = InMemoryChatMemory()
    rounds = [message for n in range(20) for message in round_of(f"c{n}")]
    await store.add("u1", [u("review"), *rounds, round_of("open")[0]])
    model = ScriptedModel(["ok"])
    client = ChatClient(model, memory=WindowedChatMemory(store, max_messages=4))
    await client.invoke("what happened?", conversation_id="u1")
    assert check_history(model.requests[0].messages) == []
    assert check_history(await store.get("u1")) == []


@pytest.mark.asyncio
async def test_window_within_a_window_holds_both_bounds() -> None:
    store = InMemoryChatMemory()
    await store.add("u1", [message for n in range(20) for message in (u(f"q{n}"), a(words(20)))])
    both = WindowedChatMemory(WindowedChatMemory(store, max_messages=9), max_tokens=1000)
    assert len(await both.view("u1", [u("x")])) == 8
    both = WindowedChatMemory(WindowedChatMemory(store, max_tokens=120), max_messages=30)
    assert list(await both.view("u1", [u("x")])) == list(
        await WindowedChatMemory(store, max_messages=30, max_tokens=120).view("u1", [u("x")])
    )
    result = ToolMessage("c", "f", "x" * 9000)
    assert tokens_of(both.fit([u("q"), result])) <= 120
    await both.add("u2", [u("hi")])
    assert list(await store.get("u2")) == [u("hi")]
    await both.clear("u2")
    assert list(await store.get("u2")) == []


@pytest.mark.asyncio
@pytest.mark.parametrize("bounds", [{"max_messages": 20}, {"max_tokens": 300}, {"max_turns": 10}], ids=str)
async def test_cut_moves_in_steps_so_that_the_prompt_begins_alike_for_several_turns(bounds: dict[str, int]) -> None:
    moved: dict[int, int] = {}
    for step in (1, 8):
        model = ScriptedModel(["an answer"], repeat_last=True)
        client = ChatClient(model, memory=WindowedChatMemory(InMemoryChatMemory(), **bounds, step=step), system="Hi")  # type: ignore[arg-type]
        for n in range(60):
            await client.invoke(f"question {n}", conversation_id="u1")
        sent = [request.messages[1:] for request in model.requests]
        moved[step] = sum(one[0] != other[0] for one, other in pairwise(sent))
        full = max(len(messages) for messages in sent)
        assert all(len(messages) > full - step - 2 for messages in sent[30:])
        assert all(
            len(messages) <= bounds.get("max_messages", 99)
            and tokens_of(messages) <= bounds.get("max_tokens", 9999)
            and len(inputs(messages)) <= bounds.get("max_turns", 99)
            for messages in sent
        )
    assert moved[1] >= 25
    assert moved[8] * 3 <= moved[1]


@pytest.mark.asyncio
@pytest.mark.parametrize("step", [2, 5, 12])
async def test_steps_are_the_same_from_the_tail_and_from_the_whole(step: int) -> None:
    history = history_of([(f"t{n}", [n % 3 + 1] * (n % 4), n % 5 > 0) for n in range(40)], True)
    store = InMemoryChatMemory()
    await store.add("u1", history)
    for bounds in ({"max_messages": 30}, {"max_tokens": 300}, {"max_turns": 6}):
        memory = WindowedChatMemory(store, **bounds, step=step)  # type: ignore[arg-type]
        assert list(await memory.get("u1")) == list(window(history, **bounds, step=step))  # type: ignore[arg-type]


class Plain:
    """A store with the three basic powers."""

    def __init__(self) -> None:
        self.held: list[Message] = []

    async def get(self, conversation_id: str) -> Sequence[Message]:
        return tuple(self.held)

    async def add(self, conversation_id: str, messages: Sequence[Message]) -> None:
        self.held += messages

    async def clear(self, conversation_id: str) -> None:
        self.held.clear()


@pytest.mark.asyncio
async def test_store_without_further_powers_has_the_same_window() -> None:
    store = Plain()
    history = history_of([(f"t{n}", [n % 3 + 1] * (n % 4), n % 5 > 0) for n in range(40)], True)
    await store.add("u1", history)
    memory = WindowedChatMemory(store, max_messages=30, step=6)
    assert list(await memory.view("u1", ())) == list(window(history, 30, step=6))


@pytest.mark.asyncio
async def test_no_more_is_read_than_a_few_times_what_is_shown() -> None:
    class Counting(InMemoryChatMemory):
        read_count = 0

        async def get_tail(self, conversation_id: str, count: int) -> Sequence[Message]:
            tail = await super().get_tail(conversation_id, count)
            self.read_count += len(tail)
            return tail

    store = Counting()
    await store.add("u1", [message for n in range(4000) for message in (u(f"q{n}"), a(words(50)))])
    bounds: list[dict[str, int]] = [
        {"max_tokens": 20_000},
        {"max_turns": 200},
        {"max_messages": 2000, "max_tokens": 2000},
        {"max_messages": 300},
    ]
    for one in bounds:
        store.read_count = 0
        shown = len(await WindowedChatMemory(store, **one).view("u1", [u("x")]))  # type: ignore[arg-type]
        assert store.read_count <= 6 * shown + 40, one


@pytest.mark.asyncio
async def test_shortened_results_stay_as_they_were_while_the_turn_grows_by_a_little() -> None:
    history: list[Message] = [u("q"), *round_of("x")[:1], ToolMessage("x", "f", words(4000))]
    before = list(fit_results(history, 2000, ESTIMATE))
    assert tokens_of(before) <= 2000
    for n in range(10):
        history += [round_of(f"y{n}")[0], ToolMessage(f"y{n}", "f", "ok")]
        after = list(fit_results(history, 2000, ESTIMATE))
        assert tokens_of(after) <= 2000
        assert after[: len(before)] == before
        before = after


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ({"max_tokens": 9, "step": 0}, "step is at least 1"),
        ({"max_messages": 20, "step": 20}, "step is less than max_messages"),
    ],
    ids=["zero", "as-large-as-the-window"],
)
def test_step_that_cannot_be_is_refused(bounds: dict[str, int], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        WindowedChatMemory(InMemoryChatMemory(), **bounds)  # type: ignore[arg-type]


def test_step_needs_the_numbers_of_the_messages() -> None:
    inner = WindowedChatMemory(InMemoryChatMemory(), max_messages=50)
    with pytest.raises(ConfigurationError, match="WindowedChatMemory does not give them"):
        WindowedChatMemory(inner, max_tokens=500, step=5)
