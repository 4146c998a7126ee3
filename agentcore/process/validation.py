"""What has to be right about a graph before anything runs: all reachable, joinable, bounded and of fitting types."""

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from agentcore.errors import ConfigurationError
from agentcore.process.fits import fits, item_of
from agentcore.process.graph import START, Graph, Input, Node
from agentcore.process.step import NoResult
from agentcore.process.values import type_name


def check_graph(graph: Graph, events: Mapping[str, Any]) -> None:
    """Refuse a graph that cannot work.

    Args:
        graph: the graph.
        events: the declared named events.

    Raises:
        ConfigurationError: naming the thing, the place and the cure.
    """
    producible = _check_reachable(graph, events)
    _check_all_used(graph)
    _check_result(graph, producible)
    triggers = _triggers(graph)
    _check_bounded(graph, triggers)
    _check_joins(graph, triggers)
    _check_types(graph)


def _produces(node: Node) -> Iterable[str]:
    if node.result is not None:
        yield node.name
    yield from node.emits
    if node.failure is not None:
        yield node.failure


def _check_reachable(graph: Graph, events: Mapping[str, Any]) -> set[str]:
    """What can ever be emitted; every step has to be able to run on it."""
    producible = {START, *graph.inputs, *graph.outside}
    left = list(graph.nodes)
    while True:
        ready = [node for node in left if all(_can_come(one, producible) for one in node.inputs)]
        if not ready:
            break
        for node in ready:
            producible.update(_produces(node))
        left = [node for node in left if node not in ready]
    if left:
        _refuse_unreachable(graph, left, producible, events)
    return producible


def _can_come(one: Input, producible: set[str]) -> bool:
    return any(event in producible for event in one.events)


def _refuse_unreachable(graph: Graph, left: list[Node], producible: set[str], events: Mapping[str, Any]) -> None:
    producers = {event: node.name for node in graph.nodes for event in _produces(node)}
    for node in left:
        for one in node.inputs:
            for event in one.events:
                if event in events and event not in producers:
                    raise ConfigurationError(
                        f"step {node.name!r} of process {graph.name!r} can never run: its input {one.name!r} waits for "
                        f"event {event!r}, which no step emits; add it to the emits of a step, or declare it with "
                        "outside if it comes from elsewhere"
                    )
                source = graph.by_name.get(event)
                if source is not None and source.result is None:
                    raise ConfigurationError(
                        f"step {node.name!r} of process {graph.name!r} can never run: its input {one.name!r} waits for "
                        f"the result of step {event!r}, whose return type has none, only events; bind it to one of "
                        "these"
                    )
    for node in left:  # some inputs come: the reader believes that it works
        missing = [one for one in node.inputs if not _can_come(one, producible)]
        if len(missing) < len(node.inputs):
            one = missing[0]
            raise ConfigurationError(
                f"the fan-in of step {node.name!r} of process {graph.name!r} can never be complete: its input "
                f"{one.name!r} waits for {_words(one.events)}, which only comes after {node.name!r} itself has run; "
                "bind it to something that comes before as well, or take it as an optional event of its own step"
            )
    node = left[0]
    raise ConfigurationError(
        f"step {node.name!r} of process {graph.name!r} is unreachable: its input {node.inputs[0].name!r} waits for "
        f"{_words(node.inputs[0].events)}, which never comes, since nothing that starts the process leads there; bind "
        "it to an input of the process or to a step that runs"
    )


def _check_all_used(graph: Graph) -> None:
    used = graph.routes.keys() | graph.keepers.keys()
    for name in graph.inputs:
        if name not in used:
            raise ConfigurationError(
                f"input {name!r} of process {graph.name!r} is taken by no step; take it in a step's parameter, or "
                "drop it"
            )
    for name in graph.outside:
        if name not in used:
            raise ConfigurationError(
                f"event {name!r} from outside is taken by no step of process {graph.name!r}; take it in a step's "
                "parameter, or drop it"
            )


def _check_result(graph: Graph, producible: set[str]) -> None:
    name = graph.result
    if name is None or (name in producible and name not in graph.inputs and name not in graph.outside):
        return
    if name in graph.inputs or name in graph.outside:
        reason = "it does not come from a step"
    else:
        reason = "its return type has none, only events" if name in graph.by_name else "no step emits it"
    raise ConfigurationError(
        f"the result of process {graph.name!r} is {name!r}, but {reason}; name a step that returns a value or an event "
        "that is emitted"
    )


def _triggers(graph: Graph) -> dict[int, set[int]]:
    """For each step the steps whose events can start it."""
    producers: dict[str, list[int]] = {}
    for node in graph.nodes:
        for event in _produces(node):
            producers.setdefault(event, []).append(node.order)
    return {
        node.order: {
            order
            for one in node.inputs
            if one.mode != "latest"
            for event in one.events
            for order in producers.get(event, ())
        }
        for node in graph.nodes
    }


def _check_bounded(graph: Graph, triggers: Mapping[int, set[int]]) -> None:
    made_inside = {event for node in graph.nodes for event in _produces(node)}

    def is_bounded(node: Node) -> bool:
        """By number, or because each run takes something that no step can make."""
        return node.step.max_runs is not None or any(
            one.mode != "latest" and not made_inside.intersection(one.events) for one in node.inputs
        )

    unbounded = {node.order for node in graph.nodes if not is_bounded(node)}
    try:
        TopologicalSorter({order: triggers[order] & unbounded for order in unbounded}).prepare()
    except CycleError as error:
        orders: list[int] = error.args[1]
        cycle = " → ".join(graph.nodes[order].step.name for order in orders)
        raise ConfigurationError(
            f"process {graph.name!r} has a cycle without a bound: {cycle}; give one of these steps max_runs"
        ) from error


def _check_joins(graph: Graph, triggers: Mapping[int, set[int]]) -> None:
    """An event that a cycle makes in every round piles up at a join outside of it: which one would it take?"""
    group = _cycles(triggers)
    for node in graph.nodes:
        if sum(one.mode != "latest" for one in node.inputs) < 2:
            continue
        for one in node.inputs:
            if one.mode != "one":
                continue
            for event in one.events:
                for source in graph.nodes:
                    cycle = group.get(source.order)
                    if cycle is None or event not in _produces(source) or cycle == group.get(node.order):
                        continue
                    again = [order for order, _ in graph.routes[event] if group.get(order) == cycle]
                    if again:
                        raise ConfigurationError(
                            f"input {one.name!r} of step {node.name!r} of process {graph.name!r} takes {event!r}, "
                            f"which the cycle through {graph.nodes[again[0]].name!r} brings in every round, while "
                            f"{node.name!r} waits for more: old ones would be left over; bind it with "
                            f"latest({event!r})"
                        )


def _cycles(triggers: Mapping[int, set[int]]) -> dict[int, int]:
    """The steps that are in cycles, each with a number of its group (Kosaraju's algorithm: two walks)."""
    followers: dict[int, set[int]] = {order: set() for order in triggers}
    for order, before in triggers.items():
        for one in before:
            followers[one].add(order)
    finished: list[int] = []
    _walk(triggers, followers, finished)
    groups: dict[int, int] = {}
    for root in reversed(finished):
        if root in groups:
            continue
        todo, members = [root], [root]
        groups[root] = root
        while todo:
            for one in triggers[todo.pop()]:
                if one not in groups:
                    groups[one] = root
                    members.append(one)
                    todo.append(one)
    sizes: dict[int, int] = {}
    for root in groups.values():
        sizes[root] = sizes.get(root, 0) + 1
    return {order: root for order, root in groups.items() if sizes[root] > 1 or order in triggers[order]}


def _walk(nodes: Iterable[int], followers: Mapping[int, set[int]], finished: list[int]) -> None:
    """Depth first; a node is finished when all that follows it is."""
    seen: set[int] = set()
    for start in nodes:
        todo: list[tuple[int, bool]] = [(start, False)]
        while todo:
            order, is_done = todo.pop()
            if is_done:
                finished.append(order)
            elif order not in seen:
                seen.add(order)
                todo.append((order, True))
                todo.extend((one, False) for one in followers[order] if one not in seen)


def _check_types(graph: Graph) -> None:
    for node in graph.nodes:
        for one in node.inputs:
            if one.name == START:
                continue
            wanted = node.step.parameters[one.name]
            for event in one.events:
                brought = graph.codecs[event].type
                if brought is NoResult:
                    continue
                if one.mode == "each":
                    item = item_of(brought)
                    if item is None:
                        raise ConfigurationError(
                            f"input {one.name!r} of step {node.name!r} of process {graph.name!r} takes each item of "
                            f"{event!r}, which is a {type_name(brought)}; let it be a list"
                        )
                    brought = item
                elif one.mode == "gather":
                    brought = list[brought]
                if not fits(brought, wanted):
                    raise ConfigurationError(
                        f"input {one.name!r} of step {node.name!r} of process {graph.name!r} is declared "
                        f"{type_name(wanted)}, but {event!r} brings {type_name(brought)}; change one of them, or bind "
                        "the input to something else"
                    )


def _words(events: tuple[str, ...]) -> str:
    return " or ".join(repr(event) for event in events)
