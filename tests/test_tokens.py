"""Counting messages and requests: additive, remembered, and by the counter that fits the model."""

import logging
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore import tokens as tokens_module
from agentcore.chat import ChatOptions, ChatRequest, ToolDefinition
from agentcore.errors import ConfigurationError
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
)
from agentcore.token_estimate import estimate_tokens
from agentcore.tokens import (
    CALL_TOKENS,
    ESTIMATE,
    IMAGE_TOKENS,
    LOW_IMAGE_TOKENS,
    MESSAGE_TOKENS,
    PAGE_TOKENS,
    REQUEST_TOKENS,
    TOOL_TOKENS,
    MessageTokenCounter,
    TokenCounter,
    count_tokens,
    token_counter,
)
from tests.strategies import histories

CALL = ToolCall("call_123456789", "get_weather", {"city": "Oslo"})
TOOL = ToolDefinition("get_weather", "Tell the weather.", {"type": "object", "properties": {"city": {}}})


def letters(**settings: Any) -> MessageTokenCounter:
    """A counter to whom every character is a token."""
    return MessageTokenCounter(len, **settings)


@pytest.fixture(autouse=True)
def _forget_counters() -> None:
    tokens_module._fitting.cache_clear()


PDF = b"%PDF-1.7 /Type /Pages /Type/Page >> /Type /Page\n"


@pytest.mark.parametrize(
    ("message", "beside"),
    [
        (SystemMessage("abcd"), 4),
        (UserMessage("abcd"), 4),
        (UserMessage(""), 0),
        (UserMessage((TextPart("ab"), TextPart("cd"))), 4),
        (UserMessage((ImagePart(url="https://x/y.png"),)), IMAGE_TOKENS),
        (UserMessage((ImagePart(data=b"x" * 9999, media_type="image/png"),)), IMAGE_TOKENS),
        (UserMessage((ImagePart(url="https://x/y.png", detail="low"),)), LOW_IMAGE_TOKENS),
        (UserMessage((AudioPart(data=b"x" * 48_000, media_type="audio/wav"),)), 49),
        (UserMessage((FilePart(data=PDF, media_type="application/pdf"),)), 2 * PAGE_TOKENS),
        (UserMessage((FilePart(data=b"x" * 350_000, media_type="application/pdf"),)), 4 * PAGE_TOKENS),
        (UserMessage((FilePart(data=b"abc\xff", media_type="text/plain"),)), 4),
        (AssistantMessage("abcd"), 4),
        (AssistantMessage(None), 0),
        (AssistantMessage("ab", (CALL,)), 2 + CALL_TOKENS + len("get_weather") + len('{"city":"Oslo"}')),
        (AssistantMessage(None, (ToolCall("c", "now"), ToolCall("d", "now"))), 2 * (CALL_TOKENS + 3 + 1)),
        (AssistantMessage("ab", reasoning="thought"), 2),
        (AssistantMessage("ab", (ToolCall("c", "now"),), reasoning="thought"), 2 + CALL_TOKENS + 4 + 7),
        (AssistantMessage("ab", reasoning="thought", replay={"format": "x", "blob": "y" * 1000}), 9),
        (ToolMessage("c", "now", "abcd", writes={"key": "not sent"}), 4),
        (ToolMessage("c", "now", (TextPart("abcd"),)), 4),
    ],
)
def test_message_counts_what_a_provider_is_sent(message: Message, beside: int) -> None:
    assert letters().count_message(message) == MESSAGE_TOKENS + beside


@pytest.mark.parametrize("part", [AudioPart(url="https://x/a.wav"), FilePart(url="https://x/a.pdf")])
def test_part_that_nobody_has_seen_still_counts(part: Any) -> None:
    assert letters().count_message(UserMessage((part,))) > 500


def test_arguments_with_a_broken_character_are_counted() -> None:
    call = ToolCall("c", "now", {"text": "\ud800"})
    assert letters().count_message(AssistantMessage(None, (call,))) > CALL_TOKENS


@given(histories)
def test_request_is_the_sum_of_its_messages(history: list[Message]) -> None:
    counter = letters()
    total = REQUEST_TOKENS + sum(counter.count_message(message) for message in history)
    assert counter.count_request(ChatRequest(history)) == count_tokens(history, counter=counter) == total


def test_tools_and_a_schema_to_answer_in_are_counted() -> None:
    counter = letters()
    tool = (
        TOOL_TOKENS + len("get_weather") + len("Tell the weather.") + len('{"type":"object","properties":{"city":{}}}')
    )
    messages = [UserMessage("hi")]
    bare = counter.count_request(ChatRequest(messages))
    assert count_tokens(messages, tools=[TOOL, TOOL], counter=counter) == bare + 2 * tool
    options = ChatOptions(response_format={"type": "object"})
    assert counter.count_request(ChatRequest(messages, options=options)) == bare + len('{"type":"object"}')
    assert counter.count_request(ChatRequest(messages, options=ChatOptions(response_format="json"))) == bare


def test_text_alone_is_counted_as_the_function_does() -> None:
    counter: TokenCounter = letters()
    assert counter("abc") == 3
    assert ESTIMATE("Hello there, friend.") == estimate_tokens("Hello there, friend.")


# --- what was counted is remembered


class Counted:
    """Counts characters, and how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, text: str) -> int:
        self.asked += 1
        return len(text)


def test_message_is_counted_once() -> None:
    count = Counted()
    counter = MessageTokenCounter(count)
    message = UserMessage("x" * 1000)
    assert counter.count_message(message) == counter.count_message(message)
    assert count.asked == 1
    counter.count_message(UserMessage("x" * 1000))  # equal, and not the same
    assert count.asked == 2


def test_message_that_is_gone_does_not_lend_its_count_to_another() -> None:
    counter = letters()
    assert [counter.count_message(UserMessage("x" * size)) - MESSAGE_TOKENS for size in range(500)] == list(range(500))


def test_messages_kept_are_bounded() -> None:
    counter = letters(cache_tokens=1000)
    messages = [UserMessage("x" * 100) for _ in range(500)]
    for message in messages:
        counter.count_message(message)
    assert 1 <= len(counter._known) <= 10


@pytest.mark.parametrize("cache_tokens", [0, 50])
def test_message_too_large_to_be_kept_is_counted_all_the_same(cache_tokens: int) -> None:
    counter = letters(cache_tokens=cache_tokens)
    message = UserMessage("x" * 100)
    assert [counter.count_message(message) for _ in range(2)] == [100 + MESSAGE_TOKENS] * 2
    assert counter._known == {}


@given(st.lists(st.integers(0, 30), max_size=60))
def test_cache_changes_no_count(which: list[int]) -> None:
    messages = [UserMessage("word " * size) for size in range(31)]
    kept, fresh = letters(cache_tokens=400), letters(cache_tokens=0)
    for index in which:
        assert kept.count_message(messages[index]) == fresh.count_message(messages[index])


# --- the counter that fits a model


@pytest.mark.parametrize("model", [None, "claude-sonnet-4-5", "anthropic:claude-opus-4-5", "openai:no-such-model", ""])
def test_model_without_a_vocabulary_is_estimated(model: str | None) -> None:
    assert token_counter(model) is ESTIMATE


def test_without_tiktoken_openai_models_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    assert token_counter("openai:gpt-5-mini") is ESTIMATE
    assert count_tokens([UserMessage("hi")], model="gpt-5-mini") == count_tokens([UserMessage("hi")])


def test_vocabulary_that_cannot_be_loaded_is_logged_once_and_estimated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    def broken(model: str, **_: Any) -> Any:
        asked.append(model)
        raise ConfigurationError("no network")

    monkeypatch.setattr(tokens_module, "knows", lambda model: True)
    monkeypatch.setattr(tokens_module, "text_counter", broken)
    with caplog.at_level(logging.WARNING, logger="agentcore"):
        assert [token_counter("openai:ft:gpt-4o:acme") for _ in range(3)] == [ESTIMATE] * 3
    assert asked == ["ft:gpt-4o:acme"]
    assert [record.message for record in caplog.records] == ["tokens of ft:gpt-4o:acme are estimated: no network"]


@pytest.mark.parametrize("model", ["openai:gpt-5-mini", "azure:gpt-5-mini", "gpt-5-mini"])
def test_model_with_a_vocabulary_is_counted_with_it(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "knows", "gpt-5-mini".__eq__)
    monkeypatch.setattr(tokens_module, "text_counter", lambda model, **_: len)
    assert count_tokens([UserMessage("abcd")], model=model) == REQUEST_TOKENS + MESSAGE_TOKENS + 4
    assert token_counter(model) is token_counter("gpt-5-mini")
