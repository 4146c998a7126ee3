"""What is said of two requests that differ names the byte, the place, and both texts."""

import pytest

from agentcore.testing.differences import difference


@pytest.mark.parametrize(
    ("recorded", "sent", "told"),
    [
        ('{"a":[1,2]}', '{"a":[1,3]}', "at byte 8 of 11 recorded and 11 sent (a[1]):"),
        ('{"a":{"b":1}}', '{"a":{}}', "(a.b, which was not sent)"),
        ('{"a":{}}', '{"a":{"b":1}}', "(a.b, new)"),
        ('{"a":1}', '{"a":1,"b":2}', "(b, new)"),
        ("[1]", "[1,2]", "(the whole, 1 items recorded and 2 sent"),
        ('{"a":1,"b":2}', '{"b":2,"a":1}', "(only in the order of fields, or in spaces)"),
        ('{"a":{"x":1,"y":2},"b":1}', '{"a":{"y":2,"x":1},"b":2}', "(b)"),
        ("plain", "plane", "at byte 3 of 5 recorded and 5 sent:"),
        ('{"a":1}', '{"a": 1}', "(only in the order of fields, or in spaces)"),
    ],
)
def test_first_difference_is_named(recorded: str, sent: str, told: str) -> None:
    assert told in difference(recorded, sent).splitlines()[0]


def test_both_texts_are_shown_around_the_place_and_no_more() -> None:
    start, end = "a" * 500, "z" * 500
    [_, recorded, sent] = difference(f"{start}old{end}", f"{start}new{end}").splitlines()
    assert recorded == f"  recorded: …{'a' * 60}old{'z' * 57}…"
    assert sent == f"  sent:     …{'a' * 60}new{'z' * 57}…"


def test_end_of_the_shorter_one_is_shown() -> None:
    assert difference("abc", "abcdef").splitlines()[1:] == ["  recorded: …abc (its end)", "  sent:     abcdef"]
