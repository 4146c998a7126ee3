"""MemoryFilter: turns a delta into a whole history on the way in, stores the delta with its reply on the way out."""

import asyncio
from contextlib import AbstractAsyncContextManager

from msgspec.structs import replace

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.exchange import InvokeResult, TurnRequest
from agentcore.filters.base import ChatCall, Filter, TurnCall
from agentcore.memory.base import BusyPolicy, ChatMemory, Lease, RecordKeeping, TurnLocking, record_store
from agentcore.memory.finishing import clean_up
from agentcore.memory.history import ConversationHistory, StoreAccess
from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.memory.locks import ConversationLocks
from agentcore.pairing import interrupted_result, with_call_ids
from agentcore.turn import Turn, TurnHistory


class MemoryFilter(Filter):
    """The conversation's memory as a layer of the onion.

    Around a turn it holds the conversation's place (two turns of one conversation never interleave) and opens its
    history; around a model call it puts the history before the delta, and stores delta and reply together, all or none.
    Without a store or a conversation id the history is the turn's own and is gone with it.

    Args:
        store: where conversations live; None remembers nothing.
        on_busy: what a turn does when another one of its conversation is running.
        busy_timeout: seconds a turn waits for its place at most; None waits as long as it takes.
    """

    def __init__(
        self,
        store: ChatMemory | None = None,
        *,
        on_busy: BusyPolicy = "wait",
        busy_timeout: float | None = None,
    ) -> None:
        self.store = store
        self.on_busy: BusyPolicy = on_busy
        self.busy_timeout = busy_timeout
        self._access = StoreAccess(store) if store is not None else None
        record = record_store(store) if store is not None else None
        self._locking: TurnLocking = record if isinstance(record, TurnLocking) else ConversationLocks()

    @property
    def records(self) -> RecordKeeping | None:
        """Where pauses are kept; None if the store keeps none."""
        return self._access.records if self._access is not None else None

    def hold_turn(
        self, conversation_id: str, turn: Turn | None = None, *, on_busy: BusyPolicy | None = None
    ) -> AbstractAsyncContextManager[Lease | None]:
        """Hold the conversation's place for the length of the block.

        Args:
            conversation_id: Whose place.
            turn: Cancelled when a later turn takes the place over; None for a holder that is not a turn.
            on_busy: Instead of the filter's own.

        Raises:
            ConversationBusyError: refused, or waited in vain.
        """
        return self._locking.lock_turn(
            conversation_id,
            on_busy=on_busy or self.on_busy,
            timeout=self.busy_timeout,
            supersede=turn.cancel if turn is not None else None,
        )

    async def around_turn(self, request: TurnRequest, call_next: TurnCall) -> InvokeResult:
        """Open the turn's history, holding the conversation's place."""
        conversation_id, turn = request.context.conversation_id, request.turn
        if self._access is None or conversation_id is None:
            turn.history = ConversationHistory(StoreAccess(InMemoryChatMemory()), turn.id, turn.id, lasting=False)
            return await call_next(request)
        async with self.hold_turn(conversation_id, turn) as lease:
            turn.history = ConversationHistory(self._access, conversation_id, turn.id, lease, position=turn.position)
            return await call_next(request)

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        """Send history and delta, store delta and reply.

        Raises:
            InvalidInputError: the delta cannot follow the history; nothing was stored.
        """
        turn = request.turn
        if turn is not None and turn.history is not None:
            return await _remembered(request, turn, turn.history, call_next)
        conversation_id = request.context.conversation_id
        if turn is None or self._access is None or conversation_id is None:
            return await call_next(request)
        async with self.hold_turn(conversation_id) as lease:
            history = ConversationHistory(self._access, conversation_id, turn.id, lease)
            return await _remembered(request, turn, history, call_next)


async def _remembered(request: ChatRequest, turn: Turn, history: TurnHistory, call_next: ChatCall) -> ChatResponse:
    messages = await history.view(request.messages)
    if turn.sink is not None:
        turn.sink.begin_reply()
    try:
        response = await call_next(replace(request, messages=messages))
    except BaseException as error:
        if turn.sink is not None:
            partial = turn.sink.partial_reply(cancelled=not isinstance(error, Exception))
            if partial is not None:
                await clean_up(history.append_reply([partial]))
        raise
    message = with_call_ids(response.message, turn.id)
    if message is not response.message:
        response = replace(response, message=message)
    given_up = turn.sink.given_up() if turn.sink is not None else None
    try:
        await history.append_reply([response.message] if given_up is None else [given_up, response.message])
    except asyncio.CancelledError:
        calls = response.message.tool_calls
        if calls and history.added[-1:] == (response.message,):  # stored, but nobody is left to run the calls
            await clean_up(history.append([interrupted_result(call) for call in calls]))
        raise
    return response
