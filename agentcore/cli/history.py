"""`agentcore history`: look at the conversations of a store, take one out of it, or forget one."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from agentcore.cli.store import opened_store
from agentcore.errors import ConfigurationError
from agentcore.memory.base import ChatMemory, ConversationListing
from agentcore.messages import AssistantMessage, Message, ToolMessage, text_of

_SHOWN = 2_000


async def list_conversations(url: str, *, limit: int, prefix: str) -> int:
    """One line a conversation: id, last change, number of the last message; newest first."""
    async with opened_store(url) as store:
        if not isinstance(store, ConversationListing):
            raise ConfigurationError(f"{type(store).__name__} cannot list its conversations")
        left, after = limit, None
        while left > 0:
            page = await store.list_conversations(limit=min(left, 100), after=after, prefix=prefix)
            for info in page.conversations:
                changed = datetime.fromtimestamp(info.updated_at, UTC).strftime("%Y-%m-%d %H:%M:%S")
                print(f"{info.conversation_id}\t{changed}\t{info.version}")
            left -= len(page.conversations)
            after = page.after
            if after is None:
                break
    return 0


async def show(url: str, conversation_id: str) -> int:
    """A conversation for people to read."""
    async with opened_store(url) as store:
        messages = await _messages(store, conversation_id)
    for message in messages:
        print("\n".join(_lines(message)))
    return 0 if messages else _unknown(conversation_id)


async def export(url: str, conversation_id: str) -> int:
    """A conversation as JSON lines: one message a line, in the stored form."""
    async with opened_store(url) as store:
        messages = await _messages(store, conversation_id)
    for message in messages:
        sys.stdout.write(msgspec.json.encode(message).decode() + "\n")
    return 0 if messages else _unknown(conversation_id)


async def delete(url: str, conversation_id: str) -> int:
    """Forget a conversation."""
    async with opened_store(url) as store:
        known = bool(await _messages(store, conversation_id))
        await store.clear(conversation_id)
    if not known:
        return _unknown(conversation_id)
    print(f"forgot {conversation_id}")
    return 0


async def _messages(store: ChatMemory, conversation_id: str) -> Sequence[Message]:
    return await store.get(conversation_id)


def _unknown(conversation_id: str) -> int:
    print(f"agentcore: no conversation {conversation_id!r} in this store", file=sys.stderr)
    return 1


def _lines(message: Message) -> list[str]:
    if isinstance(message, AssistantMessage):
        lines = [f"assistant: {message.content}"] if message.content else []
        lines += [
            f"assistant calls {call.name}({', '.join(f'{name}={value!r}' for name, value in call.args.items())})"
            for call in message.tool_calls
        ]
        return lines or ["assistant:"]
    text = text_of(message.content)
    shown = text[:_SHOWN] + ("…" if len(text) > _SHOWN else "")
    if isinstance(message, ToolMessage):
        return [f"{message.name} {'failed' if message.is_error else 'returned'}: {shown}"]
    return [f"{message.__struct_config__.tag}: {shown}"]
