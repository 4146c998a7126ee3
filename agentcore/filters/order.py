"""The order of the onion: where the memory comes when nobody said so, and which orders are known to be wrong."""

from collections.abc import Sequence

from agentcore.errors import ConfigurationError
from agentcore.filters.base import Filter
from agentcore.filters.memory import MemoryFilter


def with_memory(filters: Sequence[Filter], memory: MemoryFilter) -> tuple[Filter, ...]:
    """The filters with the memory among them: innermost, but outside those that belong inside it."""
    for place, one in enumerate(filters):
        if one.memory_side == "inside":
            return (*filters[:place], memory, *filters[place:])
    return (*filters, memory)


def check_order(filters: Sequence[Filter]) -> None:
    """Refuse orders that are known to be wrong.

    Raises:
        ConfigurationError: a filter is on the wrong side of the memory, or outside one that it has to be inside of.
    """
    memory = next(place for place, one in enumerate(filters) if isinstance(one, MemoryFilter))
    for place, one in enumerate(filters):
        name = type(one).__name__
        if one.memory_side == "outside" and place > memory:
            cause = next((type(other).__name__ for other in filters[:place] if other.memory_side == "inside"), None)
            before = "the MemoryFilter" if cause is None else f"{cause}, which belongs inside the memory"
            raise ConfigurationError(f"{name} belongs outside the memory: in filters, put it before {before}")
        if one.memory_side == "inside" and place < memory:
            raise ConfigurationError(
                f"{name} belongs inside the memory: in filters, put it after the MemoryFilter, or leave that out and "
                "give memory=…"
            )
        if one.inside_of:
            for other in filters[place + 1 :]:
                named = next((cls.__name__ for cls in type(other).__mro__ if cls.__name__ in one.inside_of), None)
                if named is not None:
                    raise ConfigurationError(
                        f"{name} belongs inside {named}, which decides what it sees: in filters, put it after that"
                    )
