"""Turn: the handle that travels with every request of one turn, from the client down to the memory and the stream."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from agentcore.context import ToolContext
from agentcore.events import AgentEvent, ToolProgress, TurnEvent
from agentcore.limits import DEFAULT_LIMITS, Limits, left_of
from agentcore.messages import AssistantMessage, FinishReason, Message, ToolCall, ToolMessage
from agentcore.pause import Pause
from agentcore.repetition import RepetitionGuard
from agentcore.usage import UNKNOWN_USAGE


class TurnHistory(Protocol):
    """The record a turn reads and writes: a conversation in a store, or, without one, the turn's own."""

    @property
    def added(self) -> tuple[Message, ...]:
        """What this turn has stored so far, in stored order."""
        ...

    async def view(self, delta: Sequence[Message]) -> Sequence[Message]:
        """What the model should see: the whole history, healed and cut to the window, then `delta`."""
        ...

    @property
    def due(self) -> tuple[Message, ...]:
        """What the last `view` took in and the record does not hold yet: stored together with the reply."""
        ...

    async def append(self, messages: Sequence[Message]) -> None:
        """Store messages, all or none."""
        ...

    async def append_reply(self, replies: Sequence[AssistantMessage]) -> None:
        """Store what is due and the reply to it (before it, replies that were given up), all or none."""
        ...

    async def settle(self, delta: Sequence[Message], reply: AssistantMessage) -> None:
        """Make sure that the reply which left the chat filters is the one on record."""
        ...

    @property
    def position(self) -> int:
        """How many messages the turn has stored, before a pause and since."""
        ...

    @property
    def can_pause(self) -> bool:
        """Whether the turn may wait here and be resumed later, in another process too."""
        ...

    async def keep_pause(self, pause: Pause, expires_in: float | None) -> None:
        """Store that the turn waits; it can be resumed for `expires_in` seconds."""
        ...

    async def take_pause(self, pause: Pause) -> Sequence[ToolCall]:
        """Use the pause up; the calls that have no result yet.

        Raises:
            PauseError: somebody else has resumed it, it has expired, or the conversation went on without it.
        """
        ...

    @property
    def records_results(self) -> bool:
        """Whether results outlive the process before their batch is complete."""
        ...

    async def record_result(self, place: int, message: ToolMessage) -> None:
        """Keep the result of the call at a place of its batch: it is not run again should the process end meanwhile."""
        ...


class EventSink(Protocol):
    """Where the events of a streamed turn go."""

    def begin_reply(self) -> None:
        """A reply is asked for: what was delivered before belongs to earlier ones."""
        ...

    def begin_attempt(self) -> None:
        """The model is called: what was delivered of this reply before belongs to attempts that were given up."""
        ...

    def given_up(self) -> AssistantMessage | None:
        """What was delivered of this reply by attempts that were given up, marked `interrupted`; None if nothing."""
        ...

    async def send(self, events: Sequence[TurnEvent]) -> None:
        """Deliver events; returns when the reader's bounded buffer has taken them."""
        ...

    def partial_reply(self, *, cancelled: bool) -> AssistantMessage | None:
        """What the reader gets of the reply that broke off, marked `interrupted`; None if nothing.

        A cancelled reader got what it took; after an error it still gets all that was sent.
        """
        ...


class Turn:
    """One turn: a whole exchange, from what the user said to the model's last answer, and what it has done so far.

    Attributes:
        id: unique; part of every tool call's key.
        context: the tool context as the last batch left it.
        history: the record of the conversation as this turn sees it.
        sink: where stream events go; None when nobody reads along.
        limits: its bounds.
        reply: the last reply of the model.
        finish_reason: why that reply ended.
        usage: tokens of all model calls so far.
        model_calls: requests made to the model.
        tool_calls: tools run.
        cost: what the model calls cost so far, in US dollars; None if nobody asked, or no price is known.
        position: messages that the turn had stored before it was resumed.
        callers_tools: names of the tools that the caller gave with this call and runs itself.
    """

    __slots__ = (
        "_notes",
        "_repetition",
        "_scope",
        "callers_tools",
        "cancelled",
        "context",
        "cost",
        "finish_reason",
        "history",
        "id",
        "limits",
        "model_calls",
        "position",
        "reply",
        "sink",
        "tool_calls",
        "usage",
    )

    def __init__(
        self,
        turn_id: str,
        context: ToolContext,
        *,
        sink: EventSink | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.id = turn_id
        self.context = context
        self.limits = limits
        self.sink = sink
        self.history: TurnHistory | None = None
        self.reply: AssistantMessage | None = None
        self.finish_reason: FinishReason | None = None
        self.usage = UNKNOWN_USAGE
        self.model_calls = 0
        self.tool_calls = 0
        self.cost: float | None = None
        self.position = 0
        self.callers_tools: frozenset[str] = frozenset()
        self.cancelled = False
        self._notes: dict[object, Any] | None = None
        self._repetition: RepetitionGuard | None = None
        self._scope: asyncio.Timeout | None = None

    @property
    def notes(self) -> dict[object, Any]:
        """What filters have to remember for the length of the turn, each under itself as the key."""
        if self._notes is None:
            self._notes = {}
        return self._notes

    @property
    def repetition(self) -> RepetitionGuard:
        """Counts calls that are made again and again."""
        if self._repetition is None:
            self._repetition = RepetitionGuard()
        return self._repetition

    async def emit_progress(self, call_id: str, data: Any) -> None:
        """Deliver what a running tool tells; an event of an agent inside it is delivered as such."""
        if self.sink is not None:
            await self.sink.send((data if isinstance(data, AgentEvent) else ToolProgress(call_id, data),))

    def remaining(self) -> Limits:
        """What is left of the limits."""
        when = self._scope.when() if self._scope is not None else None
        return left_of(
            self.limits,
            model_calls=self.model_calls,
            tool_calls=self.tool_calls,
            tokens=(self.usage.input_tokens or 0) + (self.usage.output_tokens or 0),
            cost=self.cost or 0.0,
            seconds=None if when is None else max(0.0, when - asyncio.get_running_loop().time()),
        )

    def open_scope(self, seconds: float | None) -> asyncio.Timeout:
        """The scope in which the turn runs; it expires after `seconds`, or at once when the turn is cancelled.

        It cancels once, as asyncio does, and not again at every await, as an anyio scope would: clean-up code of tools
        and stores, written for asyncio, has to be able to await.
        """
        self._scope = asyncio.timeout(0 if self.cancelled else seconds)
        return self._scope

    def cancel(self) -> None:
        """End this turn from outside: its tools are stopped, its history is made whole, its status is `cancelled`."""
        self.cancelled = True
        if self._scope is not None and not self._scope.expired():
            with suppress(RuntimeError):  # it has ended already
                self._scope.reschedule(0)

    def __repr__(self) -> str:
        return f"Turn({self.id})"
