"""Why a store refuses a write: one wording for all stores."""

from collections.abc import Sequence

from agentcore.errors import InvalidInputError, LeaseLostError, VersionConflictError
from agentcore.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage

_MESSAGE_TYPES = frozenset((SystemMessage, UserMessage, AssistantMessage, ToolMessage))

_TOO_FAR = 2**53  # beyond it not every store tells one number from the next


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


def check_position(position: int) -> None:
    """Refuse what is no place in a turn: no store could number its messages by it.

    Raises:
        InvalidInputError: it is negative, or larger than any turn.
    """
    if not 0 <= position < _TOO_FAR:
        raise InvalidInputError(f"position is the number of a message in its turn, from 0 on, not {position}")


def check_same(
    conversation_id: str, turn_id: str, position: int, held: Sequence[object], given: Sequence[object]
) -> None:
    """Of an append whose places are taken, make sure that it is the same append, sent again.

    Args:
        conversation_id: where it goes.
        turn_id: its turn.
        position: its first place in that turn.
        held: what its places hold, in order: messages, or their stored form.
        given: what it brings, in the same form.

    Raises:
        InvalidInputError: it brings something else.
    """
    if list(held) != list(given):
        raise InvalidInputError(
            f"turn {turn_id!r} of conversation {conversation_id!r} has already stored something else from position "
            f"{position} on; a turn id is used for one turn, and a position for one message; nothing was stored"
        )


def lease_lost(conversation_id: str) -> LeaseLostError:
    """The refusal of a writer whose lease was taken, ran out, or was ended by `clear` or `rollback`."""
    return LeaseLostError(
        f"conversation {conversation_id!r} is no longer held by this turn: another turn took it over, its lease ran "
        "out, or it was cleared or rolled back; nothing was stored"
    )


def version_conflict(conversation_id: str, expected: int, version: int) -> VersionConflictError:
    """The refusal of a writer who read an older version."""
    return VersionConflictError(
        f"conversation {conversation_id!r} has version {version}, not {expected}: somebody appended since it was read; "
        "nothing was stored; read it again, then decide",
        version=version,
    )


def nothing_to_fork(conversation_id: str) -> InvalidInputError:
    """The refusal of a fork of nothing."""
    return InvalidInputError(f"conversation {conversation_id!r} has no messages to fork")


def id_in_use(conversation_id: str) -> InvalidInputError:
    """The refusal of a fork into a conversation that has messages."""
    return InvalidInputError(f"conversation {conversation_id!r} has messages already; fork into a new id")
