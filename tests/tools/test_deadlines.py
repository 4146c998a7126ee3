"""Calls that share a timer: each ends in its own time, none because of another, and no timer is left."""

import asyncio
import gc
import weakref
from contextlib import closing
from typing import Any

import pytest
from anyio import CapacityLimiter

from agentcore import ChatClient, ToolCall, tool
from agentcore.testing import ScriptedModel
from agentcore.tools.deadlines import Deadlines
from agentcore.tools.execution import ToolExecution, ToolTimedOutError
from agentcore.tools.tool import Tool

pytestmark = pytest.mark.asyncio


async def hang() -> None:
    await asyncio.Event().wait()


def run(function: Any, seconds: float, deadlines: Deadlines) -> "asyncio.Task[Any]":
    one = Tool(function)
    execution = ToolExecution(one, one, CapacityLimiter(1), asyncio.sleep)
    return asyncio.ensure_future(execution.within(seconds, deadlines))


async def test_call_that_is_over_does_not_end_for_those_that_go_on() -> None:
    async def quick() -> str:
        return "ok"

    with closing(Deadlines()) as deadlines:
        calls = [run(quick, 0.02, deadlines), run(hang, 0.02, deadlines), run(quick, 0.02, deadlines)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [answers[0], answers[2]] == ["ok", "ok"]
    assert isinstance(answers[1], ToolTimedOutError)


async def test_calls_that_begin_later_end_later() -> None:
    ended: list[str] = []

    async def named(name: str, seconds: float, deadlines: Deadlines) -> float:
        start = asyncio.get_running_loop().time()
        with pytest.raises(ToolTimedOutError):
            await run(hang, seconds, deadlines)
        ended.append(name)
        return asyncio.get_running_loop().time() - start

    with closing(Deadlines()) as deadlines:
        short = asyncio.ensure_future(named("short", 0.03, deadlines))
        await named("first", 0.02, deadlines)
        taken = await asyncio.gather(named("second", 0.02, deadlines), named("third", 0.02, deadlines), short)
    assert ended == ["first", "short", "second", "third"]
    assert min(taken) >= 0.02


async def test_timer_that_rings_goes_on_to_the_next_call() -> None:
    begun = asyncio.Event()

    async def until_begun() -> None:
        await begun.wait()

    with closing(Deadlines()) as deadlines:
        first = run(until_begun, 0.03, deadlines)
        await asyncio.sleep(0)
        second = run(hang, 0.03, deadlines)
        await asyncio.sleep(0)
        begun.set()
        await first
        with pytest.raises(ToolTimedOutError):
            await second


async def test_cancellation_from_outside_comes_out_though_the_time_is_over_too() -> None:
    with closing(Deadlines()) as deadlines:
        call = run(hang, 60, deadlines)
        await asyncio.sleep(0)
        [queue] = deadlines._waiting.values()  # pyright: ignore[reportPrivateUsage] - both in one step of the loop
        [deadline] = queue.waiting
        deadline.expire()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_batch_that_is_over_leaves_no_timer() -> None:
    tasks: list[weakref.ref[Any]] = []

    @tool(timeout=3600)
    async def note() -> str:
        tasks.append(weakref.ref(asyncio.current_task()))
        return "ok"

    client = ChatClient(ScriptedModel([[ToolCall(f"c{n}", "note", {}) for n in range(3)], "done"]), tools=[note])
    await client.invoke("go")
    gc.collect()
    assert [task() for task in tasks] == [None] * 3
