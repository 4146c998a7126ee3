"""SummarizingChatMemory: long conversations whose older turns the model sees as a summary, made once and kept."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import msgspec
from msgspec import Struct

from agentcore.chat import ChatModel
from agentcore.errors import ConfigurationError
from agentcore.memory.base import ChatMemory, MessageLog, ModelView, RecordKeeping, StoredMessage
from agentcore.memory.cutting import (
    Room,
    begins_turn,
    brings_results,
    check_bounds,
    cut_turns,
    fit_results,
    newest_turns,
    shorten,
)
from agentcore.memory.summarizer import Summarize, summarize_by
from agentcore.messages import Message, SystemMessage, ToolMessage, UserMessage
from agentcore.tokens import ESTIMATE, TokenCounter

logger = logging.getLogger("agentcore.memory")

OPENING = "[Notes on this conversation so far, made because its older part is not shown any more:]"
CLOSING = "[End of the notes. The conversation goes on:]"

_KIND = "summary"
_KEPT = 3  # summaries; the older ones are there for a conversation that is rolled back
_PORTION = 16_000  # tokens that a summariser gets at once where no other bound is set
_PATIENCE = 30.0  # seconds after a failure in which a conversation is not tried again
_FAILURES_KNOWN = 1_000


class _Summary(Struct, frozen=True):
    seq: int  # the last message that it covers
    text: str
    system: tuple[str, ...] = ()  # of the messages that it covers: they are shown whole


def _to_text(summary: _Summary) -> str:
    return json.dumps(msgspec.to_builtins(summary))  # which has a form for lone surrogates, as system texts may hold


def _from_text(body: str) -> _Summary | None:
    try:
        return msgspec.convert(json.loads(body), _Summary)
    except (ValueError, msgspec.ValidationError):
        return None  # somebody else's record of that name


class SummarizingChatMemory:
    """Another store, of which the model sees a summary of the older turns and the newest ones whole.

    When what the model would see passes a bound, the older turns are summed up, once, and the summary is kept with the
    conversation as a record; the messages themselves stay as they are. A turn costs what it shows, however long the
    conversation is, and between two summaries the beginning of the prompt stays the same for the provider's cache. A
    rollback takes back the summaries that reach too far; a fork takes those along that fit.

    The summary is shown as a user message in front of the newer turns, after the system messages: it is made of what
    users and tools said, and must not speak with the authority of instructions. System messages are never summed up.

    If the summary cannot be made, the turn goes on with the newest turns that fit, and the log says so; the
    conversation is tried again half a minute later.

    Args:
        store: where the conversations are; it has to keep records and numbers of messages.
        summarize: a chat model, or a function of messages and of the summary of what was before them. A model is asked
            directly: not through the client's filters, outside its usage, and nothing of it is stored but the summary.
        max_tokens: tokens that reach the model at most, by the counter, summary and new input included. The client's
            own instructions and tools come on top.
        max_messages: messages that reach the model at most, likewise.
        keep_tokens: how much of the newest turns stays whole when a summary is made; half of `max_tokens` if not given.
        keep_messages: likewise; half of `max_messages` if not given.
        keep_turns: turns that stay whole at most.
        counter: counts tokens; an estimate if not given.
        timeout: seconds for the summary of one portion; None waits as long as it takes.
        clock: seconds, growing.

    Raises:
        ConfigurationError: the store keeps no records or is a view itself, or the bounds leave no room.
    """

    def __init__(
        self,
        store: ChatMemory,
        summarize: ChatModel | Summarize,
        *,
        max_tokens: int | None = None,
        max_messages: int | None = None,
        keep_tokens: int | None = None,
        keep_messages: int | None = None,
        keep_turns: int | None = None,
        counter: TokenCounter = ESTIMATE,
        timeout: float | None = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        name = type(store).__name__
        if isinstance(store, ModelView):
            raise ConfigurationError(
                f"{name} decides itself what the model sees, so its older turns cannot be summed up; give the store "
                "behind it, and the bounds to SummarizingChatMemory"
            )
        if not isinstance(store, MessageLog) or not isinstance(store, RecordKeeping):
            raise ConfigurationError(
                f"{name} keeps no records, so a summary would be made anew at every turn; use "
                "InMemoryChatMemory, SQLiteChatMemory or another store with MessageLog and RecordKeeping"
            )
        if max_tokens is None and max_messages is None:
            raise ConfigurationError("a summary needs a bound: give max_tokens or max_messages")
        keep_tokens = _kept("tokens", max_tokens, keep_tokens)
        keep_messages = _kept("messages", max_messages, keep_messages)
        check_bounds({"keep_turns": keep_turns})
        self.store: ChatMemory = store
        self.max_tokens = max_tokens
        self.max_messages = max_messages
        self._room = Room(max_messages, max_tokens)
        self._kept = Room(keep_messages, keep_tokens, keep_turns)
        # So that it never takes the room which the newest turns need, or one more summary at every turn.
        self._longest = None if max_tokens is None or keep_tokens is None else max(1, (max_tokens - keep_tokens) // 2)
        self._log: MessageLog = store
        self._records: RecordKeeping = store
        self._counter = counter
        self._timeout = timeout
        self._clock = clock
        self._failures: dict[str, float] = {}  # when a conversation may be tried again
        self._summarize = _as_function(summarize, self._longest)

    async def get(self, conversation_id: str) -> Sequence[Message]:
        """The summary there is, and all newer messages: nothing is made."""
        summary, records = await self._read(conversation_id)
        return [*_front(summary), *(record.message for record in records)]

    async def view(self, conversation_id: str, pending: Sequence[Message]) -> Sequence[Message]:
        """The summary of the older turns, if there is one, and the newer messages; makes one if it is due."""
        summary, records = await self._read(conversation_id)
        front, messages = _front(summary), [record.message for record in records]
        room = self._room.without(pending, self._counter)
        if room.without([*front, *messages], self._counter).holds(0, 0, 0):
            return [*front, *messages]
        start = self._start(messages, pending, room)
        if start == 0:
            return [*front, *messages]
        if self._clock() >= self._failures.get(conversation_id, 0.0):
            try:
                summary = await self._sum_up(conversation_id, summary, records[:start])
            except Exception:
                # The user asked for an answer, not for a summary.
                logger.exception("conversation %r: its older turns could not be summed up", conversation_id)
                self._remember_failure(conversation_id)
            else:
                self._failures.pop(conversation_id, None)
                return [*_front(summary), *[record.message for record in records if record.seq > summary.seq]]
        shown, _ = newest_turns(
            messages,
            room.without(front, self._counter),
            self._counter,
            keep_newest=not begins_turn(messages, pending),
            keep_input=brings_results(pending),
        )
        return [*front, *shown]

    def fit(self, messages: Sequence[Message]) -> Sequence[Message]:
        """What the model is to see, the largest tool results shortened where it is more than `max_tokens`."""
        return messages if self.max_tokens is None else fit_results(messages, self.max_tokens, self._counter)

    async def add(self, conversation_id: str, messages: Sequence[Message]) -> None:
        """Append to the underlying store."""
        await self.store.add(conversation_id, messages)

    async def clear(self, conversation_id: str) -> None:
        """Forget the conversation in the underlying store, summaries included."""
        await self.store.clear(conversation_id)

    def _start(self, messages: Sequence[Message], pending: Sequence[Message], room: Room) -> int:
        """How many messages are to be summed up: whole turns, so many that what stays leaves room for more."""
        system = [message for message in messages if type(message) is SystemMessage]
        left = Room(
            None if room.messages is None else room.messages - 1,  # for the summary
            None if room.tokens is None else room.tokens - (self._longest or 0),
            self._kept.turns,
        ).without(system, self._counter)
        kept = Room(*map(_least, left, self._kept))
        start = len(messages)
        for bounds in (kept, left):  # is the newest turn more than should be kept, there may be room for it
            found = cut_turns(
                messages,
                bounds,
                self._counter,
                keep_newest=not begins_turn(messages, pending),
                keep_input=brings_results(pending),
            )
            start = found.start
            if found.fits and start < len(messages):
                break
        return start if any(type(message) is not SystemMessage for message in messages[:start]) else 0

    async def _read(self, conversation_id: str) -> tuple[_Summary | None, Sequence[StoredMessage]]:
        """The newest summary, and what follows the messages that it covers."""
        for record in reversed(await self._records.list_records(conversation_id, _KIND)):
            summary = _from_text(record.body)
            if summary is None:
                continue
            records = await self._log.read(conversation_id, after=summary.seq - 1)
            if records and records[0].seq == summary.seq:
                return summary, records[1:]
            # Of messages that were forgotten or taken back while it was made.
            await self._records.take_record(conversation_id, _KIND, record.key)
        return None, await self._log.read(conversation_id)

    async def _sum_up(
        self, conversation_id: str, earlier: _Summary | None, records: Sequence[StoredMessage]
    ) -> _Summary:
        """Add messages to the summary, in portions that a model can take in; what is made of whole turns is kept."""
        summary = earlier
        text, system = (earlier.text, list(earlier.system)) if earlier is not None else (None, [])
        for portion, ends_turn in self._portions(records):
            messages = [record.message for record in portion]
            system += [message.content for message in messages if isinstance(message, SystemMessage)]
            said = [message for message in messages if type(message) is not SystemMessage]
            if said:
                text = await self._ask(said, text)
            if ends_turn:
                summary = await self._keep(conversation_id, _Summary(portion[-1].seq, text or "", tuple(system)))
                text, system = summary.text, list(summary.system)
        assert summary is not None  # the last portion ends a turn
        kept = await self._records.list_records(conversation_id, _KIND)
        for old in [record for record in kept if _from_text(record.body) is not None][:-_KEPT]:
            await self._records.take_record(conversation_id, _KIND, old.key)
        logger.info("conversation %r: summed up to message %d", conversation_id, summary.seq)
        return summary

    async def _ask(self, messages: Sequence[Message], earlier: str | None) -> str:
        async with asyncio.timeout(self._timeout):
            text = await self._summarize(messages, earlier)
        text = text.strip().encode("utf-8", "replace").decode()
        if not text:
            raise ValueError("the summary is empty")
        count = self._counter(text)
        if self._longest is not None and count > self._longest:
            text = shorten(text, int(len(text) * self._longest / count * 0.95))
        return text

    async def _keep(self, conversation_id: str, made: _Summary) -> _Summary:
        key = f"{made.seq:020}"
        text = _to_text(made)
        if not await self._records.put_record(conversation_id, _KIND, key, text, seq=made.seq, if_absent=True):
            # Another process was quicker: both go on with the same words.
            kept = await self._records.get_record(conversation_id, _KIND, key)
            return (_from_text(kept.body) if kept is not None else None) or made
        covered = await self._log.read(conversation_id, after=made.seq - 1, limit=1)
        if not covered or covered[0].seq != made.seq:  # cleared meanwhile: nothing of it may stay
            await self._records.take_record(conversation_id, _KIND, key)
        return made

    def _portions(self, records: Sequence[StoredMessage]) -> Iterator[tuple[Sequence[StoredMessage], bool]]:
        """Runs of messages of a bounded size, and whether each ends with a turn; calls stay with their results."""
        most = self.max_tokens or _PORTION
        start = 0
        while start < len(records):
            tokens = 0
            turn = apart = None  # where the portion may end: before a turn, or at least between calls
            end = len(records)
            for index in range(start, len(records)):
                kind = type(records[index].message)
                if index > start and kind is UserMessage and type(records[index - 1].message) is not UserMessage:
                    turn = index
                elif index > start and kind is not ToolMessage:
                    apart = index
                tokens += self._counter.count_message(records[index].message)
                if tokens > most and (turn or apart) is not None:
                    end = turn or apart or end
                    break
            yield records[start:end], end in (turn, len(records))
            start = end

    def _remember_failure(self, conversation_id: str) -> None:
        self._failures.pop(conversation_id, None)
        if len(self._failures) >= _FAILURES_KNOWN:
            del self._failures[next(iter(self._failures))]
        self._failures[conversation_id] = self._clock() + _PATIENCE


def _as_function(summarize: ChatModel | Summarize, most_tokens: int | None) -> Summarize:
    if hasattr(summarize, "chat"):
        return summarize_by(cast("ChatModel", summarize), most_tokens)
    return cast("Summarize", summarize)


def _kept(what: str, most: int | None, keep: int | None) -> int | None:
    """How much stays whole.

    Raises:
        ConfigurationError: it leaves no room for a summary.
    """
    check_bounds({f"max_{what}": most})
    if most is None:
        check_bounds({f"keep_{what}": keep})
        return keep
    keep = most // 2 if keep is None else keep
    if not 0 < keep < most:
        raise ConfigurationError(f"keep_{what} is between 1 and max_{what} ({most}), not {keep}")
    return keep


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _front(summary: _Summary | None) -> list[Message]:
    if summary is None:
        return []
    return [*map(SystemMessage, summary.system), UserMessage(f"{OPENING}\n{summary.text}\n{CLOSING}")]
