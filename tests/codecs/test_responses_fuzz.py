"""Whatever bytes come from a Responses endpoint: a response or one of our errors, never anything else."""

import contextlib
import json
from typing import Any

import hypothesis.strategies as st
from hypothesis import example, given, settings

from agentcore.chat import ChatResponse
from agentcore.codecs.openai_responses import OpenAIResponsesCodec
from agentcore.errors import ProviderError
from tests.support.damage import edits, mutate
from tests.support.responses_wire import (
    CODEC,
    body,
    call,
    decode,
    encode,
    event,
    play,
    reasoning,
    refusal,
    said,
    stream_of,
    text,
    thought,
)

ITEMS = [
    reasoning("hm", "晴"),
    text("晴 \ud83d\ude00", refusal("no")),
    call('{"a":[1,{"b":null}]}'),
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}},
    call({"b": 2}, "c2", "sub", "fc_2"),
]
BODY = body(*ITEMS)
STREAM = stream_of(*ITEMS[:4])
SMALL = OpenAIResponsesCodec(max_event_bytes=200)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
pieces = st.sampled_from(["", "f", "g", '{"a"', ":1}", "{}", '{"a":1}', " ", "null", "\ud83d", "\ude00"])
ids = st.sampled_from(["", "a", "b", None])
places = st.sampled_from([None, 0, 0, 1, 2])
content_parts = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["output_text", "refusal", "summary_text", "reasoning_text"]) | json_values,
        "text": pieces | json_values,
        "refusal": pieces | json_values,
    },
)
items = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["message", "reasoning", "function_call", "custom_tool_call", "mcp_call"])
        | json_values,
        "id": ids | json_values,
        "call_id": ids | json_values,
        "name": st.sampled_from(["add", "sub", ""]) | json_values,
        "arguments": pieces | json_values,
        "input": pieces,
        "content": st.lists(content_parts, max_size=2) | pieces | json_values,
        "summary": st.lists(content_parts, max_size=2) | json_values,
        "encrypted_content": pieces | json_values,
        "status": st.sampled_from(["completed", "incomplete", "in_progress"]) | json_values,
        "phase": json_values,
    },
)
responses = st.fixed_dictionaries(
    {},
    optional={
        "id": json_values,
        "model": json_values,
        "status": st.sampled_from(["completed", "incomplete", "in_progress"]) | json_values,
        "incomplete_details": st.fixed_dictionaries(
            {"reason": st.sampled_from(["max_output_tokens", "x"]) | json_values}
        )
        | json_values,
        "output": st.lists(items, max_size=3) | json_values,
        "usage": st.dictionaries(st.sampled_from(["input_tokens", "output_tokens"]), json_values) | json_values,
        "error": st.none() | json_values,
        "output_text": pieces | json_values,
    },
)
kinds = st.sampled_from(
    [
        "response.created",
        "response.output_item.added",
        "response.output_item.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.refusal.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_text.delta",
        "response.hologram",
    ]
)
told = st.fixed_dictionaries(
    {"type": kinds | json_values},
    optional={
        "item_id": ids | json_values,
        "output_index": places | json_values,
        "summary_index": places | json_values,
        "content_index": places,
        "delta": pieces | json_values,
        "text": pieces | json_values,
        "refusal": pieces,
        "arguments": pieces | json_values,
        "name": st.sampled_from(["add", ""]),
        "call_id": ids,
        "item": items | json_values,
        "response": responses | json_values,
    },
)
ends = st.sampled_from(["response.completed", "response.incomplete", "response.done", "response.failed", "error"])


def check_stream(data: bytes, cut: int) -> None:
    events, ended = play(data, [cut % (len(data) + 1)])
    delivered, thoughts = said(events), thought(events)
    delivered.encode()  # what is delivered is text that can be written somewhere
    thoughts.encode()
    if isinstance(ended, ProviderError):
        assert (ended.provider, ended.partial_text) == ("openai", delivered)
    else:
        assert (delivered, thoughts) == (ended.message.content or "", ended.message.reasoning or "")
        check_response(ended)
    again = play(data)
    assert again[0] == events
    assert again[1] == ended or str(again[1]) == str(ended)
    decoder = SMALL.stream_decoder(CODEC_WIRE)
    decoder.feed(data)
    decoder.finish()


CODEC_WIRE = play.__defaults__[2]  # type: ignore[index]


def check_response(response: ChatResponse) -> None:
    repr(response).encode()
    calls = response.message.tool_calls
    assert len({one.id for one in calls}) == len(calls)
    assert all(one.id and one.name for one in calls)
    if response.message.content or calls:  # what was read can be sent again
        encode(response.message)


def check_body(data: bytes) -> None:
    with contextlib.suppress(ProviderError):
        check_response(decode(data))
    assert isinstance(CODEC.decode_error(500, data), ProviderError)


@given(st.binary(max_size=200), st.integers(0, 200))
@settings(deadline=None)
def test_random_bytes(data: bytes, cut: int) -> None:
    check_body(data)
    check_stream(data, cut)
    check_stream(b"data: " + data + b"\n\n", cut)


@given(edits, st.integers(0, 10_000))
@settings(max_examples=150, deadline=None)
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
    announced = STREAM.index(b"data: ", STREAM.index(b"event: response.completed"))
    for end in range(announced):
        _events, ended = play(STREAM[:end])
        assert isinstance(ended, ProviderError), end
        assert (ended.kind, ended.retryable) == ("network", True), (end, str(ended))


@given(st.lists(told, max_size=7), ends, responses, st.integers(0, 1000))
@settings(max_examples=500, deadline=None)
def test_events_of_any_shape_in_any_order(events: list[Any], end: str, response: Any, cut: int) -> None:
    parts = [event(None, **one) for one in events]
    check_stream(b"".join([*parts, event(end, response=response)]), cut)


@given(responses)
@settings(max_examples=300, deadline=None)
def test_bodies_of_any_shape(value: dict[str, Any]) -> None:
    check_body(json.dumps(value).encode())


@given(st.integers(1, 1200), st.sampled_from(["output", "content", "arguments", "summary", "error", "usage"]))
@example(400, "content")
@example(900, "output")
@settings(max_examples=60, deadline=None)
def test_nesting_of_any_depth(depth: int, where: str) -> None:
    nested = b'[{"text":' * depth + b'"x"' + b"}]" * depth
    item = b'{"type":"message","%s":%s}' % (where.encode(), nested)
    for data in (b'{"output":[%s]}' % item, b'{"%s":%s}' % (where.encode(), nested)):
        check_body(data)
        check_stream(b'data: {"type":"response.completed","response":' + data + b"}\n\n", 7)
    check_stream(b'data: {"type":"response.output_item.done","item":' + item + b"}\n\n", 7)
