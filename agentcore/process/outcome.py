"""Outcome: what one instance of a step brought, in a form that can be recorded and folded."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from agentcore.errors import AgentCoreError, ConfigurationError
from agentcore.process.context import StepResult
from agentcore.process.errors import UnstorableValueError
from agentcore.process.events import Event, StepFailure
from agentcore.process.graph import Graph, Node, encode
from agentcore.process.values import ValueCodec

_PLAIN = ValueCodec(Any)


class Outcome:
    """What one instance of a step brought.

    Attributes:
        value: its result, if `has_value`.
        raw: the result as JSON text; None in a run that is stored nowhere.
        events: named events: name, value, JSON text.
        writes: into the context.
        failure: it failed, and another step takes the failure.
    """

    __slots__ = ("events", "failure", "has_value", "raw", "value", "writes")

    def __init__(
        self,
        value: Any = None,
        raw: bytes | None = None,
        *,
        has_value: bool = True,
        events: Sequence[tuple[str, Any, bytes | None]] = (),
        writes: Mapping[str, Any] | None = None,
        failure: StepFailure | None = None,
    ) -> None:
        self.value = value
        self.raw = raw
        self.has_value = has_value
        self.events = events
        self.writes = writes
        self.failure = failure


class StoredOutcome(Struct, frozen=True, omit_defaults=True):
    """An outcome as it is recorded: JSON text."""

    value: Raw | UnsetType = UNSET
    events: list[tuple[str, Raw]] = []
    writes: dict[str, Raw] = {}
    failure: StepFailure | None = None


def outcome_of(graph: Graph, node: Node, returned: Any, *, is_stored: bool) -> Outcome:
    """What a step returned, as an outcome.

    Raises:
        ConfigurationError: an event that the step does not declare, a result that it says it has not.
        UnstorableValueError: the run is stored and a value cannot be.
    """
    if not isinstance(returned, Event | StepResult):
        return _with_result(node, returned, is_stored)
    if isinstance(returned, Event):
        result = StepResult[Any](events=(cast("Event[Any]", returned),))
    else:
        result = cast("StepResult[Any]", returned)
    outcome = Outcome(has_value=False) if result.value is UNSET else _with_result(node, result.value, is_stored)
    if result.events:
        outcome.events = [_checked_event(node, event, is_stored) for event in result.events]
    if result.writes:
        outcome.writes = _checked_writes(graph, node, result.writes, is_stored)
    return outcome


def failure_of(node: Node, index: int, error: Exception) -> Outcome:
    """A step's failure as data, for the step that takes it."""
    known = isinstance(error, AgentCoreError)
    failure = StepFailure(
        step=node.name,
        index=index,
        error=type(error).__name__,
        message=str(error),
        kind=error.kind if known else None,
        retryable=error.retryable if known else False,
    )
    return Outcome(has_value=False, failure=failure)


def to_text(outcome: Outcome, graph: Graph) -> str:
    """The outcome as it is recorded."""
    return encode(
        StoredOutcome(
            Raw(outcome.raw or b"null") if outcome.has_value else UNSET,
            [(name, Raw(raw or b"null")) for name, _, raw in outcome.events],
            {name: Raw(_pack_write(graph, name, value, "")[0]) for name, value in (outcome.writes or {}).items()},
            outcome.failure,
        )
    ).decode()


def from_text(graph: Graph, node: Node, text: str) -> Outcome:
    """An outcome that was recorded."""
    stored = msgspec.json.decode(text, type=StoredOutcome)
    outcome = Outcome(
        has_value=False,
        events=[(name, node.emits[name].unpack(raw), bytes(raw)) for name, raw in stored.events],
        writes={name: _unpack_write(graph, name, raw) for name, raw in stored.writes.items()} or None,
        failure=stored.failure,
    )
    if not isinstance(stored.value, UnsetType) and node.result is not None:
        outcome.has_value, outcome.raw = True, bytes(stored.value)
        outcome.value = node.result.unpack(stored.value)
    return outcome


def _with_result(node: Node, value: Any, is_stored: bool) -> Outcome:
    if type(value) is list and isinstance(next(iter(cast("list[Any]", value)), None), Event):
        raise ConfigurationError(
            f"step {node.name!r} returned a list of events; return StepResult(events=[…]) to emit them"
        )
    codec = node.result
    if codec is None:
        if value is None:
            return Outcome(has_value=False)
        kind = type(cast("object", value)).__name__
        raise ConfigurationError(
            f"step {node.name!r} returned a {kind}, but its return type has only events; add the type of the result to "
            "the annotation"
        )
    if not is_stored:
        return Outcome(value)
    raw, value = codec.pack(value, f"the result of step {node.name!r}")
    return Outcome(value, raw)


def _checked_event(node: Node, event: Any, is_stored: bool) -> tuple[str, Any, bytes | None]:
    if not isinstance(event, Event):
        raise ConfigurationError(
            f"step {node.name!r} returned a {type(event).__name__} among its events; make events of their type: "
            "approved(value)"
        )
    name, value = event.name, cast("Event[Any]", event).value
    codec = node.emits.get(name)
    if codec is None:
        raise ConfigurationError(
            f"step {node.name!r} emitted {name!r}, which it does not declare; its events are "
            f"{', '.join(node.emits) or 'none'}; add it to emits"
        )
    if not is_stored:
        return name, value, None
    raw, value = codec.pack(value, f"event {name!r} of step {node.name!r}")
    return name, value, raw


def _checked_writes(graph: Graph, node: Node, writes: Any, is_stored: bool) -> dict[str, Any]:
    if not isinstance(writes, Mapping):
        raise ConfigurationError(f"step {node.name!r}: its writes are a {type(writes).__name__}, not a mapping")
    given = dict(cast("Mapping[str, Any]", writes))
    if not is_stored:
        return given
    return {
        name: _pack_write(graph, name, value, f"what step {node.name!r} writes into slot {name!r}")[1]
        for name, value in given.items()
    }


def _pack_write(graph: Graph, slot: str, value: Any, what: str) -> tuple[bytes, Any]:
    """What is written need not be of the slot's type: a reducer may take an item and hold a list."""
    codec = graph.slot(slot)
    try:
        return codec.pack(value, what)
    except UnstorableValueError:
        if codec.type is Any:
            raise
        try:
            return _PLAIN.pack(value, what)
        except UnstorableValueError:
            pass
        raise


def _unpack_write(graph: Graph, slot: str, raw: Raw) -> Any:
    try:
        return graph.slot(slot).unpack(raw)
    except (msgspec.DecodeError, TypeError, NotImplementedError):
        return _PLAIN.unpack(raw)
