"""Limits: how much one turn may take."""

from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

LimitName: TypeAlias = Literal["model_calls", "tool_calls", "tokens", "cost", "seconds", "repeated_calls", "max_tokens"]


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds of one turn; `None` is no bound. Reaching one ends the turn with status `limit`, never with an error.

    Attributes:
        model_calls: requests to the model.
        tool_calls: tools run.
        tokens: input and output tokens together, as the provider counts them.
        cost: US dollars, by the list prices of the extra `prices`; a model without a known price costs nothing here.
        seconds: wall time.
        repeated_calls: the batch of calls that comes this often in a row, with the same arguments, is not run: the
            model is told so, and if it asks once more, the turn ends.
        closing_answer: at a limit of model calls, tool calls, tokens or cost, ask the model once more, without tools,
            for the best answer it can give; the status is still `limit`.
    """

    model_calls: int | None = 50
    tool_calls: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    repeated_calls: int | None = None
    closing_answer: bool = False


DEFAULT_LIMITS = Limits()


def left_of(
    limits: Limits, *, model_calls: int, tool_calls: int, tokens: int, cost: float, seconds: float | None
) -> Limits:
    """What is left of limits after so much was used; never less than nothing.

    Args:
        limits: the whole.
        model_calls: used so far.
        tool_calls: used so far.
        tokens: used so far.
        cost: used so far.
        seconds: left of the wall time; None if it is not limited.
    """

    def less(limit: int | None, used: int) -> int | None:
        return None if limit is None else max(0, limit - used)

    return replace(
        limits,
        model_calls=less(limits.model_calls, model_calls),
        tool_calls=less(limits.tool_calls, tool_calls),
        tokens=less(limits.tokens, tokens),
        cost=None if limits.cost is None else max(0.0, limits.cost - cost),
        seconds=seconds,
    )
