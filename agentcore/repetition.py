"""RepetitionGuard: notices a model that makes the same calls again and again."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from agentcore.messages import ToolCall, ToolMessage

Verdict: TypeAlias = Literal["run", "report", "end"]

_encode = msgspec.json.Encoder(order="deterministic").encode


class RepetitionGuard:
    """Counts how often in a row one turn's model asks for the same calls with the same arguments."""

    def __init__(self) -> None:
        self._last = b""
        self._count = 0
        self._reported = False

    def judge(self, calls: Sequence[ToolCall], limit: int) -> Verdict:
        """What to do with the next batch: run it, tell the model that it goes in circles, or end the turn.

        Args:
            calls: the batch.
            limit: the batch that comes this often in a row is not run; the model is told so once.
        """
        # Name and arguments, whatever the order they were written in.
        asked = _encode([(call.name, call.args, call.raw_arguments) for call in calls])
        if asked != self._last:
            self._last, self._count, self._reported = asked, 0, False
        self._count += 1
        if self._count < limit:
            return "run"
        if self._reported:
            return "end"
        self._reported = True
        return "report"

    def refusals(self, calls: Sequence[ToolCall]) -> list[ToolMessage]:
        """What the model is told instead of results."""
        text = (
            f"Not run: this was asked for {self._count} times in a row with the same arguments, and the result will "
            "not change. Use the results there are, try something else, or answer."
        )
        return [ToolMessage(call.id, call.name, text, is_error=True) for call in calls]
