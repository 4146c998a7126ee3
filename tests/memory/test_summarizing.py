"""Summaries: made once, at turn borders, kept with the conversation, and never at the cost of the turn."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import pytest_asyncio
from hypothesis import given

from agentcore import (
    AssistantMessage,
    AudioPart,
    ChatClient,
    ConfigurationError,
    FilePart,
    ImagePart,
    InMemoryChatMemory,
    Message,
    ProviderError,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    WindowedChatMemory,
    check_history,
    tool,
)
from agentcore.memory.sqlite import SQLiteChatMemory
from agentcore.memory.summarizer import transcript
from agentcore.memory.summarizing import CLOSING, OPENING, SummarizingChatMemory
from agentcore.testing import ScriptedModel
from agentcore.testing.scripted import Reply
from agentcore.tokens import ESTIMATE
from tests.strategies import whole_histories

pytestmark = pytest.mark.asyncio

LONG = "word " * 40


def turns(first: int, last: int) -> list[Message]:
    return [m for n in range(first, last) for m in (UserMessage(f"q{n} {LONG}"), AssistantMessage(f"a{n} {LONG}"))]


class Summaries:
    """A summariser that says what it was given."""

    def __init__(self) -> None:
        self.calls: list[tuple[str | None, list[Message]]] = []

    async def __call__(self, messages: Sequence[Message], earlier: str | None) -> str:
        self.calls.append((earlier, list(messages)))
        return f"{earlier or ''}[{len(messages)}]"


def notes(text: str) -> UserMessage:
    return UserMessage(f"{OPENING}\n{text}\n{CLOSING}")


def is_notes(message: Message) -> bool:
    return str(message.content).startswith(OPENING)


def texts(messages: Sequence[Message]) -> list[str]:
    return [str(m.content)[:2] for m in messages if not isinstance(m, SystemMessage) and not is_notes(m)]


def tokens_of(messages: Sequence[Message]) -> int:
    return sum(map(ESTIMATE.count_message, messages))


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    if request.param == "memory":
        yield InMemoryChatMemory()
        return
    async with SQLiteChatMemory(tmp_path / "chats.db") as store:
        yield store


async def test_older_turns_are_summed_up_once_and_the_store_stays_whole(store: Any) -> None:
    summaries = Summaries()
    await store.add("u1", turns(0, 8))
    memory = SummarizingChatMemory(store, summaries, max_tokens=600, keep_tokens=200)
    shown = await memory.view("u1", [UserMessage("more")])
    assert shown[0] == notes("[12]")
    assert texts(shown) == ["q6", "a6", "q7", "a7"]
    assert list(await memory.view("u1", [UserMessage("more")])) == list(shown)
    assert len(summaries.calls) == 1
    assert list(await store.get("u1")) == turns(0, 8)


async def test_summary_outlives_the_process(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    async with SQLiteChatMemory(path) as store:
        await store.add("u1", turns(0, 8))
        first = await SummarizingChatMemory(store, Summaries(), max_tokens=600, keep_tokens=200).view("u1", [])
    summaries = Summaries()
    async with SQLiteChatMemory(path) as store:
        assert list(
            await SummarizingChatMemory(store, summaries, max_tokens=600, keep_tokens=200).view("u1", [])
        ) == list(first)
    assert summaries.calls == []


async def test_next_summary_takes_the_earlier_one_and_only_what_came_since() -> None:
    store, summaries = InMemoryChatMemory(), Summaries()
    memory = SummarizingChatMemory(store, summaries, max_tokens=600, keep_tokens=200)
    await store.add("u1", turns(0, 8))
    await memory.view("u1", [])
    await store.add("u1", turns(8, 14))
    shown = await memory.view("u1", [])
    earlier, messages = summaries.calls[1]
    assert earlier == "[12]"
    assert texts(messages)[0] == "q6"
    assert texts(shown)[-1] == "a1"
    assert sum(map(ESTIMATE.count_message, shown)) <= 600


async def test_short_conversation_is_shown_as_it_is() -> None:
    store, summaries = InMemoryChatMemory(), Summaries()
    await store.add("u1", turns(0, 2))
    memory = SummarizingChatMemory(store, summaries, max_tokens=5000)
    assert list(await memory.get("u1")) == turns(0, 2)
    assert summaries.calls == []


async def test_cut_is_never_within_a_turn() -> None:
    store, summaries = InMemoryChatMemory(), Summaries()
    calls = tuple(ToolCall(f"c{n}", "f") for n in range(3))
    batch: list[Message] = [
        UserMessage("use tools"),
        AssistantMessage(None, calls),
        *(ToolMessage(one.id, "f", LONG) for one in calls),
        AssistantMessage("done"),
    ]
    for number, messages in enumerate((turns(0, 3), batch, turns(3, 5))):
        await store.append("u1", messages, turn_id=f"t{number}", position=0)
    for keep in range(50, 700, 50):
        shown = await SummarizingChatMemory(store, summaries, max_tokens=750, keep_tokens=keep).view("u1", [])
        rest = [m for m in shown if not is_notes(m)]
        assert check_history(rest) == []
        assert isinstance(rest[0], UserMessage)


async def test_system_messages_of_the_older_part_stay_whole() -> None:
    store, summaries = InMemoryChatMemory(), Summaries()
    await store.add("u1", [SystemMessage("You are Kim."), *turns(0, 8)])
    memory = SummarizingChatMemory(store, summaries, max_tokens=600, keep_tokens=200)
    for _ in range(2):
        shown = await memory.view("u1", [])
        assert shown[0] == SystemMessage("You are Kim.")
        assert is_notes(shown[1])
    assert not any(isinstance(m, SystemMessage) for m in summaries.calls[0][1])


async def test_newest_turn_larger_than_all_is_shown_whole() -> None:
    store, summaries = InMemoryChatMemory(), Summaries()
    await store.add("u1", [UserMessage(LONG * 20)])
    memory = SummarizingChatMemory(store, summaries, max_tokens=100)
    assert list(await memory.view("u1", [])) == [UserMessage(LONG * 20)]
    assert summaries.calls == []


@pytest.mark.parametrize("error", [ProviderError("down", kind="server"), RuntimeError("bug")], ids=["provider", "bug"])
async def test_summary_that_fails_does_not_cost_the_turn(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def failing(messages: Sequence[Message], earlier: str | None) -> str:
        raise error

    store = InMemoryChatMemory()
    await store.add("u1", turns(0, 8))
    model = ScriptedModel(["answer"])
    client = ChatClient(model, memory=SummarizingChatMemory(store, failing, max_tokens=600, keep_tokens=200))
    assert (await client.invoke("more", conversation_id="u1")).text == "answer"
    seen = model.requests[0].messages
    assert texts(seen) == ["q2", "a2", "q3", "a3", "q4", "a4", "q5", "a5", "q6", "a6", "q7", "a7", "mo"]
    assert tokens_of(seen) <= 600
    assert "could not be summed up" in caplog.text


async def test_cancelled_summary_leaves_nothing_behind() -> None:
    entered = asyncio.Event()

    async def slow(messages: Sequence[Message], earlier: str | None) -> str:
        entered.set()
        await asyncio.Event().wait()
        return ""

    store = InMemoryChatMemory()
    await store.add("u1", turns(0, 8))
    client = ChatClient(ScriptedModel([]), memory=SummarizingChatMemory(store, slow, max_tokens=600, keep_tokens=200))
    turn = asyncio.create_task(client.invoke("more", conversation_id="u1"))
    await entered.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert list(await store.list_records("u1", "summary")) == []
    assert list(await store.get("u1")) == turns(0, 8)


async def test_of_two_summaries_made_at_once_the_first_counts_for_both(store: Any) -> None:
    await store.add("u1", turns(0, 8))
    entered, gate = asyncio.Event(), asyncio.Event()

    async def waits(messages: Sequence[Message], earlier: str | None) -> str:
        entered.set()
        await gate.wait()
        return "late"

    async def quick(messages: Sequence[Message], earlier: str | None) -> str:
        return "early"

    late = asyncio.create_task(SummarizingChatMemory(store, waits, max_tokens=600, keep_tokens=200).view("u1", []))
    await entered.wait()
    first = await SummarizingChatMemory(store, quick, max_tokens=600, keep_tokens=200).view("u1", [])
    gate.set()
    assert list(await late) == list(first)


async def test_rollback_takes_back_a_summary_that_reaches_too_far(store: Any) -> None:
    summaries = Summaries()
    for n in range(8):
        await store.append("u1", turns(n, n + 1), turn_id=f"t{n}", position=0)
    memory = SummarizingChatMemory(store, summaries, max_tokens=600, keep_tokens=200)
    await memory.view("u1", [])
    await store.rollback("u1", to=4)
    assert list(await memory.view("u1", [])) == turns(0, 2)


async def test_fork_takes_the_summary_along(store: Any) -> None:
    summaries = Summaries()
    await store.add("u1", turns(0, 8))
    memory = SummarizingChatMemory(store, summaries, max_tokens=600, keep_tokens=200)
    shown = await memory.view("u1", [])
    await store.fork("u1", "u2")
    assert list(await memory.view("u2", [])) == list(shown)
    assert len(summaries.calls) == 1


async def test_only_the_newest_summaries_are_kept(store: Any) -> None:
    summaries = Summaries()
    memory = SummarizingChatMemory(store, summaries, max_tokens=500, keep_tokens=200)
    for n in range(40):
        await store.add("u1", turns(n, n + 1))
        await memory.view("u1", [])
    assert len(summaries.calls) > 5
    assert len(await store.list_records("u1", "summary")) <= 3


async def test_long_conversation_without_a_summary_is_summed_up_in_portions() -> None:
    store, summaries = InMemoryChatMemory(), Summaries()
    await store.add("u1", turns(0, 60))
    await SummarizingChatMemory(store, summaries, max_tokens=1000).view("u1", [])
    assert len(summaries.calls) > 3
    assert all(sum(map(ESTIMATE.count_message, messages)) <= 1000 for _, messages in summaries.calls)


async def test_model_is_asked_for_the_summary_beside_the_conversation() -> None:
    store = InMemoryChatMemory()
    await store.add("u1", turns(0, 8))
    summarizer, model = ScriptedModel(["They counted to five."]), ScriptedModel(["answer"])
    memory = SummarizingChatMemory(store, summarizer, max_tokens=600, keep_tokens=200)
    client = ChatClient(model, memory=memory, system="Be kind.")
    await client.invoke("more", conversation_id="u1")
    asked = summarizer.requests[0].messages
    assert isinstance(asked[0], SystemMessage)
    assert "User: q0" in str(asked[1].content)
    seen = model.requests[0].messages
    assert [m.content for m in seen[:2]] == ["Be kind.", notes("They counted to five.").content]
    assert [type(m) for m in await store.get("u1")].count(SystemMessage) == 0


async def test_transcript_reads_like_a_conversation() -> None:
    told = transcript(
        [
            SystemMessage("s"),
            UserMessage("hi"),
            AssistantMessage("Look:", (ToolCall("c", "f", {"a": 1}),)),
            ToolMessage("c", "f", "x" * 3000),
            ToolMessage("c", "f", "no", is_error=True),
        ]
    ).splitlines()
    assert told[:4] == ["System: s", "User: hi", "Assistant: Look:", 'Assistant calls f({"a":1})']
    assert told[4] == f"f brought: {'x' * 2000}… (1000 of 3000 characters left out here)"
    assert told[5] == "f failed: no"


async def test_transcript_names_what_is_not_text_and_arguments_that_did_not_parse() -> None:
    told = transcript(
        [
            UserMessage([TextPart("see"), ImagePart(url="https://x/a.png"), FilePart(url="https://x/a", name="a.pdf")]),
            UserMessage([FilePart(url="https://x/b"), AudioPart(url="https://x/c")]),
            AssistantMessage(None, (ToolCall("c", "f", {}, "{broken"), ToolCall("d", "g", {"a": "half \ud83d"}))),
        ]
    ).splitlines()
    assert told[:3] == ["User: see [image] [file a.pdf]", "User: [file] [audio]", "Assistant calls f({broken)"]
    assert told[3].startswith("Assistant calls g({'a': 'half ")


async def test_what_cannot_work_is_refused_where_it_is_made() -> None:
    class Plain:
        async def get(self, conversation_id: str) -> Sequence[Message]:
            return ()

        async def add(self, conversation_id: str, messages: Sequence[Message]) -> None: ...

        async def clear(self, conversation_id: str) -> None: ...

    with pytest.raises(ConfigurationError, match="Plain keeps no records"):
        SummarizingChatMemory(Plain(), Summaries(), max_tokens=10)
    windowed = WindowedChatMemory(InMemoryChatMemory(), max_messages=5)
    with pytest.raises(ConfigurationError, match="WindowedChatMemory decides itself"):
        SummarizingChatMemory(windowed, Summaries(), max_tokens=10)
    with pytest.raises(ConfigurationError, match="give the bounds to the SummarizingChatMemory"):
        WindowedChatMemory(SummarizingChatMemory(InMemoryChatMemory(), Summaries(), max_tokens=10), max_messages=5)


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ({}, "needs a bound"),
        ({"max_tokens": 0}, "max_tokens is at least 1, not 0"),
        ({"max_messages": -3}, "max_messages is at least 1, not -3"),
        ({"max_tokens": 10, "keep_tokens": 0}, "keep_tokens is between 1 and max_tokens"),
        ({"max_tokens": 10, "keep_tokens": 10}, "keep_tokens is between 1 and max_tokens"),
        ({"max_messages": 10, "keep_messages": 11}, "keep_messages is between 1 and max_messages"),
        ({"max_messages": 10, "keep_tokens": 0}, "keep_tokens is at least 1"),
        ({"max_messages": 10, "keep_turns": 0}, "keep_turns is at least 1"),
    ],
    ids=str,
)
async def test_bounds_without_room_are_refused_by_name(bounds: dict[str, int], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        SummarizingChatMemory(InMemoryChatMemory(), Summaries(), **bounds)  # type: ignore[arg-type]


async def test_reading_alone_makes_no_summary() -> None:
    store, summaries = InMemoryChatMemory(), Summaries()
    await store.add("u1", turns(0, 8))
    memory = SummarizingChatMemory(store, summaries, max_tokens=600, keep_tokens=200)
    assert list(await memory.get("u1")) == turns(0, 8)
    await memory.view("u1", [])
    assert (await memory.get("u1"))[0] == notes("[12]")
    assert len(summaries.calls) == 1
    await memory.add("u1", turns(8, 9))
    assert list(await memory.get("u1"))[-2:] == turns(8, 9)
    await memory.clear("u1")
    assert list(await memory.get("u1")) == []


async def test_messages_and_turns_bound_it_as_well() -> None:
    store, summaries = InMemoryChatMemory(), Summaries()
    await store.add("u1", turns(0, 8))
    memory = SummarizingChatMemory(store, summaries, max_messages=12)
    assert texts(await memory.view("u1", [UserMessage("x")])) == ["q5", "a5", "q6", "a6", "q7", "a7"]
    await store.clear("u1")
    await store.add("u1", turns(0, 8))
    memory = SummarizingChatMemory(store, summaries, max_messages=12, keep_turns=1)
    assert texts(await memory.view("u1", [UserMessage("x")])) == ["q7", "a7"]
    assert memory.fit([UserMessage("x")]) == [UserMessage("x")]


async def test_prompt_begins_alike_between_two_summaries() -> None:
    model = ScriptedModel([f"a {LONG}"], repeat_last=True)
    summaries = Summaries()
    memory = SummarizingChatMemory(InMemoryChatMemory(), summaries, max_tokens=1200)
    client = ChatClient(model, memory=memory, system="Be kind.")
    for n in range(40):
        await client.invoke(f"q{n} {LONG}", conversation_id="u1")
    sent = [list(request.messages) for request in model.requests]
    kept = sum(later[: len(earlier)] == earlier for earlier, later in pairwise(sent))
    assert kept == 39 - len(summaries.calls)
    assert 3 <= len(summaries.calls) <= 8
    assert all(tokens_of(messages[1:]) <= 1200 for messages in sent)


async def test_large_turn_before_the_question_is_summed_up_rather_than_shown() -> None:
    store, summaries = InMemoryChatMemory(), Summaries()
    calls = [ToolCall(f"c{n}", "f") for n in range(30)]
    rounds = [m for one in calls for m in (AssistantMessage(None, (one,)), ToolMessage(one.id, "f", LONG))]
    await store.add("u1", [*turns(0, 2), UserMessage("review"), *rounds, AssistantMessage("done")])
    memory = SummarizingChatMemory(store, summaries, max_tokens=600)
    shown = [*await memory.view("u1", [UserMessage("thanks")]), UserMessage("thanks")]
    assert tokens_of(shown) <= 600
    assert [is_notes(message) for message in shown] == [True, False]
    assert all(check_history(messages) == [] for _, messages in summaries.calls)


async def test_turn_larger_than_is_kept_stays_whole_where_there_is_room() -> None:
    store, summaries = InMemoryChatMemory(), Summaries()
    await store.add("u1", [*turns(0, 6), UserMessage("q9"), AssistantMessage("word " * 220)])
    memory = SummarizingChatMemory(store, summaries, max_tokens=600, keep_tokens=200)
    shown = await memory.view("u1", [UserMessage("x")])
    assert is_notes(shown[0])
    assert texts(shown)[-2:] == ["q9", "wo"]


async def test_turn_that_broke_off_is_healed_though_the_rest_is_summed_up() -> None:
    store, summaries = InMemoryChatMemory(), Summaries()
    open_call = AssistantMessage(None, (ToolCall("c1", "f"),))
    await store.add("u1", [*turns(0, 8), UserMessage("do it"), open_call])
    model = ScriptedModel(["answer"])
    client = ChatClient(model, memory=SummarizingChatMemory(store, summaries, max_tokens=300))
    await client.invoke("well?", conversation_id="u1")
    seen = model.requests[0].messages
    assert is_notes(seen[0])
    assert check_history(seen) == []
    assert [type(m).__name__ for m in seen[-4:]] == ["UserMessage", "AssistantMessage", "ToolMessage", "UserMessage"]
    assert check_history(await store.get("u1")) == []


async def test_running_turn_is_never_summed_up_and_its_tools_see_one_summary() -> None:
    @tool
    async def look(n: int) -> str:
        return LONG * 3

    store, summaries = InMemoryChatMemory(), Summaries()
    await store.add("u1", turns(0, 4))
    model = ScriptedModel([*(ToolCall(f"c{n}", "look", {"n": n}) for n in range(6)), "done"])
    client = ChatClient(model, tools=[look], memory=SummarizingChatMemory(store, summaries, max_tokens=700))
    assert (await client.invoke("look well", conversation_id="u1")).text == "done"
    assert [len(messages) for _, messages in summaries.calls] in ([8], [4, 4], [6, 2])
    last = model.requests[-1].messages
    assert is_notes(last[0])
    assert last[1] == UserMessage("look well")
    assert len(last) == 2 + 12
    assert check_history(last) == []
    assert tokens_of(last) <= 700


@pytest.mark.parametrize(
    "said",
    ["", "  ", Reply(text="I cannot help with that.", finish_reason="content_filter")],
    ids=["empty", "blank", "refused"],
)
async def test_summary_that_says_nothing_is_not_kept(said: Any, caplog: pytest.LogCaptureFixture) -> None:
    store = InMemoryChatMemory()
    await store.add("u1", turns(0, 8))
    memory = SummarizingChatMemory(store, ScriptedModel([said]), max_tokens=600)
    assert texts(await memory.view("u1", []))[-1] == "a7"
    assert list(await store.list_records("u1", "summary")) == []
    assert "could not be summed up" in caplog.text


async def test_summariser_that_hangs_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    async def hangs(messages: Sequence[Message], earlier: str | None) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    store = InMemoryChatMemory()
    await store.add("u1", turns(0, 8))
    memory = SummarizingChatMemory(store, hangs, max_tokens=600, timeout=0.01)
    assert texts(await memory.view("u1", []))[-1] == "a7"
    assert "TimeoutError" in caplog.text


async def test_after_a_failure_a_conversation_is_left_alone_for_a_while() -> None:
    now, asked = [0.0], list[str]()

    async def failing(messages: Sequence[Message], earlier: str | None) -> str:
        asked.append(str(messages[0].content)[:2])
        raise RuntimeError("down")

    store = InMemoryChatMemory()
    memory = SummarizingChatMemory(store, failing, max_tokens=600, clock=lambda: now[0])
    await store.add("u1", turns(0, 8))
    await store.add("u2", turns(3, 11))
    for conversation in ("u1", "u1", "u2", "u1"):
        await memory.view(conversation, [])
    assert asked == ["q0", "q3"]
    now[0] = 31.0
    await memory.view("u1", [])
    assert asked == ["q0", "q3", "q0"]


async def test_failures_are_remembered_of_so_many_conversations_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    async def failing(messages: Sequence[Message], earlier: str | None) -> str:
        asked.append(str(messages[0].content)[:2])
        raise RuntimeError("down")

    monkeypatch.setattr("agentcore.memory.summarizing._FAILURES_KNOWN", 2)
    store = InMemoryChatMemory()
    memory = SummarizingChatMemory(store, failing, max_tokens=600, clock=lambda: 0.0)
    for n in range(3):
        await store.add(f"u{n}", turns(n, n + 8))
        await memory.view(f"u{n}", [])
    await memory.view("u2", [])
    await memory.view("u0", [])
    assert asked == ["q0", "q1", "q2", "q0"]


async def test_summary_too_long_for_its_room_is_shortened_with_a_mark() -> None:
    async def wordy(messages: Sequence[Message], earlier: str | None) -> str:
        return "and so on " * 2000

    store = InMemoryChatMemory()
    await store.add("u1", turns(0, 8))
    shown = await SummarizingChatMemory(store, wordy, max_tokens=600).view("u1", [])
    assert "characters left out here" in str(shown[0].content)
    assert len(texts(shown)) >= 4
    assert tokens_of(shown) <= 600


async def test_model_is_told_how_long_the_summary_may_be_and_that_it_is_not_to_answer() -> None:
    store = InMemoryChatMemory()
    await store.add("u1", turns(0, 16))
    model = ScriptedModel(["first", "second"])
    await SummarizingChatMemory(store, model, max_tokens=800, keep_tokens=300).view("u1", [])
    first, second = (str(request.messages[1].content) for request in model.requests)
    assert first.endswith("</conversation>\n\nWrite the summary, in 150 words at most.")
    assert second.startswith("<earlier-summary>\nfirst\n</earlier-summary>\n\n<conversation>\nUser: q")
    assert "do not answer it" in str(model.requests[0].messages[0].content)


async def test_progress_of_a_long_summary_is_kept_when_a_later_portion_fails(store: Any) -> None:
    asked: list[tuple[str, str | None]] = []

    async def fails_once(messages: Sequence[Message], earlier: str | None) -> str:
        asked.append((str(messages[0].content)[:3], earlier))
        if len(asked) == 3:
            raise RuntimeError("down")
        return f"s{len(asked)}"

    await store.add("u1", turns(0, 60))
    memory = SummarizingChatMemory(store, fails_once, max_tokens=1000, clock=iter(range(0, 1000, 100)).__next__)
    await memory.view("u1", [])
    assert (await memory.get("u1"))[0] == notes("s2")
    await memory.view("u1", [])
    assert asked[3] == (asked[2][0], "s2")


async def test_turn_larger_than_a_portion_is_parted_between_calls_only() -> None:
    store, summaries = InMemoryChatMemory(), Summaries()
    rounds = [
        m
        for n in range(40)
        for m in (
            AssistantMessage(None, (ToolCall(f"c{n}", "f"), ToolCall(f"d{n}", "f"))),
            ToolMessage(f"c{n}", "f", LONG),
            ToolMessage(f"d{n}", "f", LONG),
        )
    ]
    await store.add("u1", [UserMessage("go"), *rounds, AssistantMessage("done"), *turns(0, 2)])
    await SummarizingChatMemory(store, summaries, max_tokens=600).view("u1", [])
    assert len(summaries.calls) > 5
    assert all(check_history(messages) == [] for _, messages in summaries.calls)
    assert [m for _, messages in summaries.calls for m in messages][:122] == list(await store.get("u1"))[:122]
    assert [record.seq for record in await store.list_records("u1", "summary")] == [122]


async def test_nothing_stays_of_a_conversation_that_is_forgotten_while_it_is_summed_up(store: Any) -> None:
    await store.add("u1", turns(0, 8))

    async def cleared_meanwhile(messages: Sequence[Message], earlier: str | None) -> str:
        await store.clear("u1")
        return "their secret"

    memory = SummarizingChatMemory(store, cleared_meanwhile, max_tokens=600)
    await memory.view("u1", [])
    assert list(await store.list_records("u1", "summary")) == []
    await store.add("u1", turns(0, 1))
    assert list(await memory.view("u1", [])) == turns(0, 1)


async def test_summary_of_messages_that_are_gone_is_not_shown(store: Any) -> None:
    await store.add("u1", turns(0, 8))
    memory = SummarizingChatMemory(store, Summaries(), max_tokens=600, keep_tokens=200)
    shown = await memory.view("u1", [])
    await store.put_record("u1", "summary", "x", '{"seq": 99, "text": "of another life"}', seq=99)
    await store.put_record("u1", "summary", "mine", '"not of this library"', seq=200)
    assert list(await memory.view("u1", [])) == list(shown)
    assert [record.seq for record in await store.list_records("u1", "summary")] == [12, 200]


async def test_no_more_is_read_than_what_follows_the_summary() -> None:
    class Counting(InMemoryChatMemory):
        read_count = 0

        async def get(self, conversation_id: str) -> Sequence[Message]:
            raise AssertionError("the whole conversation was read")

        async def read(self, conversation_id: str, *, after: int = 0, limit: int | None = None) -> Any:
            records = await super().read(conversation_id, after=after, limit=limit)
            self.read_count += len(records)
            return records

    store, summaries = Counting(), Summaries()
    client = ChatClient(
        ScriptedModel([f"a {LONG}"], repeat_last=True),
        memory=SummarizingChatMemory(store, summaries, max_tokens=1000),
    )
    for n in range(150):
        await client.invoke(f"q{n} {LONG}", conversation_id="u1")
    store.read_count = 0
    for n in range(10):
        await client.invoke(f"q{n} {LONG}", conversation_id="u1")
    assert store.read_count <= 10 * 25


async def test_what_was_summed_up_is_logged_without_its_content(caplog: pytest.LogCaptureFixture) -> None:
    store = InMemoryChatMemory()
    await store.add("u1", turns(0, 8))
    with caplog.at_level(logging.INFO, "agentcore.memory"):
        await SummarizingChatMemory(store, Summaries(), max_tokens=600, keep_tokens=200).view("u1", [])
    assert "conversation 'u1': summed up to message 12" in caplog.text
    assert "word" not in caplog.text


@given(
    whole_histories(max_turns=6), whole_histories(max_turns=3), st.integers(2, 3000), st.integers(2, 40), st.booleans()
)
async def test_whatever_is_summed_up_the_rest_is_whole_and_nothing_is_lost(
    first: list[Message], second: list[Message], max_tokens: int, max_messages: int, asks: bool
) -> None:
    store, summaries = InMemoryChatMemory(), Summaries()
    memory = SummarizingChatMemory(store, summaries, max_tokens=max_tokens, max_messages=max_messages)
    pending = [UserMessage("?")] if asks else []
    for history in (first, second):
        await store.add("u1", history)
        shown = list(await memory.view("u1", pending))
        stored = list(await store.get("u1"))
        assert check_history(shown) == []
        assert not isinstance(next(iter(shown), None), ToolMessage)
        assert [m for m in shown if isinstance(m, SystemMessage)] == [m for m in stored if isinstance(m, SystemMessage)]
        said = [m for m in stored if not isinstance(m, SystemMessage)]
        newer = [m for m in shown if not isinstance(m, SystemMessage) and not is_notes(m)]
        assert said[len(said) - len(newer) :] == newer
        assert [m for _, messages in summaries.calls for m in messages] == said[: len(said) - len(newer)]
        assert list(await memory.view("u1", pending)) == shown
