"""ToolRunner: a client's way to run batches, with its filters, reducers, threads and bounds."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from functools import partial

import anyio
from anyio import CapacityLimiter

from agentcore.chat import ToolSchema
from agentcore.context import Reducer, ToolContext
from agentcore.errors import ConfigurationError
from agentcore.messages import ToolCall, ToolMessage
from agentcore.tools.batch import BatchResult, ToolRun, run_call, run_together
from agentcore.tools.request import ToolRequest
from agentcore.tools.tool import Tool
from agentcore.turn import Turn


class ToolRunner:
    """Runs batches of tool calls.

    Args:
        compose: puts the tool filters around the innermost run.
        reducers: how the writes to a slot are folded.
        timeout: seconds for tools that do not declare their own.
        max_concurrency: calls of one batch that run at once.
        max_result_chars: longest result shown to the model.
        threads: worker threads for sync tools.
        sleep: waits between the attempts at a tool with `retry`.

    Raises:
        ConfigurationError: no call could ever run.
    """

    def __init__(
        self,
        *,
        compose: Callable[[ToolRun], ToolRun],
        reducers: Mapping[str, Reducer],
        timeout: float | None,
        max_concurrency: int | None,
        max_result_chars: int | None,
        threads: CapacityLimiter,
        sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
    ) -> None:
        if max_concurrency is not None and max_concurrency < 1:
            raise ConfigurationError(
                f"{max_concurrency} tools at once is none at all; give at least 1, or None for all"
            )
        self._compose = compose
        self._reducers = reducers
        self._timeout = timeout
        self._max_concurrency = max_concurrency
        self._max_result_chars = max_result_chars
        self._threads = threads
        self._sleep = sleep

    async def run_batch(
        self,
        calls: Sequence[ToolCall],
        tools: Sequence[ToolSchema],
        context: ToolContext,
        turn: Turn | None,
        finished: MutableMapping[str, ToolMessage],
    ) -> BatchResult:
        """Run the calls; `finished` holds the answers as they come, for a caller that is stopped in between."""
        known = {one.name: one for one in tools if isinstance(one, Tool)}
        run = self._compose(
            partial(
                run_call,
                known=tuple(known),
                threads=self._threads,
                default_timeout=self._timeout,
                max_result_chars=self._max_result_chars,
                sleep=self._sleep,
            )
        )
        requests = [ToolRequest(call, known.get(call.name), context.for_call(call.id), turn) for call in calls]
        sink = turn.sink if turn is not None else None
        messages = await run_together(requests, run, finished, self._max_concurrency, sink)
        failed = any(message.is_error for message in messages)
        writes = [message.writes for message in messages if message.writes and not message.is_error]
        return BatchResult(
            messages,
            context.fold(writes, self._reducers) if writes else context,
            return_direct=bool(requests)
            and not failed
            and all(request.tool is not None and request.tool.return_direct for request in requests),
        )
