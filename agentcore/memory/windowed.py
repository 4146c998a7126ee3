"""WindowedChatMemory: how much of a history reaches the model, cut so that nothing is torn apart."""

from collections.abc import Sequence

from agentcore.errors import ConfigurationError
from agentcore.memory.base import ChatMemory, FittingView, MessageLog, ModelView, TailReading
from agentcore.memory.cutting import (
    Grid,
    Room,
    begins_turn,
    brings_results,
    check_bounds,
    fit_results,
    newest_turns,
)
from agentcore.messages import Message
from agentcore.tokens import ESTIMATE, TokenCounter

_FIRST_READ = 32
_GROWTH = 4


def window(
    messages: Sequence[Message],
    max_messages: int | None = None,
    *,
    max_tokens: int | None = None,
    max_turns: int | None = None,
    step: int = 1,
    counter: TokenCounter = ESTIMATE,
    keep_newest_turn: bool = True,
) -> Sequence[Message]:
    """The newest whole turns that fit, and the system messages.

    A turn begins with a user message, so the cut never parts a call from its results and never leaves a tool message
    or an answer in front. System messages are kept and counted. The newest turn is kept even when it alone is larger.

    Args:
        messages: the history.
        max_messages: messages, system messages included.
        max_tokens: tokens, by the counter.
        max_turns: turns.
        step: messages by which the cut moves at once; see `WindowedChatMemory`.
        counter: counts tokens.
        keep_newest_turn: if not, because something newer follows, a newest turn that is larger is reduced to its
            question and its answer, and left out if these do not fit either.
    """
    grid = Grid(step) if step > 1 else None
    room = Room(max_messages, max_tokens, max_turns)
    return newest_turns(messages, room, counter, keep_newest=keep_newest_turn, grid=grid)[0]


class WindowedChatMemory:
    """Another store, of which the model sees only the newest turns; the store itself stays whole.

    Of several bounds the tightest counts. With a store that can read its tail the cost of a windowed turn does not grow
    with the conversation: at most a few times as much is read as is shown, and at most the newest turn beside it.

    The running turn is always shown, whatever its size; if it alone has more than `max_tokens`, its largest tool
    results are shortened, with a visible mark. If the turn before it is too large for what is left, its question and
    its answer are shown, without the tool calls between them.

    A window that is full moves at every turn, and a prompt whose beginning moves is not found in the provider's prompt
    cache. With `step` the cut falls, where it can, only before the last turn to begin in each block of so many messages
    of the conversation, so that it stays for several turns and then moves on by several; the model sees up to `step`
    messages fewer than the bounds allow. It follows from the numbers of the messages alone, so all processes agree.

    The bounds are on the conversation; the client's own instructions and tools come on top.

    Args:
        store: where the conversations are; another window is fine.
        max_messages: messages that reach the model at most, system messages and the new input included.
        max_tokens: tokens that reach the model at most, by the counter.
        max_turns: turns that reach the model at most, the one that is running included.
        step: messages by which the cut moves at once: a quarter of `max_messages`, say. 1 shows as much as fits.
        counter: counts tokens; an estimate if not given.

    Raises:
        ConfigurationError: no bound at all, one that leaves no room, or a `step` that cannot be.
    """

    def __init__(
        self,
        store: ChatMemory,
        *,
        max_messages: int | None = None,
        max_tokens: int | None = None,
        max_turns: int | None = None,
        step: int = 1,
        counter: TokenCounter = ESTIMATE,
    ) -> None:
        room = Room(max_messages, max_tokens, max_turns)
        if room == Room():
            raise ConfigurationError("a window needs a bound: give max_messages, max_tokens or max_turns")
        check_bounds({"max_messages": max_messages, "max_tokens": max_tokens, "max_turns": max_turns, "step": step})
        if max_messages is not None and step >= max_messages > 1:
            raise ConfigurationError(f"step is less than max_messages ({max_messages}), not {step}")
        self.store = store
        self.max_messages = max_messages
        self.max_tokens = max_tokens
        self.max_turns = max_turns
        self.step = step
        self._room = room
        self._counter = counter
        self._tail = store if isinstance(store, TailReading) else None
        self._inner = store if isinstance(store, ModelView) else None
        if self._inner is not None:
            _refuse_summaries(self._inner)
        self._log = store if step > 1 and isinstance(store, MessageLog) else None
        if step > 1 and self._log is None and (self._tail is not None or self._inner is not None):
            raise ConfigurationError(
                f"step needs the numbers of the messages, and {type(store).__name__} does not give them (MessageLog); "
                "leave step out"
            )
        first = _FIRST_READ if max_tokens is not None or max_turns is not None else max_messages or _FIRST_READ
        self._first_read = 1 + min(first, max_messages or first)

    async def get(self, conversation_id: str) -> Sequence[Message]:
        """The window: what the model would see if nothing new were said."""
        return await self.view(conversation_id, ())

    async def view(self, conversation_id: str, pending: Sequence[Message]) -> Sequence[Message]:
        """The stored part of the window over the history followed by `pending`."""
        if self._tail is None:
            inner = self._inner
            stored = await (self.store.get(conversation_id) if inner is None else inner.view(conversation_id, pending))
            return self._shown(stored, pending, 1, whole=True)[0]
        version = 0 if self._log is None else await self._log.version(conversation_id)
        count = self._first_read
        while True:  # in growing steps, until older messages could not change the cut
            tail = await self._tail.get_tail(conversation_id, count)
            whole = len(tail) < count
            # Numbered from the end, since a tail comes without numbers: wrong before a gap, but always in the same way.
            shown, decided = self._shown(tail, pending, version + 1 - len(tail), whole)
            if decided or whole:
                return shown
            count *= _GROWTH

    def fit(self, messages: Sequence[Message]) -> Sequence[Message]:
        """What the model is to see, the largest tool results shortened where it is more than `max_tokens`."""
        if isinstance(self._inner, FittingView):
            messages = self._inner.fit(messages)
        return messages if self.max_tokens is None else fit_results(messages, self.max_tokens, self._counter)

    async def add(self, conversation_id: str, messages: Sequence[Message]) -> None:
        """Append to the underlying store."""
        await self.store.add(conversation_id, messages)

    async def clear(self, conversation_id: str) -> None:
        """Forget the conversation in the underlying store."""
        await self.store.clear(conversation_id)

    def _shown(
        self, stored: Sequence[Message], pending: Sequence[Message], first: int, whole: bool
    ) -> tuple[Sequence[Message], bool]:
        begins = begins_turn(stored, pending)
        room = self._room.without(pending, self._counter, turns=int(begins))
        grid = Grid(self.step, first) if self.step > 1 else None
        return newest_turns(
            stored,
            room,
            self._counter,
            keep_newest=not begins,
            keep_input=brings_results(pending),
            whole=whole,
            grid=grid,
        )


def _refuse_summaries(view: ModelView) -> None:
    from agentcore.memory.summarizing import SummarizingChatMemory  # most programs need none

    if isinstance(view, SummarizingChatMemory):
        raise ConfigurationError(
            "a window around a SummarizingChatMemory would leave out its summary first; give the bounds to the "
            "SummarizingChatMemory"
        )
