"""Whatever bytes come: a response or one of our errors, never anything else."""

import contextlib
import json
from typing import Any

import hypothesis.strategies as st
from hypothesis import example, given, settings

from agentcore.chat import ChatResponse
from agentcore.errors import ProviderError
from agentcore.events import ReasoningDelta, TextDelta
from tests.support.damage import edits, mutate
from tests.support.openai_wire import CODEC, body, call, decode, event, part, play, stream

BODY = body(
    {
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "晴 \ud83d\ude00"}],
        "reasoning_details": [{"type": "reasoning.text", "text": "r", "index": 0}],
        "tool_calls": [call('{"a":[1,{"b":null}]}'), call({"b": 2}, "c2", "sub")],
    },
    "tool_calls",
)
STREAM = stream(
    {"role": "assistant", "content": "", "reasoning_content": "hm"},
    {"content": "晴 \ud83d"},
    {"content": "\ude00"},
    {"tool_calls": [part(0, id="c1", name="add", arguments='{"a"')]},
    {"tool_calls": [part(0, arguments=":1}"), part(1, id="c2", name="sub", arguments="{}")]},
    finish="tool_calls",
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
pieces = st.sampled_from(["", "f", "g", '{"a"', ":1}", "{}", '{"a":1}', " ", "null", "\ud83d", "\ude00"])
functions = st.dictionaries(st.sampled_from(["name", "arguments"]), pieces | json_values, max_size=2)
calls = st.fixed_dictionaries(
    {},
    optional={
        "index": st.integers(0, 2) | json_values,
        "id": st.sampled_from(["", "c1", "c2"]) | json_values,
        "function": functions | json_values,
        "type": json_values,
    },
)
details = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["reasoning.text", "reasoning.summary", "reasoning.encrypted"]) | json_values,
        "text": pieces | json_values,
        "summary": pieces,
        "index": st.integers(0, 1),
    },
)
parts = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["text", "thinking", "refusal"]) | json_values,
        "text": pieces | json_values,
        "thinking": pieces | json_values,
        "refusal": json_values,
    },
)
deltas = st.fixed_dictionaries(
    {},
    optional={
        "content": pieces | st.lists(parts, max_size=2) | json_values,
        "reasoning": pieces | json_values,
        "reasoning_content": pieces | st.lists(parts, max_size=2),
        "reasoning_details": st.lists(details, max_size=2) | json_values,
        "refusal": pieces | json_values,
        "tool_calls": st.lists(calls, max_size=3) | json_values,
        "function_call": functions | json_values,
    },
)
choices = st.fixed_dictionaries(
    {},
    optional={
        "index": st.integers(0, 2) | json_values,
        "delta": deltas | st.none(),
        "message": deltas | st.none(),
        "finish_reason": st.sampled_from([None, "", "stop", "length", "tool_calls"]) | json_values,
        "usage": json_values,
        "error": st.none() | json_values,
    },
)
fields: dict[str, st.SearchStrategy[Any]] = {
    "id": json_values,
    "model": json_values,
    "choices": st.lists(choices, max_size=2) | json_values,
    "usage": st.dictionaries(st.sampled_from(["prompt_tokens", "completion_tokens"]), json_values) | json_values,
    "error": st.none() | json_values,
    "x_groq": json_values,
    "message": json_values,
    "detail": json_values,
}
bodies = st.fixed_dictionaries({}, optional=fields)


def check_stream(data: bytes, cut: int) -> None:
    events, ended = play(data, [cut % (len(data) + 1)])
    said = "".join(one.text for one in events if isinstance(one, TextDelta))
    thought = "".join(one.text for one in events if isinstance(one, ReasoningDelta))
    said.encode()  # what is delivered is text that can be written somewhere
    if isinstance(ended, ProviderError):
        assert (ended.provider, ended.partial_text) == ("openai", said)
    else:
        assert (said, thought) == (ended.message.content or "", ended.message.reasoning or "")
        repr(ended).encode()
    assert same(play(data), (events, ended))


def same(a: tuple[Any, Any], b: tuple[Any, Any]) -> bool:
    """Whether a stream went the same way, errors compared by what they say."""
    return a[0] == b[0] and (a[1] == b[1] or str(a[1]) == str(b[1]))


def check_body(data: bytes) -> None:
    with contextlib.suppress(ProviderError):
        response = decode(data)
        assert isinstance(response, ChatResponse)
        repr(response).encode()
    assert isinstance(CODEC.decode_error(500, data), ProviderError)


@given(st.binary(max_size=200), st.integers(0, 200))
@settings(deadline=None)
def test_random_bytes(data: bytes, cut: int) -> None:
    check_body(data)
    check_stream(data, cut)
    check_stream(b"data: " + data + b"\n\n", cut)


@given(edits, st.integers(0, 10_000))
@settings(max_examples=200, deadline=None)
def test_damaged_bytes(made: list[tuple[int, bytes]], cut: int) -> None:
    check_body(mutate(BODY, made))
    check_stream(mutate(STREAM, made), cut)
    check_body(mutate(STREAM, made))
    check_stream(mutate(BODY, made), cut)


@given(st.integers(0, len(BODY)))
@settings(deadline=None)
def test_truncated_body(end: int) -> None:
    check_body(BODY[:end])
    check_stream(BODY[:end], end // 2)


def test_stream_truncated_anywhere_is_a_broken_connection() -> None:
    announced = STREAM.index(b'"finish_reason": "tool_calls"')
    for end in range(len(STREAM)):
        _events, ended = play(STREAM[:end])
        if end < announced:
            assert isinstance(ended, ProviderError), end
            assert (ended.kind, ended.retryable) == ("network", True), (end, str(ended))


@given(st.lists(bodies, max_size=6), st.integers(0, 1000))
@settings(max_examples=400, deadline=None)
def test_chunks_of_any_shape_in_any_order(chunks: list[dict[str, Any]], cut: int) -> None:
    check_stream(b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks), cut)


@given(st.lists(deltas, max_size=6), st.sampled_from(["stop", "length", "tool_calls"]))
@settings(max_examples=300, deadline=None)
def test_deltas_of_any_shape(given_deltas: list[Any], finish: str) -> None:
    check_stream(b"".join(map(event, given_deltas)) + event({}, finish), 0)


@given(bodies)
@settings(max_examples=300, deadline=None)
def test_bodies_of_any_shape(value: dict[str, Any]) -> None:
    check_body(json.dumps(value).encode())


@given(st.integers(1, 1200), st.sampled_from(["content", "reasoning", "tool_calls", "reasoning_details", "error"]))
@example(400, "reasoning")
@example(900, "content")
@settings(max_examples=60, deadline=None)
def test_nesting_of_any_depth(depth: int, where: str) -> None:
    nested = b'[{"text":' * depth + b'"x"' + b"}]" * depth
    data = b'{"choices":[{"message":{"%s":%s},"finish_reason":"stop"}]}' % (where.encode(), nested)
    check_body(data)
    check_stream(b"data: " + data + b"\n\n", 7)
    check_body(b'{"error":%s}' % nested)
