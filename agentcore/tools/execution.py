"""ToolExecution: one function running: in a thread or in the loop, within its time, again if it may."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from anyio import CapacityLimiter, to_thread

from agentcore.tools.deadlines import Deadlines
from agentcore.tools.errors import ToolError, TransientToolError
from agentcore.tools.tool import Tool

FIRST_WAIT = 0.1
"""Seconds before the second attempt; each further wait is twice as long."""

LONGEST_WAIT = 5.0
"""Seconds between two attempts at most."""


class ToolTimedOutError(ToolError):
    """The tool did not end in its time; whatever it still brings is dropped."""

    kind = "timeout"


class ToolExecution:
    """A call of a tool whose arguments are settled.

    Args:
        tool: the tool.
        bound: the call, ready to be made, any number of times.
        threads: worker threads for sync tools.
        sleep: waits between attempts.
    """

    def __init__(
        self,
        tool: Tool,
        bound: Callable[[], Any],
        threads: CapacityLimiter,
        sleep: Callable[[float], Awaitable[object]],
    ) -> None:
        self._tool = tool
        self._bound = bound
        self._threads = threads
        self._sleep = sleep
        self._place: Literal["nowhere", "thread", "loop"] = "loop" if tool.is_async else "nowhere"

    async def within(
        self,
        timeout: float | None,  # noqa: ASYNC109 - a declared property of the tool
        deadlines: Deadlines,
    ) -> Any:
        """The tool's value, all attempts and waits within `timeout` seconds, by the clock of the batch.

        An async tool that runs out of time is cancelled, once, and may clean up. A sync tool cannot be stopped: its
        thread is left alone.

        Raises:
            ToolTimedOutError: the time is over; also if the tool answered its cancellation with a value or an error.
            Exception: the tool's own.
        """
        if timeout is None:
            return await self._attempts()
        deadline = deadlines.begin(timeout)
        try:
            value = await self._attempts()
        except asyncio.CancelledError:
            if not (deadline.end() and deadline.expired):
                raise
        except Exception:
            deadline.end()
            if not deadline.expired:
                raise  # the tool's own, a TimeoutError perhaps
        else:
            deadline.end()
            if not deadline.expired:
                return value
        raise ToolTimedOutError(self._timed_out(timeout))

    def _timed_out(self, seconds: float) -> str:
        text = f"{self._tool.name} timed out after {seconds:g} s"
        if self._place == "loop":
            return f"{text}."
        if self._place == "thread":
            return f"{text}. It could not be stopped and was abandoned: it may still take effect."
        return f"{text} of waiting for a free thread and did not run."

    async def _attempts(self) -> Any:
        for attempt in range(self._tool.retry):
            try:
                return await self._once()
            except TransientToolError:
                await self._sleep(min(FIRST_WAIT * 2**attempt, LONGEST_WAIT))
        return await self._once()

    async def _once(self) -> Any:
        if self._tool.is_async:
            return await self._bound()
        value = await to_thread.run_sync(self._call, abandon_on_cancel=True, limiter=self._threads)
        self._place = "loop"
        return await value if inspect.isawaitable(value) else value

    def _call(self) -> Any:
        self._place = "thread"
        return self._bound()
