"""Summaries: made once, at turn borders, kept with the conversation, and never at the cost of the turn."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentcore import (
    AssistantMessage,
    ChatClient,
    ConfigurationError,
    InMemoryChatMemory,
    Message,
    ProviderError,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    check_history,
)
from agentcore.memory.sqlite import SQLiteChatMemory
from agentcore.memory.summarizing import OPENING, SummarizingChatMemory, transcript
from agentcore.testing import ScriptedModel
from agentcore.tokens import ESTIMATE

pytestmark = pytest.mark.asyncio

LONG = "word " * 40


def turns(first: int, last: int) -> list[Message]:
    return [m for n in range(first, last) for m in (UserMessage(f"q{n} {LONG}"), AssistantMessage(f"a{n} {LONG}"))]


class Summaries:
    """A summariser that says what it was given."""

    def __init__(self) -> None:
        self.calls: list[tuple[str | None, list[Message]]] = []

    async def __call__(self, earlier: str | None, messages: Sequence[Message]) -> str:
        self.calls.append((earlier, list(messages)))
        return f"{earlier or ''}[{len(messages)}]"


def texts(messages: Sequence[Message]) -> list[str]:
    return [str(m.content)[:2] for m in messages if not isinstance(m, SystemMessage)]


Make = Callable[[], Any]


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    if request.param == "memory":
        store = InMemoryChatMemory()
        return lambda: store
    return lambda: SQLiteChatMemory(tmp_path / "chats.db")


async def test_older_turns_are_summed_up_once_and_the_store_stays_whole(make: Make) -> None:
    store, summaries = make(), Summaries()
    await store.add("u1", turns(0, 8))
    memory = SummarizingChatMemory(store, summaries, max_tokens=600, keep_tokens=200)
    shown = await memory.view("u1", [UserMessage("more")])
    assert shown[0] == SystemMessage(f"{OPENING}\n[12]")
    assert texts(shown) == ["q6", "a6", "q7", "a7"]
    assert list(await memory.view("u1", [UserMessage("more")])) == list(shown)
    assert len(summaries.calls) == 1
    assert list(await store.get("u1")) == turns(0, 8)
    aclose = getattr(store, "aclose", None)
    if aclose is not None:
        await aclose()


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
        rest = [m for m in shown if not isinstance(m, SystemMessage)]
        assert check_history(rest) == []
        assert isinstance(rest[0], UserMessage)


async def test_system_messages_of_the_older_part_stay_whole() -> None:
    store, summaries = InMemoryChatMemory(), Summaries()
    await store.add("u1", [SystemMessage("You are Kim."), *turns(0, 8)])
    memory = SummarizingChatMemory(store, summaries, max_tokens=600, keep_tokens=200)
    for _ in range(2):
        shown = await memory.view("u1", [])
        assert shown[0] == SystemMessage("You are Kim.")
        assert str(shown[1].content).startswith(OPENING)
    assert not any(isinstance(m, SystemMessage) for m in summaries.calls[0][1])


async def test_newest_turn_larger_than_all_is_shown_whole() -> None:
    store, summaries = InMemoryChatMemory(), Summaries()
    await store.add("u1", [UserMessage(LONG * 20)])
    memory = SummarizingChatMemory(store, summaries, max_tokens=100)
    assert list(await memory.view("u1", [])) == [UserMessage(LONG * 20)]
    assert summaries.calls == []


@pytest.mark.parametrize("error", [ProviderError("down", kind="server"), RuntimeError("bug")], ids=["provider", "bug"])
async def test_summary_that_fails_does_not_cost_the_turn(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def failing(earlier: str | None, messages: Sequence[Message]) -> str:
        raise error

    store = InMemoryChatMemory()
    await store.add("u1", turns(0, 8))
    model = ScriptedModel(["answer"])
    client = ChatClient(model, memory=SummarizingChatMemory(store, failing, max_tokens=600, keep_tokens=200))
    assert (await client.invoke("more", conversation_id="u1")).text == "answer"
    assert texts(model.requests[0].messages) == ["q6", "a6", "q7", "a7", "mo"]
    assert "could not be summed up" in caplog.text


async def test_cancelled_summary_leaves_nothing_behind() -> None:
    entered = asyncio.Event()

    async def slow(earlier: str | None, messages: Sequence[Message]) -> str:
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


async def test_of_two_summaries_made_at_once_the_first_counts_for_both() -> None:
    store = InMemoryChatMemory()
    await store.add("u1", turns(0, 8))
    gate = asyncio.Event()

    async def waits(earlier: str | None, messages: Sequence[Message]) -> str:
        await gate.wait()
        return "late"

    async def quick(earlier: str | None, messages: Sequence[Message]) -> str:
        return "early"

    late = asyncio.create_task(SummarizingChatMemory(store, waits, max_tokens=600, keep_tokens=200).view("u1", []))
    await asyncio.sleep(0)
    first = await SummarizingChatMemory(store, quick, max_tokens=600, keep_tokens=200).view("u1", [])
    gate.set()
    assert list(await late) == list(first)


async def test_rollback_takes_back_a_summary_that_reaches_too_far() -> None:
    store, summaries = InMemoryChatMemory(), Summaries()
    for n in range(8):
        await store.append("u1", turns(n, n + 1), turn_id=f"t{n}", position=0)
    memory = SummarizingChatMemory(store, summaries, max_tokens=600, keep_tokens=200)
    await memory.view("u1", [])
    await store.rollback("u1", to=4)
    assert list(await memory.view("u1", [])) == turns(0, 2)


async def test_fork_takes_the_summary_along() -> None:
    store, summaries = InMemoryChatMemory(), Summaries()
    await store.add("u1", turns(0, 8))
    memory = SummarizingChatMemory(store, summaries, max_tokens=600, keep_tokens=200)
    shown = await memory.view("u1", [])
    await store.fork("u1", "u2")
    assert list(await memory.view("u2", [])) == list(shown)
    assert len(summaries.calls) == 1


async def test_only_the_newest_summaries_are_kept() -> None:
    store, summaries = InMemoryChatMemory(), Summaries()
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
    assert [m.content for m in seen[:2]] == ["Be kind.", f"{OPENING}\nThey counted to five."]
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
    assert told[4] == f"f brought: {'x' * 2000}…"
    assert told[5] == "f failed: no"


async def test_what_cannot_work_is_refused_where_it_is_made() -> None:
    class Plain:
        async def get(self, conversation_id: str) -> Sequence[Message]:
            return ()

        async def add(self, conversation_id: str, messages: Sequence[Message]) -> None: ...

        async def clear(self, conversation_id: str) -> None: ...

    with pytest.raises(ConfigurationError, match="Plain keeps no records"):
        SummarizingChatMemory(Plain(), Summaries(), max_tokens=10)
    for keep in (0, 10, 11):
        with pytest.raises(ConfigurationError, match="keep_tokens"):
            SummarizingChatMemory(InMemoryChatMemory(), Summaries(), max_tokens=10, keep_tokens=keep)
