"""What a stream delivers, event by event."""

from typing import Any, TypeAlias

from msgspec import Struct

from agentcore.messages import ToolCall, ToolMessage


class TextDelta(Struct, frozen=True, gc=False, tag_field="type", tag="text"):
    """A piece of the answer."""

    text: str


class ReasoningDelta(Struct, frozen=True, gc=False, tag_field="type", tag="reasoning"):
    """A piece of the model's readable thoughts."""

    text: str


class ToolCallDelta(Struct, frozen=True, gc=False, tag_field="type", tag="tool_call"):
    """A piece of a tool call as it is written: `index` counts the calls of the reply, `arguments` is raw JSON text.

    `id` and `name` are what is known of them so far (empty until the provider says them).
    """

    index: int
    id: str
    name: str
    arguments: str


class ReplyRestarted(Struct, frozen=True, gc=False, tag_field="type", tag="reply_restarted"):
    """What was delivered of this reply so far is given up; what follows takes its place.

    A filter asked again (a repair, a retry). The record keeps what was delivered, marked as `interrupted`.
    """


class ToolStarted(Struct, frozen=True, gc=False, tag_field="type", tag="tool_started"):
    """A tool begins to run."""

    call: ToolCall


class ToolFinished(Struct, frozen=True, gc=False, tag_field="type", tag="tool_finished"):
    """A tool ended; `message` is what the model will be told."""

    message: ToolMessage


class ToolProgress(Struct, frozen=True, gc=False, tag_field="type", tag="tool_progress"):
    """What a running tool told with `context.emit`."""

    call_id: str
    data: Any


class AgentEvent(Struct, frozen=True, tag_field="type", tag="agent"):
    """An event of a turn that runs inside a tool call: `agent` says whose, `call_id` in which call."""

    agent: str
    call_id: str
    event: "TurnEvent"


StreamEvent: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta
"""What a model's stream delivers."""

TurnEvent: TypeAlias = (
    TextDelta | ReasoningDelta | ToolCallDelta | ReplyRestarted | ToolStarted | ToolFinished | ToolProgress | AgentEvent
)
"""What a streamed turn delivers: the events of its model calls, of its tools, and of agents inside these."""
