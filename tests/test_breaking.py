"""What goes wrong around a turn: broken stores, broken filters, odd uses of a stream."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from agentcore import (
    AssistantMessage,
    ChatClient,
    ChatRequest,
    ChatResponse,
    Filter,
    InMemoryChatMemory,
    InvokeResult,
    Limits,
    Message,
    TextDelta,
    ToolCall,
    TurnEvent,
    TurnRequest,
    UserMessage,
    check_history,
    tool,
)
from agentcore.filters.base import ChatCall, TurnCall
from agentcore.testing import Reply, ScriptedModel

pytestmark = pytest.mark.asyncio


async def pause() -> None:
    await asyncio.sleep(0)


@tool
async def work() -> str:
    """Work."""
    await asyncio.sleep(0)
    return "done"


def script() -> ScriptedModel:
    return ScriptedModel(
        [
            Reply(text=["a", "b"], tool_calls=[ToolCall("c1", "work")], wait_between=pause),
            Reply(text=["c", "d"]),
            "next",
        ],
        repeat_last=True,
    )


class DiskFullError(OSError):
    pass


class Full(InMemoryChatMemory):
    """Refuses the n-th append."""

    def __init__(self, refused: int) -> None:
        super().__init__()
        self.left = refused

    async def add(self, conversation_id: str, messages: Sequence[Message]) -> None:
        self.left -= 1
        if self.left == 0:
            raise DiskFullError("no space left")
        await super().add(conversation_id, messages)


@pytest.mark.parametrize("streamed", [False, True], ids=["invoke", "stream"])
@pytest.mark.parametrize("refused", [1, 2, 3])
async def test_store_that_fails_is_the_error_and_the_next_turn_works(refused: int, streamed: bool) -> None:
    memory = Full(refused)
    client = ChatClient(script(), tools=[work], memory=memory)
    with pytest.raises(DiskFullError):
        if streamed:
            async with client.stream("go", conversation_id="u1") as turn:
                async for _ in turn:
                    pass
        else:
            await client.invoke("go", conversation_id="u1")
    assert (await client.invoke("again", conversation_id="u1")).status == "completed"
    assert check_history(await memory.get("u1")) == []


async def test_turn_cancelled_from_outside_at_every_step_ends_as_cancelled() -> None:
    for steps in range(100):
        memory = InMemoryChatMemory()
        client = ChatClient(script(), tools=[work], memory=memory)
        seen: list[str] = []
        async with client.stream("go", conversation_id="u1") as turn:

            async def stop(turn=turn, steps=steps) -> None:  # type: ignore[no-untyped-def]
                for _ in range(steps):
                    await asyncio.sleep(0)
                turn.cancel()

            stopper = asyncio.ensure_future(stop())
            async for event in turn:
                if isinstance(event, TextDelta):
                    seen.append(event.text)
            done = turn.result.status == "completed"
            stopper.cancel()
            await asyncio.wait([stopper])
        stored = await memory.get("u1")
        assert turn.result.status in ("completed", "cancelled")
        assert check_history(stored) == []
        text = "".join(m.content or "" for m in stored if isinstance(m, AssistantMessage))
        assert text.startswith("".join(seen))
        assert turn.result.messages == tuple(stored)
        assert (await client.invoke("and?", conversation_id="u1")).status == "completed"
        if done:
            break
    else:
        raise AssertionError("the turn never came to its end")


async def test_turn_superseded_at_every_step_gives_way() -> None:
    for steps in range(1, 100):  # the first turn has to have begun
        memory = InMemoryChatMemory()
        client = ChatClient(script(), tools=[work], memory=memory, on_busy="supersede")
        first = asyncio.ensure_future(client.invoke("go", conversation_id="u1"))
        for _ in range(steps):
            await asyncio.sleep(0)
        done = first.done()
        second = await client.invoke("instead", conversation_id="u1")
        assert second.status == "completed"
        assert (await first).status == ("completed" if done else "cancelled") or (await first).status == "completed"
        stored = await memory.get("u1")
        assert check_history(stored) == []
        assert stored[-1] == second.message
        if done:
            break
    else:
        raise AssertionError("the turn never came to its end")


@pytest.mark.parametrize("left_after", range(7))
async def test_reader_may_leave_after_any_event(left_after: int) -> None:
    memory = InMemoryChatMemory()
    client = ChatClient(script(), tools=[work], memory=memory)
    async with client.stream("go", conversation_id="u1") as turn:
        count = 0
        async for _ in turn:
            count += 1
            if count > left_after:
                break
    assert check_history(await memory.get("u1")) == []
    assert turn.result.messages == tuple(await memory.get("u1"))
    assert (await client.invoke("and?", conversation_id="u1")).status == "completed"


async def test_stream_never_entered_does_nothing() -> None:
    model = script()
    ChatClient(model, memory=InMemoryChatMemory()).stream("go", conversation_id="u1")
    assert model.calls == 0


async def test_stream_is_entered_once() -> None:
    stream = ChatClient(ScriptedModel(["x"])).stream("go")
    async with stream as turn:
        async for _ in turn:
            pass
    with pytest.raises(RuntimeError, match="once"):
        async with stream:
            pass


async def test_iteration_goes_on_where_it_stopped() -> None:
    async with ChatClient(ScriptedModel([Reply(text=["a", "b", "c"])])).stream("go") as turn:
        async for event in turn:
            assert event == TextDelta("a")
            break
        assert [event async for event in turn] == [TextDelta("b"), TextDelta("c")]
        assert [event async for event in turn] == []
    assert turn.result.text == "abc"
    turn.cancel()
    assert turn.result.status == "completed"


class Broken(Filter):
    def __init__(self, grain: str) -> None:
        self.grain = grain

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        if self.grain == "chat":
            raise KeyError("broken filter")
        response = await call_next(request)
        if self.grain == "chat-after":
            raise KeyError("broken filter")
        return response

    async def around_turn(self, request: TurnRequest, call_next: TurnCall) -> InvokeResult:
        if self.grain == "turn":
            raise KeyError("broken filter")
        return await call_next(request)

    async def transform_stream(self, events: AsyncIterator[TurnEvent]) -> AsyncIterator[TurnEvent]:
        async for event in events:
            if self.grain == "stream":
                raise KeyError("broken filter")
            yield event


@pytest.mark.parametrize("grain", ["chat", "chat-after", "turn", "stream"])
async def test_error_of_a_filter_comes_out_as_it_is(grain: str) -> None:
    memory = InMemoryChatMemory()
    client = ChatClient(script(), tools=[work], memory=memory, filters=[Broken(grain)])
    with pytest.raises(KeyError, match="broken filter"):
        async with client.stream("go", conversation_id="u1") as turn:
            async for _ in turn:
                pass
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert (await ChatClient(script(), memory=memory).invoke("and?", conversation_id="u1")).model_calls
    assert check_history(await memory.get("u1")) == []


async def test_transform_may_swallow_everything() -> None:
    class Silent(Filter):
        async def transform_stream(self, events: AsyncIterator[TurnEvent]) -> AsyncIterator[TurnEvent]:
            async for _ in events:
                pass
            return
            yield  # an async generator all the same

    client = ChatClient(ScriptedModel([Reply(text=["a", "b"])]), filters=[Silent()])
    async with client.stream("go") as turn:
        assert [event async for event in turn] == []
    assert turn.result.text == "ab"


@pytest.mark.parametrize(
    ("limits", "limit"),
    [(Limits(model_calls=0), "model_calls"), (Limits(seconds=0), "seconds"), (Limits(tool_calls=0), "tool_calls")],
    ids=["model-calls", "seconds", "tool-calls"],
)
async def test_limit_of_nothing_is_a_limit(limits: Limits, limit: str) -> None:
    memory = InMemoryChatMemory()
    result = await ChatClient(script(), tools=[work], memory=memory).invoke("go", conversation_id="u1", limits=limits)
    assert (result.status, result.limit) == ("limit", limit)
    assert check_history(await memory.get("u1")) == []


async def test_reset_waits_for_the_running_turn() -> None:
    memory = InMemoryChatMemory()
    gate = asyncio.Event()
    client = ChatClient(ScriptedModel([Reply(text="x", wait_for=gate.wait)]), memory=memory)
    turn = asyncio.ensure_future(client.invoke("go", conversation_id="u1"))
    await asyncio.sleep(0)
    reset = asyncio.ensure_future(client.conversation("u1").reset())
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(turn, reset)
    assert list(await memory.get("u1")) == []


async def test_conversations_in_two_event_loops_share_a_store() -> None:
    memory = InMemoryChatMemory()
    client = ChatClient(ScriptedModel(["x"], repeat_last=True), memory=memory)
    await client.invoke("1", conversation_id="u1")
    await asyncio.to_thread(lambda: asyncio.run(client.invoke("2", conversation_id="u1")))
    assert [m.content for m in await memory.get("u1") if isinstance(m, UserMessage)] == ["1", "2"]


async def test_timeout_around_a_turn_is_the_callers() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    client = ChatClient(ScriptedModel([Reply(text="x", wait_for=hang)], repeat_last=True), memory=InMemoryChatMemory())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await client.invoke("go", conversation_id="u1")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.invoke("go", conversation_id="u1", limits=Limits(seconds=9)), 0.01)
