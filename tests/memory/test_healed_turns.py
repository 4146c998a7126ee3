"""Histories that were broken before we saw them: every turn on them sends a whole one, and says what it mended."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings

from agentcore import (
    AssistantMessage,
    ChatClient,
    ChatMemory,
    InMemoryChatMemory,
    Message,
    SummarizingChatMemory,
    ToolCall,
    ToolMessage,
    UserMessage,
    WindowedChatMemory,
    check_history,
    heal,
)
from agentcore.pairing import INTERRUPTED_RESULT
from agentcore.testing import ScriptedModel
from tests.strategies import histories

pytestmark = pytest.mark.asyncio

CALL = AssistantMessage(None, (ToolCall("c1", "f"),))
RESULT = ToolMessage("c1", "f", "1")
BEFORE, AFTER = UserMessage("a"), UserMessage("b")

BROKEN: dict[str, tuple[list[Message], str]] = {
    "dangling-in-the-middle": ([BEFORE, CALL, AFTER], "answered call 'c1' (f) as interrupted"),
    "orphan-result": ([RESULT, BEFORE, AssistantMessage("x")], "left out a result without a call ('c1')"),
    "answered-twice": ([BEFORE, CALL, RESULT, RESULT, AFTER], "left out a result without a call ('c1')"),
    "answered-late": ([BEFORE, CALL, AFTER, RESULT], "brought the result of 'c1' to its call"),
    "nameless": ([BEFORE, AssistantMessage(None, (ToolCall("c1", ""),)), RESULT], "gave call 'c1' the name 'f'"),
}


@pytest.mark.parametrize(("history", "told"), BROKEN.values(), ids=BROKEN.keys())
async def test_broken_history_is_sent_whole_and_the_log_says_what_was_mended(
    history: list[Message], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    memory = InMemoryChatMemory()
    await memory.add("u1", history)
    model = ScriptedModel(["one", "two"])
    client = ChatClient(model, memory=memory)
    await client.invoke("first", conversation_id="u1")
    await client.invoke("second", conversation_id="u1")
    first, second = (list(request.messages) for request in model.requests)
    assert check_history(first) == []
    assert second[: len(first)] == first
    assert f"conversation 'u1' healed: message {heal(history)[1][0].index}: {told}" in caplog.text
    assert list(await memory.get("u1"))[: len(history)] == history


async def test_tail_never_shows_a_result_without_its_call() -> None:
    memory = InMemoryChatMemory()
    await memory.add("u1", [BEFORE, CALL, RESULT, AssistantMessage("A")])
    for bound in range(1, 6):
        model = ScriptedModel(["B"])
        await memory.fork("u1", f"u1-{bound}")
        await ChatClient(model, memory=WindowedChatMemory(memory, max_messages=bound)).invoke(
            "b", conversation_id=f"u1-{bound}"
        )
        seen = model.requests[0].messages
        assert check_history(seen) == []
        assert isinstance(seen[0], UserMessage)
        assert seen[-1] == AFTER


async def test_calls_left_open_are_answered_once_in_the_store() -> None:
    memory = InMemoryChatMemory()
    await memory.add("u1", [BEFORE, CALL])
    model = ScriptedModel(["one", "two"])
    client = ChatClient(model, memory=WindowedChatMemory(memory, max_messages=50))
    await client.invoke("first", conversation_id="u1")
    await client.invoke("second", conversation_id="u1")
    answers = [message for message in await memory.get("u1") if isinstance(message, ToolMessage)]
    assert answers == [ToolMessage("c1", "f", INTERRUPTED_RESULT, is_error=True)]


@pytest.mark.parametrize(
    "results",
    [[RESULT, ToolMessage("?", "f", "x")], [RESULT, RESULT], [ToolMessage("c3", "f", "3"), RESULT]],
    ids=["orphan", "second", "out-of-order"],
)
async def test_results_in_disorder_behind_open_calls_do_not_block_the_conversation(results: list[Message]) -> None:
    memory = InMemoryChatMemory()
    calls = AssistantMessage(None, (ToolCall("c1", "f"), ToolCall("c2", "f"), ToolCall("c3", "f")))
    await memory.add("u1", [BEFORE, calls, *results])
    model = ScriptedModel(["one", "two"])
    client = ChatClient(model, memory=memory)
    for text in ("first", "second"):
        await client.invoke(text, conversation_id="u1")
        assert check_history(model.requests[-1].messages) == []
    assert ToolMessage("c2", "f", INTERRUPTED_RESULT, is_error=True) in model.requests[-1].messages


async def _sum_up(messages: object, earlier: str | None) -> str:
    return "summary"


VIEWS: dict[str, Callable[[InMemoryChatMemory], ChatMemory]] = {
    "whole": lambda store: store,
    "window": lambda store: WindowedChatMemory(store, max_messages=5, max_tokens=300),
    "steps": lambda store: WindowedChatMemory(store, max_messages=6, step=3),
    "summary": lambda store: SummarizingChatMemory(store, _sum_up, max_messages=5, max_tokens=300),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories)
async def test_any_history_through_any_view_is_sent_whole(
    view: Callable[[InMemoryChatMemory], ChatMemory], history: list[Message]
) -> None:
    store = InMemoryChatMemory()
    await store.add("u1", history)
    model = ScriptedModel(["one", "two"])
    client = ChatClient(model, memory=view(store))
    for text in ("first", "second"):
        await client.invoke(text, conversation_id="u1")
        seen = model.requests[-1].messages
        assert check_history(seen) == []
        assert seen[-1] == UserMessage(text)
