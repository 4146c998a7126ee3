"""The drawing of a graph in Mermaid's flowchart language."""

from agentcore.process.graph import START, Graph, Node

_ARROWS = {"one": "-->", "gather": "-->", "each": "==>", "latest": "-.->"}


def draw(graph: Graph) -> str:
    """The graph as a Mermaid flowchart: steps as boxes, what comes from outside rounded, fan-out as thick arrows.

    Source: Mermaid documentation, "Flowcharts - Basic Syntax".
    """
    ids: dict[str, str] = {}
    lines = ["flowchart TD"]
    if any(one.name == START for node in graph.nodes for one in node.inputs):
        ids[START] = "start"
        lines.append("    start((start))")
    for number, name in enumerate(graph.inputs):
        ids[name] = f"i{number}"
        lines.append(f"    i{number}([{_text(name)}])")
    for number, name in enumerate(graph.outside):
        ids[name] = f"o{number}"
        lines.append(f"    o{number}{{{{{_text(name)}}}}}")
    lines.extend(f"    s{node.order}[{_text(_title(node))}]" for node in graph.nodes)
    if graph.result is not None:
        lines.append("    result((result))")
    producers = _producers(graph)
    for node in graph.nodes:
        for one in node.inputs:
            for event in one.events:
                for source, label in [(ids[event], "")] if event in ids else producers.get(event, []):
                    words = [word for word in (one.mode if one.mode != "one" else "", label) if word]
                    tag = f"|{_text(' '.join(words))}|" if words else ""
                    lines.append(f"    {source} {_ARROWS[one.mode]}{tag} s{node.order}")
    if graph.result is not None:
        for source, label in producers[graph.result]:
            lines.append(f"    {source} -->{f'|{_text(label)}|' if label else ''} result")
    return "\n".join(lines) + "\n"


def _title(node: Node) -> str:
    return node.name if node.step.max_runs is None else f"{node.name} (at most {node.step.max_runs})"


def _producers(graph: Graph) -> dict[str, list[tuple[str, str]]]:
    """For each event the steps that emit it, and what the arrow says: nothing for a step's own result."""
    producers: dict[str, list[tuple[str, str]]] = {}
    for node in graph.nodes:
        if node.result is not None:
            producers.setdefault(node.name, []).append((f"s{node.order}", ""))
        for event in node.emits:
            producers.setdefault(event, []).append((f"s{node.order}", event))
        if node.failure is not None:
            producers.setdefault(node.failure, []).append((f"s{node.order}", "failed"))
    return producers


def _text(words: str) -> str:
    escaped = words.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
    return f'"{" ".join(escaped.split())}"'
