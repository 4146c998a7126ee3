"""TurnRecorder: keeps with a conversation what its turns asked and were answered, so that they can be replayed."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import ClassVar

import httpx
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.errors import ConfigurationError
from agentcore.exchange import InvokeResult, TurnRequest
from agentcore.filters.base import ChatCall, Filter, MemorySide, ToolRun, TurnCall
from agentcore.memory.base import ChatMemory, MessageLog, RecordKeeping, record_store
from agentcore.memory.finishing import clean_up
from agentcore.messages import ToolMessage
from agentcore.testing.exchanges import Exchange, Keep, RecordingTransport
from agentcore.testing.turn_tape import RecordBeside, RecordedRun, message_to, recorded_tool
from agentcore.tools.request import ToolRequest
from agentcore.tools.toolset import AnyToolSource

_RUN = "turn_run"
_EXCHANGE = "turn_exchange"
_BESIDE = ("summary", "persona", "pause", "pause_ticket", "result")
"""Kinds of records that have a say in what a turn sends: what summaries, hand-offs, pauses and batches leave."""


class TurnRecorder:
    """Keeps what turns asked, and what they were answered, with their conversations: `export_turn` reads it.

        async with TurnRecorder(memory) as recorder, make_client(recorder) as client:   # see `TurnTape`

    It belongs to debugging: each request is kept whole, so that what is kept of a conversation grows with the square of
    its length; it goes when the conversation is cleared. Keys are hidden as in `record`. Options, limits and the tool
    context are not kept. Turns without a conversation are not recorded, nor is what tools ask by themselves.

    Args:
        memory: the store of the conversations.
        transport: sends the requests; connections of our own pool if not given.

    Raises:
        ConfigurationError: the store keeps no records, or not which turn stored what.
    """

    def __init__(self, memory: ChatMemory, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        from agentcore.providers.pool import PooledTransport

        record = record_store(memory)
        if not isinstance(record, RecordKeeping) or not isinstance(record, MessageLog):
            raise ConfigurationError(
                f"no turn can be recorded in {type(record).__name__}, which keeps no records or not which turn stored "
                "what; use InMemoryChatMemory, SQLiteChatMemory or another store with MessageLog and RecordKeeping"
            )
        self.memory = memory
        self.filter: Filter = _RecordingFilter(record, record)
        recording = RecordingTransport(_begin, transport or PooledTransport())
        self.http_client = httpx.AsyncClient(transport=recording, timeout=None)  # noqa: S113 - requests have their own

    def tools(self, sources: Sequence[AnyToolSource], /) -> Sequence[AnyToolSource]:
        """The tools as they are."""
        return sources

    async def aclose(self) -> None:
        """Close the connections; after the clients that use them."""
        await self.http_client.aclose()

    async def __aenter__(self) -> "TurnRecorder":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def recorded_runs(records: RecordKeeping, conversation_id: str, turn_id: str) -> tuple[RecordedRun, ...]:
    """What was recorded of a turn, in order; empty if nothing was."""
    exchanges: dict[str, list[Exchange]] = {}
    kept = await records.list_records(conversation_id, f"{_EXCHANGE}:{turn_id}")
    for record in sorted(kept, key=lambda record: record.key):
        run, _, _ = record.key.rpartition(":")
        exchanges.setdefault(run, []).append(msgspec.json.decode(record.body, type=Exchange))
    runs = [
        replace(msgspec.json.decode(record.body, type=RecordedRun), exchanges=tuple(exchanges.get(record.key, ())))
        for record in await records.list_records(conversation_id, _RUN)
        if record.key.startswith(f"{turn_id}:")
    ]
    return tuple(sorted(runs, key=lambda run: (run.position, run.paused_at)))


async def last_recorded_turn(records: RecordKeeping, conversation_id: str) -> tuple[str, float] | None:
    """The turn that was recorded last, and when; None if none was."""
    runs = await records.list_records(conversation_id, _RUN)
    last = max(runs, key=lambda record: record.created_at, default=None)
    return None if last is None else (last.key.partition(":")[0], last.created_at)


class _Run:
    """A run that is being recorded."""

    def __init__(
        self, log: MessageLog, records: RecordKeeping, conversation_id: str, turn_id: str, recorded: RecordedRun
    ) -> None:
        self._log = log
        self._records = records
        self._conversation_id = conversation_id
        self._key = f"{turn_id}:{recorded.paused_at!r}"
        self._kind = f"{_EXCHANGE}:{turn_id}"
        self._recorded = recorded
        self._begun = recorded.paused_at > 0  # what was there before is on record with the first run
        self._asked = 0
        self._over: dict[int, Exchange] = {}  # and not stored yet

    def begin(self) -> Keep:
        place = self._asked  # in the order of asking, whoever is answered first
        self._asked += 1

        def keep(exchange: Exchange) -> None:
            self._over[place] = exchange

        return keep

    async def look_around(self) -> None:
        """Take down what the turn begins with; the conversation is the turn's own by now."""
        if self._begun:
            return
        self._begun = True
        after = await self._log.version(self._conversation_id)
        beside = [
            RecordBeside(kind, one.key, one.body, one.seq)
            for kind in _BESIDE
            for one in await self._records.list_records(self._conversation_id, kind)
        ]
        self._recorded = replace(self._recorded, after=after, beside=tuple(beside))
        await self.put()

    async def put(self) -> None:
        await self._put(_RUN, self._key, self._recorded)

    async def put_exchanges(self) -> None:
        """Store those that are over and not stored yet."""
        while self._over:
            place, exchange = self._over.popitem()
            await self._put(self._kind, f"{self._key}:{place:06}", exchange)

    async def end(self, result: InvokeResult) -> None:
        await self.look_around()
        await self.put_exchanges()
        pending = () if result.pause is None else result.pause.calls
        self._recorded = replace(self._recorded, status=result.status, pending=pending)
        await self.put()

    async def _put(self, kind: str, key: str, body: Struct) -> None:
        await self._records.put_record(self._conversation_id, kind, key, msgspec.json.encode(body).decode())


_current: ContextVar[_Run | None] = ContextVar("recorded_run", default=None)


def _begin() -> Keep | None:
    run = _current.get()
    return None if run is None else run.begin()


class _RecordingFilter(Filter):
    """Outermost: sees what the turn was given, and is open for as long as anything in it may ask."""

    memory_side: ClassVar[MemorySide | None] = "outside"

    def __init__(self, log: MessageLog, records: RecordKeeping) -> None:
        self._log = log
        self._records = records

    async def around_turn(self, request: TurnRequest, call_next: TurnCall) -> InvokeResult:
        """Take down what is asked, and how it ends."""
        conversation_id, turn = request.context.conversation_id, request.turn
        if conversation_id is None:
            return await call_next(request)
        resumption = request.resumption
        recorded = RecordedRun(
            position=turn.position,
            paused_at=0.0 if resumption is None else resumption.pause.created_at,
            streamed=turn.sink is not None,
            messages=tuple(map(message_to, request.messages)),
            tools=tuple(map(recorded_tool, request.tools)),
            decisions=() if resumption is None else tuple(resumption.decisions.values()),
        )
        run = _Run(self._log, self._records, conversation_id, turn.id, recorded)
        await run.put()
        token = _current.set(run)
        try:
            result = await call_next(request)
        except BaseException:
            await clean_up(run.put_exchanges())
            raise
        finally:
            _current.reset(token)
        await run.end(result)
        return result

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        """What was asked and answered is on record before the tools run: a process may end among them."""
        run = _current.get()
        if run is None:
            return await call_next(request)
        await run.look_around()
        response = await call_next(request)
        await run.put_exchanges()
        return response

    async def around_tool(self, request: ToolRequest, call_next: ToolRun) -> ToolMessage:
        """What a tool asks is its own: a replay does not run it."""
        token = _current.set(None)
        try:
            return await call_next(request)
        finally:
            _current.reset(token)
