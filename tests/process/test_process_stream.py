"""The stream of a process: what its reader sees, how a slow one holds it back, how leaving it ends the call."""

import asyncio
from typing import Any

import anyio
import pytest

from agentcore import ChatClient, InMemoryChatMemory, InvalidInputError, TextDelta, ToolCall, ToolStarted, tool
from agentcore.process import (
    Process,
    ProcessBuilder,
    ProcessLimits,
    RunConflictError,
    StepContext,
    StepEvent,
    StepFailure,
    StepFinished,
    StepStarted,
    SuperstepFinished,
    each,
    failed,
)
from agentcore.process.stream import BUFFERED_EVENTS, ProcessChannel
from agentcore.testing import Reply, ScriptedModel

pytestmark = pytest.mark.asyncio


def doubling() -> Process:
    flow = ProcessBuilder("p", inputs={"numbers": list[int]})

    @flow.step(inputs={"number": each("numbers")})
    async def double(number: int, context: StepContext) -> int:
        if number < 0:
            raise ValueError("negative")
        await context.send({"half way": number})
        return number * 2

    @flow.step(inputs={"failure": failed(double)})
    async def note(failure: StepFailure) -> None: ...

    @flow.step
    async def total(double: list[int]) -> int:
        return sum(double)

    return flow.build(total)


async def test_reader_sees_steps_their_own_events_and_the_barriers() -> None:
    async with doubling().stream({"numbers": [4]}, run_id="r1") as run:
        events = [event async for event in run]
    assert events == [
        StepStarted("double", 0, 0),
        StepEvent("double", 0, 0, {"half way": 4}),
        StepFinished("double", 0, 0, 8),
        SuperstepFinished(0),
        StepStarted("total", 0, 1),
        StepFinished("total", 0, 1, 8),
        SuperstepFinished(1),
    ]
    assert (run.run_id, run.result.value) == ("r1", 8)


async def test_handled_failure_is_seen_as_the_end_of_the_step() -> None:
    async with doubling().stream({"numbers": [-1]}) as run:
        finished = [event async for event in run if isinstance(event, StepFinished)]
    failure = finished[0].failure
    assert failure is not None
    assert (failure.step, failure.message) == ("double", "negative")


async def test_send_without_a_reader_does_nothing() -> None:
    assert (await doubling().run({"numbers": [1, 2]})).value == 6


def telling(client: ChatClient) -> Process:
    flow = ProcessBuilder("p", inputs={"text": str})

    @flow.step
    async def answer(text: str, context: StepContext) -> str:
        return (await context.forward(client.stream(text, tool_context=context))).text

    return flow.build(answer)


@tool
async def look_up(word: str) -> str:
    """Look it up."""
    return word


async def test_events_of_a_client_inside_are_forwarded() -> None:
    script = [[ToolCall("c1", "look_up", {"word": "fjord"})], Reply(text=["An ", "inlet."])]
    client = ChatClient(ScriptedModel(script), tools=[look_up])
    async with telling(client).stream({"text": "What is a fjord?"}) as run:
        inner = [event.event async for event in run if isinstance(event, StepEvent)]
    assert "".join(event.text for event in inner if isinstance(event, TextDelta)) == "An inlet."
    assert any(isinstance(event, ToolStarted) for event in inner)
    assert run.result.value == "An inlet."


async def test_forward_without_a_reader_gives_the_result() -> None:
    client = ChatClient(ScriptedModel(["An inlet."]))
    assert (await telling(client).run({"text": "What is a fjord?"})).value == "An inlet."


async def test_slow_reader_holds_the_steps_back() -> None:
    flow = ProcessBuilder("p", inputs={"n": int})
    sent = 0

    @flow.step
    async def talk(n: int, context: StepContext) -> int:
        nonlocal sent
        for number in range(n):
            await context.send(number)
            sent += 1
        return n

    async with flow.build(talk).stream({"n": 10 * BUFFERED_EVENTS}) as run:
        seen: list[Any] = []
        async for event in run:
            if isinstance(event, StepEvent):
                for _ in range(3):
                    await asyncio.sleep(0)
                seen.append(event.event)
                assert sent - len(seen) <= BUFFERED_EVENTS
    assert seen == list(range(10 * BUFFERED_EVENTS))


async def test_many_steps_share_a_slow_reader_and_lose_nothing() -> None:
    flow = ProcessBuilder("p", inputs={"numbers": list[int]})

    @flow.step(inputs={"number": each("numbers")})
    async def talk(number: int, context: StepContext) -> int:
        for part in range(5):
            await context.send((number, part))
        return number

    numbers = list(range(2 * BUFFERED_EVENTS))
    async with flow.build(talk).stream({"numbers": numbers}) as run:
        seen = [event.event async for event in run if isinstance(event, StepEvent)]
    assert sorted(seen) == [(number, part) for number in numbers for part in range(5)]
    assert run.result.value == numbers


async def test_error_of_a_step_comes_out_of_the_iteration() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})

    @flow.step
    async def bad(x: int) -> int:
        raise RuntimeError("broken")

    async with flow.build(bad).stream({"x": 1}) as run:
        with pytest.raises(RuntimeError, match="broken"):
            async for _ in run:
                pass
    with pytest.raises(RuntimeError, match="broken"):
        _ = run.result


async def test_leaving_early_stops_the_steps_waits_for_them_and_can_be_resumed() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    cleaned: list[str] = []
    attempts: list[int] = []

    @flow.step
    async def first(x: int) -> int:
        return x

    @flow.step
    async def second(first: int) -> int:
        attempts.append(first)
        if len(attempts) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                cleaned.append("second")
        return first + 1

    store, process = InMemoryChatMemory(), flow.build(second)
    async with process.stream({"x": 1}, store=store, run_id="r1") as run:
        async for event in run:
            if isinstance(event, StepStarted) and event.step == "second":
                break
        for _ in range(3):
            await asyncio.sleep(0)
    assert (run.result.status, run.result.supersteps, cleaned) == ("cancelled", 1, ["second"])
    async with process.stream_resume("r1", store=store) as again:
        started = [event.step async for event in again if isinstance(event, StepStarted)]
    assert (started, again.result.value) == (["second"], 2)


async def test_leaving_early_lets_go_of_steps_that_wait_for_room() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})

    @flow.step
    async def talk(x: int, context: StepContext) -> int:
        while True:
            await context.send(x)

    async with flow.build(talk).stream({"x": 1}) as run:
        async for _ in run:
            break
        for _ in range(2 * BUFFERED_EVENTS):
            await asyncio.sleep(0)
    assert run.result.status == "cancelled"


async def test_cancel_ends_the_iteration() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})

    @flow.step
    async def wait(x: int) -> int:
        await asyncio.Event().wait()
        return x

    async with flow.build(wait).stream({"x": 1}) as run:
        async for _ in run:
            run.cancel()
    assert run.result.status == "cancelled"


async def test_error_in_the_block_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with doubling().stream({"numbers": [1]}):
            _ = 1 // 0


async def test_reader_that_is_cancelled_by_a_scope_ends_the_run() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    cleaned: list[int] = []

    @flow.step
    async def wait(x: int) -> int:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(x)
        return x

    with anyio.CancelScope() as scope:
        async with flow.build(wait).stream({"x": 1}) as run:
            async for _ in run:
                await asyncio.sleep(0)
                scope.cancel()
    assert (run.result.status, cleaned) == ("cancelled", [1])


async def test_result_is_not_there_before_the_end() -> None:
    async with doubling().stream({"numbers": [1]}) as run:
        with pytest.raises(RuntimeError, match="still running"):
            _ = run.result


async def test_stream_is_opened_once() -> None:
    run = doubling().stream({"numbers": [1]})
    with pytest.raises(RuntimeError, match="open the stream first"):
        await anext(run)
    async with run:
        with pytest.raises(RuntimeError, match="entered once"):
            await run.__aenter__()


async def test_read_that_was_cancelled_loses_nothing() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    gate = asyncio.Event()

    @flow.step
    async def wait(x: int) -> int:
        await gate.wait()
        return x

    async with flow.build(wait).stream({"x": 1}) as run:
        assert isinstance(await anext(run), StepStarted)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await anext(run)
        gate.set()
        assert isinstance(await anext(run), StepFinished)


async def test_event_from_outside_comes_into_a_running_process() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    extra = flow.outside("extra", int)
    started, gate = asyncio.Event(), asyncio.Event()

    @flow.step
    async def slow(x: int) -> int:
        started.set()
        await gate.wait()
        return x

    @flow.step
    async def both(slow: int, extra: int) -> int:
        return slow + extra

    store = InMemoryChatMemory()
    async with flow.build(both).stream({"x": 1}, store=store, run_id="r1") as run:
        await started.wait()
        with pytest.raises(InvalidInputError, match="takes no event 'other'"):
            run.send("other", 1)
        with pytest.raises(InvalidInputError, match="is declared int"):
            run.send(extra, "text")  # type: ignore[arg-type]
        run.send(extra, 5)
        gate.set()
        async for _ in run:
            pass
    assert run.result.value == 6
    with pytest.raises(RunConflictError, match="takes no event 'extra' any more"):
        run.send(extra, 5)


async def test_event_that_came_in_is_in_the_snapshot_when_the_run_is_cut() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    flow.outside("extra", int)
    started, gate = asyncio.Event(), asyncio.Event()

    @flow.step
    async def slow(x: int) -> int:
        started.set()
        await gate.wait()
        return x

    @flow.step
    async def both(slow: int, extra: int) -> int:
        return slow + extra

    store, process = InMemoryChatMemory(), flow.build(both)
    async with process.stream({"x": 1}, store=store, run_id="r1", limits=ProcessLimits(supersteps=1)) as run:
        await started.wait()
        run.send("extra", 5)
        gate.set()
        async for _ in run:
            pass
    assert run.result.limit == "supersteps"
    assert (await process.resume("r1", store=store)).value == 6


async def test_channel_gives_freed_room_to_the_next_writer_when_one_is_cancelled() -> None:
    channel = ProcessChannel(size=1)
    await channel.send(SuperstepFinished(0))
    writers = [asyncio.ensure_future(channel.send(SuperstepFinished(number))) for number in (1, 2)]
    await asyncio.sleep(0)
    assert await channel.receive() == SuperstepFinished(0)
    writers[0].cancel()
    await asyncio.wait(writers)
    assert await channel.receive() == SuperstepFinished(2)
    waiting = asyncio.ensure_future(channel.send(SuperstepFinished(3)))
    await asyncio.sleep(0)
    blocked = asyncio.ensure_future(channel.send(SuperstepFinished(4)))
    await asyncio.sleep(0)
    blocked.cancel()
    await asyncio.wait([blocked])
    channel.close()
    await waiting
    assert await channel.receive() == SuperstepFinished(3)
    assert await channel.receive() is None


async def test_clean_up_may_send_although_the_reader_has_left() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    cleaned: list[int] = []

    @flow.step
    async def talk(x: int, context: StepContext) -> int:
        try:
            for number in range(10 * BUFFERED_EVENTS):
                await context.send(number)
        finally:
            await context.send("good bye")
            cleaned.append(x)
        return x

    async with flow.build(talk).stream({"x": 1}) as run:
        async for _ in run:
            break
    assert (run.result.status, cleaned) == ("cancelled", [1])
