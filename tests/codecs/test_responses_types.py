"""Responses against the types of the `openai` package: what we send it would send, and what it reads we read alike."""

import json
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings
from msgspec import Struct

from agentcore.chat import ToolDefinition
from agentcore.codecs.dialect import Dialect
from agentcore.errors import InvalidInputError, UnsupportedContentError
from agentcore.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    Part,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from tests.strategies import histories, whole_histories
from tests.support.package_types import request_validator
from tests.support.responses_wire import USAGE, body, call, decode, encode, played, reasoning, refusal, stream_of, text

pytest.importorskip("openai")

from openai.types.responses import Response, ResponseFunctionToolCall, ResponseReasoningItem
from openai.types.responses.response_create_params import ResponseCreateParams

REQUEST = request_validator(ResponseCreateParams)
ADD = ToolDefinition(
    "math.add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
)
STRICT = ToolDefinition("sub", "", ADD.parameters | {"additionalProperties": False}, strict=True)
BARE = ToolDefinition("math_add")
SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "x", "queries": ["x"]},
}


def check(sent: dict[str, Any]) -> None:
    REQUEST.validate_python(sent)


def sendable(history: list[Message], **options: Any) -> Any:
    """The body of a history, or None where there is nothing to send or a part cannot be carried."""
    try:
        return encode(*history, tools=(ADD, BARE, STRICT), **options)
    except (InvalidInputError, UnsupportedContentError):
        return None


@pytest.mark.parametrize(
    "change",
    [
        {"novelty": 1},
        {"input": [{"role": "robot", "content": "x"}]},
        {"input": [{"role": "user", "content": "x", "novelty": 1}]},
        {"input": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
        {"input": [{"type": "function_call_output", "call_id": "x"}]},
        {"input": [{"type": "function_call", "call_id": "x", "name": "add"}]},
        {"input": [{"type": "reasoning", "id": "x", "encrypted_content": "x"}]},
        {"tool_choice": "any"},
        {"tools": [{"type": "function", "function": {"name": "x"}}]},
        {"text": {"format": {"type": "json"}}},
        {"reasoning": {"effort": "endless"}},
        {"max_tokens": 3},
    ],
    ids=str,
)
def test_comparison_refuses_what_the_package_does_not_know(change: dict[str, Any]) -> None:
    good = {"model": "m", "input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}]}
    check(good)
    with pytest.raises(pydantic.ValidationError):
        check(good | change)


@given(histories)
@settings(max_examples=100, deadline=None)
def test_request_of_every_history_fits_the_types(history: list[Message]) -> None:
    sent = sendable(history)
    if sent is not None:
        check(sent)


@given(whole_histories())
@settings(max_examples=40, deadline=None)
def test_request_of_every_whole_history_fits_the_types(history: list[Message]) -> None:
    sent = sendable(history, stream=True, dialect=Dialect(replay_reasoning="reasoning"))
    if sent is not None:
        check(sent)


@pytest.mark.parametrize(
    "part",
    [
        ImagePart(url="https://x/a.png", detail="high"),
        ImagePart(data=b"x", media_type="image/png"),
        FilePart(data=b"x", media_type="application/pdf", name="a.pdf"),
        FilePart(url="https://x/a.pdf"),
    ],
    ids=["image", "image-data", "file-data", "file"],
)
def test_parts_fit_the_types(part: Part) -> None:
    content = (TextPart("x"), part)
    check(encode(UserMessage(content), AssistantMessage(None, (ToolCall("c", "f"),)), ToolMessage("c", "f", content)))


@pytest.mark.parametrize(
    "items",
    [
        [reasoning("hm"), text("x"), call()],
        [reasoning(), text("x", phase="commentary"), SEARCH, text("y", phase="final_answer")],
        [text(refusal("no"))],
    ],
    ids=["reasoning", "mixture", "refusal"],
)
def test_reply_that_goes_back_fits_the_types(items: Any) -> None:
    check(encode(UserMessage("x"), decode(body(*items)).message, UserMessage("y"), model="gpt-5"))


class City(Struct):
    name: str
    people: int | None


@dataclass
class Loose:
    name: str = "x"


@pytest.mark.parametrize(
    "options",
    [
        {"max_tokens": 50, "temperature": 0.5, "top_p": 0.9, "stop": ("a", "b"), "seed": 3},
        {"model": "o4-mini", "max_tokens": 50, "temperature": 0.5},
        *(
            {"model": "gpt-5.2", "reasoning_effort": e}
            for e in ("none", "minimal", "low", "medium", "high", "xhigh", "max")
        ),
        *({"tool_choice": choice} for choice in ("auto", "none", "required", "math.add")),
        {"parallel_tool_calls": False, "metadata": {"user": "u1"}},
        *({"response_format": form} for form in ("json", {"type": "object", "properties": {}}, City, Loose)),
        {"response_format": City, "dialect": Dialect(response_format="none")},
    ],
    ids=str,
)
def test_request_with_every_option_fits_the_types(options: dict[str, Any]) -> None:
    check(sendable([UserMessage("hi")], **options))
    check(sendable([UserMessage("hi")], stream=True, **options))


REPLIES: list[tuple[str, list[dict[str, Any]], dict[str, Any]]] = [
    ("text", [text("Hel", "lo")], {}),
    ("calls", [call(), call('{"b": 2}', "c2", "sub", "fc_2")], {}),
    ("both", [reasoning("hm"), text("Look."), call()], {}),
    ("cut", [text("Once upon")], {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}),
]


@pytest.mark.parametrize(("items", "fields"), [row[1:] for row in REPLIES], ids=[row[0] for row in REPLIES])
def test_package_and_we_read_the_same(items: Any, fields: Any) -> None:
    extra = {"created_at": 1, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], **fields}
    data = body(*items, **extra)
    theirs = Response.model_validate_json(data)
    ours = decode(data)
    assert ours.text == theirs.output_text
    assert (ours.response_id, ours.model) == (theirs.id, theirs.model)
    called = [one for one in theirs.output if isinstance(one, ResponseFunctionToolCall)]
    made = [(one.id, one.name, one.args) for one in ours.message.tool_calls]
    assert made == [(one.call_id, one.name, json.loads(one.arguments)) for one in called]
    thoughts = [part.text for one in theirs.output if isinstance(one, ResponseReasoningItem) for part in one.summary]
    assert (ours.message.reasoning or "") == "".join(thoughts)
    assert theirs.usage is not None
    assert ours.usage.input_tokens == theirs.usage.input_tokens == USAGE["input_tokens"]
    assert ours.usage.output_tokens == theirs.usage.output_tokens
    assert ours.usage.cached_input_tokens == theirs.usage.input_tokens_details.cached_tokens
    assert ours.usage.cache_write_tokens == theirs.usage.input_tokens_details.cache_write_tokens
    assert ours.usage.reasoning_tokens == theirs.usage.output_tokens_details.reasoning_tokens
    assert played(stream_of(*items, **extra)) == ours
