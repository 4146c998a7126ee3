"""Whatever bytes come: a response or one of our errors, never anything else."""

import contextlib
import json
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from agentcore.chat import ChatResponse
from agentcore.codecs.anthropic_messages import AnthropicMessagesCodec
from agentcore.errors import ProviderError
from agentcore.events import ReasoningDelta, TextDelta
from tests.support.anthropic_wire import WIRE, call, decode, event, message, play, stream_of, text, thinking
from tests.support.damage import edits, mutate

BODY = message(
    thinking(),
    text("Look.", citations=[{"cited_text": "x"}]),
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": "x"}},
    call(args={"a": [1, {"b": None}]}),
    stop="max_tokens",
    usage={"input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": 3},
)
STREAM = stream_of(BODY)


def json_of(numbers: st.SearchStrategy[float]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | st.integers() | numbers | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    )


json_values = json_of(st.floats(allow_nan=False))  # `Infinity`, which some servers write, is no JSON
FIELDS = (
    "type",
    "index",
    "delta",
    "content_block",
    "message",
    "usage",
    "error",
    "content",
    "stop_reason",
    "text",
    "id",
)
DELTAS = ("text", "thinking", "signature", "partial_json", "citation", "stop_reason", "name", "input", "citations")
KINDS = (
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
)
TYPES = (
    "text",
    "thinking",
    "tool_use",
    "server_tool_use",
    "text_delta",
    "thinking_delta",
    "input_json_delta",
    "citations_delta",
)
inner = st.builds(
    lambda kind, fields: {"type": kind, **fields},
    st.sampled_from(TYPES) | json_values,
    st.dictionaries(st.sampled_from(DELTAS), st.text(max_size=4) | json_values, max_size=4),
)
events = st.builds(
    lambda kind, fields: event(kind, **fields),
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(FIELDS[1:]), st.integers(0, 3) | inner | json_values, max_size=4),
)


def check_stream(data: bytes, cut: int) -> None:
    cut %= len(data) + 1
    decoder, delivered = play([data[:cut], data[cut:]])
    said = "".join(e.text for e in delivered if isinstance(e, TextDelta))
    assert decoder.text == said or decoder.text == ""  # a plain body is no stream, and is delivered whole
    response = None
    with contextlib.suppress(ProviderError):
        response = decoder.response()
    if response is None:
        assert decoder.error is not None
        assert (decoder.error.provider, decoder.error.partial_text) == ("anthropic", decoder.text)
    else:
        thought = "".join(e.text for e in delivered if isinstance(e, ReasoningDelta))
        assert isinstance(response, ChatResponse)
        # Blocks may overlap, and then the text of the whole is in another order than it came.
        assert sorted(said) == sorted(response.message.content or "")
        assert sorted(thought) == sorted(response.message.reasoning or "")


def check_body(data: bytes) -> None:
    with contextlib.suppress(ProviderError):
        assert isinstance(decode(data), ChatResponse)
    assert isinstance(AnthropicMessagesCodec().decode_error(500, data), ProviderError)


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


@given(st.lists(events, max_size=8), st.integers(0, 1000))
@settings(max_examples=300, deadline=None)
def test_events_of_any_shape_in_any_order(parts: list[bytes], cut: int) -> None:
    check_stream(b"".join(parts), cut)


@given(st.dictionaries(st.sampled_from(FIELDS), json_values | inner | st.lists(inner, max_size=3), max_size=8))
@settings(max_examples=200, deadline=None)
def test_bodies_of_any_shape(body: dict[str, Any]) -> None:
    check_body(json.dumps(body).encode())


@given(st.lists(inner, max_size=4), st.sampled_from(["end_turn", "tool_use", "max_tokens", "pause_turn"]))
@settings(deadline=None)
def test_decoded_reply_says_the_same_twice(blocks: list[Any], stop: str) -> None:
    body = message(*blocks, stop=stop)
    with contextlib.suppress(ProviderError):
        assert decode(body) == AnthropicMessagesCodec().decode(body, WIRE)


names = st.sampled_from(["add", "now"])
# Numbers that everybody writes alike: the raw text of a cut call in a body is written anew, that in a stream is not.
args = st.dictionaries(st.text(max_size=4), json_of(st.sampled_from([0.5, -1.25])), max_size=3)
whole_blocks = st.one_of(
    st.builds(text, st.text(max_size=12)),
    st.builds(lambda value: text(value, citations=[{"cited_text": value}]), st.text(min_size=1, max_size=4)),
    st.builds(thinking, st.text(max_size=12), st.sampled_from(["c2ln", ""])),
    st.builds(call, names, args, st.sampled_from(["toolu_1", "toolu_2", ""])),
    st.builds(lambda value: {"type": "server_tool_use", "id": "s", "name": "x", "input": value}, args),
    st.just({"type": "redacted_thinking", "data": "AAA="}),
)


@given(
    st.lists(whole_blocks, max_size=5),
    st.sampled_from(["end_turn", "tool_use", "max_tokens", "refusal", "pause_turn"]),
    st.integers(1, 9),
    st.integers(0, 10_000),
)
@settings(deadline=None)
def test_stream_of_a_reply_says_what_its_body_says(blocks: list[Any], stop: str, size: int, cut: int) -> None:
    body = message(*blocks, stop=stop)
    stream = stream_of(body, size=size)
    cut %= len(stream)
    decoder, _ = play([stream[:cut], stream[cut:]])
    assert decoder.response() == decode(body)
