"""ToolRequest: one tool call on its way through the tool filters."""

from typing import TYPE_CHECKING

from msgspec import Struct

from agentcore.context import ToolContext
from agentcore.messages import ToolCall
from agentcore.turn import Turn

if TYPE_CHECKING:
    from agentcore.tools.tool import Tool


class ToolRequest(Struct, frozen=True):
    """One tool call.

    Attributes:
        call: what the model asked for.
        tool: the tool of that name; None if there is none.
        context: the batch's snapshot, as seen from inside this call.
        turn: the turn this call belongs to; None when `run_tools` was called by itself.
    """

    call: ToolCall
    tool: "Tool | None"
    context: ToolContext
    turn: Turn | None = None
