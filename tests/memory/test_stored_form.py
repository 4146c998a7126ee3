"""The stored form of a message is valid JSON in UTF-8, and reads back equal whatever the message holds."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.errors import InvalidInputError, StoreError
from agentcore.memory.stored_form import from_text, from_texts, role_of, to_text, to_texts
from agentcore.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from tests import strategies

TEXTS = {
    "nothing": "",
    "nul": "a\x00b",
    "control characters": "".join(map(chr, range(32))) + "\x7f\x85\u2028",
    "four bytes": "😀🌤 𝒳",
    "lone high surrogate": "a\ud83d",
    "lone low surrogate": "\udc80b",
    "surrogates in the wrong order": "\ude00\ud83d",
    "surrogates side by side that are no pair": "\ud83d\ude00",
    "two high ones and a low one": "\ud83d\ud83d\ude00\ude00",
    "the text of an escape": r"\ud83d\uDE00 \\uDE00 \u0000",
    "a surrogate before the text of an escape": "\ud83d\\uDE00",
    "backslash before a surrogate": "\\\ud83d\\\\\ude00",
    "quotes": '"\\"\n/',
}


def messages_of(text: str) -> list[Message]:
    return [
        SystemMessage(text),
        UserMessage(text),
        UserMessage((TextPart(text), ImagePart(data=b"\x00\xff\xfe", media_type="image/png"))),
        AssistantMessage(None, (ToolCall("c1", "f", {text: [text, {"b": text, "a": 1}]}),), text),
        AssistantMessage(text, (), None, "interrupted", {"format": text}),
        ToolMessage("c1", "f", text, True, {text: text}),
    ]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_texts_read_back_equal(text: str) -> None:
    messages = messages_of(text)
    stored = to_texts(messages)
    assert list(from_texts(stored)) == messages
    assert list(from_texts(one.encode() for one in stored)) == messages
    for one in stored:
        assert isinstance(json.loads(one), dict)


@given(st.lists(st.sampled_from(["\ud83d", "\ude00", "\\", "u", "D", "\\ud83d", "\\uDE00", '"', "😀", "\x00", "a"])))
def test_any_mixture_of_surrogates_and_escapes_reads_back_equal(parts: list[str]) -> None:
    message = UserMessage("".join(parts))
    assert from_text(to_text(message)) == message
    assert from_text(to_text(message).encode()) == message


@given(strategies.systems | strategies.users | strategies.answers | strategies.batches)
def test_any_message_reads_back_equal_and_has_one_form(message: Message) -> None:
    text = to_text(message)
    assert from_text(text) == message
    assert to_text(from_text(text)) == text


@pytest.mark.parametrize("text", ["plain", "half \ud83d"])
def test_numbers_and_the_order_of_keys_stay_as_they_are(text: str) -> None:
    args = {"z": 1.0, "a": 1, "big": 10**40, "negative": -(2**64), "small": 5e-324, "zero": -0.0, "true": True}
    read = from_text(to_text(AssistantMessage(text, (ToolCall("c", "f", args),))))
    assert isinstance(read, AssistantMessage)
    assert [(key, repr(value)) for key, value in read.tool_calls[0].args.items()] == [
        (key, repr(value)) for key, value in args.items()
    ]


@pytest.mark.parametrize("text", ["plain", "half \ud83d"])
def test_numbers_that_json_lacks_become_null(text: str) -> None:
    read = from_text(to_text(ToolMessage("c", "f", text, False, {"x": [float("nan"), float("inf")]})))
    assert isinstance(read, ToolMessage)
    assert read.writes == {"x": [None, None]}


def test_pair_that_somebody_wrote_as_escapes_is_one_character() -> None:
    assert from_text(r'{"role":"user","content":"\ud83d\ude00 \uD83D\uDE00"}') == UserMessage("😀 😀")


@pytest.mark.parametrize("text", ["plain", "half \ud83d"])
@pytest.mark.parametrize("value", [object(), 10**5000], ids=["an object", "a number of 5,000 digits"])
def test_what_has_no_json_form_is_refused(text: str, value: object) -> None:
    with pytest.raises(InvalidInputError, match="a ToolMessage cannot be stored"):
        to_text(ToolMessage("c", "f", text, False, {"x": value}))


def test_nesting_that_is_too_deep_is_refused() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InvalidInputError, match="cannot be stored"):
        to_text(ToolMessage("c", "f", "x", False, {"x": value}))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"role":"nobody"}', '{"role":"user","content":"my secret', '{"role":"user","content":7}', b"\xff"],
)
def test_damaged_text_is_an_error_that_shows_no_content(text: str | bytes) -> None:
    with pytest.raises(StoreError, match="a stored message cannot be read") as caught:
        from_text(text)
    assert "secret" not in str(caught.value)


def test_role_is_that_of_the_stored_form() -> None:
    for message in messages_of("x"):
        assert json.loads(to_text(message))["role"] == role_of(message)
