"""Ours against the types of the `anthropic` package: what we send it would send, and what it reads we read alike."""

import asyncio
import json
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings
from msgspec import Struct

from agentcore.chat import ChatOptions, ChatRequest
from agentcore.codecs.anthropic_messages import AnthropicMessagesCodec
from agentcore.messages import FilePart, ImagePart, Message, SystemMessage, TextPart, UserMessage
from tests.support.anthropic_requests import ADD, histories, sendable
from tests.support.anthropic_wire import call, decode, message, text, thinking
from tests.support.package_types import request_validator

pytest.importorskip("anthropic")

from anthropic.types import Message as PackageMessage
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming

GONE_FROM_THE_TYPES = ("temperature", "top_p", "top_k")
"""Settings that newer models refuse and that the package's request has no longer; for others the service takes them."""


REQUEST = request_validator(MessageCreateParamsNonStreaming)


def check(sent: dict[str, Any]) -> None:
    REQUEST.validate_python({key: value for key, value in sent.items() if key not in GONE_FROM_THE_TYPES})


@pytest.mark.parametrize(
    "change",
    [
        {"novelty": 1},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "novelty": 1}]}]},
        {"messages": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}]},
        {"tool_choice": {"type": "required"}},
        {"tools": [{"name": "x", "parameters": {}}]},
        {"thinking": {"type": "on"}},
        {"output_config": {"effort": "minimal"}},
    ],
    ids=str,
)
def test_comparison_refuses_what_the_package_does_not_know(change: dict[str, Any]) -> None:
    good = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}
    check(good)
    with pytest.raises(pydantic.ValidationError):
        check(good | change)


@given(histories)
@settings(max_examples=80, deadline=None)
def test_request_of_every_history_fits_the_types(history: list[Message]) -> None:
    sent = sendable(history)
    if sent is not None:
        check(sent)


class City(Struct):
    name: str


@pytest.mark.parametrize(
    "model", ["claude-haiku-4-5", "claude-opus-4-6", "claude-sonnet-5", "claude-opus-5-5", "other"]
)
@pytest.mark.parametrize("choice", [None, "auto", "none", "required", "add"])
@pytest.mark.parametrize("effort", [None, "none", "minimal", "low", "medium", "high", "xhigh", "max"])
def test_request_with_every_setting_fits_the_types(model: str, choice: str | None, effort: Any) -> None:
    options = ChatOptions(
        model=model,
        temperature=0.5,
        top_p=0.9,
        stop=("END",),
        tool_choice=choice,
        parallel_tool_calls=False,
        response_format=City,
        reasoning_effort=effort,
        metadata={"user_id": "u", "team": "t"},
        extra={"top_k": 5, "service_tier": "auto"},
    )
    user = UserMessage(
        [
            TextPart("x"),
            ImagePart(data=b"x", media_type="image/png"),
            ImagePart(url="https://x/y.png"),
            FilePart(data=b"x", media_type="application/pdf", name="n"),
            FilePart(data=b"x", media_type="text/plain"),
            FilePart(url="https://x/y.pdf"),
        ]
    )
    request = ChatRequest([SystemMessage("s"), user], (ADD,), options)
    check(json.loads(asyncio.run(AnthropicMessagesCodec().encode(request, stream=False)).body))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(message(text("Hi.")), id="text"),
        pytest.param(message(thinking(), text("Look."), call(args={"a": 1}), stop="tool_use"), id="thinking and call"),
        pytest.param(message(call(), call("now", {}, "toolu_2"), stop="tool_use"), id="two calls"),
        pytest.param(message(stop="refusal"), id="refusal"),
        pytest.param(
            message(
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
                {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
                text("found"),
                stop="pause_turn",
                usage={
                    "input_tokens": 2,
                    "cache_read_input_tokens": 3,
                    "cache_creation_input_tokens": 4,
                    "output_tokens": 5,
                    "output_tokens_details": {"thinking_tokens": 1},
                },
            ),
            id="server tool",
        ),
    ],
)
def test_package_and_codec_read_a_reply_alike(body: bytes) -> None:
    theirs, ours = PackageMessage.model_validate_json(body), decode(body)
    assert ours.text == "".join(block.text for block in theirs.content if block.type == "text")
    assert [(one.id, one.name, one.args) for one in ours.message.tool_calls] == [
        (block.id, block.name, block.input) for block in theirs.content if block.type == "tool_use"
    ]
    assert ours.message.reasoning == ("".join(b.thinking for b in theirs.content if b.type == "thinking") or None)
    assert (ours.response_id, ours.model, ours.raw_finish_reason) == (theirs.id, theirs.model, theirs.stop_reason)
    usage = theirs.usage
    assert ours.usage.output_tokens == usage.output_tokens
    assert (ours.usage.cached_input_tokens, ours.usage.cache_write_tokens) == (
        usage.cache_read_input_tokens,
        usage.cache_creation_input_tokens,
    )
    assert ours.usage.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0) + (
        usage.cache_creation_input_tokens or 0
    )
    details = usage.output_tokens_details
    assert ours.usage.reasoning_tokens == (details.thinking_tokens if details else None)
