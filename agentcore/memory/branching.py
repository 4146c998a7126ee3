"""Where a conversation may be forked or rolled back: where a turn ended, or paused."""

from collections.abc import Collection, Sequence

from agentcore.errors import InvalidInputError
from agentcore.memory.base import StoredMessage
from agentcore.messages import AssistantMessage, ToolMessage

PAUSE = "pause"
"""The kind of record that marks where a turn has paused."""


def fork_points(records: Sequence[StoredMessage], pauses: Collection[int] = ()) -> list[int]:
    """The `seq` of each message after which a conversation may be forked or rolled back, in order.

    Args:
        records: the whole conversation, or a part that begins at a turn.
        pauses: the `seq` at which turns paused, whose calls are open on purpose.
    """
    points: list[int] = []
    open_calls: set[str] = set()
    for index, record in enumerate(records):
        message = record.message
        if isinstance(message, AssistantMessage):
            open_calls = {call.id for call in message.tool_calls}
        elif isinstance(message, ToolMessage):
            open_calls.discard(message.tool_call_id)
        ends_turn = index + 1 == len(records) or records[index + 1].turn_id != record.turn_id
        if (ends_turn and not open_calls) or record.seq in pauses:
            points.append(record.seq)
    return points


def check_fork_point(
    conversation_id: str, records: Sequence[StoredMessage], at: int, pauses: Collection[int] = ()
) -> None:
    """Refuse a place in the middle of a turn.

    Raises:
        InvalidInputError: naming the nearest places before and after it.
    """
    points = fork_points(records, pauses)
    if at in points:
        return
    before = max((point for point in points if point < at), default=None)
    after = min((point for point in points if point > at), default=None)
    near = " or ".join(str(point) for point in (before, after) if point is not None)
    raise InvalidInputError(
        f"message {at} of conversation {conversation_id!r} is not the end of a turn"
        + (f"; the nearest are {near}" if near else ", and no turn of it has ended")
    )
