"""Where a conversation may be forked: at the end of a turn whose calls are answered, and where one pauses."""

import pytest

from agentcore.errors import InvalidInputError
from agentcore.memory.base import StoredMessage
from agentcore.memory.branching import check_fork_point, fork_points
from agentcore.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage

Q, A = UserMessage("q"), AssistantMessage("a")
TWO_CALLS = AssistantMessage(None, (ToolCall("c1", "f"), ToolCall("c2", "f")))
R1, R2 = ToolMessage("c1", "f", "1"), ToolMessage("c2", "f", "2")


def stored(*turns: list[Message], gap: int = 0) -> list[StoredMessage]:
    """Turns as a store holds them, with a gap in the numbers after each."""
    records: list[StoredMessage] = []
    seq = 0
    for number, messages in enumerate(turns):
        for position, message in enumerate(messages):
            seq += 1
            records.append(StoredMessage(seq, f"t{number}", position, message, 0.0))
        seq += gap
    return records


@pytest.mark.parametrize(
    ("records", "points"),
    [
        (stored(), []),
        (stored([Q, A]), [2]),
        (stored([Q, A], [Q, A]), [2, 4]),
        (stored([Q, A], [Q, A], gap=3), [2, 7]),
        (stored([Q, TWO_CALLS, R1, R2, A]), [5]),
        (stored([Q, TWO_CALLS]), []),
        (stored([Q, TWO_CALLS, R1]), []),
        (stored([Q, TWO_CALLS, R1, R2]), [4]),
        (stored([Q, TWO_CALLS], [R1, R2, A]), [5]),
        (stored([Q, TWO_CALLS], [R1], [R2, A]), [5]),
        (stored([Q, TWO_CALLS], [Q, A]), [4]),
        (stored([Q], [Q, A]), [1, 3]),
    ],
    ids=[
        "nothing",
        "a turn",
        "two turns",
        "gaps",
        "rounds of tools",
        "open calls",
        "one of two answered",
        "answered and no more",
        "answered by another turn",
        "answered by two others",
        "left open",
        "a question alone",
    ],
)
def test_places_are_ends_of_turns_with_nothing_open(records: list[StoredMessage], points: list[int]) -> None:
    assert fork_points(records) == points


def test_pause_is_a_place() -> None:
    records = stored([Q, A], [Q, TWO_CALLS, R1, R2, A])
    assert fork_points(records, {4}) == [2, 4, 7]


@pytest.mark.parametrize(
    ("at", "near"), [(1, "are 2$"), (3, "are 2 or 6$"), (9, "are 6$"), (0, "are 2$")], ids=["1", "3", "9", "0"]
)
def test_refusal_names_the_nearest_places(at: int, near: str) -> None:
    with pytest.raises(InvalidInputError, match=f"message {at} of conversation 'u1' is not the end of a turn.*{near}"):
        check_fork_point("u1", stored([Q, A], [Q, TWO_CALLS, R1, R2]), at)


def test_refusal_says_that_there_is_no_place() -> None:
    with pytest.raises(InvalidInputError, match="no turn of it has ended"):
        check_fork_point("u1", stored([Q, TWO_CALLS]), 2)
