"""What a person's decision makes of a call that waited: a call to run, or an answer in its place."""

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentcore.messages import TextPart, ToolCall, ToolMessage
from agentcore.pause import Decision
from agentcore.tools.batch import failure


class Decided(Struct, frozen=True):
    """A call after the decision on it.

    Attributes:
        call: what is to run; None if nothing is.
        answer: the answer in the tool's place.
        note: what the model is told in front of the result, because the call ran otherwise than it asked.
    """

    call: ToolCall | None = None
    answer: ToolMessage | None = None
    note: str = ""

    def noted(self, message: ToolMessage) -> ToolMessage:
        """The result with the note in front."""
        if not self.note:
            return message
        content = message.content
        noted = f"{self.note}\n{content}" if isinstance(content, str) else (TextPart(self.note), *content)
        return replace(message, content=noted)


def decided(call: ToolCall, decision: Decision | None, reason: str = "") -> Decided:
    """Apply a decision; a call that nobody had to decide on runs as it is.

    Args:
        call: what the model asked for.
        decision: what was decided on it.
        reason: why it waited: with `proceed` the failure that the model is told of.
    """
    if decision is None or decision.action == "retry":
        return Decided(call)
    if decision.action == "approve":
        if decision.args is None or decision.args == call.args:
            return Decided(call)
        changed = msgspec.json.encode(decision.args).decode()
        return Decided(replace(call, args=decision.args), note=f"(A person had it run with other arguments: {changed})")
    if decision.action == "reply":
        return Decided(answer=ToolMessage(call.id, call.name, decision.content or "", is_error=decision.is_error))
    if decision.action == "proceed":
        return Decided(answer=failure(call, reason or "The tool failed."))
    said = decision.content if isinstance(decision.content, str) else ""
    return Decided(answer=failure(call, f"Not run: a person refused it{f': {said}' if said else '.'}"))
