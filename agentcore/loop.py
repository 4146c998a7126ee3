"""The loop of a turn: call the model, run the tools it asks for, until it answers. Orchestration only."""

from collections.abc import Sequence

from msgspec.structs import replace

from agentcore.chat import ChatOptions, ChatRequest, ChatResponse
from agentcore.exchange import InvokeResult, TurnRequest, turn_result
from agentcore.filters.base import ChatCall
from agentcore.limits import LimitName
from agentcore.messages import Message, ToolCall, ToolMessage
from agentcore.tool_round import ToolRounds
from agentcore.turn import TurnHistory

UNFINISHED_REASONS = frozenset({"pause_turn"})
"""Provider words for a reply that goes on when it is sent back (Anthropic Messages API, "pause_turn")."""


async def run_loop(request: TurnRequest, chat: ChatCall, rounds: ToolRounds) -> InvokeResult:
    """One turn: model calls and tools until there is an answer, a pause, or a limit is reached."""
    turn, history = request.turn, request.turn.history
    assert history is not None  # the memory filter opens it for every turn
    delta: Sequence[Message] = request.messages
    options = request.options
    if request.resumption is not None:
        step = await rounds.resume(request, history, request.resumption)
        if isinstance(step, InvokeResult):
            return step
        delta, options = step, _unforced(options)
    while True:
        if _reached(request.limits.model_calls, turn.model_calls):
            return await _limit(request, history, chat, "model_calls", delta)
        response = await _ask(request, history, chat, delta, options)
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
            refused = _refusals(calls, f"this turn has reached its limit of {_words(limit)}")
            await history.append(refused)
            return await _limit(request, history, chat, limit, refused)
        step = await rounds.run(request, history, response)
        if isinstance(step, InvokeResult):
            return step
        delta, options = step, _unforced(options)


async def _ask(
    request: TurnRequest, history: TurnHistory, chat: ChatCall, delta: Sequence[Message], options: ChatOptions
) -> ChatResponse:
    turn = request.turn
    turn.model_calls += 1
    response = await chat(ChatRequest(delta, request.tools, options, turn.context, turn, request.model, request.system))
    await history.settle(delta, response.message)
    turn.reply, turn.finish_reason = response.message, response.finish_reason
    turn.usage += response.usage
    if request.limits.cost is not None:
        from agentcore.pricing import cost_of

        price = cost_of(response.usage, response.model or request.options.model)
        turn.cost = turn.cost if price is None else (turn.cost or 0.0) + price
    return response


async def _limit(
    request: TurnRequest, history: TurnHistory, chat: ChatCall, limit: LimitName, delta: Sequence[Message]
) -> InvokeResult:
    """The end of a turn at a limit: after one more answer, without tools, if the limits grant it."""
    if request.limits.closing_answer:
        response = await _ask(request, history, chat, delta, replace(request.options, tool_choice="none"))
        calls = response.message.tool_calls
        if calls:  # some models call tools whatever they are told
            await history.append(_refusals(calls, f"this turn has reached its limit of {_words(limit)}"))
    return turn_result(request.turn, "limit", limit=limit)


def _limit_before_tools(request: TurnRequest, calls: int) -> LimitName | None:
    """The limit that makes running these calls pointless or forbidden, if there is one."""
    limits, turn = request.limits, request.turn
    if _reached(limits.model_calls, turn.model_calls):
        return "model_calls"
    if limits.tool_calls is not None and turn.tool_calls + calls > limits.tool_calls:
        return "tool_calls"
    if _reached(limits.tokens, (turn.usage.input_tokens or 0) + (turn.usage.output_tokens or 0)):
        return "tokens"
    if limits.cost is not None and turn.cost is not None and turn.cost >= limits.cost:
        return "cost"
    return None


def _unforced(options: ChatOptions) -> ChatOptions:
    """The options once tools have run: a model that goes on being forced to call tools can never answer."""
    return options if options.tool_choice in (None, "auto", "none") else replace(options, tool_choice="auto")


def _reached(limit: int | None, count: int) -> bool:
    return limit is not None and count >= limit


def _words(limit: LimitName) -> str:
    return limit.replace("_", " ")


def _refusals(calls: Sequence[ToolCall], reason: str) -> list[ToolMessage]:
    return [ToolMessage(call.id, call.name, f"Not run: {reason}.", is_error=True) for call in calls]
