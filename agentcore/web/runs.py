"""Runs: turns that go on apart from the requests that started them, and can be joined again."""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from logging import getLogger
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeAlias
from uuid import uuid4

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from agentcore.client import ChatClient, Input
from agentcore.errors import AgentCoreError, ConfigurationError, InvalidInputError
from agentcore.events import ReasoningDelta, TextDelta, TurnEvent
from agentcore.exchange import InvokeResult
from agentcore.memory.base import StoredMessage
from agentcore.messages import Message, as_messages
from agentcore.pause import Decision
from agentcore.stream import TurnStream
from agentcore.turn import Turn

OnDisconnect: TypeAlias = Literal["continue", "cancel"]

_KEPT_RUNS = 1_000
_KEPT_BYTES = 128 << 20  # of all finished runs, roughly: their events and results
_UNKNOWN_BYTES = 1_000
_EVENT_BYTES = 100  # what an event takes beside its text, roughly
_END_SECONDS = 5.0  # what a turn may take to end once it was cancelled

_log = getLogger("agentcore.web")


class ShuttingDownError(AgentCoreError):
    """The server is going down and begins no new turns; another one will."""

    kind = "overloaded"
    retryable = True


class Behind(Struct, frozen=True, tag_field="type", tag="behind"):
    """A reader was too late: `missed` events are no longer kept. The history has everything when the turn has ended."""

    missed: int


class RunEvent(NamedTuple):
    """An event and its number in the run, from 1."""

    number: int
    event: TurnEvent | Behind


class _Reader:
    __slots__ = ("at", "news")

    def __init__(self, at: int) -> None:
        self.at = at  # the last number it was given
        self.news = asyncio.Event()


class Run:
    """One running (or just finished) turn. Any number of readers may follow it, from its beginning or a later event.

    Attributes:
        id: of this run; a turn that paused and was resumed had two.
        conversation_id: None for a turn that is remembered nowhere.
        key: names the request that began it.
        asked: what that request was for: the messages of a new turn, or the decisions on one that paused.
        said: what the turn was begun with; empty for one that goes on after a pause. Stored with the first reply only.
    """

    def __init__(
        self,
        conversation_id: str | None,
        *,
        key: str | None = None,
        asked: Sequence[Message | Decision] = (),
        cancel_alone: bool,
        max_kept: int,
    ) -> None:
        self.id = uuid4().hex
        self.conversation_id = conversation_id
        self.key = key
        self.asked = tuple(asked)
        self.said: Sequence[Message] = tuple([one for one in self.asked if not isinstance(one, Decision)])
        self._cancel_alone = cancel_alone
        self._max_kept = max_kept
        self._events: deque[tuple[TurnEvent, int]] = deque()  # with their sizes
        self._size = 0
        self._told = 0  # what all events together were
        self._last = 0  # number of the newest event
        self._readers: set[_Reader] = set()
        self._attending = 0
        self._room = asyncio.Event()
        self._turn: TurnStream | None = None
        self._record: Turn | None = None
        self._cancelled = False
        self._result: InvokeResult | None = None
        self._error: Exception | None = None
        self._traceback: TracebackType | None = None
        self._ended = asyncio.Event()
        self._began = asyncio.Event()

    @property
    def is_finished(self) -> bool:
        return self._ended.is_set()

    @property
    def last_number(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._last

    @property
    def stored(self) -> int:
        """How many messages this run has stored so far."""
        history = self._record.history if self._record is not None else None
        return 0 if history is None else len(history.added)

    @property
    def has_place(self) -> bool:
        """Whether its turn has begun, and not still waits for another one of the conversation to end."""
        return self._record is not None and self._record.history is not None

    @property
    def was_in_vain(self) -> bool:
        """Whether it failed and nothing of it is stored, so that the same may be tried anew."""
        return self._error is not None and not self.stored

    @property
    def attending(self) -> int:
        """How many read along or wait for its end."""
        return self._attending

    @property
    def kept_bytes(self) -> int:
        """What is kept of it, roughly: its events, and what was said and told, which is its result."""
        return self._size + self._told + _text_size(self.asked)

    def wrote(self, stored: StoredMessage) -> bool:
        """Whether a stored message is this run's; a turn that paused began in an earlier one."""
        history = self._record.history if self._record is not None else None
        if self._record is None or history is None or stored.turn_id != self._record.id:
            return False
        return stored.position >= history.position - len(history.added)

    async def began(self) -> None:
        """Wait until the first event is there, or the run has ended without one."""
        await self._began.wait()

    async def ended(self) -> None:
        """Wait for the end, whatever it is."""
        await self._ended.wait()

    async def finished(self) -> InvokeResult:
        """Wait for the end; returns how the turn ended.

        Raises:
            Exception: what ended it, as `ChatClient.invoke` would have raised it.
        """
        await self.ended()
        return self.result

    @property
    def result(self) -> InvokeResult:
        """How the turn ended.

        Raises:
            RuntimeError: it is still running.
            Exception: what ended it.
        """
        if self._error is not None:
            raise self._error.with_traceback(self._traceback)  # else it would grow with everybody who asks
        if self._result is None:
            raise RuntimeError("the run is not finished; wait for it with finished()")
        return self._result

    def cancel(self) -> None:
        """Stop the turn: what was delivered is kept, its status is `cancelled`."""
        self._cancelled = True
        if self._turn is not None:
            self._turn.cancel()
        self._room.set()

    async def follow(self, after: int = 0) -> AsyncGenerator[Sequence[RunEvent]]:
        """The events after a number, as they come, in batches of what is there; ends with the run.

        A run waits for its fastest reader once its buffer is full, so that a slow reader holds the provider back and
        nothing piles up. Slower ones, and those who come later, are given a `Behind` in the place of what they missed.
        """
        with self.joined(after) as batches:
            async for batch in batches:
                yield batch

    @contextmanager
    def joined(self, after: int = 0) -> Generator[AsyncIterator[Sequence[RunEvent]]]:
        """What `follow` gives, for a reader who counts as one from now to the end of the block, read or not."""
        reader = _Reader(max(0, min(after, self._last)))
        self._readers.add(reader)
        try:
            with self.attended():
                yield self._batches(reader)
        finally:
            self._readers.discard(reader)
            self._room.set()

    @contextmanager
    def attended(self) -> Generator[None]:
        """Count as somebody for whom the run goes on, without reading its events: for who waits for its end alone."""
        self._attending += 1
        try:
            yield
        finally:
            self._attending -= 1
            if self._cancel_alone and not self._attending and not self._ended.is_set():
                self.cancel()

    async def _batches(self, reader: _Reader) -> AsyncGenerator[Sequence[RunEvent]]:
        while True:
            batch = self._after(reader)
            if batch:
                reader.at = batch[-1].number
                self._room.set()
                yield batch
            elif self._ended.is_set():
                return
            else:
                reader.news.clear()
                await reader.news.wait()

    def _after(self, reader: _Reader) -> list[RunEvent]:
        first = self._last - len(self._events) + 1
        batch: list[RunEvent] = []
        if reader.at + 1 < first:
            batch.append(RunEvent(first - 1, Behind(first - 1 - reader.at)))
        start = max(first, reader.at + 1)
        batch.extend(RunEvent(number, self._events[number - first][0]) for number in range(start, self._last + 1))
        return batch

    async def drive(self, turn: AbstractAsyncContextManager[TurnStream]) -> None:
        """Run the turn to its end, whoever reads along; its outcome is for those who ask."""
        try:
            async with turn as stream:
                self._turn, self._record = stream, stream.turn
                if self._cancelled:
                    stream.cancel()
                async for event in stream:
                    await self._put(event)
            self._result = stream.result
        except Exception as error:  # noqa: BLE001 - raised to whoever asks for the result
            self._error, self._traceback = error, error.__traceback__
        except BaseException:  # a cancellation is ours alone, and nothing to be raised to those who ask
            self._error = ShuttingDownError("the server went down before the turn had ended; ask again")
            raise
        finally:
            self._turn = None
            self._ended.set()
            self._began.set()
            for reader in self._readers:
                reader.news.set()

    async def _put(self, event: TurnEvent) -> None:
        size = _EVENT_BYTES + _text_size(event)
        while self._size + size > self._max_kept and self._events and not self._cancelled:
            first = self._last - len(self._events) + 1
            if self._readers and max(reader.at for reader in self._readers) < first:
                self._room.clear()
                await self._room.wait()
                continue
            self._size -= self._events.popleft()[1]
        self._events.append((event, size))
        self._size += size
        self._told += size
        self._last += 1
        self._began.set()
        for reader in self._readers:
            reader.news.set()


def _text_size(told: TurnEvent | Sequence[Message | Decision]) -> int:
    if isinstance(told, TextDelta | ReasoningDelta):
        return len(told.text)
    try:
        return len(msgspec.json.encode(told, enc_hook=str))
    except Exception:  # noqa: BLE001 - an app's object may fail in any way; that it cannot be told is its readers' matter
        return _UNKNOWN_BYTES


class Runs:
    """The turns of one client that run apart from requests. Open for as long as the app serves:

        async with Runs(client) as runs:
            run = runs.start("hi", conversation_id="u1")
            async for batch in run.follow(): ...

    Args:
        client: whose turns they are.
        on_disconnect: what becomes of a run that nobody follows any more: it goes on, or is cancelled.
        max_kept_bytes: events of one run that are kept for readers who come late or come again, in bytes (roughly).
        keep_finished: seconds for which a finished run can still be joined; fewer where 1,000 are kept, or 128 MiB.
        grace: seconds that running turns have to finish when the block ends; then they are stopped.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        client: ChatClient,
        *,
        on_disconnect: OnDisconnect = "continue",
        max_kept_bytes: int = 1 << 20,
        keep_finished: float = 60.0,
        grace: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client = client
        self.on_disconnect: OnDisconnect = on_disconnect
        self._max_kept = max_kept_bytes
        self._keep_finished = keep_finished
        self._grace = grace
        self._clock = clock
        self._tasks: TaskGroup | None = None
        self._runs: dict[str, Run] = {}
        self._finished: OrderedDict[str, tuple[float, int]] = OrderedDict()  # when each ended, its size; oldest first
        self._kept_bytes = 0
        self._of_conversation: dict[str, list[Run]] = {}
        self._of_key: dict[tuple[str | None, str], Run] = {}
        self._draining = False
        self._told = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_draining(self) -> bool:
        """Whether no new turns are begun."""
        return self._draining

    def start(
        self,
        messages: Input,
        *,
        conversation_id: str | None,
        tool_context: Mapping[str, Any] | None = None,
        on_disconnect: OnDisconnect | None = None,
        key: str | None = None,
        **settings: Any,
    ) -> Run:
        """Begin a turn; arguments as for `ChatClient.stream`, and what becomes of it without readers, if not as usual.

        A `key` names the request, in its conversation: the same one again gives the run that it began, as long as that
        is kept. Browsers send a request again by themselves when its connection breaks before an answer. A run that
        failed and left nothing is begun anew.

        Raises:
            InvalidInputError: no messages, or messages that cannot be a turn; a key that was used for something else.
            ShuttingDownError: no new turns are begun.
        """
        asked = tuple(as_messages(messages))
        if (run := self._begun(conversation_id, key, asked)) is not None:
            return run
        self._check_open()
        turn = self.client.stream(asked, conversation_id=conversation_id, tool_context=tool_context, **settings)
        return self._begin(conversation_id, turn, on_disconnect or self.on_disconnect, key, asked)

    def check(self, messages: Input, *, conversation_id: str | None) -> None:
        """Raise what `start` would raise, and begin nothing: for who has to change something before the turn."""
        self._check_open()
        self.client.stream(messages, conversation_id=conversation_id)

    def resume(
        self,
        conversation_id: str,
        decisions: Decision | Iterable[Decision],
        *,
        tool_context: Mapping[str, Any] | None = None,
        key: str | None = None,
        **settings: Any,
    ) -> Run:
        """Go on with a turn that paused; arguments as for `ChatClient.resume`, and a key as for `start`.

        Raises:
            InvalidInputError: a key that was used for something else.
            ShuttingDownError: no new turns are begun. What `ChatClient.resume` raises comes out of the run.
        """
        made = (decisions,) if isinstance(decisions, Decision) else tuple(decisions)
        if (run := self._begun(conversation_id, key, made)) is not None:
            return run
        self._check_open()
        turn = self.client.resume_stream(conversation_id, made, tool_context=tool_context, **settings)
        return self._begin(conversation_id, turn, self.on_disconnect, key, made)

    def find(self, run_id: str) -> Run | None:
        """A run by its id, as long as it is running or kept."""
        self._forget_old()
        return self._runs.get(run_id)

    def running(self, conversation_id: str) -> Run | None:
        """The newest unfinished run of a conversation in this process."""
        runs = self._of_conversation.get(conversation_id)
        return runs[-1] if runs else None

    def of_conversation(self, conversation_id: str) -> Sequence[Run]:
        """The unfinished runs of a conversation in this process, oldest first."""
        return tuple(self._of_conversation.get(conversation_id, ()))

    def cancel(self, conversation_id: str) -> int:
        """Stop all runs of a conversation in this process; returns how many."""
        runs = self.of_conversation(conversation_id)
        for run in runs:
            run.cancel()
        return len(runs)

    def drain(self) -> None:
        """Begin no new turns from now on; those that run go on."""
        self._draining = True

    def begin_shut_down(self) -> None:
        """Begin no new turns, and let the grace time of the running ones begin; for a signal's handler."""
        self._draining = True
        self._told.set()

    async def shut_down(self, grace: float | None = None) -> None:
        """Begin no new turns, give the running ones a grace time in seconds, then stop them; returns when all ended."""
        self.drain()
        with anyio.move_on_after(self._grace if grace is None else grace):
            await self._idle.wait()
        for run in list(self._runs.values()):
            if not run.is_finished:
                run.cancel()
        with anyio.move_on_after(_END_SECONDS) as waiting:
            await self._idle.wait()
        if waiting.cancelled_caught:
            _log.warning(
                "%d turns have not ended %g s after they were cancelled: a tool, a model or a store of theirs does not "
                "heed it, and the server waits for them",
                len(self._runs) - len(self._finished),
                _END_SECONDS,
            )

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise RuntimeError("these runs are open already")
        self._tasks = await anyio.create_task_group().__aenter__()
        self._draining = False
        self._told.clear()
        self._tasks.start_soon(self._shut_down_when_told)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        tasks = self._tasks
        assert tasks is not None
        try:
            with anyio.CancelScope(shield=True):  # bounded: by the grace time, and the time that turns have to end
                await self.shut_down(0 if exc is not None else None)
        finally:
            self._tasks = None
            tasks.cancel_scope.cancel()
            await tasks.__aexit__(None, None, None)

    async def _shut_down_when_told(self) -> None:
        await self._told.wait()
        await self.shut_down()

    def _check_open(self) -> None:
        if self._draining:
            raise ShuttingDownError("the server is going down; try again in a moment")
        if self._tasks is None:
            raise ConfigurationError(
                "the runs are not open: give the app their lifespan, as in Starlette(lifespan=chat.lifespan) or "
                "FastAPI(lifespan=chat.lifespan), or enter `async with runs`"
            )

    def _begun(self, conversation_id: str | None, key: str | None, asked: Sequence[Message | Decision]) -> Run | None:
        if key is None:
            return None
        self._forget_old()
        run = self._of_key.get((conversation_id, key))
        if run is not None and run.asked != asked:
            raise InvalidInputError(
                "the key of this request was used for another one; give each request a key of its own"
            )
        return None if run is None or run.was_in_vain else run

    def _begin(
        self,
        conversation_id: str | None,
        turn: AbstractAsyncContextManager[TurnStream],
        on_disconnect: OnDisconnect,
        key: str | None,
        asked: Sequence[Message | Decision],
    ) -> Run:
        assert self._tasks is not None
        self._forget_old()
        run = Run(
            conversation_id, key=key, asked=asked, cancel_alone=on_disconnect == "cancel", max_kept=self._max_kept
        )
        self._runs[run.id] = run
        if key is not None:
            self._of_key[conversation_id, key] = run
        if conversation_id is not None:
            self._of_conversation.setdefault(conversation_id, []).append(run)
        self._idle.clear()
        self._tasks.start_soon(self._drive, run, turn)
        return run

    async def _drive(self, run: Run, turn: AbstractAsyncContextManager[TurnStream]) -> None:
        try:
            await run.drive(turn)
        finally:
            size = run.kept_bytes
            self._finished[run.id] = self._clock(), size
            self._kept_bytes += size
            if run.conversation_id is not None:
                runs = self._of_conversation[run.conversation_id]
                runs.remove(run)
                if not runs:
                    del self._of_conversation[run.conversation_id]
            self._forget_old()
            if len(self._finished) == len(self._runs):
                self._idle.set()

    def _forget_old(self) -> None:
        before = self._clock() - self._keep_finished
        while self._finished:
            run_id, (ended, size) = next(iter(self._finished.items()))
            if ended > before and len(self._finished) <= _KEPT_RUNS and self._kept_bytes <= _KEPT_BYTES:
                break
            run = self._runs[run_id]
            del self._finished[run_id], self._runs[run_id]
            self._kept_bytes -= size
            if run.key is not None and self._of_key.get((run.conversation_id, run.key)) is run:
                del self._of_key[run.conversation_id, run.key]
