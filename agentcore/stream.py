"""TurnStream: a turn that runs while its events are read; and the channel between the two."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

import anyio

from agentcore.events import ReasoningDelta, ReplyRestarted, TextDelta, ToolStarted, TurnEvent
from agentcore.exchange import InvokeResult, turn_result
from agentcore.filters.base import StreamTransform
from agentcore.messages import AssistantMessage
from agentcore.turn import Turn

T = TypeVar("T")

BUFFERED_BATCHES = 16
"""Network reads that may wait for a slow reader before the provider's stream is held back."""


class EventChannel:
    """Events on their way from the running turn to its reader, batch by batch, bounded. Satisfies `turn.EventSink`.

    A deque and futures instead of an anyio memory stream: that one costs some 7 µs a batch, most of what a streamed
    delta costs here when each comes in a network read of its own.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._batches: deque[Sequence[TurnEvent]] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._writers: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._stopped = False
        self._sent = 0
        self._taken = 0
        self._reply_start = 0
        self._reply: list[TurnEvent] = []
        self._attempt_start = 0
        self._restarted = False
        self._batch: Iterator[TurnEvent] = iter(())

    def begin_reply(self) -> None:
        """A reply is asked for."""
        self._reply_start = self._sent
        self._reply = []
        self._attempt_start = 0
        self._restarted = False

    def begin_attempt(self) -> None:
        """The model is called."""
        self._restarted |= len(self._reply) > self._attempt_start
        self._attempt_start = len(self._reply)

    def given_up(self) -> AssistantMessage | None:
        """What was delivered by attempts that were given up, marked `interrupted`; None if nothing."""
        return _interrupted(self._reply[: self._attempt_start])

    async def send(self, events: Sequence[TurnEvent]) -> None:
        """Hand events over; waits while the buffer is full."""
        if not events:
            return
        while len(self._batches) >= BUFFERED_BATCHES:
            await self._wait_for_room()
        if self._restarted:
            self._restarted = False
            events = (ReplyRestarted(), *events)
        self._sent += len(events)
        self._reply.extend(events)
        self._batches.append(events)
        _wake(self._reader)

    def partial_reply(self, *, cancelled: bool) -> AssistantMessage | None:
        """What the reader gets of the reply that broke off, marked `interrupted`; None if nothing."""
        events = self._reply
        if cancelled:
            events = events[: max(0, self._taken - self._reply_start)]
            self._stopped = True  # what is stored now is all that may be delivered
        return _interrupted(events)

    def close(self) -> None:
        """Nothing more will be sent."""
        self._closed = True
        _wake(self._reader)

    async def next_event(self, turn: Turn) -> TurnEvent | None:
        """The next event; None when the channel is closed, or the turn cancelled and at its end.

        May be cancelled and called again: an event is lost only to a reader that was given it.
        """
        while True:
            if not (turn.cancelled or self._stopped):
                for event in self._batch:
                    self._taken += 1
                    return event
            # Of a turn that was stopped nothing more is delivered; it is waited for, so that its result is there.
            while not self._batches:
                if self._closed:
                    return None
                self._reader = self._loop.create_future()
                await self._reader
            self._batch = iter(self._batches.popleft())
            if self._writers:
                _wake(self._writers.popleft())

    async def _wait_for_room(self) -> None:
        waiter = self._loop.create_future()
        self._writers.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._writers:
                self._writers.remove(waiter)
            elif self._writers:  # room had been made for us: it is the next one's
                _wake(self._writers.popleft())
            raise


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _interrupted(events: Sequence[TurnEvent]) -> AssistantMessage | None:
    text = "".join([event.text for event in events if isinstance(event, TextDelta)])
    reasoning = "".join([event.text for event in events if isinstance(event, ReasoningDelta)])
    if not text and not reasoning:
        return None
    return AssistantMessage(text or None, reasoning=reasoning or None, finish_reason="interrupted")


class _Events(AsyncIterator[TurnEvent]):
    """The events of a turn. No generator, which a cancelled read would end: a reader may time out and read on."""

    def __init__(self, channel: EventChannel, stream: "TurnStream") -> None:
        self._channel = channel
        self._stream = stream

    async def __anext__(self) -> TurnEvent:
        event = await self._channel.next_event(self._stream.turn)
        if event is None:
            self._stream.raise_error()
            raise StopAsyncIteration
        return event


class TurnStream:
    """A running turn: iterate its events to their end, then read `result`.

    Leaving the `async with` block earlier ends the turn: what was delivered is kept, its status is `cancelled`.
    """

    def __init__(
        self,
        run: Callable[[], Awaitable[InvokeResult]],
        turn: Turn,
        transforms: Sequence[StreamTransform],
    ) -> None:
        self.turn = turn
        self._run = run
        self._transforms = transforms
        self._result: InvokeResult | None = None
        self._error: BaseException | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._events: AsyncIterator[TurnEvent] | None = None

    @property
    def result(self) -> InvokeResult:
        """How the turn ended; there when the events are read to their end or the block is left.

        Raises:
            RuntimeError: the turn is still running.
        """
        if self._result is not None:
            return self._result
        if self._error is not None:
            raise self._error
        raise RuntimeError("the turn is still running: read its events to their end before you ask for the result")

    @property
    async def text(self) -> AsyncIterator[str]:
        """The pieces of text alone."""
        async for event in self:
            if isinstance(event, TextDelta):
                yield event.text

    async def partial(self, type_: type[T]) -> AsyncIterator[T]:
        """The answer as it grows: a value of the type whenever what is there so far makes one that is new.

        Fields that may come later need defaults; a list grows item by item, a text letter by letter. A reply that is
        given up is forgotten: what follows begins anew. The steps grow with the answer (a 32nd of it), so that all of
        them together take time in proportion to its length. Whether the whole answer fits says `result.parse`.

        Args:
            type_: the type that `ChatOptions.response_format` named; `dict` or `Any` for whatever JSON it is.
        """
        from agentcore.partial_output import PartialOutput

        output = PartialOutput(type_)
        async for event in self:
            if isinstance(event, TextDelta):
                output.feed(event.text)
                if not output.due:
                    continue
            for value in output.step():
                yield value
            if isinstance(event, ReplyRestarted | ToolStarted):
                output = PartialOutput(type_)
        for value in output.step():
            yield value

    def cancel(self) -> None:
        """Stop the turn; iteration ends, `result.status` is `cancelled`."""
        self.turn.cancel()

    def __aiter__(self) -> AsyncIterator[TurnEvent]:
        if self._events is None:
            raise RuntimeError("open the stream first: async with client.stream(...) as turn")
        return self._events

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise RuntimeError("a stream is entered once; make another one for another turn")
        self._channel = EventChannel()
        self.turn.sink = self._channel
        self._events = _Events(self._channel, self)
        for transform in reversed(self._transforms):
            self._events = transform(self._events)
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._tasks.create_task(self._run_turn())
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        if self._result is None and self._error is None:
            self.turn.cancel()
        # Shielded: a scope around us that cancels at every await would cut off the turn's clean-up. Without the
        # exception: the task group would wrap the caller's own into a group; the turn's task never raises.
        with anyio.CancelScope(shield=True):
            await self._tasks.__aexit__(None, None, None)
            close = getattr(self._events, "aclose", None)  # a filter's generator has one
            if close is not None:
                await close()

    async def _run_turn(self) -> None:
        try:
            self._result = await self._run()
        except asyncio.CancelledError:
            self._result = turn_result(self.turn, "cancelled")
            raise
        except Exception as error:  # noqa: BLE001 - carried to the reader, who raises it
            self._error = error
        finally:
            self._channel.close()

    def raise_error(self) -> None:
        """Raise what ended the turn, if that was an error."""
        if self._error is not None:
            raise self._error
