"""InMemoryChatMemory: conversations in this process's memory, an atom to its readers."""

import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count, islice
from threading import Lock
from typing import Any, cast

from msgspec.structs import replace

from agentcore.errors import InvalidInputError
from agentcore.memory.base import (
    BusyPolicy,
    ConversationInfo,
    ConversationPage,
    Lease,
    Record,
    StoredMessage,
)
from agentcore.memory.branching import PAUSE, check_fork_point
from agentcore.memory.locks import ConversationLocks
from agentcore.memory.paging import ListingOrder, check_limit, make_page, page_key, read_cursor
from agentcore.memory.refusals import (
    check_position,
    check_same,
    check_storable,
    id_in_use,
    lease_lost,
    nothing_to_fork,
    version_conflict,
)
from agentcore.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage

_CLEARED_KNOWN = 10_000
"""How many cleared conversations are remembered by id."""


class _Conversation:
    """Messages in one list; who wrote them, in arrays with one item for each run of messages of one turn."""

    __slots__ = (
        "created_at",
        "hashes",
        "messages",
        "mutable",
        "parent",
        "positions",
        "seqs",
        "starts",
        "system",
        "times",
        "turns",
        "updated_at",
        "version",
    )

    def __init__(self, version: int, now: float) -> None:
        self.version = version
        self.created_at = self.updated_at = now
        self.parent: tuple[str, int] | None = None
        self.messages: list[Message] = []
        self.system: list[int] = []  # where the system messages are
        self.mutable: list[int] = []  # where the messages are that refer to something that could be changed
        self.turns: list[str] = []  # of each run: its turn, index of its first message, that message's seq, position
        self.starts = array("q")
        self.seqs = array("q")
        self.positions = array("q")
        self.times = array("d")
        self.hashes = bytearray()  # of each run's turn: a search in bytes passes 10,000 runs in microseconds

    def runs_of(self, turn_id: str) -> Iterator[int]:
        """The runs of a turn, newest first."""
        wanted = _hash(turn_id)
        at = self.hashes.rfind(wanted)
        while at >= 0:
            run, inside = divmod(at, len(wanted))
            if not inside and self.turns[run] == turn_id:
                yield run
            at = self.hashes.rfind(wanted, 0, at + len(wanted) - 1)

    def end_of(self, run: int) -> int:
        return self.starts[run + 1] if run + 1 < len(self.starts) else len(self.messages)

    def held(self, turn_id: str, position: int, size: int) -> list[Message]:
        """What the places of a turn from `position` on already hold."""
        found: dict[int, Message] = {}
        for run in self.runs_of(turn_id):
            start = self.starts[run]
            for index in range(start, self.end_of(run)):
                place = self.positions[run] + index - start
                if position <= place < position + size:
                    found[place] = self.messages[index]
        return [found[place] for place in sorted(found)]

    def extend(self, messages: Sequence[Message], turn_id: str, position: int, now: float) -> None:
        """Append messages that are nobody else's; see `_own`."""
        index = len(self.messages)
        if not index:
            self.created_at = now
        goes_on = (
            self.turns
            and self.turns[-1] == turn_id
            and self.positions[-1] + index - self.starts[-1] == position
            and self.seqs[-1] + index - self.starts[-1] == self.version + 1
        )
        if not goes_on:
            self.turns.append(turn_id)
            self.hashes += _hash(turn_id)
            self.starts.append(index)
            self.seqs.append(self.version + 1)
            self.positions.append(position)
            self.times.append(now)
        for number, message in enumerate(messages, index):
            if type(message) is SystemMessage:
                self.system.append(number)
            elif _is_mutable(message):
                self.mutable.append(number)
        self.messages.extend(messages)
        self.version += len(messages)
        self.updated_at = now

    def shown(self, start: int = 0) -> list[Message]:
        """The messages from an index on, as they may be handed out."""
        messages = self.messages[start:]
        for index in self.mutable[bisect_left(self.mutable, start) :]:
            messages[index - start] = _copy(messages[index - start])
        return messages

    def records(self, after: int = 0) -> Iterator[StoredMessage]:
        first = max(0, bisect_right(self.seqs, after) - 1)  # the run that holds `after`: earlier ones have none to show
        for run in range(first, len(self.turns)):
            start, end, seq, turn_id = self.starts[run], self.end_of(run), self.seqs[run], self.turns[run]
            for index in range(start + max(0, after - seq + 1), end):
                offset = index - start
                yield StoredMessage(
                    seq + offset, turn_id, self.positions[run] + offset, self.messages[index], self.times[run]
                )

    def cut(self, to: int) -> None:
        """Leave only the messages up to the one whose seq is `to`."""
        keep = sum(1 for record in self.records() if record.seq <= to)
        del self.messages[keep:]
        self.system = [index for index in self.system if index < keep]
        self.mutable = [index for index in self.mutable if index < keep]
        runs = sum(1 for start in self.starts if start < keep)
        for column in (self.turns, self.starts, self.seqs, self.positions, self.times):
            del column[runs:]
        del self.hashes[len(_hash("")) * runs :]


class InMemoryChatMemory:
    """Conversations held in memory, for as long as the object lives.

    Every `add` is all or nothing and readers never see half of one; one lock guards the memory operations, so threads
    and several event loops may share the object (turns of one conversation must stay on one loop).

    Args:
        clock: Unix time in seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._conversations: dict[str, _Conversation] = {}
        self._records: dict[str, dict[tuple[str, str], tuple[Record, float | None]]] = {}
        self._lock = Lock()
        self._turns = ConversationLocks()
        self._clock = clock
        self._fences = count(1)
        self._held: dict[str, int] = {}  # the fence of the turn that holds the conversation
        # What is cleared is forgotten, but no number is given twice: of the last ones cleared we know which was theirs.
        self._cleared: dict[str, int] = {}
        self._first_version = 0  # of all others

    async def get(self, conversation_id: str) -> Sequence[Message]:
        """All messages of a conversation, oldest first."""
        with self._lock:
            conversation = self._conversations.get(conversation_id)
            return tuple(conversation.shown()) if conversation else ()

    async def get_tail(self, conversation_id: str, count: int) -> Sequence[Message]:
        """The last `count` messages, preceded by the system messages from before them."""
        with self._lock:
            conversation = self._conversations.get(conversation_id)
            if conversation is None:
                return ()
            messages = conversation.messages
            start = len(messages) - max(0, min(count, len(messages)))
            leading = [messages[index] for index in conversation.system if index < start]
            return (*leading, *conversation.shown(start))

    async def add(self, conversation_id: str, messages: Sequence[Message]) -> None:
        """Append messages to a conversation, all or none.

        Raises:
            InvalidInputError: something that is not a message; nothing was stored.
        """
        check_storable(messages)
        if not messages:
            return
        kept = _own(messages)
        with self._lock:
            conversation = self._open(conversation_id)
            conversation.extend(kept, f"add-{conversation.version + 1}", 0, self._clock())

    async def append(
        self,
        conversation_id: str,
        messages: Sequence[Message],
        *,
        turn_id: str,
        position: int,
        lease: Lease | None = None,
        expected_version: int | None = None,
    ) -> int:
        """Append the messages of a turn, once; see `MessageLog.append`."""
        check_storable(messages)
        check_position(position)
        kept = _own(messages)
        with self._lock:
            conversation = self._conversations.get(conversation_id)
            version = conversation.version if conversation else self._cleared.get(conversation_id, 0)
            held = conversation.held(turn_id, position, len(messages)) if conversation else []
            if held:
                check_same(conversation_id, turn_id, position, held, messages)
                return version
            if lease is not None and self._held.get(conversation_id) != lease.fence:
                raise lease_lost(conversation_id)
            if expected_version is not None and expected_version != version:
                raise version_conflict(conversation_id, expected_version, version)
            if not messages:
                return version
            conversation = self._open(conversation_id)
            conversation.extend(kept, turn_id, position, self._clock())
            return conversation.version

    async def version(self, conversation_id: str) -> int:
        """The version of a conversation; see `MessageLog.version`."""
        with self._lock:
            conversation = self._conversations.get(conversation_id)
            return conversation.version if conversation else self._cleared.get(conversation_id, 0)

    async def read(self, conversation_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[StoredMessage]:
        """Stored messages, oldest first; see `MessageLog.read`."""
        with self._lock:
            conversation = self._conversations.get(conversation_id)
            records = conversation.records(after) if conversation else iter(())
            found = records if limit is None else islice(records, max(0, limit))
            return tuple(
                [replace(one, message=_copy(one.message)) if _is_mutable(one.message) else one for one in found]
            )

    async def clear(self, conversation_id: str) -> None:
        """Forget a conversation; a turn that is running on it can write no more."""
        with self._lock:
            self._forget(conversation_id)

    @asynccontextmanager
    async def lock_turn(
        self,
        conversation_id: str,
        *,
        on_busy: BusyPolicy = "wait",
        timeout: float | None = None,  # noqa: ASYNC109 - a bound on the wait alone, not on the block
        supersede: Callable[[], None] | None = None,
    ) -> AsyncGenerator[Lease]:
        """Keep the turns of one conversation apart; see `TurnLocking.lock_turn`."""
        place = self._turns.lock_turn(conversation_id, on_busy=on_busy, timeout=timeout, supersede=supersede)
        async with place:
            with self._lock:
                conversation = self._conversations.get(conversation_id)
                version = conversation.version if conversation else self._cleared.get(conversation_id, 0)
                lease = Lease(conversation_id, next(self._fences), version)
                self._held[conversation_id] = lease.fence
            try:
                yield lease
            finally:
                with self._lock:
                    if self._held.get(conversation_id) == lease.fence:
                        del self._held[conversation_id]

    async def list_conversations(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        order: ListingOrder = "updated",
        prefix: str = "",
    ) -> ConversationPage:
        """A page of conversations, newest first; see `ConversationListing.list_conversations`."""
        check_limit(limit)
        with self._lock:
            infos = [
                _info(one, conversation)
                for one, conversation in self._conversations.items()
                if conversation.messages and one.startswith(prefix)
            ]
        start = read_cursor(after, order) if after is not None else None
        infos.sort(key=lambda info: page_key(info, order), reverse=True)
        left = [info for info in infos if start is None or page_key(info, order) < start]
        return make_page(left[: limit + 1], limit, order)

    async def conversation_info(self, conversation_id: str) -> ConversationInfo | None:
        """What is known of one conversation; None if it holds no messages."""
        with self._lock:
            conversation = self._conversations.get(conversation_id)
            return _info(conversation_id, conversation) if conversation and conversation.messages else None

    async def delete_inactive(self, older_than: float) -> int:
        """Forget the conversations that have not changed for `older_than` seconds; see `ConversationListing`."""
        with self._lock:
            before = self._clock() - older_than
            old = [
                one
                for one, conversation in self._conversations.items()
                if one not in self._held and conversation.updated_at < before
            ]
            count = sum(bool(self._conversations[one].messages) for one in old)
            for one in old:
                self._forget(one)
            return count

    async def fork(self, conversation_id: str, new_id: str, *, at: int | None = None) -> ConversationInfo:
        """Begin a conversation with messages of another; see `Branching.fork`."""
        with self._lock:
            source = self._conversations.get(conversation_id)
            if source is None or not source.messages:
                raise nothing_to_fork(conversation_id)
            target = self._conversations.get(new_id)
            if target is not None and target.messages:
                raise id_in_use(new_id)
            last = source.seqs[-1] + len(source.messages) - source.starts[-1] - 1
            if at is None:
                at = last
            else:
                check_fork_point(conversation_id, tuple(source.records()), at, self._pauses(conversation_id))
            copy = _Conversation(0, self._clock())
            copy.parent = (conversation_id, at)
            copy.messages, copy.system, copy.turns = list(source.messages), list(source.system), list(source.turns)
            copy.mutable = list(source.mutable)
            copy.hashes, copy.starts, copy.seqs = source.hashes[:], source.starts[:], source.seqs[:]
            copy.positions, copy.times = source.positions[:], source.times[:]
            copy.cut(at)
            copy.version = max(at, target.version if target else self._cleared.pop(new_id, self._first_version))
            self._conversations[new_id] = copy
            for name, (record, expiry) in self._records.get(conversation_id, {}).items():
                if record.seq is not None and record.seq <= at:
                    self._records.setdefault(new_id, {})[name] = (record, expiry)
            return _info(new_id, copy)

    async def rollback(self, conversation_id: str, *, to: int) -> None:
        """Take back everything after `to`; see `Branching.rollback`."""
        with self._lock:
            conversation = self._conversations.get(conversation_id)
            records = tuple(conversation.records()) if conversation else ()
            if to != 0:
                check_fork_point(conversation_id, records, to, self._pauses(conversation_id))
            if conversation is None:
                return
            conversation.cut(to)
            conversation.updated_at = self._clock()
            if not conversation.messages:
                conversation.parent = None
            self._held.pop(conversation_id, None)
            kept = self._records.get(conversation_id, {})
            for name in [name for name, (record, _) in kept.items() if record.seq is not None and record.seq > to]:
                del kept[name]

    async def put_record(
        self,
        conversation_id: str,
        kind: str,
        key: str,
        body: str,
        *,
        seq: int | None = None,
        if_absent: bool = False,
        expires_in: float | None = None,
    ) -> bool:
        """Keep a record with a conversation; see `RecordKeeping.put_record`."""
        with self._lock:
            if if_absent and self._find(conversation_id, kind, key) is not None:
                return False
            now = self._clock()
            record = Record(kind=kind, key=key, body=body, seq=seq, created_at=now)
            expiry = None if expires_in is None else now + expires_in
            self._records.setdefault(conversation_id, {})[kind, key] = (record, expiry)
            return True

    async def get_record(self, conversation_id: str, kind: str, key: str) -> Record | None:
        """One record; None if there is none, or it has expired."""
        with self._lock:
            return self._find(conversation_id, kind, key)

    async def take_record(self, conversation_id: str, kind: str, key: str) -> Record | None:
        """Read a record and remove it in one step."""
        with self._lock:
            found = self._find(conversation_id, kind, key)
            if found is not None:
                del self._records[conversation_id][kind, key]
            return found

    async def list_records(self, conversation_id: str, kind: str) -> Sequence[Record]:
        """All records of a kind, by `seq` (those without first), then by key."""
        with self._lock:
            names = [name for name in self._records.get(conversation_id, {}) if name[0] == kind]
            found = [record for name in names if (record := self._find(conversation_id, *name)) is not None]
        return sorted(found, key=lambda record: (record.seq or 0, record.key))

    def _open(self, conversation_id: str) -> _Conversation:
        conversation = self._conversations.get(conversation_id)
        if conversation is None:
            version = self._cleared.pop(conversation_id, self._first_version)
            conversation = self._conversations[conversation_id] = _Conversation(version, self._clock())
        return conversation

    def _forget(self, conversation_id: str) -> None:
        conversation = self._conversations.pop(conversation_id, None)
        if conversation is not None:
            self._cleared[conversation_id] = conversation.version
            if len(self._cleared) > _CLEARED_KNOWN:
                oldest = next(iter(self._cleared))
                self._first_version = max(self._first_version, self._cleared.pop(oldest))
        self._records.pop(conversation_id, None)
        self._held.pop(conversation_id, None)

    def _find(self, conversation_id: str, kind: str, key: str) -> Record | None:
        record, expiry = self._records.get(conversation_id, {}).get((kind, key), (None, None))
        return None if expiry is not None and expiry <= self._clock() else record

    def _pauses(self, conversation_id: str) -> set[int]:
        kept = self._records.get(conversation_id, {})
        return {record.seq for record, _ in kept.values() if record.kind == PAUSE and record.seq is not None}


def _info(conversation_id: str, conversation: _Conversation) -> ConversationInfo:
    parent_id, parent_seq = conversation.parent or (None, None)
    return ConversationInfo(
        conversation_id=conversation_id,
        version=conversation.version,
        created_at=conversation.created_at,
        updated_at=conversation.updated_at,
        parent_id=parent_id,
        parent_seq=parent_seq,
    )


def _hash(turn_id: str) -> bytes:
    return hash(turn_id).to_bytes(8, "little", signed=True)


def _is_mutable(message: Message) -> bool:
    """Whether it refers to dicts, which Python lets anybody change."""
    if type(message) is AssistantMessage:
        return bool(message.tool_calls) or message.replay is not None
    return type(message) is ToolMessage and message.writes is not None


def _own(messages: Sequence[Message]) -> list[Message]:
    """The messages, with copies of what others could change; made before anything is stored, since it may fail.

    Raises:
        InvalidInputError: something in one is nested too deeply.
    """
    try:
        return [_copy(message) if _is_mutable(message) else message for message in messages]
    except RecursionError as error:
        raise InvalidInputError(
            "a message cannot be stored, since something in it is nested too deeply; nothing was stored"
        ) from error


def _copy(message: Message) -> Message:
    """The same message with dicts of its own: tools change their arguments, and must not change the record."""
    if isinstance(message, AssistantMessage):
        calls = tuple([ToolCall(one.id, one.name, _copied(one.args), one.raw_arguments) for one in message.tool_calls])
        return AssistantMessage(
            message.content, calls, message.reasoning, message.finish_reason, _copied(message.replay)
        )
    return replace(message, writes=_copied(message.writes)) if isinstance(message, ToolMessage) else message


def _copied(value: Any) -> Any:
    if type(value) is dict:
        copy = cast("dict[Any, Any]", value).copy()
        for key, item in copy.items():
            if type(item) is dict or type(item) is list:
                copy[key] = _copied(item)  # of a key that is there: the dict keeps its size
        return copy
    if type(value) is list:
        return [_copied(item) for item in cast("list[Any]", value)]
    return value
