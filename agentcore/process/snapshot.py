"""A run at a barrier as it is stored: JSON text, the same for the same state."""

from msgspec import Raw, Struct


class StoredEvent(Struct, frozen=True, omit_defaults=True):
    """An event in flight, in a snapshot."""

    id: int
    name: str
    value: Raw
    to: int | None = None


class Snapshot(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run at a barrier, as it is stored: JSON text.

    Attributes:
        graph: fingerprint of the graph that began it.
        revision: grows with every snapshot of the run.
        superstep: barriers passed.
        runs: how often each step with a bound has run.
        queues: per step and input, the ids of the events it has not taken yet.
        latest: ids of the newest events that are kept.
        is_done: whether the run has ended with its result.
    """

    process: str
    graph: Raw
    run_id: str
    revision: int = 0
    superstep: int = 0
    next_id: int = 0
    runs: dict[str, int] = {}
    context: dict[str, Raw] = {}
    events: list[StoredEvent] = []
    queues: list[tuple[str, str, list[int]]] = []
    latest: dict[str, int] = {}
    is_done: bool = False
    value: Raw = Raw(b"null")
