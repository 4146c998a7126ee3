"""What a store of conversations promises. Powers beyond the three basic ones are separate protocols, discovered."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, TypeAlias, runtime_checkable

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
        """
        ...

    async def clear(self, conversation_id: str) -> None:
        """Forget a conversation. Clearing an unknown one does nothing."""
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
    ) -> AbstractAsyncContextManager[None]:
        """Hold the conversation's turn for the length of the `async with` block; others are served in order.

        Args:
            conversation_id: the conversation; different ones never wait for each other.
            on_busy: what to do when another turn holds it.
            timeout: seconds to wait at most; None waits as long as it takes.
            supersede: called when a later turn with `on_busy="supersede"` wants the place; must stop this turn.

        Raises:
            ConversationBusyError: refused, or waited in vain.
        """
        ...


@runtime_checkable
class ModelView(Protocol):
    """A store that decides which part of a history reaches the model."""

    async def view(self, conversation_id: str, pending: Sequence[Message]) -> Sequence[Message]:
        """The stored messages that the model should see when `pending` follows them."""
        ...
