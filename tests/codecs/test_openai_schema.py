"""Ours against the types of the `openai` package: what we send it would send, and what it reads we read alike."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from agentcore.chat import ChatOptions, ChatRequest, ToolDefinition
from agentcore.codecs.openai_chat import OpenAIChatCodec
from agentcore.errors import InvalidInputError
from agentcore.messages import Message, UserMessage
from tests.strategies import histories, whole_histories
from tests.support.openai_wire import body, call, decode
from tests.support.package_types import request_validator

pytest.importorskip("openai")

from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import CompletionCreateParams

REQUEST = request_validator(CompletionCreateParams)
ADD = ToolDefinition(
    "math.add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
)
BARE = ToolDefinition("math_add")


def check(sent: dict[str, Any]) -> None:
    REQUEST.validate_python(sent)


def sendable(history: list[Message], *, stream: bool = False, **options: Any) -> Any:
    """The body of a history, or None where there is nothing to send."""
    request = ChatRequest(history, (ADD, BARE), ChatOptions(**{"model": "test-model", **options}))
    try:
        return json.loads(asyncio.run(OpenAIChatCodec().encode(request, stream=stream)).body)
    except InvalidInputError:
        return None


@pytest.mark.parametrize(
    "change",
    [
        {"novelty": 1},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"messages": [{"role": "user", "content": "x", "novelty": 1}]},
        {"messages": [{"role": "user", "content": [{"type": "input_image", "text": "x"}]}]},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function"}]}]},
        {"tool_choice": "any"},
        {"tools": [{"name": "x", "parameters": {}}]},
        {"response_format": {"type": "json"}},
        {"reasoning_effort": "endless"},
    ],
    ids=str,
)
def test_comparison_refuses_what_the_package_does_not_know(change: dict[str, Any]) -> None:
    good = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}
    check(good)
    with pytest.raises(pydantic.ValidationError):
        check(good | change)


@given(histories, st.booleans())
@settings(max_examples=150, deadline=None)
def test_request_of_every_history_fits_the_types(history: list[Message], stream: bool) -> None:
    sent = sendable(history, stream=stream)
    if sent is not None:
        check(sent)


@given(whole_histories())
@settings(max_examples=60, deadline=None)
def test_request_of_every_whole_history_fits_the_types(history: list[Message]) -> None:
    sent = sendable(history)
    if sent is not None:
        check(sent)


class City(Struct):
    name: str
    people: int | None


@dataclass
class Loose:
    name: str = "x"


@pytest.mark.parametrize(
    "options",
    [
        {"max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "stop": ("a", "b"), "seed": 3},
        {"model": "o4-mini", "max_tokens": 5, "temperature": 0.5, "stop": ("a",)},
        *(
            {"model": "gpt-5.2", "reasoning_effort": e}
            for e in ("none", "minimal", "low", "medium", "high", "xhigh", "max")
        ),
        *({"tool_choice": choice} for choice in ("auto", "none", "required", "math.add")),
        {"parallel_tool_calls": False, "metadata": {"user": "u1"}},
        *({"response_format": form} for form in ("json", {"type": "object", "properties": {}}, City, Loose)),
    ],
    ids=str,
)
def test_request_with_every_option_fits_the_types(options: dict[str, Any]) -> None:
    check(sendable([UserMessage("hi")], **options))
    check(sendable([UserMessage("hi")], stream=True, **options))


REPLIES: list[tuple[str, dict[str, Any], str]] = [
    ("text", {"content": "Hello", "refusal": None}, "stop"),
    ("calls", {"content": None, "tool_calls": [call(), call('{"b": 2}', "c2", "sub")]}, "tool_calls"),
    ("both", {"content": "Look.", "tool_calls": [call()]}, "tool_calls"),
    ("cut", {"content": "Once upon"}, "length"),
    ("filtered", {"content": "I"}, "content_filter"),
]


@pytest.mark.parametrize(("message", "finish"), [r[1:] for r in REPLIES], ids=[r[0] for r in REPLIES])
def test_package_and_we_read_the_same(message: dict[str, Any], finish: str) -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 7,
        "total_tokens": 16,
        "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    data = body(message, finish, usage=usage)
    theirs = ChatCompletion.model_validate_json(data)
    ours = decode(data)
    choice = theirs.choices[0]
    assert (ours.message.content or None) == choice.message.content
    assert ours.raw_finish_reason == ours.finish_reason == choice.finish_reason
    assert (ours.response_id, ours.model) == (theirs.id, theirs.model)
    made = [(one.id, one.name, one.args) for one in ours.message.tool_calls]
    called: list[Any] = list(choice.message.tool_calls or [])
    assert made == [(one.id, one.function.name, json.loads(one.function.arguments)) for one in called]
    assert theirs.usage is not None
    assert theirs.usage.prompt_tokens_details is not None
    assert theirs.usage.completion_tokens_details is not None
    assert ours.usage.input_tokens == theirs.usage.prompt_tokens
    assert ours.usage.output_tokens == theirs.usage.completion_tokens
    assert ours.usage.cached_input_tokens == theirs.usage.prompt_tokens_details.cached_tokens
    assert ours.usage.reasoning_tokens == theirs.usage.completion_tokens_details.reasoning_tokens
