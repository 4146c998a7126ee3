"""ConversationHistory: one turn's way to the record: read healed and windowed, appended to, never kept twice."""

import logging
from collections.abc import Callable, Mapping, Sequence

from agentcore.errors import InvalidInputError, PauseError
from agentcore.memory.base import ChatMemory, FittingView, Lease, MessageLog, ModelView, RecordKeeping, record_store
from agentcore.memory.finishing import finish
from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.memory.ledger import record_result, recorded_results
from agentcore.memory.pauses import abandon_pause, keep_pause, take_pause
from agentcore.messages import AssistantMessage, Message, ToolCall, ToolMessage
from agentcore.pairing import heal, interrupted_result, last_batch, unanswered_calls
from agentcore.pause import Pause

logger = logging.getLogger("agentcore.memory")

ABANDONED_RESULT = "Not run: it waited for a decision, and the user went on without one."


class StoreAccess:
    """A store and the powers it has, looked up once for all turns.

    Attributes:
        record: the store that holds the messages.
        view: decides what of them the model sees; None shows all.
        log: the record again, if an append to it can be conditional and sent again.
        records: the record again, if it keeps other things with a conversation: pauses, results of a batch under way.
        fit: has the last word on what the model sees; None leaves it as it is.
        instant: its appends never wait, so nothing can come in between.
    """

    __slots__ = ("fit", "instant", "log", "record", "records", "view")

    def __init__(self, store: ChatMemory) -> None:
        # Asked first: looking for protocols takes microseconds, and a turn without a store makes one of these.
        if type(store) is InMemoryChatMemory:
            self.record: ChatMemory = store
            self.view: ModelView | None = None
            self.log: MessageLog | None = store
            self.records: RecordKeeping | None = store
            self.fit: Callable[[Sequence[Message]], Sequence[Message]] | None = None
            self.instant = True
            return
        record = record_store(store)
        self.record = record
        self.view = store if isinstance(store, ModelView) else None
        self.fit = store.fit if isinstance(store, FittingView) else None
        self.log = _log_of(record)
        self.records = record if isinstance(record, RecordKeeping) else None
        self.instant = type(record) is InMemoryChatMemory


def _log_of(store: ChatMemory) -> MessageLog | None:
    if not isinstance(store, MessageLog):
        return None
    for part in type(store).__mro__:
        if "append" in vars(part):
            break
        if "add" in vars(part):
            return None  # a subclass that changes how messages are added does not know of `append`
    return store


class ConversationHistory:
    """The history of one conversation, as one turn reads and extends it. Satisfies `turn.TurnHistory`."""

    def __init__(
        self,
        access: StoreAccess,
        conversation_id: str,
        turn_id: str,
        lease: Lease | None = None,
        *,
        position: int = 0,
        lasting: bool = True,
    ) -> None:
        self._access = access
        self._conversation_id = conversation_id
        self._turn_id = turn_id
        self._lease = lease
        self._start = position
        self._lasting = lasting
        self._version: int | None = None  # after our last append
        self._added: list[Message] = []
        self._delta: Sequence[Message] = ()
        self._due: tuple[Message, ...] = ()
        self._answered_delta: tuple[object, ...] | None = None
        self._replies = 0  # messages stored since that delta
        self._reply: AssistantMessage | None = None  # stored, and not yet out of the chat filters

    @property
    def added(self) -> tuple[Message, ...]:
        """What this turn has stored so far, in stored order."""
        return tuple(self._added)

    @property
    def position(self) -> int:
        """How many messages the turn has stored, before a pause and since."""
        return self._start + len(self._added)

    @property
    def can_pause(self) -> bool:
        """Whether the turn may wait here: in a conversation, on a store that keeps records."""
        return self._lasting and self._access.records is not None

    async def keep_pause(self, pause: Pause, expires_in: float | None) -> None:
        """Store that the turn waits."""
        records = self._access.records
        assert records is not None  # can_pause has been asked
        await finish(keep_pause(records, self._conversation_id, pause, seq=self._version, expires_in=expires_in))

    async def take_pause(self, pause: Pause) -> Sequence[ToolCall]:
        """Use the pause up; the calls that have no result yet.

        Raises:
            PauseError: it cannot be resumed (any more); nothing was changed.
        """
        records = self._access.records
        assert records is not None  # the pause came from there
        calls = unanswered_calls(await self._access.record.get(self._conversation_id))
        waiting = {one.call.id for one in pause.calls}
        if not waiting <= {call.id for call in calls}:
            raise PauseError(
                f"conversation {self._conversation_id!r} has gone on without its pause: the calls are answered",
                reason="stale",
            )
        await finish(take_pause(records, self._conversation_id, pause))
        if self._access.log is not None:
            self._version = await self._access.log.version(self._conversation_id)
        return calls

    @property
    def records_results(self) -> bool:
        """Whether results can outlive the process before their batch is complete."""
        return self._lasting and not self._access.instant and self._version is not None and self.can_pause

    async def record_result(self, place: int, message: ToolMessage) -> None:
        """Keep one result of the batch under way; see `memory.ledger`."""
        records = self._access.records
        assert records is not None
        await finish(record_result(records, self._conversation_id, self._version, place, message))

    async def append(self, messages: Sequence[Message]) -> None:
        """Store messages, all or none; done or not done is known even when we are cancelled meanwhile."""
        self._answered_delta = None  # whatever comes now is another step
        await self._append(messages)

    async def _append(self, messages: Sequence[Message]) -> None:
        if not messages:
            return
        if self._access.instant:
            await self._add(messages)
        else:
            await finish(self._add(messages))

    async def _add(self, messages: Sequence[Message]) -> None:
        if self._access.log is not None:
            self._version = await self._access.log.append(
                self._conversation_id, messages, turn_id=self._turn_id, position=self.position, lease=self._lease
            )
        else:
            await self._access.record.add(self._conversation_id, messages)
        self._added.extend(messages)

    async def view(self, delta: Sequence[Message]) -> Sequence[Message]:
        """What the model should see: the history, healed and cut to the window, then `delta`.

        Tool messages at the head of `delta` are facts: those that the store does not hold yet are stored at once.
        `due` then tells what has to be stored together with the reply. A filter that sends the same `delta` again gets
        another reply to it: it is not stored twice, and the model does not see the reply it is to replace.

        Raises:
            InvalidInputError: `delta` cannot follow this history; nothing was stored.
        """
        again = bool(delta) and self._answered_delta == _key(delta)
        pending = () if again else delta
        if self._access.view is not None:
            stored = await self._access.view.view(self._conversation_id, pending)
        else:
            stored = await self._access.record.get(self._conversation_id)
        self._delta = delta
        if again:
            # Calls of the reply that is to be replaced will never run.
            self._due = tuple(interrupted_result(call) for call in unanswered_calls(stored))
            before = stored[: max(0, len(stored) - self._replies - len(delta))]
            return self._fitted(heal([*before, *delta])[0])
        lead = _count_results(delta)
        if lead:
            stored = await self._take_results(stored, delta[:lead])
            self._due = tuple(delta[lead:])
        else:
            # A turn broke off in the middle of its tools: say so to the model, and in the store with the next append.
            broken_off = await self._answers_of(unanswered_calls(stored))
            self._due = (*broken_off, *delta)
        if not stored and not self._due and not lead:
            raise InvalidInputError("there is nothing to send: no messages were given and the history is empty")
        messages = [*stored, *self._due]
        healed, repairs = heal(messages)
        for repair in repairs:
            if repair.index >= len(stored):
                raise InvalidInputError(
                    f"the messages given cannot follow the history of {self._conversation_id!r}: item "
                    f"{repair.index - len(messages) + len(delta)}: {_fault(repair.detail)}; nothing was stored"
                )
            logger.warning("conversation %r healed: %s", self._conversation_id, repair)
        return self._fitted(healed)

    def _fitted(self, messages: Sequence[Message]) -> Sequence[Message]:
        return messages if self._access.fit is None else self._access.fit(messages)

    @property
    def due(self) -> tuple[Message, ...]:
        """What the last `view` took in and the store does not hold yet; to be appended with the reply."""
        return self._due

    async def append_reply(self, replies: Sequence[AssistantMessage]) -> None:
        """Store what is due and the reply to it, all or none."""
        due, key = self._due, _key(self._delta)
        await self._append([*due, *replies])
        if key != self._answered_delta:
            self._answered_delta, self._replies = key, len(replies)
        else:
            self._replies += len(due) + len(replies)
        self._due = ()
        self._reply = replies[-1]

    async def settle(self, delta: Sequence[Message], reply: AssistantMessage) -> None:
        """Make sure that the reply which left the chat filters is the one on record.

        A filter outside the memory may have answered without it, or with other calls than were stored.
        """
        last, self._reply = self._reply, None
        if last is reply or (last is not None and _ids(last) == _ids(reply)):
            return
        if last is None:
            fresh = delta[_count_results(delta) :] if self._added else delta
            await self._append([*fresh, reply])
        else:
            await self._append([*(interrupted_result(call) for call in last.tool_calls), reply])

    async def _answers_of(self, calls: Sequence[ToolCall]) -> list[ToolMessage]:
        """Answers to the calls that an earlier turn left open: results that were recorded, else that it broke off."""
        if not calls:
            return []
        records = self._access.records
        if records is not None and await abandon_pause(records, self._access.log, self._conversation_id):
            return [ToolMessage(call.id, call.name, ABANDONED_RESULT, is_error=True) for call in calls]
        recorded: Mapping[str, ToolMessage] = {}
        if records is not None and self._access.log is not None and not self._access.instant:
            recorded = await recorded_results(records, self._access.log, self._conversation_id)
        answers = [recorded.get(call.id) or interrupted_result(call) for call in calls]
        logger.warning(
            "conversation %r: a turn broke off among its tools; recorded results: %s; answered as interrupted: %s",
            self._conversation_id,
            ", ".join(call.id for call in calls if call.id in recorded) or "none",
            ", ".join(call.id for call in calls if call.id not in recorded) or "none",
        )
        return answers

    async def _take_results(self, stored: Sequence[Message], results: Sequence[Message]) -> Sequence[Message]:
        """Store the results that are new; in what is returned the results given stand in place of the stored ones."""
        calls, answered = last_batch(stored)
        unanswered = [call.id for call in calls if call.id not in answered]
        given: dict[str, ToolMessage] = {}
        for result in results:
            assert isinstance(result, ToolMessage)
            call_id = result.tool_call_id
            if call_id in given or (call_id not in unanswered and call_id not in answered):
                raise InvalidInputError(
                    f"the tool result for {call_id!r} answers no open call of conversation {self._conversation_id!r}; "
                    f"open calls: {', '.join(unanswered) or 'none'}; nothing was stored"
                )
            given[call_id] = result
        missing = [call_id for call_id in unanswered if call_id not in given]
        if missing:
            raise InvalidInputError(
                f"no result was given for the open calls {', '.join(missing)} of conversation "
                f"{self._conversation_id!r}; give the results of a batch together; nothing was stored"
            )
        head = list(stored[: len(stored) - len(answered)])
        tail = [given.pop(m.tool_call_id, m) for m in stored[len(head) :] if isinstance(m, ToolMessage)]
        if given:
            await self._append(list(given.values()))
        return [*head, *tail, *given.values()]


def _key(delta: Sequence[Message]) -> tuple[object, ...]:
    """What makes a delta the same one: its messages; of results only the ids, since a filter may rewrite them."""
    return tuple([m.tool_call_id if isinstance(m, ToolMessage) else m for m in delta])


def _ids(reply: AssistantMessage) -> list[str]:
    return [call.id for call in reply.tool_calls]


def _count_results(messages: Sequence[Message]) -> int:
    count = 0
    for message in messages:
        if type(message) is not ToolMessage:
            break
        count += 1
    return count


def _fault(detail: str) -> str:
    """What a repair says about input that should not need one."""
    return detail.replace("left out a result", "a tool result").replace("answered call", "no result for call")
