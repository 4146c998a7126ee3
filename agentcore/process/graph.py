"""Graph: a process as it was built: steps, what each input takes, where each event goes. Immutable."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from agentcore.context import Reducer
from agentcore.process.errors import GraphChangedError
from agentcore.process.events import BindingMode, StepFailure
from agentcore.process.step import NoResult, Step
from agentcore.process.values import ValueCodec

START = ""
"""Name of the event that starts steps without inputs; no user can take an empty name."""


class Input(Struct, frozen=True):
    """One input of a step: how it takes which events."""

    name: str
    mode: BindingMode
    events: tuple[str, ...]


class Node(Struct, frozen=True):
    """A step in its place.

    Attributes:
        order: its place in the order of declaration.
        inputs: what has to be there before it runs.
        each: the input whose items its instances get; None if it runs once.
        result: codec of one instance's result; None if it has none.
        emits: codecs of its named events.
        failure: name of the event that brings its failures; None if nobody takes them.
    """

    order: int
    step: Step
    inputs: tuple[Input, ...]
    each: str | None
    result: ValueCodec | None
    emits: Mapping[str, ValueCodec]
    failure: str | None

    @property
    def name(self) -> str:
        """The step's name."""
        return self.step.name


class Graph:
    """A process as it was built.

    Attributes:
        name: of the process.
        version: the user's own mark, part of the fingerprint.
        nodes: the steps in order of declaration.
        inputs: codecs of what the process is given at the start.
        outside: codecs of the events that come from outside.
        codecs: of all events, by name.
        slots: codecs of the declared slots of the context.
        reducers: of slots that several steps of a superstep may write.
        result: name of the event whose value is the result of the process.
        routes: for each event the inputs that take it, as (step, input), `latest` ones apart.
        keepers: for each event that is read as `latest` the steps that read it.
    """

    def __init__(
        self,
        name: str,
        version: str,
        nodes: Sequence[Node],
        inputs: Mapping[str, ValueCodec],
        outside: Mapping[str, ValueCodec],
        codecs: Mapping[str, ValueCodec],
        slots: Mapping[str, ValueCodec],
        reducers: Mapping[str, Reducer],
        result: str | None,
    ) -> None:
        self.name = name
        self.version = version
        self.nodes = tuple(nodes)
        self.inputs = dict(inputs)
        self.outside = dict(outside)
        self.codecs = dict(codecs)
        self.slots = dict(slots)
        self.reducers = dict(reducers)
        self.result = result
        self.by_name = {node.name: node for node in self.nodes}
        routes: dict[str, list[tuple[int, int]]] = {}
        keepers: dict[str, list[int]] = {}
        for node in self.nodes:
            for place, one in enumerate(node.inputs):
                if one.mode == "latest":
                    for event in one.events:
                        keepers.setdefault(event, []).append(node.order)
                    continue
                for event in one.events:
                    routes.setdefault(event, []).append((node.order, place))
        self.routes: Mapping[str, Sequence[tuple[int, int]]] = routes
        self.keepers: Mapping[str, Sequence[int]] = keepers
        self._fingerprint: dict[str, str] | None = None
        self._fingerprint_text: msgspec.Raw | None = None

    def slot(self, name: str) -> ValueCodec:
        """Codec of a slot of the context; plain JSON if it is not declared."""
        return self.slots.get(name, _PLAIN)

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """A short hash for each part of the graph, by its name in words; functions' bodies and bounds are no part."""
        if self._fingerprint is None:
            parts = {f"process {self.name!r}": self.version, "result": self.result or ""}
            parts["order of steps"] = "\n".join(node.name for node in self.nodes)
            parts |= {f"input {name!r}": codec.schema_text() for name, codec in self.inputs.items()}
            parts |= {f"outside event {name!r}": codec.schema_text() for name, codec in self.outside.items()}
            parts |= {f"slot {name!r}": codec.schema_text() for name, codec in self.slots.items()}
            for node in self.nodes:
                takes = [(one.name, one.mode, one.events) for one in node.inputs]
                gives = [(name, codec.schema_text()) for name, codec in node.emits.items()]
                result = node.result.schema_text() if node.result is not None else ""
                parts[f"step {node.name!r}"] = repr((takes, gives, result, node.failure))
            self._fingerprint = {
                name: hashlib.sha256(text.encode()).hexdigest()[:12] for name, text in sorted(parts.items())
            }
        return self._fingerprint

    @property
    def fingerprint_text(self) -> msgspec.Raw:
        """The fingerprint as JSON text."""
        if self._fingerprint_text is None:
            self._fingerprint_text = msgspec.Raw(encode(self.fingerprint))
        return self._fingerprint_text

    def check_same(self, run_id: str, stored: msgspec.Raw) -> None:
        """Refuse to go on with a run that another graph began.

        Raises:
            GraphChangedError: naming what was changed, added and removed.
        """
        own, other = self.fingerprint, msgspec.json.decode(stored, type=dict[str, str])
        if own == other:
            return
        changed = sorted(name for name in own.keys() & other.keys() if own[name] != other[name])
        new, gone = sorted(own.keys() - other.keys()), sorted(other.keys() - own.keys())
        if new or gone:  # whose order it was is said by what is new and gone
            changed = [name for name in changed if name != "order of steps"]
        words = [
            f"{word}: {', '.join(names)}"
            for word, names in (("changed", changed), ("new", new), ("gone", gone))
            if names
        ]
        raise GraphChangedError(
            f"run {run_id!r} was begun with another graph than process {self.name!r} has now ({'; '.join(words)}); "
            "resume it with the code that began it, or begin a new run"
        )


def event_type(node_result: Any, each: bool) -> Any:
    """The type of the event that brings a step's result."""
    if node_result is NoResult:
        return NoResult
    return list[node_result] if each else node_result


FAILURE_CODEC = ValueCodec(StepFailure)
_PLAIN = ValueCodec(Any)


def encode(value: Any) -> bytes:
    """JSON text of a Struct of ours."""
    return msgspec.json.encode(value)
