"""What a step is given besides its inputs, and what it may return besides a value."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from agentcore.context import ToolContext
from agentcore.exchange import InvokeResult
from agentcore.process.events import Event
from agentcore.stream import TurnStream

T = TypeVar("T")

Send = Callable[[Any], Awaitable[None]]


class StepResult(Struct, Generic[T], frozen=True):
    """A value with more beside it: `return StepResult(text, writes={"words": 120})`.

    Attributes:
        value: the step's result. Left out, the step has none this time: nobody who waits for it is started.
        events: named events it emits; the step has to declare them (`emits=…`).
        writes: into the flat context, folded at the barrier.
    """

    value: T | msgspec.UnsetType = msgspec.UNSET
    events: Sequence[Event[Any]] = ()
    writes: Mapping[str, Any] = {}


class StepContext(ToolContext):
    """The process's flat context as it was at the last barrier, and what the step may know of itself.

    It is a `ToolContext`: hand it on as `tool_context=context`. `call_key` is the same for every attempt at this very
    instance, after a crash too (`run_id:superstep:step:index`): make effects idempotent on it.

    Attributes:
        step: the step's name.
        index: which of the instances that run in this superstep.
        superstep: number of the superstep, from 0.
        runs_left: how often the step may still run after this; None without `max_runs`.
    """

    __slots__ = ("_send", "index", "runs_left", "step", "superstep")

    step: str
    index: int
    superstep: int
    runs_left: int | None
    _send: Send | None

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.turn_id

    async def send(self, event: Any) -> None:
        """Give something to the reader of the stream; waits while the reader is slow. Nothing if nobody reads."""
        if self._send is not None:
            await self._send(event)

    async def forward(self, stream: TurnStream) -> InvokeResult:
        """Run a client's turn, hand its events to the reader as they come, and give its result.

        Example: `result = await context.forward(client.stream(text))`.
        """
        async with stream as turn:
            async for event in turn:
                if self._send is not None:
                    await self._send(event)
        return turn.result

    @classmethod
    def for_step(
        cls,
        context: ToolContext,
        run_id: str,
        superstep: int,
        step: str,
        index: int,
        runs_left: int | None,
        send: Send | None,
    ) -> "StepContext":
        """The context as one instance of a step sees it."""
        view = cls.__new__(cls)
        view._values = context._values  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - immutable, so shared
        view.turn_id = run_id
        view.call_id = f"{superstep}:{step}:{index}"
        view.step, view.index, view.superstep = step, index, superstep
        view.runs_left = runs_left
        view._send = send  # noqa: SLF001 - our own kind
        return view
