"""Writes under way are finished although their task is cancelled, within bounds."""

import asyncio

import anyio
import pytest

from agentcore.memory.finishing import finish

pytestmark = pytest.mark.asyncio


async def test_result_and_error_come_through() -> None:
    async def give() -> int:
        return 3

    async def fail() -> None:
        raise KeyError("mine")

    assert await finish(give()) == 3
    with pytest.raises(KeyError, match="mine"):
        await finish(fail())


@pytest.mark.parametrize("times", [1, 3])
async def test_cancelled_task_waits_for_its_write(times: int) -> None:
    gate, done = asyncio.Event(), asyncio.Event()

    async def write() -> None:
        await gate.wait()
        done.set()

    task = asyncio.ensure_future(finish(write()))
    await asyncio.sleep(0)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done.is_set()


async def test_error_of_a_write_gives_way_to_the_cancellation() -> None:
    gate = asyncio.Event()

    async def write() -> None:
        await gate.wait()
        raise KeyError("mine")

    task = asyncio.ensure_future(finish(write()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_write_that_never_ends_is_cancelled_in_time() -> None:
    cleaned = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    task = asyncio.ensure_future(finish(hang(), 0.02))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned.is_set()


async def test_scope_that_cancels_at_every_await_waits_too() -> None:
    gate, done = asyncio.Event(), asyncio.Event()

    async def write() -> None:
        await gate.wait()
        done.set()

    async def open_gate() -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        gate.set()

    opener = asyncio.ensure_future(open_gate())
    with anyio.CancelScope() as scope:
        scope.cancel()
        await finish(write())
    assert done.is_set()
    assert scope.cancelled_caught
    await opener
