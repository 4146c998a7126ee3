"""Jobs that tasks of any event loop give to database threads, and how they hear what became of them."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from agentcore.memory.finishing import FINISH_SECONDS, finish

T = TypeVar("T")


class Job(Generic[T]):
    """Work for a thread, and the task that waits for what comes of it.

    Made and awaited in an event loop, claimed and told in a thread. A job that nobody has begun is withdrawn when its
    task is cancelled; one that has begun is waited for, so that its outcome stands when the task goes on.

    Args:
        work: what to do, with what the thread hands it.
    """

    __slots__ = ("_claim", "_future", "_late", "_settled", "loop", "work")

    def __init__(self, work: Callable[[Any], T]) -> None:
        self.work = work
        self.loop = asyncio.get_running_loop()
        self._future: asyncio.Future[T] = self.loop.create_future()
        self._settled = False
        self._late: asyncio.Future[None] | None = None  # for a cancelled task: the end of what has begun
        self._claim = threading.Lock()  # held by whoever was first: the thread that does it, or its withdrawal

    def claim(self) -> bool:
        """Begin it; False if it was withdrawn or has begun before. Whoever gets True decides what becomes of it."""
        return self._claim.acquire(blocking=False)

    async def outcome(self) -> T:
        """Wait for what comes of it.

        Raises:
            asyncio.CancelledError: we were cancelled meanwhile; whatever came of it, nothing more will.
        """
        try:
            return await self._future
        except asyncio.CancelledError:
            if not self.claim() and not self._settled:
                self._late = self.loop.create_future()
                await finish(_wait(self._late))
            raise

    def settle(self, value: T | None, error: Exception | None) -> None:
        """Take in the outcome; called in the event loop."""
        self._settled = True
        if self._late is not None:
            if not self._late.done():
                self._late.set_result(None)
        elif not self._future.done():
            if error is None:
                self._future.set_result(value)  # type: ignore[arg-type] - T may be None
            else:
                self._future.set_exception(error)


class Outcome(Generic[T]):
    """What became of a job."""

    __slots__ = ("error", "job", "value")

    def __init__(self, job: Job[T], value: T | None = None, error: Exception | None = None) -> None:
        self.job = job
        self.value = value
        self.error = error


def tell(outcomes: Sequence[Outcome[Any]]) -> None:
    """Let the tasks know, with one call to each event loop. Callable in any thread."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Outcome[Any]]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome.job.loop, []).append(outcome)
    for loop, told in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, told)
        except RuntimeError:  # the loop is closed: nobody waits there any more
            continue


def _settle(outcomes: Sequence[Outcome[Any]]) -> None:
    for outcome in outcomes:
        outcome.job.settle(outcome.value, outcome.error)


async def _wait(future: "asyncio.Future[None]") -> None:
    await asyncio.wait([future], timeout=FINISH_SECONDS)
