"""One function running: its time, its attempts, its thread."""

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any

import pytest
from anyio import CapacityLimiter, to_thread

from agentcore.tools.deadlines import Deadlines
from agentcore.tools.errors import ToolError, TransientToolError
from agentcore.tools.execution import LONGEST_WAIT, ToolExecution, ToolTimedOutError
from agentcore.tools.tool import Tool

pytestmark = pytest.mark.asyncio


def execution(one: Tool, threads: CapacityLimiter | None = None, waits: list[float] | None = None) -> ToolExecution:
    async def sleep(seconds: float) -> None:
        if waits is not None:
            waits.append(seconds)

    return ToolExecution(one, one, threads or CapacityLimiter(2), sleep)


async def test_transient_failures_wait_longer_each_time_up_to_a_bound() -> None:
    waits: list[float] = []

    async def flaky() -> None:
        raise TransientToolError("later")

    with pytest.raises(TransientToolError):
        await execution(Tool(flaky, retry=8), waits=waits).within(None, Deadlines())
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, LONGEST_WAIT, LONGEST_WAIT]


@pytest.mark.parametrize("error", [ValueError("x"), ToolError("x"), TimeoutError()], ids=repr)
async def test_other_failures_are_not_tried_again(error: Exception) -> None:
    attempts = 0

    async def fails() -> None:
        nonlocal attempts
        attempts += 1
        raise error

    with pytest.raises(type(error)):
        await execution(Tool(fails, retry=3)).within(None, Deadlines())
    assert attempts == 1


async def test_sync_tool_is_tried_again_too() -> None:
    attempts = 0

    def flaky() -> str:
        nonlocal attempts
        attempts += 1
        if attempts < 2:
            raise TransientToolError("later")
        return "ok"

    assert await execution(Tool(flaky, retry=1)).within(None, Deadlines()) == "ok"


async def test_time_covers_all_attempts_and_waits() -> None:
    async def flaky() -> None:
        raise TransientToolError("later")

    async def for_ever(_: float) -> None:
        await asyncio.Event().wait()

    one = Tool(flaky, retry=1)
    with pytest.raises(ToolTimedOutError, match=r"flaky timed out after 0.01 s\."):
        await ToolExecution(one, one, CapacityLimiter(1), for_ever).within(0.01, Deadlines())


async def test_tool_that_is_in_time_gives_its_value() -> None:
    async def quick() -> str:
        return "ok"

    def quick_sync() -> str:
        return "ok"

    assert await execution(Tool(quick)).within(60, Deadlines()) == "ok"
    assert await execution(Tool(quick_sync)).within(60, Deadlines()) == "ok"


async def test_timeout_of_the_tool_itself_is_its_own_error() -> None:
    async def slow_upstream() -> None:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await execution(Tool(slow_upstream)).within(60, Deadlines())


@pytest.mark.parametrize("how", ["value", "error"])
async def test_answer_to_the_cancellation_is_too_late(how: str) -> None:
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if how == "error":
                raise RuntimeError("cleaned up") from None
        return "late"

    with pytest.raises(ToolTimedOutError, match="timed out after 0.01 s"):
        await execution(Tool(stubborn)).within(0.01, Deadlines())


async def test_tool_that_found_no_thread_in_its_time_did_not_run() -> None:
    ran: list[int] = []

    def run() -> None:
        ran.append(1)

    full = CapacityLimiter(1)
    full.acquire_on_behalf_of_nowait("somebody else")
    with pytest.raises(ToolTimedOutError, match="waiting for a free thread and did not run"):
        await execution(Tool(run), full).within(0.01, Deadlines())
    assert ran == []


async def test_sync_tool_in_its_thread_is_abandoned() -> None:
    release, ended = threading.Event(), threading.Event()

    def hang() -> None:
        release.wait(5)
        ended.set()

    with pytest.raises(ToolTimedOutError, match="abandoned: it may still take effect"):
        await execution(Tool(hang)).within(0.02, Deadlines())
    release.set()
    assert await to_thread.run_sync(ended.wait, 5)


async def test_coroutine_of_a_sync_tool_is_cancelled_like_any_other() -> None:
    cleaned = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    def lazy() -> Awaitable[None]:
        return wait()

    with pytest.raises(ToolTimedOutError) as caught:
        await execution(Tool(lazy)).within(0.05, Deadlines())
    assert "abandoned" not in str(caught.value)
    assert cleaned.is_set()


@pytest.mark.parametrize("error", [StopIteration("x"), asyncio.CancelledError("x"), ValueError("x")], ids=repr)
async def test_every_error_of_a_thread_comes_out(error: BaseException) -> None:
    def fails() -> Any:
        raise error

    with pytest.raises((RuntimeError, asyncio.CancelledError, ValueError)):
        await execution(Tool(fails)).within(None, Deadlines())
