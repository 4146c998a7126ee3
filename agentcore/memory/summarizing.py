"""SummarizingChatMemory: long conversations whose older turns the model sees as a summary, made once and kept."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Struct

from agentcore.chat import ChatModel, ChatOptions, ChatRequest
from agentcore.errors import ConfigurationError
from agentcore.memory.base import ChatMemory, MessageLog, RecordKeeping, StoredMessage
from agentcore.memory.windowed import fit_results
from agentcore.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage, text_of
from agentcore.tokens import ESTIMATE, TokenCounter

logger = logging.getLogger("agentcore.memory")

Summarize: TypeAlias = Callable[[str | None, Sequence[Message]], Awaitable[str]]
"""Makes a summary out of an earlier one (None at first) and the messages that follow what it covers."""

OPENING = "Summary of the conversation so far (its older part is not shown):"
INSTRUCTIONS = (
    "You keep the memory of a conversation between a user and an assistant. Write a summary that lets the assistant go "
    "on as if it remembered everything that matters: names, facts, figures, decisions, what was promised, what is "
    "still open, and what tools brought. Write in the language of the conversation, briefly, as notes, without "
    "comments of your own. If there is an earlier summary, yours takes its place, so keep what still matters of it."
)

_KIND = "summary"
_KEPT = 3  # summaries; the older ones are there for a conversation that is rolled back
_MOST_RESULT_CHARS = 2_000


class _Summary(Struct, frozen=True):
    seq: int  # the last message that it covers
    text: str
    system: tuple[str, ...] = ()  # of the messages that it covers: they are shown whole


_decoder = msgspec.json.Decoder(_Summary)


class SummarizingChatMemory:
    """Another store, of which the model sees a summary of the older turns and the newest ones whole.

    When what the model would see passes `max_tokens`, the older turns are summed up, once, and the summary is kept with
    the conversation as a record; the messages themselves stay as they are. A turn costs what it shows, however long the
    conversation is. A rollback takes back the summaries that reach too far; a fork takes those along that fit.

    If the summary cannot be made, the turn goes on with the newest turns alone, and the log says so.

    Args:
        store: where the conversations are; it has to keep records and numbers of messages.
        summarize: a chat model, or a function of the earlier summary and the messages to add to it. The model is asked
            directly: not through the client's filters, and nothing of it is stored but the summary.
        max_tokens: tokens that reach the model at most, by the counter, summary and new input included.
        keep_tokens: how much of the newest turns stays whole when a summary is made; half of `max_tokens` if not given.
        counter: counts tokens; an estimate if not given.

    Raises:
        ConfigurationError: the store keeps no records, or the bounds leave no room.
    """

    def __init__(
        self,
        store: ChatMemory,
        summarize: ChatModel | Summarize,
        *,
        max_tokens: int,
        keep_tokens: int | None = None,
        counter: TokenCounter = ESTIMATE,
    ) -> None:
        if not isinstance(store, MessageLog) or not isinstance(store, RecordKeeping):
            raise ConfigurationError(
                f"{type(store).__name__} keeps no records, so a summary would be made anew at every turn; use "
                "InMemoryChatMemory, SQLiteChatMemory or another store with MessageLog and RecordKeeping"
            )
        keep = max_tokens // 2 if keep_tokens is None else keep_tokens
        if not 0 < keep < max_tokens:
            raise ConfigurationError(f"keep_tokens is between 1 and max_tokens ({max_tokens}), not {keep}")
        self.store: ChatMemory = store
        self.max_tokens = max_tokens
        self.keep_tokens = keep
        self._log: MessageLog = store
        self._records: RecordKeeping = store
        self._counter = counter
        self._summarize = summarize if callable(summarize) else _by_model(summarize)

    async def get(self, conversation_id: str) -> Sequence[Message]:
        """What the model would see if nothing new were said."""
        return await self.view(conversation_id, ())

    async def view(self, conversation_id: str, pending: Sequence[Message]) -> Sequence[Message]:
        """The summary of the older turns, if there is one, and the newer messages; makes one if it is due."""
        summary = await self._newest(conversation_id)
        records = await self._log.read(conversation_id, after=summary.seq if summary is not None else 0)
        room = self.max_tokens - sum(map(self._counter.count_message, pending))
        shown = _shown(summary, records)
        if sum(map(self._counter.count_message, shown)) <= room:
            return shown
        keep = min(self.keep_tokens, room)
        cut = self._cut(records, keep)
        if cut == 0:
            return shown
        older, newer = records[:cut], records[cut:]
        try:
            summary = await self._sum_up(conversation_id, summary, older)
        except Exception:
            # The user asked for an answer, not for a summary.
            logger.exception("conversation %r: its older turns could not be summed up", conversation_id)
            return _shown(summary, newer)
        return _shown(summary, [record for record in newer if record.seq > summary.seq])

    def fit(self, messages: Sequence[Message]) -> Sequence[Message]:
        """What the model is to see, the largest tool results shortened where it is more than `max_tokens`."""
        return fit_results(messages, self.max_tokens, self._counter)

    async def add(self, conversation_id: str, messages: Sequence[Message]) -> None:
        """Append to the underlying store."""
        await self.store.add(conversation_id, messages)

    async def clear(self, conversation_id: str) -> None:
        """Forget the conversation in the underlying store, summaries included."""
        await self.store.clear(conversation_id)

    def _cut(self, records: Sequence[StoredMessage], keep: int) -> int:
        """How many of the records are summed up: whole turns, the fewest that leave no more than `keep` tokens."""
        tokens, cut = 0, len(records)
        for index in range(len(records) - 1, -1, -1):
            tokens += self._counter.count_message(records[index].message)
            if tokens > keep and cut < len(records):
                break
            if type(records[index].message) is UserMessage:
                cut = index
        return 0 if cut == len(records) else cut

    async def _newest(self, conversation_id: str) -> _Summary | None:
        kept = await self._records.list_records(conversation_id, _KIND)
        return _decoder.decode(kept[-1].body) if kept else None

    async def _sum_up(
        self, conversation_id: str, earlier: _Summary | None, records: Sequence[StoredMessage]
    ) -> _Summary:
        """Add messages to the summary, in portions that a model can take in, and keep it; the first one made counts."""
        text = earlier.text if earlier is not None else None
        messages = [record.message for record in records]
        for portion in self._portions([one for one in messages if type(one) is not SystemMessage]):
            text = await self._summarize(text, portion)
        system = [one.content for one in messages if isinstance(one, SystemMessage)]
        made = _Summary(records[-1].seq, text or "", (*(earlier.system if earlier is not None else ()), *system))
        key = f"{made.seq:020}"
        body = msgspec.json.encode(made).decode()
        if not await self._records.put_record(
            conversation_id, _KIND, key, body, seq=made.seq, if_absent=True
        ):  # another process was quicker: both go on with the same words
            kept = await self._records.get_record(conversation_id, _KIND, key)
            made = _decoder.decode(kept.body) if kept is not None else made
        for old in (await self._records.list_records(conversation_id, _KIND))[:-_KEPT]:
            await self._records.take_record(conversation_id, _KIND, old.key)
        return made

    def _portions(self, messages: Sequence[Message]) -> list[list[Message]]:
        portions: list[list[Message]] = [[]]
        tokens = 0
        for message in messages:
            count = self._counter.count_message(message)
            if tokens + count > self.max_tokens and portions[-1]:
                portions.append([])
                tokens = 0
            portions[-1].append(message)
            tokens += count
        return [portion for portion in portions if portion]


def _shown(summary: _Summary | None, records: Sequence[StoredMessage]) -> Sequence[Message]:
    messages = [record.message for record in records]
    if summary is None:
        return messages
    system = [SystemMessage(text) for text in summary.system]
    return [*system, SystemMessage(f"{OPENING}\n{summary.text}"), *messages]


def _by_model(model: ChatModel) -> Summarize:
    async def summarize(earlier: str | None, messages: Sequence[Message]) -> str:
        parts = [f"Earlier summary:\n{earlier}\n"] if earlier else []
        asked = UserMessage("\n".join([*parts, "Conversation:", transcript(messages), "", "Write the summary."]))
        request = ChatRequest([SystemMessage(INSTRUCTIONS), asked], (), ChatOptions())
        return (await model.chat(request)).text.strip()

    return summarize


def transcript(messages: Sequence[Message]) -> str:
    """Messages as plain text, for a reader who is not to answer them; long tool results are shortened."""
    lines: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            if message.content:
                lines.append(f"Assistant: {message.content}")
            lines += [f"Assistant calls {call.name}({_arguments(call.args)})" for call in message.tool_calls]
        elif isinstance(message, ToolMessage):
            text = text_of(message.content)
            cut = "…" if len(text) > _MOST_RESULT_CHARS else ""
            lines.append(
                f"{message.name} {'failed' if message.is_error else 'brought'}: {text[:_MOST_RESULT_CHARS]}{cut}"
            )
        else:
            lines.append(f"{'User' if isinstance(message, UserMessage) else 'System'}: {text_of(message.content)}")
    return "\n".join(lines)


def _arguments(args: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(args).decode()
    except UnicodeEncodeError:
        return str(cast("object", args))
