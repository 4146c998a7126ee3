"""What goes into a turn and what comes out of it: the request, its limits, the result."""

from collections.abc import Sequence
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct

from agentcore.chat import NO_OPTIONS, ChatModel, ChatOptions, ToolSchema
from agentcore.context import ToolContext
from agentcore.limits import DEFAULT_LIMITS, LimitName, Limits
from agentcore.messages import AssistantMessage, FinishReason, Message, ToolMessage, text_of
from agentcore.pause import Pause, Resumption
from agentcore.turn import Turn
from agentcore.usage import UNKNOWN_USAGE, Usage

T = TypeVar("T")

TurnStatus: TypeAlias = Literal["completed", "paused", "limit", "cancelled", "blocked", "stopped"]
"""How a turn ended. Only `completed` is a full answer; the others keep everything done so far."""


class TurnRequest(Struct, frozen=True):
    """One turn, as turn filters see it: what is new, and what it may use.

    Attributes:
        messages: the delta: what the user said, not the history.
        tools: what the model may call.
        resumption: the pause that this turn goes on from; `messages` are empty then.
        model: the model to ask: the client's, unless the call named another.
        system: the client's instructions.
    """

    messages: Sequence[Message]
    turn: Turn
    tools: Sequence[ToolSchema] = ()
    options: ChatOptions = NO_OPTIONS
    limits: Limits = DEFAULT_LIMITS
    context: ToolContext = ToolContext()
    model: ChatModel | None = None
    resumption: Resumption | None = None
    system: str | None = None


class InvokeResult(Struct, frozen=True, kw_only=True):
    """How a turn ended and what it brought.

    Attributes:
        status: `completed`, or why it stopped earlier.
        message: the last reply of the model; None if there is none.
        messages: what this turn added to the conversation, in stored order: input, replies, tool results.
        finish_reason: why the last reply ended.
        usage: the tokens of all model calls of the turn.
        tool_context: the context after all tools' writes.
        limit: with status `limit`: which one.
        pause: with status `paused`: what waits, and for whom.
        reason: with status `blocked`: why, in the words of the filter that did it.
        cost: US dollars, if `Limits.cost` asked for it and the price is known.
        model_calls: requests made to the model.
        tool_calls: tools run.
    """

    status: TurnStatus
    turn_id: str
    conversation_id: str | None = None
    message: AssistantMessage | None = None
    messages: tuple[Message, ...] = ()
    finish_reason: FinishReason | None = None
    usage: Usage = UNKNOWN_USAGE
    tool_context: ToolContext = ToolContext()
    limit: LimitName | None = None
    pause: Pause | None = None
    cost: float | None = None
    model_calls: int = 0
    tool_calls: int = 0
    direct_text: str | None = None
    reason: str | None = None

    @property
    def text(self) -> str:
        """The answer: text of the last reply, or of the tools whose results are the answer (`return_direct`)."""
        if self.direct_text is not None:
            return self.direct_text
        return (self.message.content if self.message is not None else None) or ""

    def parse(self, type_: type[T]) -> T:
        """The answer as a value of the type that `ChatOptions.response_format` asked for.

        Raises:
            OutputError: the answer is not of that type, was cut, or there is none (see `status`).
        """
        from agentcore.structured import parse_output

        return parse_output(self.text, type_)


def turn_result(
    turn: Turn,
    status: TurnStatus,
    *,
    limit: LimitName | None = None,
    direct: Sequence[ToolMessage] = (),
    pause: Pause | None = None,
    reason: str | None = None,
) -> InvokeResult:
    """What a turn has brought so far, as the result it ends with."""
    return InvokeResult(
        status=status,
        turn_id=turn.id,
        conversation_id=turn.context.conversation_id,
        message=turn.reply,
        messages=turn.history.added if turn.history is not None else (),
        finish_reason=turn.finish_reason,
        usage=turn.usage,
        tool_context=turn.context,
        limit=limit,
        pause=pause,
        reason=reason,
        cost=turn.cost,
        model_calls=turn.model_calls,
        tool_calls=turn.tool_calls,
        direct_text="\n".join(text_of(message.content) for message in direct) if direct else None,
    )
