"""Where a history is cut: at the borders of turns, by the tightest of several bounds; for windows and summaries."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from agentcore.errors import ConfigurationError
from agentcore.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from agentcore.pairing import unanswered_calls
from agentcore.tokens import TokenCounter

_LONGEST_INPUT = 8
"""User messages in a row that are taken for one input at most: where many people talk, thousands may stand in a row."""

_LEAST_RESULT = 200
"""Characters that are left of a tool result however little room there is."""

_FIT_STEPS = 8


class Room(NamedTuple):
    """How much of a history may be shown; None is any amount."""

    messages: int | None = None
    tokens: int | None = None
    turns: int | None = None

    def without(self, messages: Iterable[Message], counter: TokenCounter, turns: int = 0) -> "Room":
        """What is left of it beside these messages."""
        taken = list(messages)
        return Room(
            None if self.messages is None else self.messages - len(taken),
            None if self.tokens is None else self.tokens - sum(map(counter.count_message, taken)),
            None if self.turns is None else self.turns - turns,
        )

    def holds(self, messages: int, tokens: int, turns: int) -> bool:
        """Whether so much fits."""
        return (
            (self.messages is None or messages <= self.messages)
            and (self.tokens is None or tokens <= self.tokens)
            and (self.turns is None or turns <= self.turns)
        )


class Grid(NamedTuple):
    """Where cuts are preferred, so that they do not move at every turn: before the last turn to begin in a block.

    Attributes:
        step: messages in a block.
        first: the number, in the whole conversation, of the first message given.
    """

    step: int
    first: int = 1

    def parts(self, index: int, following: int) -> bool:
        """Whether a block ends between the beginnings of two turns."""
        return (self.first + index) // self.step != (self.first + following) // self.step


class Cut(NamedTuple):
    """Where a history is cut.

    Attributes:
        start: index of the first message to keep; system messages are kept wherever they are.
        newest: index at which the newest turn begins; None if that is further back.
        decided: whether older messages could not change it.
        fits: whether what is kept is within the bounds.
    """

    start: int
    newest: int | None
    decided: bool
    fits: bool


def check_bounds(bounds: Mapping[str, int | None]) -> None:
    """Refuse bounds that leave no room.

    Raises:
        ConfigurationError: one is less than 1; it is named.
    """
    for name, bound in bounds.items():
        if bound is not None and bound < 1:
            raise ConfigurationError(f"{name} is at least 1, not {bound}")


def brings_results(pending: Sequence[Message]) -> bool:
    """Whether `pending` goes on with the turn that is running."""
    return type(next(iter(pending), None)) is ToolMessage


def begins_turn(stored: Sequence[Message], pending: Sequence[Message]) -> bool:
    """Whether `pending` begins a turn: not if it brings results, or the turn before it broke off among its calls."""
    if brings_results(pending):
        return False
    return any(type(message) is UserMessage for message in pending) and not unanswered_calls(stored)


def cut_turns(
    messages: Sequence[Message],
    room: Room,
    counter: TokenCounter,
    *,
    keep_newest: bool = True,
    keep_input: bool = False,
    whole: bool = True,
    grid: Grid | None = None,
) -> Cut:
    """The longest run of newest turns that fits. System messages are passed over and not counted.

    A turn begins with a user message, or several in a row, which are parted only where all of them are too much. What
    stands before the first turn is shown if there is room, and is not counted as a turn. A record without users is cut
    before any message that is not a result.

    Args:
        messages: the history, or its end.
        room: what fits.
        counter: counts tokens, where they are bounded.
        keep_newest: whether the newest turn is kept whatever its size.
        keep_input: whether that means all the user messages it begins with.
        whole: whether these are all messages there are.
        grid: where cuts are preferred.
    """
    users = [index for index, message in enumerate(messages) if type(message) is UserMessage]
    opening = _opening(messages) if whole else None
    if users:
        borders = _first_of_rows(messages, users, whole)
        found = _walk(messages, room, counter, {*borders}, opening, keep_newest, whole, grid)
        if found.fits or not found.decided or keep_input or len(borders) == len(users):
            return found
        return _walk(messages, room, counter, {*users}, opening, keep_newest, whole, grid)
    if not whole:
        return Cut(len(messages), None, decided=False, fits=False)
    replies = {i for i, message in enumerate(messages) if type(message) not in (SystemMessage, ToolMessage)}
    return _walk(messages, room, counter, replies, None, keep_newest, whole, grid)


def newest_turns(
    messages: Sequence[Message],
    room: Room,
    counter: TokenCounter,
    *,
    keep_newest: bool = True,
    keep_input: bool = False,
    whole: bool = True,
    grid: Grid | None = None,
) -> tuple[Sequence[Message], bool]:
    """The newest turns that fit beside the system messages, with these; and whether older messages could change it.

    A newest turn that does not fit and need not be kept is reduced to its question and its answer, if these fit.
    """
    system = [message for message in messages if type(message) is SystemMessage]
    if system:
        room = room.without(system, counter)
    found = cut_turns(messages, room, counter, keep_newest=keep_newest, keep_input=keep_input, whole=whole, grid=grid)
    if found.start == 0 or not found.decided:
        return messages, found.decided
    if not found.fits and not keep_newest and found.newest is not None:
        brief = _question_and_answer(messages, found.newest)
        if brief and room.without(brief, counter, turns=1).holds(0, 0, 0):
            return [*system, *brief], True
    leading = [message for message in messages[: found.start] if type(message) is SystemMessage]
    return [*leading, *messages[found.start :]], True


def _walk(
    messages: Sequence[Message],
    room: Room,
    counter: TokenCounter,
    borders: set[int],
    opening: int | None,
    keep_newest: bool,
    whole: bool,
    grid: Grid | None,
) -> Cut:
    kept = preferred = newest = None
    following = None if keep_newest else len(messages)
    count = tokens = turns = 0
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if type(message) is SystemMessage:
            continue
        count += 1
        if room.tokens is not None:
            tokens += counter.count_message(message)
        turn = index in borders
        turns += turn
        if turn and newest is None:
            newest = index
        if not room.holds(count, tokens, turns):
            break
        if turn or index == opening:
            kept = index
            if following is not None and grid is not None and grid.parts(index, following):
                preferred = index
            following = index
    else:
        start = len(messages) if kept is None else kept
        return Cut(start, newest, decided=whole, fits=True)
    start = kept if preferred is None else preferred
    if start is None:
        newest = newest if newest is not None else max((border for border in borders if border < index), default=None)
        start = newest if keep_newest and newest is not None else len(messages)
        return Cut(start, newest, decided=whole or newest is not None, fits=False)
    return Cut(start, newest, decided=True, fits=True)


def _opening(messages: Sequence[Message]) -> int | None:
    """Where a conversation begins; results without a call are no beginning."""
    for index, message in enumerate(messages):
        if type(message) is not SystemMessage and type(message) is not ToolMessage:
            return index
    return None


def _first_of_rows(messages: Sequence[Message], users: Sequence[int], whole: bool) -> list[int]:
    """Of user messages in a row the first; whether one at the edge of what was read is the first is not known."""
    firsts: list[int] = []
    row = 0
    for index in users:
        before = index - 1
        while before >= 0 and type(messages[before]) is SystemMessage:
            before -= 1
        known = before >= 0 or whole
        row = row + 1 if known and before >= 0 and type(messages[before]) is UserMessage else 0
        if known and row % _LONGEST_INPUT == 0:
            firsts.append(index)
    return firsts


def _question_and_answer(messages: Sequence[Message], newest: int) -> Sequence[Message]:
    """Of a turn that begins at an index and ended with an answer: what was asked and answered; nothing of any other."""
    turn = [message for message in messages[newest:] if type(message) is not SystemMessage]
    answer = turn[-1]
    if not isinstance(answer, AssistantMessage) or answer.tool_calls or not answer.content:
        return ()
    asked = 0
    while type(turn[asked]) is UserMessage:
        asked += 1
    return [*turn[:asked], answer] if asked else ()


def fit_results(messages: Sequence[Message], max_tokens: int, counter: TokenCounter) -> Sequence[Message]:
    """The messages with the largest tool results shortened, largest first, until they have at most `max_tokens`.

    Only texts are shortened, never below a few lines; what users said and models answered is left alone. Deterministic,
    and in steps: what is too much is rounded up to an eighth of `max_tokens`, so that a turn which grows by a little
    leaves the results as they were shortened before, and with them the beginning that a prompt cache knows.
    """
    counts = [counter.count_message(message) for message in messages]
    over = sum(counts) - max_tokens
    if over <= 0:
        return messages
    step = max(1, max_tokens // _FIT_STEPS)
    over = -(-over // step) * step
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
    return replace(message, content=shorten(content, room))


def shorten(text: str, room: int) -> str:
    """The beginning of a text, and how much of it is missing."""
    return f"{text[:room]}… ({len(text) - room} of {len(text)} characters left out here)"
