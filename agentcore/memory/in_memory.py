"""InMemoryChatMemory: conversations in this process's memory, an atom to its readers."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from threading import Lock

from agentcore.errors import InvalidInputError
from agentcore.memory.base import BusyPolicy
from agentcore.memory.locks import ConversationLocks
from agentcore.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage

_MESSAGE_TYPES = frozenset((SystemMessage, UserMessage, AssistantMessage, ToolMessage))


class _Conversation:
    __slots__ = ("messages", "system_indexes")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.system_indexes: list[int] = []


class InMemoryChatMemory:
    """Conversations held in memory, for as long as the object lives.

    Every `add` is all or nothing and readers never see half of one; one lock guards the memory operations, so threads
    and several event loops may share the object (turns of one conversation must stay on one loop).
    """

    def __init__(self) -> None:
        self._conversations: dict[str, _Conversation] = {}
        self._lock = Lock()
        self._turns = ConversationLocks()

    async def get(self, conversation_id: str) -> Sequence[Message]:
        """All messages of a conversation, oldest first."""
        with self._lock:
            conversation = self._conversations.get(conversation_id)
            return tuple(conversation.messages) if conversation else ()

    async def get_tail(self, conversation_id: str, count: int) -> Sequence[Message]:
        """The last `count` messages, preceded by the system messages from before them."""
        with self._lock:
            conversation = self._conversations.get(conversation_id)
            if conversation is None:
                return ()
            messages = conversation.messages
            start = max(0, len(messages) - count)
            leading = [messages[index] for index in conversation.system_indexes if index < start]
            return (*leading, *messages[start:])

    async def add(self, conversation_id: str, messages: Sequence[Message]) -> None:
        """Append messages to a conversation, all or none.

        Raises:
            InvalidInputError: something that is not a message; nothing was stored.
        """
        check_storable(messages)
        if not messages:
            return
        with self._lock:
            conversation = self._conversations.get(conversation_id)
            if conversation is None:
                conversation = self._conversations[conversation_id] = _Conversation()
            held = conversation.messages
            for index, message in enumerate(messages, len(held)):
                if type(message) is SystemMessage:
                    conversation.system_indexes.append(index)
            held.extend(messages)

    async def clear(self, conversation_id: str) -> None:
        """Forget a conversation."""
        with self._lock:
            self._conversations.pop(conversation_id, None)

    def lock_turn(
        self,
        conversation_id: str,
        *,
        on_busy: BusyPolicy = "wait",
        timeout: float | None = None,
        supersede: Callable[[], None] | None = None,
    ) -> AbstractAsyncContextManager[None]:
        """Keep the turns of one conversation apart; see `TurnLocking.lock_turn`."""
        return self._turns.lock_turn(conversation_id, on_busy=on_busy, timeout=timeout, supersede=supersede)


def check_storable(messages: Sequence[Message]) -> None:
    """Refuse anything that is not a message before any of it is stored.

    Raises:
        InvalidInputError: naming the index and the type of what was given.
    """
    for index, message in enumerate(messages):
        if type(message) not in _MESSAGE_TYPES:
            raise InvalidInputError(
                f"item {index} to store is a {type(message).__name__}, not a message; nothing was stored"
            )
