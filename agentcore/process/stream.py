"""ProcessStream: a process that runs while its events are read; and the bounded channel between the two."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import anyio

from agentcore.process.events import EventType, ProcessEvent
from agentcore.process.result import ProcessResult
from agentcore.process.runtime import Run
from agentcore.process.superstep import Sink

BUFFERED_EVENTS = 256
"""Events that may wait for a slow reader before the steps that send them are held back."""


class ProcessChannel:
    """Events on their way from many steps to one reader, bounded."""

    def __init__(self, size: int = BUFFERED_EVENTS) -> None:
        self._size = size
        self._events: deque[ProcessEvent] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._writers: deque[asyncio.Future[None]] = deque()
        self._closed = False

    async def send(self, event: ProcessEvent) -> None:
        """Hand an event over; waits while the buffer is full. After `close` it is dropped."""
        while len(self._events) >= self._size and not self._closed:
            await self._wait_for_room()
        if self._closed:
            await asyncio.sleep(0)  # a step that does nothing but send has to hear of its cancellation
            return
        self._events.append(event)
        _wake(self._reader)

    def close(self) -> None:
        """Nothing more will be sent; what is in the buffer is still delivered."""
        self._closed = True
        _wake(self._reader)
        for writer in self._writers:
            _wake(writer)

    async def receive(self) -> ProcessEvent | None:
        """The next event; None when the channel is closed and empty. May be cancelled and called again."""
        while not self._events:
            if self._closed:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        event = self._events.popleft()
        if self._writers:
            _wake(self._writers.popleft())
        return event

    async def _wait_for_room(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._writers.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._writers:
                self._writers.remove(waiter)
            elif self._writers:  # room had been made for us: it is the next one's
                _wake(self._writers.popleft())
            raise


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


class ProcessStream(AsyncIterator[ProcessEvent]):
    """A running process: iterate its events to their end, then read `result`.

    Leaving the `async with` block earlier ends the call: its steps are stopped and waited for, its status is
    `cancelled`, and a stored run can be resumed.
    """

    def __init__(self, start: Callable[[Sink], Run], execute: Callable[[Run], Awaitable[ProcessResult]]) -> None:
        self._channel = ProcessChannel()
        self._execute = execute
        self._run = start(self._channel.send)
        self._result: ProcessResult | None = None
        self._error: BaseException | None = None
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._run.run_id

    @property
    def result(self) -> ProcessResult:
        """How the call ended; there when the events are read to their end or the block is left.

        Raises:
            RuntimeError: it is still running.
        """
        if self._result is not None:
            return self._result
        if self._error is not None:
            raise self._error
        raise RuntimeError("the process is still running: read its events to their end before you ask for the result")

    def cancel(self) -> None:
        """Stop the call; iteration ends, `result.status` is `cancelled`."""
        self._run.cancel()

    def send(self, event: str | EventType[Any], value: Any = None) -> None:
        """Bring an event from outside into the running process; it counts from the next barrier on.

        Raises:
            InvalidInputError: no such event, or a value that is not of its type.
            RunConflictError: the call has ended (it paused, perhaps): bring it with `resume`.
        """
        self._run.send(event if isinstance(event, str) else event.name, value)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ProcessEvent:
        if self._tasks is None:
            raise RuntimeError("open the stream first: async with process.stream(…) as run")
        event = await self._channel.receive()
        if event is None:
            if self._error is not None:
                raise self._error
            raise StopAsyncIteration
        return event

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise RuntimeError("a stream is entered once; make another one for another run")
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._tasks.create_task(self._run_process())
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        if self._result is None and self._error is None:
            self._run.cancel()
            self._channel.close()
        # Shielded: a scope around us that cancels at every await would cut off the steps' clean-up. Without the
        # exception: the task group would wrap the caller's own into a group; the run's task never raises.
        with anyio.CancelScope(shield=True):
            await self._tasks.__aexit__(None, None, None)

    async def _run_process(self) -> None:
        try:
            self._result = await self._execute(self._run)
        except asyncio.CancelledError:
            self._result = self._run.result_so_far()
            raise
        except Exception as error:  # noqa: BLE001 - carried to the reader, who raises it
            self._error = error
        finally:
            self._channel.close()
