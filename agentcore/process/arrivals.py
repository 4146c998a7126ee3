"""Arrivals: the events that steps have not taken yet, and which of them belong together."""

from collections import deque
from collections.abc import Iterable
from typing import Any

from agentcore.process.graph import START, Graph, Input, Node
from agentcore.process.result import Waiting


class InFlight:
    """An event on its way.

    Attributes:
        id: number in the run, by the order of emission.
        raw: its value as JSON text; None in a run that is stored nowhere.
        to: the wait that it answers (the id of the event that waits); None for whoever comes first.
    """

    __slots__ = ("id", "name", "raw", "to", "value")

    def __init__(self, id_: int, name: str, value: Any, raw: bytes | None, to: int | None = None) -> None:
        self.id = id_
        self.name = name
        self.value = value
        self.raw = raw
        self.to = to


class _Row:
    """The inputs of one run of a step, as far as they are there."""

    __slots__ = ("anchor", "missing", "taken")

    def __init__(self, anchor: int | None) -> None:
        self.anchor = anchor
        self.taken: dict[int, list[InFlight]] = {}
        self.missing: list[Input] = []


class Arrivals:
    """Events in flight, by the inputs that take them, first come, first served; and the newest of those that are kept.

    The same events give the same runs of steps.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._queues: dict[tuple[int, int], deque[InFlight]] = {}
        self._latest: dict[str, InFlight] = {}
        self._touched: set[int] = set()
        self._addressed = 0  # events in flight that answer one certain wait

    def add(self, event: InFlight, to: tuple[int, int] | None = None) -> None:
        """Send an event on its way to every input that takes it, or only to this one (step, input)."""
        graph = self._graph
        if to is not None:
            self._addressed += 1
            self._queue(to).append(event)
            self._touched.add(to[0])
            return
        for route in graph.routes.get(event.name, ()):
            self._queue(route).append(event)
            self._touched.add(route[0])
        if event.name in graph.keepers:
            self._latest[event.name] = event
            self._touched.update(graph.keepers[event.name])

    def take(self) -> list[tuple[Node, list[dict[str, Any]]]]:
        """Take the inputs of every run of every step that has all of them, in order of declaration."""
        taken = [
            (node, rows)
            for order in sorted(self._touched)
            if (rows := self._complete_rows(node := self._graph.nodes[order]))
        ]
        self._touched.clear()
        return taken

    @property
    def is_at_rest(self) -> bool:
        """Whether no step has all of its inputs."""
        return all(row.missing for node in self._graph.nodes for row in self._match(node))

    def waiting(self, *, for_outside: bool, with_listeners: bool = False) -> tuple[Waiting, ...]:
        """The steps that lack inputs.

        Args:
            for_outside: only those that need nothing but events from outside.
            with_listeners: also those that have nothing yet.
        """
        found: list[Waiting] = []
        outside = self._graph.outside
        for node in self._graph.nodes:
            for row in self._match(node):
                if not row.missing:
                    continue
                lacking = [event for one in row.missing for event in one.events if event in outside]
                if for_outside and not all(any(event in outside for event in one.events) for one in row.missing):
                    continue
                if not row.taken and not with_listeners:
                    continue
                events = lacking if for_outside else [event for one in row.missing for event in one.events]
                id_ = node.name if row.anchor is None else f"{node.name}:{row.anchor}"
                found.append(Waiting(id_, node.name, tuple(dict.fromkeys(events)), self._values(node, row)))
        return tuple(found)

    def place_of_answer(self, waiting: Waiting, event: str) -> tuple[int, int, int] | None:
        """Where an answer to a wait goes, for `emit`; None for a step that waits for outside events alone."""
        node = self._graph.by_name[waiting.step]
        if waiting.id == node.name:
            return None
        place = next(place for place, one in enumerate(node.inputs) if event in one.events)
        if node.inputs[place].mode == "latest":
            return None
        return node.order, place, int(waiting.id.rpartition(":")[2])

    def stored(self) -> tuple[list[InFlight], list[tuple[str, str, list[int]]], dict[str, int]]:
        """Events, queues and newest ones as a snapshot holds them, in a fixed order."""
        events = {event.id: event for event in self._latest.values()}
        queues: list[tuple[str, str, list[int]]] = []
        for (order, place), queue in sorted(self._queues.items()):
            if queue:
                node = self._graph.nodes[order]
                queues.append((node.name, node.inputs[place].name, [event.id for event in queue]))
                events.update((event.id, event) for event in queue)
        newest = {name: event.id for name, event in sorted(self._latest.items())}
        return [event for _, event in sorted(events.items())], queues, newest

    def restore(
        self, events: Iterable[InFlight], queues: Iterable[tuple[str, str, list[int]]], latest: dict[str, int]
    ) -> None:
        """Put back what a snapshot holds."""
        by_id = {event.id: event for event in events}
        for step, input_name, ids in queues:
            node = self._graph.by_name[step]
            place = next(place for place, one in enumerate(node.inputs) if one.name == input_name)
            self._queues[node.order, place] = deque(by_id[one] for one in ids)
            self._touched.add(node.order)
        self._latest = {name: by_id[one] for name, one in latest.items()}
        self._addressed = sum(event.to is not None for event in by_id.values())

    def _queue(self, route: tuple[int, int]) -> deque[InFlight]:
        queue = self._queues.get(route)
        if queue is None:
            queue = self._queues[route] = deque()
        return queue

    def _complete_rows(self, node: Node) -> list[dict[str, Any]]:
        """Take the inputs of every run of the step that has all of them."""
        if self._addressed:
            return self._complete_rows_by_match(node)
        queues: list[tuple[Input, deque[InFlight]]] = []
        kept: dict[str, Any] = {}
        for place, one in enumerate(node.inputs):
            if one.mode == "latest":
                newest = self._newest(one)
                if newest is None:
                    return []
                kept[one.name] = newest.value
                continue
            queue = self._queues.get((node.order, place))
            if not queue:
                return []
            queues.append((one, queue))
        rows: list[dict[str, Any]] = []
        while all(queue for _, queue in queues):
            values = dict(kept)
            for one, queue in queues:
                if one.mode == "gather":
                    values[one.name] = [event.value for event in queue]
                    queue.clear()
                elif one.name == START:
                    queue.popleft()
                else:
                    values[one.name] = queue.popleft().value
            rows.append(values)
        return rows

    def _complete_rows_by_match(self, node: Node) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for row in self._match(node):
            if row.missing:
                continue
            rows.append(self._values(node, row))
            for place, taken in row.taken.items():
                queue = self._queues[node.order, place]
                for event in taken:
                    queue.remove(event)
                    self._addressed -= event.to is not None
        return rows

    def _match(self, node: Node) -> list[_Row]:
        """Which events in flight belong together, without taking them: first come first served, answers to their wait.

        The anchor is the first input that takes something from inside the process: each of its events is a run of the
        step that is waited for.
        """
        outside = self._graph.outside
        inputs = [(place, one) for place, one in enumerate(node.inputs) if one.mode != "latest"]
        left = {place: list(self._queues.get((node.order, place), ())) for place, _ in inputs}
        anchor = next((place for place, one in inputs if not all(event in outside for event in one.events)), None)
        missing = [one for one in node.inputs if one.mode == "latest" and self._newest(one) is None]
        if anchor is None:
            count = max([1, *(len(queue) for queue in left.values())])
        elif node.inputs[anchor].mode == "gather":
            count = 1
        else:
            count = len(left[anchor])
        if not count and any(left.values()):
            count = 1
        rows: list[_Row] = []
        for _ in range(count):
            row = _Row(left[anchor][0].id if anchor is not None and left[anchor] else None)
            for place, one in inputs:
                taken = _take(left[place], one, row.anchor if place != anchor else None)
                if taken:
                    row.taken[place] = taken
                else:
                    row.missing.append(one)
            row.missing.extend(missing)
            rows.append(row)
        return rows

    def _values(self, node: Node, row: _Row) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for place, one in enumerate(node.inputs):
            if one.mode == "latest":
                newest = self._newest(one)
                if newest is not None:
                    values[one.name] = newest.value
            elif place in row.taken and one.name != START:
                taken = row.taken[place]
                values[one.name] = [event.value for event in taken] if one.mode == "gather" else taken[0].value
        return values

    def _newest(self, one: Input) -> InFlight | None:
        found = [event for name in one.events if (event := self._latest.get(name)) is not None]
        return max(found, key=lambda event: event.id) if found else None


def _take(queue: list[InFlight], one: Input, anchor: int | None) -> list[InFlight]:
    """Take from the queue what belongs to a run: what answers it, or else what is for anybody."""
    if one.mode == "gather":
        taken = [event for event in queue if event.to is None or event.to == anchor]
        queue[:] = [event for event in queue if event not in taken]
        return taken
    for wanted in (anchor, None) if anchor is not None else (None,):
        for number, event in enumerate(queue):
            if event.to == wanted:
                return [queue.pop(number)]
    return []
