"""WindowedChatMemory: how much of a history reaches the model, cut so that nothing is torn apart."""

from collections.abc import Sequence

from agentcore.errors import ConfigurationError
from agentcore.memory.base import ChatMemory, TailReading
from agentcore.messages import Message, SystemMessage, ToolMessage, UserMessage
from agentcore.pairing import unanswered_calls


def window(messages: Sequence[Message], max_messages: int, *, keep_newest_turn: bool = True) -> Sequence[Message]:
    """The newest whole turns that fit into `max_messages`, after the system messages.

    A turn begins with a user message, so the cut never parts a call from its results and never leaves a tool message
    or an answer in front. System messages are kept and counted. The newest turn is kept even when it alone is larger,
    unless `keep_newest_turn` is false (something newer follows).
    """
    if len(messages) <= max_messages:
        return messages
    system = [message for message in messages if type(message) is SystemMessage]
    rest = [message for message in messages if type(message) is not SystemMessage] if system else messages
    start = _cut(rest, max_messages - len(system), keep_newest_turn)
    return [*system, *rest[start:]]


def _cut(messages: Sequence[Message], room: int, keep_newest_turn: bool) -> int:
    """Index of the first message to keep."""
    count = len(messages)
    turns = [index for index, message in enumerate(messages) if type(message) is UserMessage]
    if not turns:  # a record without users: cut it at any message that is not a result
        turns = [index for index, message in enumerate(messages) if type(message) is not ToolMessage]
    fitting = [index for index in turns if count - index <= room]
    if fitting:
        return fitting[0]
    return turns[-1] if turns and keep_newest_turn else count


class WindowedChatMemory:
    """Another store, of which the model sees only the newest turns; the store itself stays whole.

    With a store that can read its tail the cost of a windowed turn does not grow with the conversation.
    """

    def __init__(self, store: ChatMemory, *, max_messages: int) -> None:
        if max_messages < 1:
            raise ConfigurationError(f"max_messages is at least 1, not {max_messages}")
        self.store = store
        self.max_messages = max_messages
        self._tail = store if isinstance(store, TailReading) else None

    async def get(self, conversation_id: str) -> Sequence[Message]:
        """The window: what the model would see if nothing new were said."""
        return await self.view(conversation_id, ())

    async def view(self, conversation_id: str, pending: Sequence[Message]) -> Sequence[Message]:
        """The stored part of the window over the history followed by `pending`."""
        if self._tail is None:
            stored = await self.store.get(conversation_id)
        else:
            stored = await self._tail_with_turn_start(conversation_id, self._tail)
        # Results continue the newest turn, and a turn that broke off among its calls has to be healed.
        continues = type(next(iter(pending), None)) is ToolMessage or bool(unanswered_calls(stored))
        starts_turn = not continues and any(type(message) is UserMessage for message in pending)
        return window(stored, self.max_messages - len(pending), keep_newest_turn=not starts_turn)

    async def _tail_with_turn_start(self, conversation_id: str, store: TailReading) -> Sequence[Message]:
        """A tail that is sure to hold the beginning of the newest turn, read in growing steps."""
        count = self.max_messages + 1
        while True:
            tail = await store.get_tail(conversation_id, count)
            if len(tail) < count or any(type(message) is UserMessage for message in tail):
                return tail
            count *= 4

    async def add(self, conversation_id: str, messages: Sequence[Message]) -> None:
        """Append to the underlying store."""
        await self.store.add(conversation_id, messages)

    async def clear(self, conversation_id: str) -> None:
        """Forget the conversation in the underlying store."""
        await self.store.clear(conversation_id)
