"""WindowedChatMemory: how much of a history reaches the model, cut so that nothing is torn apart."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from agentcore.errors import ConfigurationError
from agentcore.memory.base import ChatMemory, TailReading
from agentcore.messages import Message, SystemMessage, ToolMessage, UserMessage
from agentcore.pairing import unanswered_calls
from agentcore.tokens import ESTIMATE, TokenCounter

_FIRST_READ = 32
_LEAST_RESULT = 200
"""Characters that are left of a tool result however little room there is."""


class _Room(NamedTuple):
    """What a window may hold; None is any amount."""

    messages: int | None
    tokens: int | None
    turns: int | None

    def less(self, messages: int, tokens: int, turns: int) -> "_Room":
        return _Room(
            None if self.messages is None else self.messages - messages,
            None if self.tokens is None else self.tokens - tokens,
            None if self.turns is None else self.turns - turns,
        )

    def holds(self, messages: int, tokens: int, turns: int) -> bool:
        return (
            (self.messages is None or messages <= self.messages)
            and (self.tokens is None or tokens <= self.tokens)
            and (self.turns is None or turns <= self.turns)
        )


class _Cut(NamedTuple):
    """Where a history is cut: index of the first message to keep, and whether more history could not change it."""

    start: int
    decided: bool


def window(
    messages: Sequence[Message],
    max_messages: int | None = None,
    *,
    max_tokens: int | None = None,
    max_turns: int | None = None,
    counter: TokenCounter = ESTIMATE,
    keep_newest_turn: bool = True,
) -> Sequence[Message]:
    """The newest whole turns that fit, after the system messages.

    A turn begins with a user message, so the cut never parts a call from its results and never leaves a tool message
    or an answer in front. System messages are kept and counted. The newest turn is kept even when it alone is larger,
    unless `keep_newest_turn` is false (something newer follows).

    Args:
        messages: the history.
        max_messages: messages, system messages included.
        max_tokens: tokens, by the counter.
        max_turns: turns.
        counter: counts tokens.
        keep_newest_turn: whether the newest turn is kept whatever its size.
    """
    return _window(messages, _Room(max_messages, max_tokens, max_turns), counter, keep_newest_turn)[0]


def _window(
    messages: Sequence[Message], room: _Room, counter: TokenCounter, keep_newest_turn: bool
) -> tuple[Sequence[Message], bool]:
    system = [message for message in messages if type(message) is SystemMessage]
    rest = [message for message in messages if type(message) is not SystemMessage] if system else messages
    tokens = sum(map(counter.count_message, system)) if room.tokens is not None else 0
    cut = _cut(rest, room.less(len(system), tokens, 0), counter, keep_newest_turn)
    if cut.start == 0:
        return messages, cut.decided
    return [*system, *rest[cut.start :]], cut.decided


def _cut(messages: Sequence[Message], room: _Room, counter: TokenCounter, keep_newest_turn: bool) -> _Cut:
    starts = {index for index, message in enumerate(messages) if type(message) is UserMessage}
    known = bool(starts)  # else the turn begins further back
    if not starts:  # a record without users: cut it at any message that is not a result
        starts = {index for index, message in enumerate(messages) if type(message) is not ToolMessage}
    kept: int | None = None
    tokens = turns = 0
    for index in range(len(messages) - 1, -1, -1):
        if room.tokens is not None:
            tokens += counter.count_message(messages[index])
        begins = index in starts
        turns += begins
        count = len(messages) - index
        if not room.holds(count, tokens, turns):
            if begins and kept is None and keep_newest_turn:
                return _Cut(index, known)
            if kept is not None or not keep_newest_turn:
                return _Cut(len(messages) if kept is None else kept, known)
        elif begins:
            kept = index
    return _Cut(0 if kept is None and keep_newest_turn else len(messages) if kept is None else kept, decided=False)


class WindowedChatMemory:
    """Another store, of which the model sees only the newest turns; the store itself stays whole.

    Of several bounds the tightest counts. With a store that can read its tail the cost of a windowed turn does not grow
    with the conversation. A newest turn that alone has more than `max_tokens` is shown whole but for its tool results:
    the largest are shortened, with a visible mark.

    Args:
        store: where the conversations are.
        max_messages: messages that reach the model at most, system messages and the new input included.
        max_tokens: tokens that reach the model at most, by the counter.
        max_turns: turns that reach the model at most, the one that is running included.
        counter: counts tokens; an estimate if not given.

    Raises:
        ConfigurationError: no bound at all, or one that leaves no room.
    """

    def __init__(
        self,
        store: ChatMemory,
        *,
        max_messages: int | None = None,
        max_tokens: int | None = None,
        max_turns: int | None = None,
        counter: TokenCounter = ESTIMATE,
    ) -> None:
        bounds = {"max_messages": max_messages, "max_tokens": max_tokens, "max_turns": max_turns}
        if all(bound is None for bound in bounds.values()):
            raise ConfigurationError("a window needs a bound: give max_messages, max_tokens or max_turns")
        for name, bound in bounds.items():
            if bound is not None and bound < 1:
                raise ConfigurationError(f"{name} is at least 1, not {bound}")
        self.store = store
        self.max_messages = max_messages
        self.max_tokens = max_tokens
        self.max_turns = max_turns
        self._room = _Room(max_messages, max_tokens, max_turns)
        self._counter = counter
        self._tail = store if isinstance(store, TailReading) else None

    async def get(self, conversation_id: str) -> Sequence[Message]:
        """The window: what the model would see if nothing new were said."""
        return await self.view(conversation_id, ())

    async def view(self, conversation_id: str, pending: Sequence[Message]) -> Sequence[Message]:
        """The stored part of the window over the history followed by `pending`."""
        if self._tail is None:
            return self._shown(await self.store.get(conversation_id), pending)[0]
        count = (self.max_messages or _FIRST_READ) + 1
        while True:  # in growing steps, until older messages could not change the cut
            tail = await self._tail.get_tail(conversation_id, count)
            shown, decided = self._shown(tail, pending)
            if decided or len(tail) < count:
                return shown
            count *= 4

    def fit(self, messages: Sequence[Message]) -> Sequence[Message]:
        """What the model is to see, the largest tool results shortened where it is more than `max_tokens`."""
        return messages if self.max_tokens is None else fit_results(messages, self.max_tokens, self._counter)

    async def add(self, conversation_id: str, messages: Sequence[Message]) -> None:
        """Append to the underlying store."""
        await self.store.add(conversation_id, messages)

    async def clear(self, conversation_id: str) -> None:
        """Forget the conversation in the underlying store."""
        await self.store.clear(conversation_id)

    def _shown(self, stored: Sequence[Message], pending: Sequence[Message]) -> tuple[Sequence[Message], bool]:
        # Results continue the newest turn, and a turn that broke off among its calls has to be healed.
        continues = type(next(iter(pending), None)) is ToolMessage or bool(unanswered_calls(stored))
        starts_turn = not continues and any(type(message) is UserMessage for message in pending)
        tokens = sum(map(self._counter.count_message, pending)) if self.max_tokens is not None else 0
        room = self._room.less(len(pending), tokens, int(starts_turn))
        return _window(stored, room, self._counter, not starts_turn)


def fit_results(messages: Sequence[Message], max_tokens: int, counter: TokenCounter) -> Sequence[Message]:
    """The messages with the largest tool results shortened, largest first, until they have at most `max_tokens`.

    Only texts are shortened, never below a few lines; what users said and models answered is left alone. Deterministic.
    """
    counts = [counter.count_message(message) for message in messages]
    over = sum(counts) - max_tokens
    if over <= 0:
        return messages
    fitted = list(messages)
    for index in sorted(range(len(messages)), key=lambda index: (-counts[index], index)):
        message = fitted[index]
        if over <= 0:
            break
        if isinstance(message, ToolMessage) and isinstance(message.content, str):
            shortened = _shortened(message, message.content, counts[index] - over, counts[index])
            over -= counts[index] - counter.count_message(shortened)
            fitted[index] = shortened
    return fitted


def _shortened(message: ToolMessage, content: str, wanted: int, count: int) -> ToolMessage:
    room = max(_LEAST_RESULT, int(len(content) * max(wanted, 0) / count * 0.95) - 60)
    if room >= len(content):
        return message
    left_out = len(content) - room
    return replace(message, content=f"{content[:room]}… ({left_out} of {len(content)} characters left out here)")
