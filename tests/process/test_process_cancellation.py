"""Cancellation and time: steps are stopped, their clean-up is waited for, what they had done is kept."""

import asyncio
import threading
from typing import Any

import anyio
import pytest

from agentcore import InMemoryChatMemory
from agentcore.process import Process, ProcessBuilder, ProcessLimits, StepContext, StepEvent, each

pytestmark = pytest.mark.asyncio


def waiting_process(started: asyncio.Event, cleaned: list[int]) -> Process:
    flow = ProcessBuilder("p", inputs={"numbers": list[int]})

    @flow.step(inputs={"number": each("numbers")})
    async def work(number: int) -> int:
        try:
            if number:
                return number
            started.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(number)
        return number

    return flow.build(work)


async def test_cancelling_the_caller_cancels_the_steps_and_waits_for_their_clean_up() -> None:
    started, cleaned = asyncio.Event(), list[int]()
    task = asyncio.ensure_future(waiting_process(started, cleaned).run({"numbers": [0, 1]}))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(cleaned) == [0, 1]


async def test_error_in_the_clean_up_does_not_hide_the_cancellation() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    started = asyncio.Event()

    @flow.step
    async def work(x: int) -> int:
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("in the clean-up")

    task = asyncio.ensure_future(flow.build(work).run({"x": 1}))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_wall_clock_ends_the_call_as_a_limit() -> None:
    started, cleaned = asyncio.Event(), list[int]()
    store = InMemoryChatMemory()
    process = waiting_process(started, cleaned)
    result = await process.run({"numbers": [0, 1]}, store=store, run_id="r1", limits=ProcessLimits(seconds=0.02))
    assert (result.status, result.limit, result.supersteps) == ("limit", "seconds", 0)
    assert sorted(cleaned) == [0, 1]
    assert [record.key for record in await store.list_records("process-outcomes:r1", "process_outcome")] == ["0:work:1"]


async def test_timeout_of_a_step_is_its_own_error_and_no_limit() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})

    @flow.step
    async def work(x: int) -> int:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()
        return x

    with pytest.raises(TimeoutError) as caught:
        await flow.build(work).run({"x": 1}, limits=ProcessLimits(seconds=30))
    assert "in step 'work'" in caught.value.__notes__[0]


async def test_timeout_of_the_caller_is_the_callers() -> None:
    started, cleaned = asyncio.Event(), list[int]()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await waiting_process(started, cleaned).run({"numbers": [0]})
    with anyio.move_on_after(0.02) as scope:
        await waiting_process(started, cleaned).run({"numbers": [0]})
    assert (scope.cancelled_caught, cleaned) == (True, [0, 0])


async def test_step_that_answers_its_cancellation_with_a_value_is_stopped_all_the_same() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    started = asyncio.Event()
    after: list[int] = []

    @flow.step
    async def stubborn(x: int) -> int:
        try:
            started.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        return x

    @flow.step
    async def next_(stubborn: int) -> int:
        after.append(stubborn)
        return stubborn

    store, process = InMemoryChatMemory(), flow.build(next_)
    task = asyncio.ensure_future(process.run({"x": 1}, store=store, run_id="r1"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert after == []
    # It ran to its end, so what it brought is kept.
    assert (await process.resume("r1", store=store)).value == 1


async def test_thread_that_runs_is_waited_for_and_its_outcome_is_kept() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    loop, started, gate = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    calls: list[int] = []

    @flow.step
    def work(x: int) -> int:
        calls.append(x)
        loop.call_soon_threadsafe(started.set)
        gate.wait()
        return x * 2

    store, process = InMemoryChatMemory(), flow.build(work)
    task = asyncio.ensure_future(process.run({"x": 1}, store=store, run_id="r1"))
    await started.wait()
    task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()  # once more: still waited for
    await asyncio.sleep(0)
    assert not task.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await process.resume("r1", store=store)).value == 2
    assert calls == [1]


async def test_thread_that_has_not_begun_does_not_begin_after_a_cancellation() -> None:
    flow = ProcessBuilder("p", inputs={"numbers": list[int]})
    loop, started, gate = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    calls: list[int] = []

    @flow.step(inputs={"number": each("numbers")})
    def work(number: int) -> int:
        calls.append(number)
        loop.call_soon_threadsafe(started.set)
        gate.wait()
        return number

    task = asyncio.ensure_future(flow.build(work, max_threads=1).run({"numbers": [0, 1, 2]}))
    await started.wait()
    task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert calls == [0]


async def test_cancelled_at_every_turn_of_the_loop_a_run_can_be_resumed() -> None:
    flow = ProcessBuilder("p", inputs={"numbers": list[int]})
    calls: dict[int, int] = {}

    @flow.step(inputs={"number": each("numbers")})
    async def work(number: int) -> int:
        await asyncio.sleep(0)
        calls[number] = calls.get(number, 0) + 1
        return number

    @flow.step
    async def end(work: list[int]) -> int:
        return sum(work)

    process = flow.build(end)
    for turns in range(60):
        calls.clear()
        store: Any = InMemoryChatMemory()
        task = asyncio.ensure_future(process.run({"numbers": [1, 2, 3]}, store=store, run_id="r1"))
        for _ in range(turns):
            await asyncio.sleep(0)
        is_done = task.done()
        task.cancel()
        await asyncio.wait([task])
        if await store.get_record("process:r1", "process_snapshot", "") is not None:
            assert (await process.resume("r1", store=store)).value == 6
            assert set(calls.values()) == {1}, turns  # what had finished was kept, whatever was being written
        if is_done:
            break
    else:
        raise AssertionError("the run never ended")


async def test_step_that_outlives_the_run_can_send_no_more() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    kept: list[StepContext] = []

    @flow.step
    async def keep(x: int, context: StepContext) -> int:
        kept.append(context)
        return x

    async with flow.build(keep).stream({"x": 1}) as run:
        events = [event async for event in run]
    await kept[0].send("late")
    assert [event async for event in run] == []
    assert not any(isinstance(event, StepEvent) for event in events)
