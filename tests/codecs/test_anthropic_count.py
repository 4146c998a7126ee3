"""Counting a request's tokens at Anthropic: what is sent, and what is read."""

import json
from typing import Any

import pytest

from agentcore.chat import ChatOptions, ChatRequest, ToolDefinition
from agentcore.codecs.anthropic_messages import AnthropicMessagesCodec
from agentcore.errors import DecodeError, InvalidInputError, ProviderError
from agentcore.messages import SystemMessage, UserMessage
from tests.support.package_types import request_validator

CODEC = AnthropicMessagesCodec("acme")
TOOL = ToolDefinition("get_weather", "Tell the weather.", {"type": "object", "properties": {}})
REQUEST = ChatRequest(
    [SystemMessage("Be brief."), UserMessage("hi")],
    [TOOL],
    ChatOptions(
        model="claude-sonnet-4-5",
        max_tokens=9000,
        temperature=0.5,
        stop=("END",),
        tool_choice="required",
        reasoning_effort="none",
        metadata={"user_id": "u"},
        extra={"service_tier": "auto"},
    ),
)


def test_request_to_count_is_the_request_without_the_settings_of_the_reply() -> None:
    wire = CODEC.encode_count(REQUEST)
    sent = json.loads(wire.body)
    assert wire.path == "/v1/messages/count_tokens"
    assert {"max_tokens", "stream", "temperature", "stop_sequences", "metadata", "service_tier"}.isdisjoint(sent)
    assert sent["model"] == "claude-sonnet-4-5"
    assert sent["tools"][0]["name"] == "get_weather"
    assert sent["tool_choice"]["type"] == "any"
    assert "Be brief." in json.dumps(sent["system"])


@pytest.mark.parametrize("effort", [None, "none", "low", "high", "max"])
def test_request_to_count_fits_the_types_of_the_package(effort: Any) -> None:
    params = pytest.importorskip("anthropic.types.message_count_tokens_params")
    options = ChatOptions(model="claude-sonnet-4-5", max_tokens=20_000, reasoning_effort=effort)
    sent = json.loads(CODEC.encode_count(ChatRequest(REQUEST.messages, [TOOL], options)).body)
    request_validator(params.MessageCountTokensParams).validate_python(sent)


def test_nothing_to_count_is_told() -> None:
    with pytest.raises(InvalidInputError):
        CODEC.encode_count(ChatRequest([]))


@pytest.mark.parametrize("value", [27, "27", 27.0])
def test_count_is_read(value: Any) -> None:
    assert CODEC.decode_count(json.dumps({"input_tokens": value, "novelty": 1}).encode()) == 27


@pytest.mark.parametrize("body", [b"{}", b'{"input_tokens":null}', b'{"input_tokens":-1}', b"[]", b"<html>", b""])
def test_answer_without_a_count_is_refused(body: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        CODEC.decode_count(body)
    assert caught.value.provider == "acme"


def test_error_inside_a_good_status_is_that_error() -> None:
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}
    with pytest.raises(ProviderError) as caught:
        CODEC.decode_count(json.dumps(body).encode())
    assert (caught.value.kind, caught.value.provider) == ("rate_limit", "acme")
