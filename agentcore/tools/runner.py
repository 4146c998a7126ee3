"""ToolRunner: a client's way to run batches, with its filters, reducers, threads and bounds."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from functools import partial

import anyio
from anyio import CapacityLimiter
from msgspec.structs import replace

from agentcore.chat import ToolSchema
from agentcore.context import Reducer, ToolContext
from agentcore.errors import ConfigurationError
from agentcore.messages import ToolCall, ToolMessage
from agentcore.pause import Decision, PendingCall
from agentcore.tools.batch import BatchOutcome, BatchResult, ToolRun, run_call, run_together
from agentcore.tools.deadlines import Deadlines
from agentcore.tools.decisions import decided
from agentcore.tools.gates import calls_that_wait
from agentcore.tools.request import ToolRequest
from agentcore.tools.tool import Tool
from agentcore.turn import Turn

NO_REASONS: Mapping[str, str] = {}


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
        *,
        decisions: Mapping[str, Decision] | None = None,
        reasons: Mapping[str, str] = NO_REASONS,
        record: Callable[[ToolMessage], Awaitable[None]] | None = None,
    ) -> BatchResult:
        """Run the calls, or say which of them wait for a decision.

        Args:
            calls: the batch, or what of it has no result yet.
            tools: what the model was offered.
            context: what the tools read.
            turn: the turn they belong to.
            finished: holds the answers as they come, for a caller that is stopped in between.
            decisions: what was decided on calls that waited. None asks the gates, and runs nothing if any call waits.
            reasons: of calls that waited because their surroundings had failed: the failure.
            record: told of each answer before anybody hears of it.
        """
        known = {one.name: one for one in tools if isinstance(one, Tool)}
        if decisions is None:
            requests = [
                ToolRequest(call, known.get(call.name), context.for_call(call.id, turn), turn) for call in calls
            ]
            elsewhere = frozenset(one.name for one in tools if not isinstance(one, Tool))
            pending = await self._waiting(requests, elsewhere)
            if pending:
                return BatchResult((), context, pending=tuple(pending))
            return await self._run(requests, known, context, turn, finished, record)
        settled = [decided(call, decisions.get(call.id), reasons.get(call.id, "")) for call in calls]
        for call, one in zip(calls, settled, strict=True):
            if one.answer is not None:
                finished[call.id] = one.answer
        requests = [
            ToolRequest(one.call, known.get(one.call.name), context.for_call(one.call.id, turn), turn)
            for one in settled
            if one.call is not None
        ]
        batch = await self._run(requests, known, context, turn, finished, record)
        results = {message.tool_call_id: message for message in batch.messages}
        messages = tuple(
            one.answer if one.answer is not None else one.noted(results[call.id])
            for call, one in zip(calls, settled, strict=True)
        )
        return replace(batch, messages=messages, return_direct=batch.return_direct and len(results) == len(calls))

    async def _waiting(self, requests: Sequence[ToolRequest], elsewhere: frozenset[str]) -> list[PendingCall]:
        if not elsewhere and all(request.tool is None or request.tool.approval is False for request in requests):
            return []
        return await calls_that_wait(requests, elsewhere)

    async def _run(
        self,
        requests: Sequence[ToolRequest],
        known: Mapping[str, Tool],
        context: ToolContext,
        turn: Turn | None,
        finished: MutableMapping[str, ToolMessage],
        record: Callable[[ToolMessage], Awaitable[None]] | None,
    ) -> BatchResult:
        outcome, deadlines = BatchOutcome(), Deadlines()
        run = self._compose(
            partial(
                run_call,
                known=tuple(known),
                threads=self._threads,
                default_timeout=self._timeout,
                max_result_chars=self._max_result_chars,
                sleep=self._sleep,
                outcome=outcome,
                deadlines=deadlines,
            )
        )
        sink = turn.sink if turn is not None else None
        try:
            messages = await run_together(requests, run, finished, self._max_concurrency, sink, record)
        finally:
            deadlines.close()
        failed = any(message.is_error for message in messages)
        writes = [outcome.writes_of(message) or {} for message in messages if message.writes and not message.is_error]
        return BatchResult(
            messages,
            context.fold(writes, self._reducers) if writes else context,
            return_direct=bool(requests)
            and not failed
            and all(request.tool is not None and request.tool.return_direct for request in requests),
            environment_failures=frozenset(outcome.environment_failures),
            usage=outcome.usage,
        )
