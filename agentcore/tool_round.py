"""One round of tools in a turn: who has to consent, what runs, what is stored, and when the turn waits."""

import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from agentcore.chat import ChatResponse, ToolSchema
from agentcore.context import ToolContext
from agentcore.exchange import InvokeResult, TurnRequest, turn_result
from agentcore.memory.finishing import clean_up
from agentcore.messages import Message, ToolCall, ToolMessage, text_of
from agentcore.pairing import interrupted_result
from agentcore.pause import Decision, Pause, PendingCall, Resumption, new_pause
from agentcore.tools.batch import BatchResult
from agentcore.turn import Turn, TurnHistory

Approver: TypeAlias = Callable[[PendingCall, ToolContext], Awaitable[Decision]]
"""Decides on a call while the turn goes on, as a command line does that asks its user; instead of a pause."""

Eligibility: TypeAlias = Callable[[ChatResponse, Turn], "bool | Awaitable[bool]"]
"""Whether the tools of a reply are to run; if not, the turn ends with status `stopped`."""


class BatchRunner(Protocol):
    """Runs one batch of calls; see `tools.runner.ToolRunner.run_batch`."""

    async def __call__(
        self,
        calls: Sequence[ToolCall],
        tools: Sequence[ToolSchema],
        context: ToolContext,
        turn: Turn | None,
        finished: MutableMapping[str, ToolMessage],
        *,
        decisions: Mapping[str, Decision] | None = None,
        reasons: Mapping[str, str] = ...,
        record: Callable[[ToolMessage], Awaitable[None]] | None = None,
    ) -> BatchResult: ...


class ToolRounds(Struct, frozen=True, kw_only=True):
    """How a client runs the rounds of its turns.

    Attributes:
        run_batch: runs the calls.
        approver: decides on waiting calls at once; None pauses the turn.
        pause_expires_in: seconds after which a pause can no longer be resumed; None is never.
        pause_on_environment_error: a tool whose surroundings failed makes the turn wait.
        eligibility: may end the turn instead of running tools.
    """

    run_batch: BatchRunner
    approver: Approver | None = None
    pause_expires_in: float | None = None
    pause_on_environment_error: bool = False
    eligibility: Eligibility | None = None

    async def run(
        self, request: TurnRequest, history: TurnHistory, response: ChatResponse
    ) -> InvokeResult | Sequence[Message]:
        """Run the calls of a reply: the results that the model is told next, or the end of the turn."""
        calls, turn = response.message.tool_calls, request.turn
        if self.eligibility is not None:
            eligible = self.eligibility(response, turn)
            if not (eligible if isinstance(eligible, bool) else await eligible):
                return turn_result(turn, "stopped")
        if request.limits.repeated_calls is not None:
            verdict = turn.repetition.judge(calls, request.limits.repeated_calls)
            if verdict != "run":
                told = turn.repetition.refusals(calls)
                await history.append(told)
                return told if verdict == "report" else turn_result(turn, "limit", limit="repeated_calls")
        batch = await self._batch(request, history, calls, None, {})
        if batch.pending:
            return await self._wait(request, history, calls, batch.pending)
        return await self._conclude(request, history, calls, batch)

    async def resume(
        self, request: TurnRequest, history: TurnHistory, resumption: Resumption
    ) -> InvokeResult | Sequence[Message]:
        """Run what had waited, as it was decided.

        Raises:
            PauseError: somebody else has resumed it, or it has expired meanwhile; nothing was run.
        """
        pause = resumption.pause
        calls = await history.take_pause(pause)
        reasons = {one.call.id: one.reason for one in pause.calls}
        batch = await self._batch(request, history, calls, resumption.decisions, reasons)
        return await self._conclude(request, history, calls, batch)

    async def _wait(
        self, request: TurnRequest, history: TurnHistory, calls: Sequence[ToolCall], pending: Sequence[PendingCall]
    ) -> InvokeResult | Sequence[Message]:
        """Calls wait: have them decided on at once, or pause the turn."""
        if self.approver is not None:
            decisions = await self._ask(request, history, calls, pending, self.approver)
        elif history.can_pause:
            return await self._pause(request, history, pending)
        elif _callers_own(request.turn, pending):
            return turn_result(request.turn, "paused", pause=self._new_pause(request, history, pending))
        else:
            # Nobody could ever resume it: an answer that the model can act on is better than a turn that hangs.
            decisions = {
                one.call.id: Decision(
                    call_id=one.call.id,
                    digest="",
                    action="reject",
                    content="it needs a decision from outside, and this conversation cannot wait for one",
                )
                for one in pending
            }
        batch = await self._batch(request, history, calls, decisions, {})
        return await self._conclude(request, history, calls, batch)

    async def _ask(
        self,
        request: TurnRequest,
        history: TurnHistory,
        calls: Sequence[ToolCall],
        pending: Sequence[PendingCall],
        approver: Approver,
    ) -> Mapping[str, Decision]:
        pause = self._new_pause(request, history, pending)
        try:
            return pause.decide([await approver(one, request.turn.context) for one in pause.calls])
        except BaseException:
            await clean_up(history.append([interrupted_result(call) for call in calls]))
            raise

    async def _pause(self, request: TurnRequest, history: TurnHistory, pending: Sequence[PendingCall]) -> InvokeResult:
        pause = self._new_pause(request, history, pending)
        await history.keep_pause(pause, self.pause_expires_in)
        return turn_result(request.turn, "paused", pause=pause)

    def _new_pause(self, request: TurnRequest, history: TurnHistory, pending: Sequence[PendingCall]) -> Pause:
        turn = request.turn
        return new_pause(
            turn.context.conversation_id or turn.id,
            turn.id,
            pending,
            now=time.time(),
            expires_in=self.pause_expires_in,
            position=history.position,
            model_calls=turn.model_calls,
            tool_calls=turn.tool_calls,
            usage=turn.usage,
        )

    async def _batch(
        self,
        request: TurnRequest,
        history: TurnHistory,
        calls: Sequence[ToolCall],
        decisions: Mapping[str, Decision] | None,
        reasons: Mapping[str, str],
    ) -> BatchResult:
        """Run the calls; when the turn is stopped in the middle, store what they brought by then."""
        finished: dict[str, ToolMessage] = {}
        # A batch of one is complete with its first result, and that is stored at once, unless a reader is told of it
        # first, who may be slow.
        at_once = len(calls) == 1 and request.turn.sink is None
        record = _recorder(calls, history) if history.records_results and not at_once else None
        try:
            return await self.run_batch(
                calls,
                request.tools,
                request.turn.context,
                request.turn,
                finished,
                decisions=decisions,
                reasons=reasons,
                record=record,
            )
        except BaseException:
            await clean_up(history.append([finished.get(call.id) or interrupted_result(call) for call in calls]))
            raise

    async def _conclude(
        self, request: TurnRequest, history: TurnHistory, calls: Sequence[ToolCall], batch: BatchResult
    ) -> InvokeResult | Sequence[Message]:
        """Store the results; what the model is told next, or the end of the turn."""
        turn = request.turn
        turn.tool_calls += len(calls)
        turn.context = batch.tool_context
        turn.usage += batch.usage
        if self.pause_on_environment_error and batch.environment_failures and history.can_pause:
            failed = [message for message in batch.messages if message.tool_call_id in batch.environment_failures]
            await history.append([message for message in batch.messages if message not in failed])
            by_id = {call.id: call for call in calls}
            waiting = [
                PendingCall(call=by_id[m.tool_call_id], kind="environment", reason=text_of(m.content)) for m in failed
            ]
            return await self._pause(request, history, waiting)
        await history.append(batch.messages)
        if batch.return_direct:
            return turn_result(turn, "completed", direct=batch.messages)
        return batch.messages


def _callers_own(turn: Turn, pending: Sequence[PendingCall]) -> bool:
    """Whether calls wait in a turn without a conversation whose results the caller brings along with its next turn."""
    if turn.context.conversation_id is not None:
        return False
    return any(one.kind == "client_tool" and one.call.name in turn.callers_tools for one in pending)


def _recorder(calls: Sequence[ToolCall], history: TurnHistory) -> Callable[[ToolMessage], Awaitable[None]]:
    places = {call.id: place for place, call in enumerate(calls)}

    async def record(message: ToolMessage) -> None:
        await history.record_result(places[message.tool_call_id], message)

    return record
