"""Writes that are finished although the task that asked for them is cancelled meanwhile."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

import anyio

from agentcore.errors import AgentCoreError

logger = logging.getLogger("agentcore.memory")

T = TypeVar("T")

FINISH_SECONDS = 5.0
"""How long a cancelled task waits for a write that is under way."""

CLEANUP_SECONDS = 5.0
"""How long a broken-off turn may take to store what it had brought."""


async def finish(work: Coroutine[Any, Any, T], seconds: float = FINISH_SECONDS) -> T:
    """Await `work` to its end; a cancellation takes effect after its outcome is known.

    A write that is cancelled half-way may or may not have been done, and what a store has acknowledged to nobody is
    lost. The wait after a cancellation is bounded: then the work is cancelled as well, and waited for.

    Raises:
        asyncio.CancelledError: we were cancelled meanwhile, whatever came of the work.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
        return task.result()
    except asyncio.CancelledError:
        await _wait_for(task, seconds)
        raise


async def clean_up(write: Coroutine[Any, Any, None]) -> None:
    """Store what a broken-off turn had brought, shielded and bounded, and let what broke it off go on.

    A store that refuses the write is logged: the reason for the clean-up is what the caller has to hear.
    """
    with anyio.move_on_after(CLEANUP_SECONDS, shield=True) as scope:
        try:
            await write
        except AgentCoreError as error:
            logger.error("what an interrupted turn had brought could not be stored: %s", error)
    if scope.cancelled_caught:
        logger.error("what an interrupted turn had brought could not be stored within %g s", CLEANUP_SECONDS)


async def _wait_for(task: "asyncio.Future[Any]", seconds: float) -> None:
    with anyio.move_on_after(seconds, shield=True) as scope:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                if scope.cancel_called:
                    break
    if not task.done():
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # looked at: the cancellation goes first
