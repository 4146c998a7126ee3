"""Deadlines of the calls of a batch, which share a timer: most are met, and a timer for each costs much of the call."""

import asyncio
from collections import deque


class Deadline:
    """When a call has to be over. Its task is cancelled then, once.

    Attributes:
        ended: the call is over.
        expired: the time was over first.
    """

    __slots__ = ("_cancelling", "_task", "ended", "expired", "when")

    def __init__(self, task: "asyncio.Task[object]", when: float) -> None:
        self._task = task
        self._cancelling = task.cancelling()
        self.when = when
        self.ended = self.expired = False

    def expire(self) -> None:
        """The time is over."""
        self.expired = True
        self._task.cancel()

    def end(self) -> bool:
        """The call is over: whether somebody else has not cancelled the task meanwhile, too."""
        self.ended = True
        return not self.expired or self._task.uncancel() <= self._cancelling


class Deadlines:
    """The deadlines of one batch. Close it when the batch is over.

    Of those with the same number of seconds, who began first runs out first: a queue and one timer for its head do.
    """

    __slots__ = ("_loop", "_waiting")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[float, _Queue] = {}

    def begin(self, seconds: float) -> Deadline:
        """A deadline for what the running task does now."""
        task = asyncio.current_task(self._loop)
        assert task is not None  # tools run in tasks
        deadline = Deadline(task, self._loop.time() + seconds)
        queue = self._waiting.get(seconds)
        if queue is None:
            queue = self._waiting[seconds] = _Queue(self._loop)
        queue.waiting.append(deadline)
        if queue.timer is None:
            queue.wait_for(deadline)
        return deadline

    def close(self) -> None:
        """Stop the timers."""
        for queue in self._waiting.values():
            queue.stop()


class _Queue:
    __slots__ = ("_loop", "timer", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.waiting: deque[Deadline] = deque()
        self.timer: asyncio.TimerHandle | None = None

    def wait_for(self, first: Deadline) -> None:
        self.timer = self._loop.call_at(first.when, self._ring, first.when)

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _ring(self, due: float) -> None:
        """End what is due, and wait for the next one."""
        self.timer = None
        due = max(due, self._loop.time())  # a timer may ring a clock tick early
        while self.waiting:
            first = self.waiting[0]
            if not first.ended and first.when > due:
                self.wait_for(first)
                return
            self.waiting.popleft()
            if not first.ended:
                first.expire()
