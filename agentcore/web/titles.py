"""What a list of conversations calls each of them."""

from agentcore.memory.base import ChatMemory, MessageLog, record_store
from agentcore.messages import UserMessage, text_of

_LONGEST = 80
_WITHIN = 8  # messages in which the user's first words are looked for


async def title_of(store: ChatMemory, conversation_id: str) -> str:
    """The user's first words in a conversation, on one line; empty where there are none, or not cheaply had."""
    log = record_store(store)
    if not isinstance(log, MessageLog):
        return ""
    for stored in await log.read(conversation_id, limit=_WITHIN):
        if isinstance(stored.message, UserMessage):
            words = " ".join(text_of(stored.message.content).split())
            return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
    return ""
