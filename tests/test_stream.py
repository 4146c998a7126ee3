"""Streamed turns: what is delivered, what is stored, and what happens when somebody leaves."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from agentcore import (
    AssistantMessage,
    ChatClient,
    Filter,
    InMemoryChatMemory,
    InvokeResult,
    Limits,
    ProviderError,
    TextDelta,
    ToolCall,
    ToolFinished,
    ToolMessage,
    ToolStarted,
    TurnEvent,
    TurnRequest,
    UserMessage,
    check_history,
    tool,
)
from agentcore.filters.base import TurnCall
from agentcore.testing import Reply, ScriptedModel

pytestmark = pytest.mark.asyncio


@tool
async def now() -> str:
    """Tell the time."""
    return "12:00"


NOW = ToolCall("c1", "now")


def network() -> ProviderError:
    return ProviderError("reset", kind="network", retryable=True)


async def forever() -> None:
    await asyncio.Event().wait()


def hold_after(count: int) -> Callable[[], Awaitable[None]]:
    """Passes `count - 1` times, then holds for ever."""
    left = count

    async def wait() -> None:
        nonlocal left
        left -= 1
        if not left:
            await forever()

    return wait


async def test_streamed_tool_turn_stores_two_assistant_messages() -> None:
    memory = InMemoryChatMemory()
    model = ScriptedModel([Reply(text=["Let me ", "check."], tool_calls=[NOW]), Reply(text=["It is ", "noon."])])
    async with ChatClient(model, tools=[now], memory=memory).stream("time?", conversation_id="u1") as turn:
        events = [event async for event in turn]
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["Let me ", "check.", "It is ", "noon."]
    assert [e for e in events if isinstance(e, ToolStarted | ToolFinished)] == [
        ToolStarted(NOW),
        ToolFinished(ToolMessage("c1", "now", "12:00")),
    ]
    expected = [
        UserMessage("time?"),
        AssistantMessage("Let me check.", (NOW,)),
        ToolMessage("c1", "now", "12:00"),
        AssistantMessage("It is noon."),
    ]
    assert list(await memory.get("u1")) == expected
    assert turn.result.status == "completed"
    assert turn.result.messages == tuple(expected)
    assert turn.result.text == "It is noon."


async def test_stream_and_invoke_store_the_same() -> None:
    def script() -> ScriptedModel:
        return ScriptedModel([Reply(text=["a", "b"], tool_calls=[NOW], reasoning="hm"), Reply(text=["c", "d"])])

    one, other = InMemoryChatMemory(), InMemoryChatMemory()
    invoked = await ChatClient(script(), tools=[now], memory=one).invoke("x", conversation_id="u1")
    async with ChatClient(script(), tools=[now], memory=other).stream("x", conversation_id="u1") as turn:
        async for _ in turn:
            pass
    assert list(await one.get("u1")) == list(await other.get("u1"))
    assert turn.result.usage == invoked.usage
    assert turn.result.model_calls == invoked.model_calls


async def test_reader_that_leaves_keeps_exactly_what_it_was_given() -> None:
    memory = InMemoryChatMemory()
    model = ScriptedModel([Reply(text=["Once ", "upon ", "a time"], wait_between=lambda: asyncio.sleep(0)), "next"])
    client = ChatClient(model, memory=memory)
    async with client.stream("tell", conversation_id="u1") as turn:
        async for event in turn:
            assert event == TextDelta("Once ")
            break
    assert turn.result.status == "cancelled"
    assert list(await memory.get("u1")) == [
        UserMessage("tell"),
        AssistantMessage("Once ", finish_reason="interrupted"),
    ]
    assert (await client.invoke("go on", conversation_id="u1")).text == "next"


async def test_cancelled_task_keeps_delivered_text_and_raises_cancelled() -> None:
    memory = InMemoryChatMemory()
    got = asyncio.Event()
    client = ChatClient(ScriptedModel([Reply(text=["Hel", "lo"], wait_between=forever)]), memory=memory)

    async def read() -> None:
        async with client.stream("hi", conversation_id="u1") as turn:
            async for _ in turn:
                got.set()

    task = asyncio.create_task(read())
    await got.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(await memory.get("u1")) == [UserMessage("hi"), AssistantMessage("Hel", finish_reason="interrupted")]
    assert not asyncio.all_tasks() - {asyncio.current_task()}


async def test_reader_that_leaves_before_any_text_leaves_nothing() -> None:
    memory = InMemoryChatMemory()
    client = ChatClient(ScriptedModel([Reply(text="x", wait_for=forever)]), memory=memory)
    async with client.stream("hi", conversation_id="u1") as turn:
        pass
    assert turn.result.status == "cancelled"
    assert list(await memory.get("u1")) == []


async def test_cancel_from_the_reader_ends_the_iteration() -> None:
    memory = InMemoryChatMemory()
    client = ChatClient(ScriptedModel([Reply(text=["a", "b"], wait_between=forever)]), memory=memory)
    seen: list[TurnEvent] = []
    async with client.stream("hi", conversation_id="u1") as turn:
        async for event in turn:
            seen.append(event)
            turn.cancel()
    assert seen == [TextDelta("a")]
    assert turn.result.status == "cancelled"
    assert [m.content for m in await memory.get("u1")] == ["hi", "a"]


async def test_error_comes_out_of_the_iteration_after_all_text() -> None:
    memory = InMemoryChatMemory()
    client = ChatClient(
        ScriptedModel([Reply(text=["Here ", "is "], error=network()), "Here is the plan"]), memory=memory
    )
    seen = ""
    with pytest.raises(ProviderError) as caught:
        async with client.stream("plan", conversation_id="u1") as turn:
            async for event in turn:
                assert isinstance(event, TextDelta)
                seen += event.text
    assert caught.value.kind == "network"
    assert seen == "Here is "
    assert list(await memory.get("u1")) == [
        UserMessage("plan"),
        AssistantMessage("Here is ", finish_reason="interrupted"),
    ]
    with pytest.raises(ProviderError):
        _ = turn.result
    await client.invoke("plan", conversation_id="u1")
    assert (await memory.get("u1"))[-1] == AssistantMessage("Here is the plan")


async def test_error_before_any_text_leaves_the_history_untouched() -> None:
    memory = InMemoryChatMemory()
    client = ChatClient(ScriptedModel([network()]), memory=memory)
    with pytest.raises(ProviderError):
        async with client.stream("plan", conversation_id="u1") as turn:
            async for _ in turn:
                pass
    assert list(await memory.get("u1")) == []


async def test_readers_own_error_is_raised_as_it_is() -> None:
    memory = InMemoryChatMemory()
    client = ChatClient(ScriptedModel([Reply(text=["a", "b"], wait_between=forever)]), memory=memory)
    with pytest.raises(KeyError, match="mine"):
        async with client.stream("hi", conversation_id="u1") as turn:
            async for _ in turn:
                raise KeyError("mine")
    assert [m.content for m in await memory.get("u1")] == ["hi", "a"]


async def test_reader_that_leaves_during_tools_leaves_a_whole_history() -> None:
    cleaned = asyncio.Event()

    @tool
    async def hang() -> None:
        """Hang."""
        try:
            await forever()
        finally:
            cleaned.set()

    memory = InMemoryChatMemory()
    client = ChatClient(ScriptedModel([ToolCall("c1", "hang")]), tools=[hang], memory=memory)
    async with client.stream("go", conversation_id="u1") as turn:
        async for event in turn:
            if isinstance(event, ToolStarted):
                break
    assert cleaned.is_set()
    assert check_history(await memory.get("u1")) == []
    assert len(await memory.get("u1")) == 3


async def test_wall_clock_limit_keeps_delivered_text() -> None:
    memory = InMemoryChatMemory()
    client = ChatClient(ScriptedModel([Reply(text=["a", "b"], wait_between=forever)]), memory=memory)
    async with client.stream("hi", conversation_id="u1", limits=Limits(seconds=0.3)) as turn:
        seen = [event async for event in turn]
    assert seen == [TextDelta("a")]
    assert (turn.result.status, turn.result.limit) == ("limit", "seconds")
    assert (await memory.get("u1"))[-1] == AssistantMessage("a", finish_reason="interrupted")


class Ended(Filter):
    """Tells when the turn is over."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def around_turn(self, request: TurnRequest, call_next: TurnCall) -> InvokeResult:
        try:
            return await call_next(request)
        finally:
            self.event.set()


async def test_wall_clock_limit_delivers_no_more_than_is_stored() -> None:
    memory, ended = InMemoryChatMemory(), Ended()
    model = ScriptedModel([Reply(text=["a", "b", "c", "d"], wait_between=hold_after(3))])
    client = ChatClient(model, memory=memory, filters=[ended])
    seen: list[str] = []
    async with client.stream("hi", conversation_id="u1", limits=Limits(seconds=0.3)) as turn:
        async for piece in turn.text:
            seen.append(piece)
            await ended.event.wait()  # slower than the limit: events wait in the buffer when it strikes
    assert (turn.result.status, seen) == ("limit", ["a"])
    assert (await memory.get("u1"))[-1] == AssistantMessage("a", finish_reason="interrupted")


async def test_result_of_a_running_turn_is_refused() -> None:
    client = ChatClient(ScriptedModel(["x"]))
    stream = client.stream("hi")
    with pytest.raises(RuntimeError, match="open the stream first"):
        async for _ in stream:
            pass
    async with stream as turn:
        with pytest.raises(RuntimeError, match="still running"):
            _ = turn.result


async def test_slow_reader_holds_the_provider_back() -> None:
    produced = 0

    async def count() -> None:
        nonlocal produced
        produced += 1
        await asyncio.sleep(0)

    client = ChatClient(ScriptedModel([Reply(text=["x"] * 1000, wait_between=count)]))
    async with client.stream("hi") as turn:
        async for _ in turn:
            for _ in range(100):
                await asyncio.sleep(0)
            break
    assert produced < 100


class Upper(Filter):
    async def transform_stream(self, events: AsyncIterator[TurnEvent]) -> AsyncIterator[TurnEvent]:
        async for event in events:
            yield TextDelta(event.text.upper()) if isinstance(event, TextDelta) else event


class Pairs(Filter):
    """Holds text back until there are two characters, flushes the rest."""

    async def transform_stream(self, events: AsyncIterator[TurnEvent]) -> AsyncIterator[TurnEvent]:
        held = ""
        async for event in events:
            if not isinstance(event, TextDelta):
                yield event
                continue
            held += event.text
            while len(held) >= 2:
                yield TextDelta(held[:2])
                held = held[2:]
        if held:
            yield TextDelta(held)


@pytest.mark.parametrize(
    ("filters", "pieces"),
    [([], ["a", "bcd", "e"]), ([Upper()], ["A", "BCD", "E"]), ([Upper(), Pairs()], ["AB", "CD", "E"])],
    ids=["none", "one", "two"],
)
async def test_stream_filters_change_the_delivery_never_the_store(filters: list[Filter], pieces: list[str]) -> None:
    memory = InMemoryChatMemory()
    client = ChatClient(ScriptedModel([Reply(text=["a", "bcd", "e"])]), memory=memory, filters=filters)
    async with client.stream("x", conversation_id="u1") as turn:
        assert [piece async for piece in turn.text] == pieces
    assert (await memory.get("u1"))[-1] == AssistantMessage("abcde")


@pytest.mark.parametrize("how", ["leave", "cancel-turn", "cancel-task", "limit"])
@pytest.mark.parametrize("calls", [1, 2], ids=["one-call", "two-calls"])
async def test_clean_up_of_a_stopped_tool_may_await(how: str, calls: int) -> None:
    cleaned: list[str] = []

    @tool
    async def hang(name: str) -> None:
        """Hang."""
        try:
            await forever()
        finally:
            for _ in range(3):
                await asyncio.sleep(0)
            cleaned.append(name)

    memory = InMemoryChatMemory()
    model = ScriptedModel([[ToolCall(str(n), "hang", {"name": str(n)}) for n in range(calls)]])
    limits = Limits(seconds=0.3) if how == "limit" else None
    client = ChatClient(model, tools=[hang], memory=memory)

    async def read() -> None:
        started = 0
        async with client.stream("go", conversation_id="u1", limits=limits) as turn:
            async for event in turn:
                started += isinstance(event, ToolStarted)
                if started == calls and how == "cancel-turn":
                    turn.cancel()
                elif started == calls and how == "cancel-task":
                    task.cancel()
                elif started == calls and how == "leave":
                    break

    task = asyncio.create_task(read())
    if how == "cancel-task":
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        await task
    assert sorted(cleaned) == [str(n) for n in range(calls)]
    assert check_history(await memory.get("u1")) == []
    assert len(await memory.get("u1")) == 2 + calls


async def test_turn_that_is_cancelled_before_it_began_does_nothing() -> None:
    model = ScriptedModel(["never", "next"])
    client = ChatClient(model, memory=InMemoryChatMemory())
    async with client.stream("hi", conversation_id="c") as turn:
        turn.cancel()
        assert [event async for event in turn] == []
    assert turn.result.status == "cancelled"
    assert model.requests == []
    assert await client.conversation("c").history() == ()
