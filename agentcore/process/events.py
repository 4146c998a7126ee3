"""Events of a process: what steps emit, how inputs are bound to them, and what a reader of the stream sees."""

from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast, overload

from msgspec import Struct

from agentcore.errors import ErrorKind

T = TypeVar("T")

BindingMode: TypeAlias = Literal["one", "each", "gather", "latest"]
"""How an input takes events: one a run, an instance for each item of one, all there are, or the newest and keeps it."""


class Event(Struct, Generic[T], frozen=True):
    """An event with its value, as a step returns it. Made by calling an `EventType`."""

    name: str
    value: T


class EventType(Generic[T]):
    """A named kind of event and the type of its value. Calling it makes an event: `return rejected("too long")`."""

    def __init__(self, name: str, type_: Any) -> None:
        self.name = name
        self.type = type_

    @overload
    def __call__(self: "EventType[None]") -> Event[None]: ...
    @overload
    def __call__(self, value: T) -> Event[T]: ...
    def __call__(self, value: Any = None) -> Event[Any]:
        return Event(self.name, value)

    def __repr__(self) -> str:
        return f"EventType({self.name})"


class Failures(Struct, frozen=True):
    """The failures of some steps, as a source of events; of all others, if it names none. See `failed`."""

    steps: tuple[Any, ...] = ()


Source: TypeAlias = Any
"""Where events come from: a name, an `EventType`, a step (its result), or `failed(…)`."""


class Binding(Struct, frozen=True):
    """How an input takes the events of its sources."""

    mode: BindingMode
    sources: tuple[Source, ...]


def each(*sources: Source) -> Binding:
    """Fan-out: the step runs once for each item of a list, all at once; its result is the list of their results.

    The number of instances is known when the list is. An empty list gives an empty list.
    """
    return Binding("each", sources)


def gather(*sources: Source) -> Binding:
    """Fan-in: the step gets, as one list, all events there are at the barrier, in their fixed order; at least one."""
    return Binding("gather", sources)


def latest(*sources: Source) -> Binding:
    """The newest value: it is kept, may be used by any number of runs, and does not start one by itself."""
    return Binding("latest", sources)


def failed(*steps: Any) -> Failures:
    """The failures of these steps, each a `StepFailure`; without arguments, of every step but the one that takes them.

    A step whose failures are taken does not end the run when it raises: the step that takes them runs next.
    """
    return Failures(steps)


class StepFailure(Struct, frozen=True, kw_only=True):
    """A step raised an error, and another step takes its failures.

    Attributes:
        step: the step that failed.
        index: which of its instances.
        error: name of the exception's type.
        message: the exception's text.
        kind: for the library's own errors, what went wrong in neutral words.
        retryable: whether the same may succeed later, as far as the error knows.
    """

    step: str
    index: int
    error: str
    message: str
    kind: ErrorKind | None = None
    retryable: bool = False


class StepStarted(Struct, frozen=True, gc=False):
    """An instance of a step begins to run."""

    step: str
    index: int
    superstep: int


class StepFinished(Struct, frozen=True):
    """An instance of a step ended.

    Attributes:
        value: its result; None if it has none.
        failure: set if it failed and another step takes the failure.
    """

    step: str
    index: int
    superstep: int
    value: Any = None
    failure: StepFailure | None = None


class StepEvent(Struct, frozen=True):
    """Something that a running step sent to the reader: a value of its own, or an event of a client's stream."""

    step: str
    index: int
    superstep: int
    event: Any


class SuperstepFinished(Struct, frozen=True, gc=False):
    """The barrier: all steps of the superstep are done, their writes folded, the snapshot is stored."""

    superstep: int


ProcessEvent: TypeAlias = StepStarted | StepFinished | StepEvent | SuperstepFinished
"""What the stream of a process delivers."""


def sources_of(given: Any) -> Sequence[Source]:
    """One source or several, as a sequence."""
    return tuple(cast("Sequence[Source]", given)) if isinstance(given, tuple | list) else (given,)
