"""The loop of a turn: call the model, run the tools it asks for, until it answers. Orchestration only."""

from collections.abc import MutableMapping, Sequence
from typing import Protocol

from agentcore.chat import ChatRequest, ToolSchema
from agentcore.context import ToolContext
from agentcore.exchange import InvokeResult, LimitName, TurnRequest, turn_result
from agentcore.filters.base import ChatCall
from agentcore.memory.finishing import clean_up
from agentcore.messages import Message, ToolCall, ToolMessage
from agentcore.pairing import interrupted_result
from agentcore.tools.batch import BatchResult
from agentcore.turn import Turn, TurnHistory

UNFINISHED_REASONS = frozenset({"pause_turn"})
"""Provider words for a reply that goes on when it is sent back (Anthropic Messages API, "pause_turn")."""


class ToolRunner(Protocol):
    """Runs one batch of calls; `finished` collects results as they come, for whoever has to stop it."""

    async def __call__(
        self,
        calls: Sequence[ToolCall],
        tools: Sequence[ToolSchema],
        context: ToolContext,
        turn: Turn | None,
        finished: MutableMapping[str, ToolMessage],
    ) -> BatchResult: ...


async def run_loop(request: TurnRequest, chat: ChatCall, run_tools: ToolRunner) -> InvokeResult:
    """One turn: model calls and tools until there is an answer or a limit is reached."""
    turn, history = request.turn, request.turn.history
    assert history is not None  # the memory filter opens it for every turn
    delta: Sequence[Message] = request.messages
    while True:
        if _reached(request.limits.model_calls, turn.model_calls):
            return turn_result(turn, "limit", limit="model_calls")
        turn.model_calls += 1
        response = await chat(ChatRequest(delta, request.tools, request.options, turn.context, turn, request.model))
        await history.settle(delta, response.message)
        turn.reply, turn.finish_reason = response.message, response.finish_reason
        turn.usage += response.usage
        calls = response.message.tool_calls
        if not calls:
            if response.raw_finish_reason in UNFINISHED_REASONS:
                delta = ()
                continue
            return turn_result(turn, "completed")
        if response.finish_reason == "length" and all(call.raw_arguments is not None for call in calls):
            await history.append(_refusals(calls, "the reply was cut by the output limit before the call was complete"))
            return turn_result(turn, "limit", limit="max_tokens")
        if (limit := _limit_before_tools(request, len(calls))) is not None:
            await history.append(_refusals(calls, f"this turn has reached its limit of {_words(limit)}"))
            return turn_result(turn, "limit", limit=limit)
        batch = await _run_batch(calls, request, history, run_tools)
        turn.tool_calls += len(calls)
        turn.context = batch.tool_context
        if batch.return_direct:
            return turn_result(turn, "completed", direct=batch.messages)
        delta = batch.messages


async def _run_batch(
    calls: Sequence[ToolCall], request: TurnRequest, history: TurnHistory, run_tools: ToolRunner
) -> BatchResult:
    """Run the calls and store their results, also when the turn is stopped in the middle."""
    finished: dict[str, ToolMessage] = {}
    try:
        batch = await run_tools(calls, request.tools, request.turn.context, request.turn, finished)
    except BaseException:
        await clean_up(history.append([finished.get(call.id) or interrupted_result(call) for call in calls]))
        raise
    await history.append(batch.messages)
    return batch


def _limit_before_tools(request: TurnRequest, calls: int) -> LimitName | None:
    """The limit that makes running these calls pointless or forbidden, if there is one."""
    limits, turn = request.limits, request.turn
    if _reached(limits.model_calls, turn.model_calls):
        return "model_calls"
    if limits.tool_calls is not None and turn.tool_calls + calls > limits.tool_calls:
        return "tool_calls"
    if _reached(limits.tokens, (turn.usage.input_tokens or 0) + (turn.usage.output_tokens or 0)):
        return "tokens"
    return None


def _reached(limit: int | None, count: int) -> bool:
    return limit is not None and count >= limit


def _words(limit: LimitName) -> str:
    return limit.replace("_", " ")


def _refusals(calls: Sequence[ToolCall], reason: str) -> list[ToolMessage]:
    return [ToolMessage(call.id, call.name, f"Not run: {reason}.", is_error=True) for call in calls]
