"""RunState: where a run stands: what is in flight, the context, the counts. Changes at barriers only, and by rule."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Raw

from agentcore.context import ToolContext
from agentcore.process.arrivals import Arrivals, InFlight
from agentcore.process.errors import UnstorableValueError
from agentcore.process.graph import START, Graph, Node, encode
from agentcore.process.outcome import Outcome
from agentcore.process.snapshot import Snapshot, StoredEvent


class Firing:
    """One run of a step, composed: its node, its inputs, and for `each` the items of its instances.

    Attributes:
        first: index of its first instance among all of the step in this superstep.
        count: how many instances it has.
    """

    __slots__ = ("count", "first", "items", "node", "values")

    def __init__(self, node: Node, values: dict[str, Any], first: int) -> None:
        self.node = node
        self.values = values
        self.first = first
        self.items: Sequence[Any] | None = values[node.each] if node.each is not None else None
        self.count = 1 if self.items is None else len(self.items)


class BoundReachedError(Exception):
    """A step would run more often than it may."""

    def __init__(self, step: str) -> None:
        super().__init__(step)
        self.step = step


class RunState:
    """Where a run stands.

    Attributes:
        context: the flat context as the last barrier left it.
        superstep: number of the next superstep, from 0: barriers passed.
        revision: number of the last snapshot.
        arrivals: the events that steps have not taken yet.
    """

    def __init__(self, graph: Graph, run_id: str, context: ToolContext, *, is_stored: bool) -> None:
        self.graph = graph
        self.run_id = run_id
        self.context = context
        self.superstep = 0
        self.revision = 0
        self.arrivals = Arrivals(graph)
        self._is_stored = is_stored
        self._raw_context: dict[str, bytes] = {}
        self._next_id = 0
        self._runs: dict[str, int] = {}
        if is_stored:
            self._store_context(context.keys())

    def begin(self, inputs: Mapping[str, tuple[bytes | None, Any]]) -> None:
        """Let the inputs of the process be its first events."""
        self.emit(START, None, b"null")
        for name in self.graph.inputs:
            raw, value = inputs[name]
            self.emit(name, value, raw)

    def emit(self, name: str, value: Any, raw: bytes | None, *, to: tuple[int, int, int] | None = None) -> None:
        """Send an event on its way to every input that takes it.

        Args:
            name: its name.
            value: its value.
            raw: its value as JSON text, if the run is stored.
            to: only to this input (step, input), for the wait of this id.
        """
        event = InFlight(self._next_id, name, value, raw, to[2] if to is not None else None)
        self._next_id += 1
        self.arrivals.add(event, to[:2] if to is not None else None)

    def compose(self) -> list[Firing]:
        """Take the inputs of every step that has all of them: the firings of the next superstep, in their order.

        The same state gives the same firings.

        Raises:
            BoundReachedError: one of the steps may not run again.
        """
        firings: list[Firing] = []
        for node, rows in self.arrivals.take():
            first = 0
            for values in rows:
                firing = Firing(node, values, first)
                first += firing.count
                firings.append(firing)
            bound = node.step.max_runs
            if bound is not None:
                runs = self._runs.get(node.name, 0) + len(rows)
                if runs > bound:
                    raise BoundReachedError(node.name)
                self._runs[node.name] = runs
        return firings

    def runs_left(self, node: Node) -> int | None:
        """How often the step may run after the firings that were composed last."""
        bound = node.step.max_runs
        return None if bound is None else bound - self._runs.get(node.name, 0)

    def fold(self, firings: Sequence[Firing], outcomes: Sequence[Sequence[Outcome]]) -> InFlight | None:
        """The barrier: fold writes and send events in the order of the firings, then of their instances.

        Returns:
            The event that is the result of the process, if it is among them.
        """
        self._fold_writes(firings, outcomes)
        self.superstep += 1
        result: InFlight | None = None
        for firing, brought in zip(firings, outcomes, strict=True):
            node = firing.node
            for outcome in brought:
                if outcome.failure is not None and node.failure is not None:
                    self.emit(node.failure, outcome.failure, encode(outcome.failure))
                if node.each is None and outcome.has_value and node.result is not None:
                    result = self._result(result, node.name, outcome.value, outcome.raw)
                    self.emit(node.name, outcome.value, outcome.raw)
                for name, value, raw in outcome.events:
                    result = self._result(result, name, value, raw)
                    self.emit(name, value, raw)
            if node.each is not None and node.result is not None:
                given = [outcome for outcome in brought if outcome.has_value]
                value = [outcome.value for outcome in given]
                raw = (
                    b"[" + b",".join([outcome.raw or b"null" for outcome in given]) + b"]" if self._is_stored else None
                )
                result = self._result(result, node.name, value, raw)
                self.emit(node.name, value, raw)
        return result

    def _result(self, found: InFlight | None, name: str, value: Any, raw: bytes | None) -> InFlight | None:
        if found is not None or name != self.graph.result:
            return found
        return InFlight(-1, name, value, raw)

    def snapshot(self, *, result: InFlight | None = None) -> bytes:
        """The run as it stands, as JSON text; the same state gives the same text."""
        events, queues, latest = self.arrivals.stored() if result is None else ([], [], {})
        return encode(
            Snapshot(
                process=self.graph.name,
                graph=self.graph.fingerprint_text,
                run_id=self.run_id,
                revision=self.revision,
                superstep=self.superstep,
                next_id=self._next_id,
                runs=dict(sorted(self._runs.items())),
                context={name: Raw(raw) for name, raw in sorted(self._raw_context.items())},
                events=[StoredEvent(event.id, event.name, Raw(event.raw or b"null"), event.to) for event in events],
                queues=queues,
                latest=latest,
                is_done=result is not None,
                value=Raw(result.raw or b"null") if result is not None else Raw(b"null"),
            )
        )

    @classmethod
    def restore(cls, graph: Graph, snapshot: Snapshot) -> "RunState":
        """The state that a snapshot was made of."""
        values = {name: graph.slot(name).unpack(raw) for name, raw in snapshot.context.items()}
        state = cls(graph, snapshot.run_id, ToolContext(values, turn_id=snapshot.run_id), is_stored=False)
        state._is_stored = True
        state._raw_context = {name: bytes(raw) for name, raw in snapshot.context.items()}
        state.superstep, state.revision, state._next_id = snapshot.superstep, snapshot.revision, snapshot.next_id
        state._runs = dict(snapshot.runs)
        events = [
            InFlight(one.id, one.name, graph.codecs[one.name].unpack(one.value), bytes(one.value), one.to)
            for one in snapshot.events
        ]
        state.arrivals.restore(events, snapshot.queues, snapshot.latest)
        return state

    def _fold_writes(self, firings: Sequence[Firing], outcomes: Sequence[Sequence[Outcome]]) -> None:
        writes = [outcome.writes for brought in outcomes for outcome in brought if outcome.writes]
        if not writes:
            return
        self.context = self.context.fold(writes, self.graph.reducers)
        if self._is_stored:
            writers: dict[str, str] = {}
            for firing, brought in zip(firings, outcomes, strict=True):
                for outcome in brought:
                    writers.update((name, firing.node.name) for name in outcome.writes or ())
            self._store_context(writers, writers)

    def _store_context(self, names: Iterable[str], writers: Mapping[str, str] | None = None) -> None:
        values = dict(self.context)
        for name in names:
            by = f", written by step {writers[name]!r}," if writers else ""
            what = f"the context's slot {name!r}{by}"
            if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
                raise UnstorableValueError(f"{what} has a name that is no text; a snapshot can only hold names")
            self._raw_context[name], values[name] = self.graph.slot(name).pack(values[name], what)
        self.context = ToolContext(values, turn_id=self.run_id)
