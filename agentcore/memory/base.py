"""What a store of conversations promises. Powers beyond the three basic ones are separate protocols, discovered."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from agentcore.messages import Message

BusyPolicy: TypeAlias = Literal["wait", "reject", "supersede"]
"""What a turn does when another turn of its conversation is running: wait for it, refuse, or stop it and take over."""


class ChatMemory(Protocol):
    """Histories by conversation id: the only record of a conversation.

    An unknown conversation is an empty one. What is handed out cannot be used to change what is held.
    """

    async def get(self, conversation_id: str) -> Sequence[Message]:
        """All messages of a conversation, oldest first."""
        ...

    async def add(self, conversation_id: str, messages: Sequence[Message]) -> None:
        """Append messages to a conversation, all or none.

        Safe to call from many tasks; appends of one conversation keep call order.

        Raises:
            InvalidInputError: something that is not a message; nothing was stored.
            StoreError: the store failed; nothing was stored.
        """
        ...

    async def clear(self, conversation_id: str) -> None:
        """Forget a conversation and everything kept with it. Clearing an unknown one does nothing.

        A turn that is running on it can write no more: what it does after this call is refused.
        """
        ...


class Lease(Struct, frozen=True):
    """The right to write to a conversation, held by one turn.

    Attributes:
        fence: grows with every lease of the conversation; a write that carries an older one is refused.
        version: of the conversation when the lease was taken.
    """

    conversation_id: str
    fence: int
    version: int


class StoredMessage(Struct, frozen=True):
    """A message as the store holds it.

    Attributes:
        seq: its number in the conversation: grows, never used twice, may have gaps after a rollback.
        turn_id: the turn that stored it.
        position: its place among the messages of that turn, from 0.
        created_at: Unix time in seconds, by the store's clock.
    """

    seq: int
    turn_id: str
    position: int
    message: Message
    created_at: float


@runtime_checkable
class MessageLog(Protocol):
    """A store that keeps who wrote what and when, so that an append can be conditional and can be sent again."""

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
        """Append the messages of a turn, all or none, once: the same append sent again changes nothing.

        Args:
            conversation_id: the conversation.
            messages: what to append.
            turn_id: the turn they belong to; unique for all time.
            position: the place of the first of them among the messages of that turn.
            lease: written only while this lease is held.
            expected_version: written only if the conversation still has this version.

        Returns:
            The version after it: the `seq` of the last message. The version never restarts, not even after `clear`.

        Raises:
            InvalidInputError: not messages, or this place of the turn already holds something else.
            LeaseLostError: the lease is no longer held; nothing was stored.
            VersionConflictError: the conversation has another version; nothing was stored.
            StoreError: the store failed. Whether it stored is unknown; send the same append again.
        """
        ...

    async def version(self, conversation_id: str) -> int:
        """The version of a conversation: the highest `seq` ever given in it; 0 if there never was one."""
        ...

    async def read(self, conversation_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[StoredMessage]:
        """The stored messages with a `seq` above `after`, oldest first, `limit` of them at most."""
        ...


@runtime_checkable
class TailReading(Protocol):
    """A store that reads the end of a conversation at a cost that does not grow with its length."""

    async def get_tail(self, conversation_id: str, count: int) -> Sequence[Message]:
        """The last `count` messages, preceded by the conversation's system messages from before them."""
        ...


@runtime_checkable
class TurnLocking(Protocol):
    """A store that keeps two turns of one conversation apart."""

    def lock_turn(
        self,
        conversation_id: str,
        *,
        on_busy: BusyPolicy = "wait",
        timeout: float | None = None,
        supersede: Callable[[], None] | None = None,
    ) -> AbstractAsyncContextManager[Lease | None]:
        """Hold the conversation's turn for the length of the `async with` block; others are served in order.

        The block gets the lease that its appends must carry; None from a lock that has no leases.

        Args:
            conversation_id: the conversation; different ones never wait for each other.
            on_busy: what to do when another turn holds it.
            timeout: seconds to wait at most; None waits as long as it takes.
            supersede: called when a later turn with `on_busy="supersede"` wants the place, or the place was lost; must
                stop this turn.

        Raises:
            ConversationBusyError: refused, or waited in vain.
        """
        ...


class ConversationInfo(Struct, frozen=True, kw_only=True):
    """What a store knows of a conversation besides its messages.

    Attributes:
        version: the highest `seq` ever given in it.
        created_at, updated_at: Unix times in seconds, by the store's clock.
        parent_id, parent_seq: the conversation it was forked from, and the last message it took from there.
    """

    conversation_id: str
    version: int
    created_at: float
    updated_at: float
    parent_id: str | None = None
    parent_seq: int | None = None


class ConversationPage(Struct, frozen=True):
    """Some conversations, and the cursor that gets the next ones; None if there are no more."""

    conversations: Sequence[ConversationInfo]
    after: str | None = None


@runtime_checkable
class ConversationListing(Protocol):
    """A store that can say which conversations it holds, and let go of old ones."""

    async def list_conversations(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        order: Literal["updated", "created"] = "updated",
        prefix: str = "",
    ) -> ConversationPage:
        """A page of conversations that have messages, newest first.

        By `created` a walk over the pages is exact whatever happens meanwhile: none is left out, none comes twice. By
        `updated` one that changes during the walk moves to the front, behind the reader's back.

        Args:
            limit: size of a page.
            after: the `after` of the page before.
            order: newest by last change, or by beginning.
            prefix: only ids that begin with it.

        Raises:
            InvalidInputError: `after` did not come from here, or `limit` is not positive.
        """
        ...

    async def conversation_info(self, conversation_id: str) -> ConversationInfo | None:
        """What is known of one conversation; None if it holds no messages."""
        ...

    async def delete_inactive(self, older_than: float) -> int:
        """Forget the conversations that have not changed for `older_than` seconds, and say how many there were.

        One that a turn is running on is left alone. Content-free traces of forgotten conversations go as well, once no
        lease can be left over from them.
        """
        ...


@runtime_checkable
class Branching(Protocol):
    """A store in which a conversation can go back, or go on in two ways.

    Both happen where a turn ended, or paused: see `memory.branching.fork_points`.
    """

    async def fork(self, conversation_id: str, new_id: str, *, at: int | None = None) -> ConversationInfo:
        """Begin a conversation with the messages of another, up to and with the one whose `seq` is `at`.

        Without `at` all messages are taken. The numbers of the messages stay; the new one goes on counting from there.

        Raises:
            InvalidInputError: `at` is no place to fork at, there is nothing to fork, or `new_id` is in use.
        """
        ...

    async def rollback(self, conversation_id: str, *, to: int) -> None:
        """Take back everything after the message whose `seq` is `to`; 0 takes back all.

        A turn that is running on it can write no more. The version stays: numbers are never used twice.

        Raises:
            InvalidInputError: `to` is no place to go back to.
        """
        ...


class Record(Struct, frozen=True, kw_only=True):
    """Something kept with a conversation that is no message: a summary, a pause, a snapshot.

    Attributes:
        kind, key: its name, unique within the conversation.
        body: JSON text.
        seq: the last message it is about, if it is about messages: it goes when that message goes.
        created_at: Unix time in seconds, by the store's clock.
    """

    kind: str
    key: str
    body: str
    seq: int | None = None
    created_at: float = 0.0


@runtime_checkable
class RecordKeeping(Protocol):
    """A store that keeps other records with a conversation. They are forgotten with it; a fork takes those with a
    `seq` that it reaches.
    """

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
        """Keep a record, in place of the one of that kind and key if there is one.

        Args:
            conversation_id: the conversation; it need not have messages.
            kind: what sort of record it is.
            key: its name within that sort.
            body: JSON text.
            seq: the last message it is about.
            if_absent: leave one that is there as it is.
            expires_in: seconds after which it counts as gone, by the store's clock.

        Returns:
            Whether it was written.
        """
        ...

    async def get_record(self, conversation_id: str, kind: str, key: str) -> Record | None:
        """One record; None if there is none, or it has expired."""
        ...

    async def take_record(self, conversation_id: str, kind: str, key: str) -> Record | None:
        """Read a record and remove it in one step: of many who try at once, one gets it."""
        ...

    async def list_records(self, conversation_id: str, kind: str) -> Sequence[Record]:
        """All records of a kind, by `seq` (those without first), then by key."""
        ...


@runtime_checkable
class ModelView(Protocol):
    """A store that decides which part of a history reaches the model, and leaves the record to another."""

    @property
    def store(self) -> ChatMemory:
        """The store that holds the record: it is written to, and locked."""
        ...

    async def view(self, conversation_id: str, pending: Sequence[Message]) -> Sequence[Message]:
        """The stored messages that the model should see when `pending` follows them."""
        ...


@runtime_checkable
class FittingView(Protocol):
    """A view that also has the last word on what the model is to see, when history and input stand together."""

    def fit(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The same messages, shortened where they are too much; none is left out."""
        ...


def record_store(store: ChatMemory) -> ChatMemory:
    """The store that holds the record, behind whatever decides what the model sees of it."""
    while isinstance(store, ModelView):
        store = store.store
    return store
