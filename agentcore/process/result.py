"""What bounds a run of a process and how it ended."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from agentcore.context import ToolContext
from agentcore.errors import ConfigurationError

ProcessStatus: TypeAlias = Literal["completed", "paused", "limit", "cancelled", "stalled"]
"""How a call ended. `completed`: the result is there. `paused`: an event from outside is needed. `limit`: a bound was
reached. `cancelled`: stopped from outside. `stalled`: nothing is left to run and the result is not there."""

ProcessLimit: TypeAlias = Literal["supersteps", "seconds", "max_runs"]


class ProcessLimits(Struct, frozen=True, kw_only=True):
    """Bounds of one call of `run` or `resume`; `None` is no bound. Reaching one ends it with status `limit`.

    Attributes:
        supersteps: barriers.
        seconds: wall time; running steps are cancelled.
        concurrency: steps that run at once; this bound makes them wait.
    """

    supersteps: int | None = 1_000
    seconds: float | None = None
    concurrency: int | None = None

    def __post_init__(self) -> None:
        for name in ("supersteps", "seconds", "concurrency"):
            bound = getattr(self, name)
            if bound is not None and not bound > 0:
                raise ConfigurationError(f"{name}={bound!r} lets no step run; give more, or None for no bound")


DEFAULT_LIMITS = ProcessLimits()


class Waiting(Struct, frozen=True):
    """A step that has some of its inputs and waits for others.

    Attributes:
        id: names this very wait, for `answers` of `resume`; the same in every process, never used twice in a run.
        step: the step that waits.
        events: what it waits for.
        inputs: what it has: what a person may need to see in order to decide.
    """

    id: str
    step: str
    events: tuple[str, ...]
    inputs: dict[str, Any]


class ProcessResult(Struct, frozen=True, kw_only=True):
    """How a call of `run` or `resume` ended and what the run has brought so far.

    Attributes:
        value: the result of the process, of the type its step or event declares; None unless `completed`.
        context: the flat context after all writes that were folded.
        supersteps: barriers the run has passed, in all calls together.
        waiting: with status `paused`: what it waits for. With `stalled`: the steps that lack inputs.
        limit: with status `limit`: which one.
        limited_step: with limit `max_runs`: the step that would have run once more.
    """

    status: ProcessStatus
    run_id: str
    value: Any = None
    context: ToolContext = ToolContext()
    supersteps: int = 0
    waiting: tuple[Waiting, ...] = ()
    limit: ProcessLimit | None = None
    limited_step: str | None = None
