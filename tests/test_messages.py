"""Neutral messages: their JSON shape, exact round trips, and the pairing rule."""

import msgspec
import pytest
from hypothesis import given

from agentcore.messages import (
    AssistantMessage,
    AudioPart,
    FilePart,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    as_messages,
    check_history,
    text_of,
)
from tests.strategies import histories

SHAPES = [
    (SystemMessage("S"), b'{"role":"system","content":"S"}'),
    (UserMessage("hi"), b'{"role":"user","content":"hi"}'),
    (UserMessage((TextPart("a"),)), b'{"role":"user","content":[{"type":"text","text":"a"}]}'),
    (AssistantMessage("hello"), b'{"role":"assistant","content":"hello"}'),
    (
        AssistantMessage(None, (ToolCall("c1", "get_weather", {"city": "北京"}),)),
        '{"role":"assistant","content":null,"tool_calls":[{"id":"c1","name":"get_weather","args":{"city":"北京"}}]}'.encode(),
    ),
    (
        ToolMessage("c1", "get_weather", "晴 22°C"),
        '{"role":"tool","tool_call_id":"c1","name":"get_weather","content":"晴 22°C"}'.encode(),
    ),
]


@pytest.mark.parametrize(("message", "shape"), SHAPES, ids=lambda value: type(value).__name__)
def test_stored_shape_is_the_documented_one(message: Message, shape: bytes) -> None:
    assert msgspec.json.encode(message) == shape


@pytest.mark.parametrize(
    "message",
    [
        *[message for message, _ in SHAPES],
        AssistantMessage("x", (), "thought", "interrupted", {"format": "f", "blocks": [{"a": 1.0, "b": [1, None]}]}),
        AssistantMessage("", (ToolCall("c", "f", {}, raw_arguments="{'a"),), finish_reason="length"),
        ToolMessage("c", "f", "no", is_error=True, writes={"k": [1, 2]}),
        ToolMessage("c", "f", (TextPart("a"), ImagePart(data=b"\x00\xff", media_type="image/png"))),
        UserMessage((ImagePart(url="https://x/y.png", detail="low"), AudioPart(data=b"RIFF", media_type="audio/wav"))),
        UserMessage((FilePart(data=b"%PDF", media_type="application/pdf", name="a.pdf"),)),
    ],
    ids=repr,
)
def test_json_round_trip_is_exact(message: Message) -> None:
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_messages_convert_from_plain_mappings() -> None:
    plain = [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "c", "name": "f"}]}]
    assert msgspec.convert(plain, list[Message]) == [
        UserMessage("hi"),
        AssistantMessage(None, (ToolCall("c", "f"),)),
    ]


def test_content_given_as_a_list_is_frozen() -> None:
    parts = [TextPart("a")]
    message = UserMessage(parts)  # type: ignore[arg-type]
    parts.append(TextPart("b"))
    assert message.content == (TextPart("a"),)


@pytest.mark.parametrize("content", [3, None, {"a": 1}], ids=["int", "none", "dict"])
def test_content_of_a_wrong_type_is_refused(content: object) -> None:
    with pytest.raises(TypeError, match=r"UserMessage\.content is a str or a list of parts"):
        UserMessage(content)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [ImagePart, AudioPart, FilePart])
def test_part_takes_exactly_one_source(kind: type[ImagePart]) -> None:
    with pytest.raises(ValueError, match="either url or data"):
        kind()
    with pytest.raises(ValueError, match="either url or data"):
        kind(url="https://x", data=b"x", media_type="image/png")
    with pytest.raises(ValueError, match="media_type"):
        kind(data=b"x")


def test_as_messages_takes_what_callers_mean() -> None:
    assert as_messages("hi") == [UserMessage("hi")]
    assert as_messages(UserMessage("hi")) == [UserMessage("hi")]
    assert as_messages([{"role": "user", "content": "a"}]) == [UserMessage("a")]
    with pytest.raises(TypeError, match="not int"):
        as_messages([3])  # type: ignore[list-item]


def test_text_of_leaves_other_parts_out() -> None:
    assert text_of((TextPart("a"), ImagePart(url="u"), TextPart("b"))) == "ab"
    assert text_of(None) == ""


CALLS = AssistantMessage(None, (ToolCall("x", "f"), ToolCall("y", "g")))
X, Y = ToolMessage("x", "f", "1"), ToolMessage("y", "g", "2")


@pytest.mark.parametrize(
    ("history", "kinds"),
    [
        ([], []),
        ([UserMessage("u"), CALLS, X, Y, AssistantMessage("a")], []),
        ([UserMessage("u"), CALLS, Y, X], []),
        ([CALLS, X], ["unanswered_call"]),
        ([CALLS, UserMessage("u"), X, Y], ["unanswered_call", "unanswered_call", "orphan_result", "orphan_result"]),
        ([CALLS, X, Y, X], ["answered_twice"]),
        ([X], ["orphan_result"]),
        ([AssistantMessage(None, (ToolCall("x", "f"), ToolCall("x", "f"))), X], ["duplicate_id"]),
        ([AssistantMessage(None, (ToolCall("", "f"),))], ["missing_id"]),
        ([AssistantMessage(None, (ToolCall("x", ""),)), X], ["missing_name"]),
    ],
    ids=["empty", "whole", "any-order", "one-open", "late", "twice", "orphan", "same-id", "no-id", "no-name"],
)
def test_check_history_reports_each_breach(history: list[Message], kinds: list[str]) -> None:
    problems = check_history(history)
    assert [problem.kind for problem in problems] == kinds
    assert all(str(problem).startswith(f"message {problem.index}: ") for problem in problems)


@given(histories)
def test_any_history_survives_the_store_exactly(history: list[Message]) -> None:
    try:
        stored = msgspec.json.encode(history)
    except UnicodeEncodeError:
        return  # half a character, which no JSON can hold, is replaced before it is stored as text
    read = msgspec.json.decode(stored, type=list[Message])
    assert read == history
    assert msgspec.json.encode(read) == stored
