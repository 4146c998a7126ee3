"""ToolContext: the flat, request-scoped mapping that tools and filters read, and how writes are folded into it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

Reducer: TypeAlias = Callable[[Any, Any], Any]
"""Folds a slot's old value (`None` if it has none) and one written value into the new value."""


class CallScope(Protocol):
    """What a running tool call knows of its turn."""

    async def emit_progress(self, call_id: str, data: Any) -> None:
        """Deliver something to whoever reads the turn's stream; does nothing if nobody does."""
        ...

    def remaining(self) -> Any:
        """What is left of the turn's limits (a `Limits`)."""
        ...


class ToolContext(Mapping[str, Any]):
    """What a request knows about itself: `{"conversation_id": …, "user_id": …}`.

    Immutable; holds no messages, no history and no trace, and is not persisted. Inside a tool it also knows the call.

    Attributes:
        conversation_id: the conversation of this turn, or None.
        turn_id: the turn this call belongs to; empty outside a turn.
        call_id: the id of the running tool call; empty outside a tool.
    """

    __slots__ = ("_scope", "_values", "call_id", "turn_id")

    def __init__(self, values: Mapping[str, Any] | None = None, *, turn_id: str = "", call_id: str = "") -> None:
        if isinstance(values, ToolContext):
            values = values._values  # noqa: SLF001 - our own kind
        self._values: dict[str, Any] = dict(values) if values else {}
        self.turn_id = turn_id
        self.call_id = call_id
        self._scope: CallScope | None = None

    @property
    def conversation_id(self) -> str | None:
        return self._values.get("conversation_id")

    @property
    def call_key(self) -> str:
        """A key that is the same for every attempt at this call (`turn_id:call_id`): make effects idempotent on it."""
        return f"{self.turn_id}:{self.call_id}"

    @property
    def scope(self) -> CallScope | None:
        """The turn, as far as a running call may know it; None outside a turn."""
        return self._scope

    async def emit(self, data: Any) -> None:
        """Tell whoever reads the turn's stream how a tool gets on, as a `ToolProgress` event.

        Does nothing outside a tool, and when nobody reads along. The model is told nothing of it.
        """
        if self._scope is not None:
            await self._scope.emit_progress(self.call_id, data)

    def for_call(self, call_id: str, scope: CallScope | None = None) -> "ToolContext":
        """The same snapshot, as seen from inside one tool call."""
        view = ToolContext.__new__(ToolContext)
        view._values = self._values  # noqa: SLF001 - our own kind
        view.turn_id = self.turn_id
        view.call_id = call_id
        view._scope = scope  # noqa: SLF001 - our own kind
        return view

    def fold(self, writes: Iterable[Mapping[str, Any]], reducers: Mapping[str, Reducer]) -> "ToolContext":
        """A new context with `writes` folded in, in the order given; without a reducer the last writer wins.

        A reducer's own error comes out as it is, with a note that names the slot.
        """
        values = dict(self._values)
        for write in writes:
            for key, value in write.items():
                reduce = reducers.get(key)
                try:
                    values[key] = value if reduce is None else reduce(values.get(key), value)
                except Exception as error:
                    error.add_note(f"in the reducer of the tool context's slot {key!r}")
                    raise
        return ToolContext(values, turn_id=self.turn_id)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"ToolContext({', '.join(sorted(self._values))})"  # keys only: values may be private
