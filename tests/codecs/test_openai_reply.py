"""Chat Completions replies: every habit of the services, as a body and as a stream."""

import json
from typing import Any

import pytest

from agentcore.codecs.base import WireRequest
from agentcore.codecs.openai_chat import OpenAIChatCodec
from agentcore.errors import DecodeError, ProviderError
from agentcore.events import ReasoningDelta, TextDelta, ToolCallDelta
from agentcore.messages import AssistantMessage, ToolCall
from agentcore.usage import UNKNOWN_USAGE, Usage
from tests.support.openai_wire import (
    CODEC,
    DONE,
    body,
    call,
    calls_stream,
    decode,
    event,
    part,
    play,
    read,
    stream,
    text_of,
)

PAIRS: list[tuple[str, dict[str, Any], list[dict[str, Any]], AssistantMessage]] = [
    ("text", {"content": "Hello"}, [{"content": "Hel"}, {"content": "lo"}], AssistantMessage("Hello")),
    ("empty", {"content": ""}, [{"content": ""}], AssistantMessage("")),
    ("null", {"content": None}, [{"content": None}], AssistantMessage("")),
    (
        "parts",
        {"content": [{"type": "text", "text": "Hel"}, "l", {"type": "reference", "ids": [3]}, {"type": "text", "text": "o"}]},
        [{"content": [{"type": "text", "text": "Hel"}]}, {"content": {"type": "text", "text": "lo"}}],
        AssistantMessage("Hello"),
    ),
    (
        "thinking-parts",
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "4"}]},
        [{"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}, {"content": "4"}],
        AssistantMessage("4", reasoning="hm"),
    ),
    (
        "reasoning-content",
        {"content": "4", "reasoning_content": "two and two"},
        [{"reasoning_content": "two "}, {"reasoning_content": "and two", "content": None}, {"content": "4"}],
        AssistantMessage("4", reasoning="two and two"),
    ),
    ("reasoning", {"content": "4", "reasoning": "hm"}, [{"reasoning": "hm"}, {"content": "4"}], AssistantMessage("4", reasoning="hm")),
    (
        "reasoning-object",
        {"content": "42", "reasoning_content": {"content": "six times seven", "type": "thinking"}},
        [{"reasoning_content": {"content": "six times seven"}}, {"content": "42"}],
        AssistantMessage("42", reasoning="six times seven"),
    ),
    (
        "reasoning-twice",
        {"content": "x", "reasoning": "r", "reasoning_content": "r"},
        [{"reasoning": "r", "reasoning_content": "r"}, {"content": "x"}],
        AssistantMessage("x", reasoning="r"),
    ),
    (
        "reasoning-details",
        {"content": "x", "reasoning_details": [{"type": "reasoning.text", "text": "r"}]},
        [{"reasoning_details": [{"type": "reasoning.text", "text": "r"}]}, {"content": "x"}],
        AssistantMessage(
            "x", reasoning="r", replay={"format": "openai-chat", "reasoning_details": [{"type": "reasoning.text", "text": "r"}]}
        ),
    ),
    (
        "refusal",
        {"content": None, "refusal": "I can't do that."},
        [{"refusal": "I can't "}, {"refusal": "do that."}],
        AssistantMessage("I can't do that.", finish_reason="content_filter"),
    ),
    (
        "refusal-part",
        {"content": [{"type": "refusal", "refusal": "No."}]},
        [{"content": [{"type": "refusal", "refusal": "No."}]}],
        AssistantMessage("No.", finish_reason="content_filter"),
    ),
    (
        "call",
        {"content": None, "tool_calls": [call()]},
        [{"tool_calls": [part(0, id="c1", name="add", arguments='{"a"')]}, {"tool_calls": [part(0, arguments=":1}")]}],
        AssistantMessage(None, (ToolCall("c1", "add", {"a": 1}),)),
    ),
    (
        "text-and-calls",
        {"content": "ok", "tool_calls": [call(), call('{"a":2}', "c2")]},
        [{"content": "ok"}, {"tool_calls": [part(0, id="c1", name="add", arguments='{"a":1}'), part(1, id="c2", name="add", arguments='{"a":2}')]}],
        AssistantMessage("ok", (ToolCall("c1", "add", {"a": 1}), ToolCall("c2", "add", {"a": 2}))),
    ),
    (
        "no-arguments",
        {"tool_calls": [call("")]},
        [{"tool_calls": [part(0, id="c1", name="add")]}],
        AssistantMessage(None, (ToolCall("c1", "add"),)),
    ),
    (
        "object-arguments",
        {"tool_calls": [call({"a": 1})]},
        [{"tool_calls": [part(0, id="c1", name="add", arguments={"a": 1})]}],
        AssistantMessage(None, (ToolCall("c1", "add", {"a": 1}),)),
    ),
    (
        "broken-arguments",
        {"tool_calls": [call("{'a': 1}")]},
        [{"tool_calls": [part(0, id="c1", name="add", arguments="{'a': 1}")]}],
        AssistantMessage(None, (ToolCall("c1", "add", {}, "{'a': 1}"),)),
    ),
    (
        "function-call",
        {"function_call": {"name": "add", "arguments": '{"a":1}'}},
        [{"function_call": {"name": "add", "arguments": ""}}, {"function_call": {"arguments": '{"a":1}'}}],
        AssistantMessage(None, (ToolCall("", "add", {"a": 1}),)),
    ),
    (
        "no-wrapper",
        {"tool_calls": [{"id": "c1", "name": "add", "arguments": {"a": 1}}]},
        [{"tool_calls": [{"index": 0, "id": "c1", "name": "add", "arguments": {"a": 1}}]}],
        AssistantMessage(None, (ToolCall("c1", "add", {"a": 1}),)),
    ),
    (
        "custom-tool",
        {"tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "run", "input": "ls"}}]},
        [{"tool_calls": [{"index": 0, "id": "c1", "type": "custom", "custom": {"name": "run", "input": "ls"}}]}],
        AssistantMessage(None, (ToolCall("c1", "run", {"input": "ls"}),)),
    ),
    ("calls-null", {"content": "hi", "tool_calls": None}, [{"content": "hi", "tool_calls": None}], AssistantMessage("hi")),
    ("calls-empty", {"content": "hi", "tool_calls": []}, [{"content": "hi", "tool_calls": []}], AssistantMessage("hi")),
    ("number-id", {"tool_calls": [call(call_id=7)]}, [{"tool_calls": [part(0, id=7, name="add", arguments='{"a":1}')]}], AssistantMessage(None, (ToolCall("7", "add", {"a": 1}),))),
    ("emoji", {"content": "晴 🌤"}, [{"content": "晴 "}, {"content": "🌤"}], AssistantMessage("晴 🌤")),
]  # fmt: skip
pairs = pytest.mark.parametrize(("whole", "deltas", "message"), [p[1:] for p in PAIRS], ids=[p[0] for p in PAIRS])


def without_made_ids(message: AssistantMessage) -> AssistantMessage:
    from msgspec.structs import replace

    return replace(
        message, tool_calls=tuple(replace(c, id="") if c.id.startswith("call_") else c for c in message.tool_calls)
    )


@pairs
def test_body_and_stream_give_the_same_reply(
    whole: dict[str, Any], deltas: list[Any], message: AssistantMessage
) -> None:
    from_body = decode(body(whole, "stop", usage=None))
    from_stream = read(stream(*deltas))
    assert without_made_ids(from_body.message) == message
    assert from_body == from_stream


@pairs
def test_stream_cut_at_every_byte_gives_the_same(
    whole: dict[str, Any], deltas: list[Any], message: AssistantMessage
) -> None:
    data = stream(*deltas)
    events, response = play(data)
    for cut in range(len(data)):
        again, same = play(data, [cut])
        assert same == response
        assert again == events
    assert play(data, range(1, len(data)))[1] == response


@pairs
def test_plain_body_in_place_of_a_stream_is_read(
    whole: dict[str, Any], deltas: list[Any], message: AssistantMessage
) -> None:
    events, response = play(body(whole), [3, 9])
    assert response == decode(body(whole))
    assert text_of(events) == (message.content or "")


def test_stream_in_place_of_a_body_is_read() -> None:
    assert decode(stream({"content": "Hello"})) == read(stream({"content": "Hello"}))


def test_events_are_delivered_as_they_come() -> None:
    events, _ = play(
        stream(
            {"reasoning": "hm"},
            {"content": "a"},
            {"tool_calls": [part(0, id="c1", name="add", arguments='{"a"')]},
            {"tool_calls": [part(0, arguments=":1}")]},
        )
    )
    assert events == [
        ReasoningDelta("hm"),
        TextDelta("a"),
        ToolCallDelta(0, "c1", "add", '{"a"'),
        ToolCallDelta(0, "c1", "add", ":1}"),
    ]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", "stop"), ("eos", "stop"), ("end_turn", "stop"), ("COMPLETE", "stop"), (None, "stop"), ("", "stop"),
        ("length", "length"), ("max_tokens", "length"), ("model_length", "length"), ("content_filter", "content_filter"),
        ("safety", "content_filter"), ("tool_calls", "stop"), ("error", "other"), ("abort", "other"),
    ],
)  # fmt: skip
def test_reason_is_put_in_neutral_words(word: str | None, reason: str) -> None:
    response = decode(body({"content": "x"}, word))
    assert (response.finish_reason, response.raw_finish_reason) == (reason, word or None)
    assert response.message.finish_reason == (reason if reason != "stop" else None)
    if word:
        assert read(stream({"content": "x"}, finish=word)).finish_reason == reason


@pytest.mark.parametrize("word", ["stop", "tool_calls", "function_call", "content_filter", None])
def test_calls_decide_whatever_the_word(word: str | None) -> None:
    assert decode(body({"tool_calls": [call()]}, word)).finish_reason == "tool_calls"


def test_cut_calls_stay_cut() -> None:
    response = read(calls_stream(part(0, id="c", name="write", arguments='{"text":"lorem'), finish="length"))
    assert response.finish_reason == "length"
    assert response.message.tool_calls == (ToolCall("c", "write", {}, '{"text":"lorem'),)


USAGES: list[tuple[str, Any, Usage]] = [
    ("plain", {"prompt_tokens": 5, "completion_tokens": 3}, Usage(input_tokens=5, output_tokens=3)),
    ("null", None, UNKNOWN_USAGE),
    ("empty", {}, UNKNOWN_USAGE),
    ("text", "many", UNKNOWN_USAGE),
    ("strings", {"prompt_tokens": "5", "completion_tokens": 3.0}, Usage(input_tokens=5, output_tokens=3)),
    ("nonsense", {"prompt_tokens": [], "completion_tokens": "x"}, UNKNOWN_USAGE),
    (
        "details",
        {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}},
        Usage(input_tokens=5, output_tokens=3, cached_input_tokens=4, reasoning_tokens=2),
    ),
    ("details-null", {"prompt_tokens": 5, "prompt_tokens_details": None}, Usage(input_tokens=5)),
    ("deepseek", {"prompt_tokens": 5, "prompt_cache_hit_tokens": 2}, Usage(input_tokens=5, cached_input_tokens=2)),
    ("moonshot", {"prompt_tokens": 5, "cached_tokens": 2}, Usage(input_tokens=5, cached_input_tokens=2)),
    ("other-names", {"input_tokens": 5, "output_tokens": 3}, Usage(input_tokens=5, output_tokens=3)),
]  # fmt: skip


@pytest.mark.parametrize(("given", "usage"), [u[1:] for u in USAGES], ids=[u[0] for u in USAGES])
def test_usage_is_read_and_unknown_is_not_zero(given: Any, usage: Usage) -> None:
    assert decode(body({"content": "x"}, usage=given)).usage == usage
    assert read(event({"content": "x"}, usage=given) + event({}, "stop") + DONE).usage == usage


FIGURES = {"prompt_tokens": 50, "completion_tokens": 3}


@pytest.mark.parametrize(
    "data",
    [
        event(usage={"prompt_tokens": 50, "completion_tokens": 3}, choices=[]) + stream({"content": "x"}),
        event({"content": "x"}) + event({}, "stop") + event(usage=FIGURES, choices=[]) + DONE,
        event({"content": "x"}, usage={"prompt_tokens": 50, "completion_tokens": 1})
        + event({}, "stop", usage=FIGURES)
        + DONE,
        event({"content": "x"})
        + event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop", "usage": FIGURES}])
        + DONE,
        event({"content": "x"}) + event({}, "stop", x_groq={"usage": FIGURES}) + DONE,
        event({"content": "x"}) + event({}, "stop") + event(usage=FIGURES, choices=None) + DONE,
    ],
    ids=["first", "last", "every-chunk", "in-the-choice", "x-groq", "choices-null"],
)
def test_usage_is_found_wherever_it_stands_and_never_added_up(data: bytes) -> None:
    response = read(data)
    assert (response.usage.input_tokens, response.usage.output_tokens, response.text) == (50, 3, "x")


ENDINGS: list[tuple[str, bytes, str | None]] = [
    ("done", stream({"content": "x"}), None),
    ("no-done", stream({"content": "x"}, done=False), None),
    ("no-last-blank-line", stream({"content": "x"}, done=False)[:-2], None),
    ("done-alone", event({"content": "x"}) + DONE, None),
    ("done-twice", stream({"content": "x"}) + DONE, None),
    ("garbage-behind", stream({"content": "x"}) + b"data: {broken\n\n", None),
    ("closed", event({"content": "x"}), "network"),
    ("closed-in-an-event", event({"content": "x"}) + b'data: {"choices":[{"ind', "network"),
    ("empty", b"", "network"),
    ("comments-only", b": ping\n\n: ping\n\n", "network"),
    ("done-only", DONE, "decode"),
    ("finish-empty-text", event({"content": "x"}, "") + event({}, "stop"), None),
    ("delta-null", event({"content": "x"}) + event(choices=[{"index": 0, "delta": None, "finish_reason": "stop"}]), None),
    ("message-for-delta", event(choices=[{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]), None),
    ("second-choice", event({"content": "x"}) + event(choices=[{"index": 1, "delta": {"content": "no"}}]) + event({}, "stop"), None),
    ("lines-for-events", b'data: {"choices":[{"delta":{"content":"x"}}]}\ndata: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n', None),
    ("heartbeat-event", b"event: ping\ndata: hi\n\n" + stream({"content": "x"}), None),
    ("keep-alive-chunk", b"data: {}\n\n" + stream({"content": "x"}), None),
]  # fmt: skip


@pytest.mark.parametrize(("data", "kind"), [e[1:] for e in ENDINGS], ids=[e[0] for e in ENDINGS])
def test_stream_is_whole_when_its_end_was_announced(data: bytes, kind: str | None) -> None:
    events, ended = play(data)
    if kind is None:
        assert not isinstance(ended, ProviderError), ended
        assert (ended.text, ended.finish_reason) == ("x", "stop")
    else:
        assert isinstance(ended, ProviderError)
        assert (ended.kind, ended.retryable) == (kind, True)
        assert ended.partial_text == text_of(events)


ERRORS: list[tuple[str, bytes, str, str]] = [
    ("object", b'data: {"error":{"message":"overloaded","code":503}}\n\n', "overloaded", "overloaded"),
    ("text", b'data: {"error":"context window exceeded while generating"}\n\n', "context_length", "context window"),
    ("named-event", b'event: error\ndata: {"message":"engine died","type":"internal_error","code":500}\n\n', "server", "engine died"),
    ("named-text", b"event: error\ndata: engine died\n\n", "server", "engine died"),
    ("top-level", b'data: {"object":"error","message":"gone","code":500}\n\n', "server", "gone"),
    ("not-json", b"data: {broken\n\n", "decode", "{broken"),
    ("wrong-shape", b'data: {"choices":{"a":1}}\n\n', "decode", "choices"),
    ("calls-not-a-list", event({"tool_calls": "x"}), "decode", "tool_calls is not a list"),
    ("call-not-an-object", event({"tool_calls": [3]}), "decode", "not an object"),
    ("function-not-an-object", event({"tool_calls": [{"index": 0, "function": "x"}]}), "decode", "function is not an object"),
    ("nameless-call", event({"tool_calls": [part(0, id="c", arguments='{"a":1}')]}) + event({}, "stop"), "decode", "without a name"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "kind", "words"), [e[1:] for e in ERRORS], ids=[e[0] for e in ERRORS])
def test_error_in_mid_stream_costs_no_event_before_it(data: bytes, kind: str, words: str) -> None:
    for whole in (event({"content": "Hel"}) + data + DONE, event({"content": "Hel"}) + data):
        events, ended = play(whole)
        assert isinstance(ended, ProviderError)
        assert ended.kind == kind
        assert words in str(ended)
        assert text_of(events) == ended.partial_text == "Hel"


BODIES: list[tuple[str, bytes, str, str]] = [
    ("choices-empty", b'{"id":"x","choices":[]}', "decode", "choices"),
    ("choices-null", b'{"id":"x","choices":null}', "decode", "choices"),
    ("choices-missing", b'{"id":"x"}', "decode", '{"id":"x"}'),
    ("error-in-200", b'{"error":{"message":"Provider returned error","code":429}}', "rate_limit", "Provider"),
    ("error-and-choices", b'{"choices":null,"error":{"code":502,"message":"Upstream"}}', "server", "Upstream"),
    ("error-top-level", b'{"object":"error","message":"no","code":400}', "invalid_request", "no"),
    ("detail", b'{"detail":"not here"}', "server", "not here"),
    ("html", b"<!DOCTYPE html><p>Sign in", "decode", "HTML"),
    ("text", b"hello", "decode", "hello"),
    ("empty", b"", "decode", "empty"),
    ("list", b"[]", "decode", "[]"),
    ("message-text", b'{"choices":[{"message":"x"}]}', "decode", "shape"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "kind", "words"), [b[1:] for b in BODIES], ids=[b[0] for b in BODIES])
def test_body_without_a_reply_is_a_named_error(data: bytes, kind: str, words: str) -> None:
    with pytest.raises(ProviderError) as caught:
        decode(data)
    assert (caught.value.kind, caught.value.provider) == (kind, "openai")
    assert words in str(caught.value)


def test_other_fields_and_types_are_no_fault() -> None:
    data = body(
        {"content": "x", "annotations": [], "audio": None, "mood": {"a": 1}},
        created=1.5,
        id=7,
        model=None,
        timings={"n": 1},
    )
    response = decode(b"\xef\xbb\xbf" + data)
    assert (response.text, response.model, response.response_id) == ("x", None, None)


@pytest.mark.parametrize("pieces", [['"\\ud83d"', '"\\ude00"'], ['"a\\ud83d"', '"\\ude00b"']], ids=["alone", "in-text"])
def test_character_cut_between_its_two_escapes_is_put_together(pieces: list[str]) -> None:
    chunks = [b'data: {"choices":[{"index":0,"delta":{"content":%s}}]}\n\n' % piece.encode() for piece in pieces]
    events, response = play(b"".join(chunks) + event({}, "stop") + DONE)
    assert not isinstance(response, ProviderError)
    assert response.text.strip("ab") == "😀"
    assert text_of(events) == response.text


def test_half_a_character_at_the_end_is_replaced() -> None:
    data = b'data: {"choices":[{"index":0,"delta":{"content":"x\\ud83d"}}]}\n\n' + event({}, "stop")
    events, response = play(data)
    assert not isinstance(response, ProviderError)
    assert response.text == text_of(events) == "x\ufffd"


def test_names_are_mapped_back() -> None:
    wire = WireRequest("", b"", {"math_add": "math.add"})
    message = CODEC.decode(body({"tool_calls": [call(name="math_add")]}), wire).message
    assert message.tool_calls[0].name == "math.add"
    data = calls_stream(part(0, id="c1", name="math_add", arguments="{}"))
    events, response = play(data, wire=wire)
    assert not isinstance(response, ProviderError)
    assert response.message.tool_calls[0].name == "math.add"
    assert isinstance(events[0], ToolCallDelta)
    assert events[0].name == "math.add"


def test_raw_is_kept_when_asked() -> None:
    codec = OpenAIChatCodec(keep_raw=True)
    data = body({"content": "x"}, logprobs=[1])
    assert decode(data, codec).raw == data
    response = play(stream({"content": "x"}), codec=codec)[1]
    assert not isinstance(response, ProviderError)
    assert response.raw is not None
    assert json.loads(response.raw.split(b"\n")[0])["choices"]


def test_event_over_the_cap_is_an_error_not_a_full_memory() -> None:
    _events, ended = play(event({"content": "x" * 5000}), [100], OpenAIChatCodec(max_event_bytes=1000))
    assert isinstance(ended, DecodeError)
    assert "larger than 1000 bytes" in str(ended)


def test_decoder_stays_at_its_error() -> None:
    decoder = CODEC.stream_decoder(WireRequest("", b""))
    decoder.feed(b'data: {"error":{"message":"x","code":500}}\n\n')
    assert decoder.error is not None
    assert decoder.feed(stream({"content": "x"})) == ()
    assert decoder.finish() == ()
    with pytest.raises(ProviderError):
        decoder.response()


# Answers other than number 0, and messages where deltas are usual


def numbered(index: Any, text: str | None, finish: str | None = None) -> bytes:
    return event(choices=[{"index": index, "delta": {"content": text}, "finish_reason": finish}])


@pytest.mark.parametrize(
    "data",
    [
        numbered(0, "x") + numbered(1, "no") + numbered(0, None, "stop") + numbered(1, None, "stop"),
        numbered(1, "no") + numbered(0, "x") + numbered(1, None, "length") + numbered(0, None, "stop"),
        numbered(1, "x") + numbered(1, None, "stop"),
        numbered(2, "x") + numbered(1, "no") + numbered(2, None, "stop"),
        numbered("0", "x") + numbered(None, None, "stop"),
        numbered("first", "x") + numbered([], None, "stop"),
    ],
    ids=["usual", "second-first", "only-number-1", "no-number-0", "as-text", "nonsense"],
)
@pytest.mark.parametrize("end", [DONE, b""], ids=["done", "closed"])
def test_one_answer_of_several_is_read(data: bytes, end: bytes) -> None:
    events, ended = play(data + end)
    assert not isinstance(ended, ProviderError), ended
    assert (ended.text, ended.finish_reason, text_of(events)) == ("x", "stop", "x")


def test_only_answer_of_a_body_is_read_whatever_its_number() -> None:
    assert decode(b'{"choices":[{"index":1,"message":{"content":"x"}}]}').text == "x"
    both = b'{"choices":[{"index":1,"message":{"content":"no"}},{"index":0,"message":{"content":"x"}}]}'
    assert decode(both).text == "x"


def messaged(finish: str | None = None, **message: Any) -> bytes:
    return event(choices=[{"index": 0, "message": message, "finish_reason": finish}])


WHOLE = {"content": "Hello", "reasoning_content": "hm", "tool_calls": [call()]}
MESSAGES: list[tuple[str, bytes]] = [
    ("pieces", messaged(content="Hel", reasoning_content="hm") + messaged("stop", content="lo", tool_calls=[call()])),
    ("whole-alone", messaged("stop", **WHOLE)),
    ("whole-after-all", stream({"reasoning_content": "hm"}, {"content": "Hel"}, {"content": "lo"}, {"tool_calls": [{"index": 0, **call()}]}, done=False)
        + messaged("stop", **WHOLE)),
    ("whole-brings-the-calls", event({"reasoning_content": "hm"}) + event({"content": "Hello"}) + messaged("stop", **WHOLE)),
    ("whole-brings-the-text", event({"reasoning_content": "hm"}) + messaged("stop", **WHOLE)),
    ("beside-an-empty-delta", event(choices=[{"index": 0, "delta": {"role": "assistant"}, "message": WHOLE, "finish_reason": "stop"}])),
]  # fmt: skip


@pytest.mark.parametrize("data", [m[1] for m in MESSAGES], ids=[m[0] for m in MESSAGES])
def test_message_in_a_stream_is_neither_lost_nor_doubled(data: bytes) -> None:
    events, ended = play(data + DONE)
    assert not isinstance(ended, ProviderError), ended
    assert ended.message == AssistantMessage("Hello", (ToolCall("c1", "add", {"a": 1}),), "hm")
    assert text_of(events) == "Hello"


def test_text_completion_of_a_gateway_is_read() -> None:
    assert read(event(choices=[{"index": 0, "text": "x", "finish_reason": "stop"}])).text == "x"


# Reasoning


def detail(**fields: Any) -> dict[str, Any]:
    return {"reasoning_details": [fields]}


def test_pieces_of_a_detail_are_put_together_as_a_body_has_them() -> None:
    whole = [
        {"type": "reasoning.text", "text": "one two", "index": 0, "signature": "s", "format": "f"},
        {"type": "reasoning.text", "text": "three", "index": 1},
        {"type": "reasoning.summary", "summary": "in short", "index": 2},
        {"type": "reasoning.encrypted", "data": "AAA=", "index": 3},
        {"type": "reasoning.encrypted", "data": "BBB=", "index": 4},
    ]
    pieces = [
        detail(type="reasoning.text", text="one ", index=0, format="f"),
        detail(type="reasoning.text", text="two", index=0, signature=None),
        detail(type="reasoning.text", signature="s", index=0),
        detail(type="reasoning.text", text="three", index=1),
        detail(type="reasoning.summary", summary="in ", index=2),
        detail(type="reasoning.summary", summary="short", index=2),
        *(detail(**one) for one in whole[3:]),
    ]
    streamed = read(stream(*pieces, {"content": "x"})).message
    assert streamed == decode(body({"content": "x", "reasoning_details": whole})).message
    assert streamed.reasoning == "one twothreein short"
    assert streamed.replay == {"format": "openai-chat", "reasoning_details": whole}


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning": "r", "reasoning_details": [{"type": "reasoning.text", "text": "r"}]},
        {"reasoning_content": {"tokens": 3}, "reasoning": "r"},
        {"reasoning_content": [], "thinking": [{"type": "text", "text": "r"}]},
        {"reasoning_content": 3, "reasoning": {"summary": [{"text": "r"}]}},
    ],
    ids=["details-too", "object-without-text", "empty-list", "number"],
)
def test_reasoning_is_taken_from_the_first_field_that_can_be_read(delta: dict[str, Any]) -> None:
    assert read(stream(delta, {"content": "x"})).message.reasoning == "r"
    assert decode(body({"content": "x", **delta})).message.reasoning == "r"


# A local server: ids of its own, half a brace in the first fragment, an empty text beside the calls, figures at the end


def test_reply_of_a_local_server_is_the_same_in_both_forms() -> None:
    ids = ["s5Og8J2uvValSksZwfNd0LSKfFOI7m9A", "LjjqWK63NVms6niP2dsUnMymIWuM5w3e"]
    usage = {"completion_tokens": 37, "prompt_tokens": 213, "prompt_tokens_details": {"cached_tokens": 212}}
    whole = {"content": "", "tool_calls": [call('{"city": "Paris"}', ids[0]), call('{"zone":"CET"}', ids[1], "time")]}
    deltas = [
        {"role": "assistant", "content": None},
        {"tool_calls": [part(0, id=ids[0], type="function", name="add", arguments="{")]},
        *({"tool_calls": [part(0, arguments=piece)]} for piece in ('"', "city", '": "', "Paris", '"}')),
        {"tool_calls": [part(1, id=ids[1], type="function", name="time", arguments="{")]},
        {"tool_calls": [part(1, arguments='"zone":"CET"}')]},
    ]
    data = stream(*deltas, finish="tool_calls", done=False) + event(choices=[], usage=usage, timings={"n": 1}) + DONE
    response = read(data)
    assert response == decode(body(whole, "tool_calls", usage=usage, timings={"n": 1}))
    assert [one.args for one in response.message.tool_calls] == [{"city": "Paris"}, {"zone": "CET"}]
    assert response.usage.cached_input_tokens == 212


# Ends


@pytest.mark.parametrize("tail", [b'data: {"usage":{"prompt_tok', b"data: [DO", b"da", b": ping"], ids=repr)
def test_half_an_event_behind_the_end_is_no_fault(tail: bytes) -> None:
    assert read(stream({"content": "x"}, done=False) + tail).text == "x"


@pytest.mark.parametrize(
    "tail", [b"data: [DO", b"da", b'data: {"choices":[{"delta":{"content":"y"', b"data: {}"], ids=repr
)
def test_half_an_event_before_the_end_is_a_broken_connection(tail: bytes) -> None:
    events, ended = play(event({"content": "x"}) + tail)
    assert isinstance(ended, ProviderError)
    assert (ended.kind, ended.retryable, ended.partial_text, text_of(events)) == ("network", True, "x", "x")


def test_bare_error_between_the_events_is_the_cause_not_the_closed_connection() -> None:
    _events, ended = play(event({"content": "x"}) + b'{"error":{"message":"engine died","code":500}}\n')
    assert isinstance(ended, ProviderError)
    assert (ended.kind, ended.partial_text) == ("server", "x")
    assert "engine died" in ended.message


def test_call_without_arguments_in_a_reply_that_was_cut_must_not_run() -> None:
    data = calls_stream(part(0, id="c1", name="now", arguments="{}"), part(1, id="c2", name="write"), finish="length")
    calls = (ToolCall("c1", "now"), ToolCall("c2", "write", {}, ""))
    assert read(data).message.tool_calls == calls
    assert (
        decode(body({"tool_calls": [call("{}", name="now"), call("", "c2", "write")]}, "length")).message.tool_calls
        == calls
    )


def test_response_before_the_end_is_an_error() -> None:
    decoder = CODEC.stream_decoder(WireRequest("", b""))
    decoder.feed(event({"content": "x"}))
    with pytest.raises(ProviderError, match="closed before the end"):
        decoder.response()


def test_body_in_single_bytes_in_place_of_a_stream_is_read() -> None:
    data = b"\xef\xbb\xbf \n" + body({"content": "x"})
    decoder = CODEC.stream_decoder(WireRequest("", b""))
    for n in range(len(data)):
        assert not decoder.feed(data[n : n + 1])
    assert decoder.finish() == [TextDelta("x")]
    assert decoder.response() == decode(body({"content": "x"}))
    assert decoder.finish() == ()


# Errors of other shapes

OTHER_ERRORS: list[tuple[str, bytes, str, str]] = [
    ("minimax", b'{"choices":null,"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}', "quota", "insufficient"),
    ("dashscope", b'{"code":"InvalidApiKey","message":"No key","request_id":"r"}', "auth", "No key"),
    ("error-msg", b'{"error_code":336003,"error_msg":"rate limit"}', "rate_limit", "rate limit"),
    ("in-the-choice", b'{"choices":[{"index":0,"error":{"code":502,"message":"Upstream"},"finish_reason":"error"}]}', "server", "Upstream"),
    ("beside-choices", b'{"choices":[{"index":0,"message":{"content":""}}],"error":{"code":429,"message":"slow"}}', "rate_limit", "slow"),
    ("half-character", b'{"error":{"message":"cut \\ud83d","code":500}}', "server", "cut \ufffd"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "kind", "words"), [e[1:] for e in OTHER_ERRORS], ids=[e[0] for e in OTHER_ERRORS])
def test_error_is_found_in_a_body_and_in_a_stream(data: bytes, kind: str, words: str) -> None:
    with pytest.raises(ProviderError) as caught:
        decode(data)
    ended = play(event({"content": "x"}) + b"data: " + data + b"\n\n" + DONE)[1]
    for error in (caught.value, ended):
        assert isinstance(error, ProviderError)
        assert (error.kind, error.provider) == (kind, "openai")
        assert words in error.message


def test_error_in_a_list_is_found() -> None:
    with pytest.raises(ProviderError, match="Resource") as caught:
        decode(b'[{"error":{"code":429,"message":"Resource exhausted","status":"RESOURCE_EXHAUSTED"}}]')
    assert caught.value.kind == "rate_limit"


def test_status_that_says_all_is_well_is_no_error() -> None:
    well = {"status_code": 0, "status_msg": ""}
    assert decode(body({"content": "x"}, base_resp=well)).text == "x"
    assert read(event({"content": "x"}) + event(choices=None, id=None, base_resp=well) + event({}, "stop")).text == "x"


@pytest.mark.parametrize("content", [3, True], ids=repr)
def test_content_of_another_type_is_an_error_that_shows_it(content: Any) -> None:
    for answer in (lambda: decode(body({"content": content})), lambda: read(stream({"content": content}))):
        with pytest.raises(DecodeError, match=f"neither text nor parts: {json.dumps(content)}"):
            answer()


# Half characters


def test_half_characters_are_put_together_in_reasoning_and_arguments() -> None:
    halves = [
        b'{"reasoning":"\\ud83d"}', b'{"reasoning":"\\ude00"}', b'{"content":"x"}',
        b'{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{\\"a\\":\\"\\ud83d"}}]}',
        b'{"tool_calls":[{"index":0,"function":{"arguments":"\\ude00\\"}"}}]}',
    ]  # fmt: skip
    data = b"".join(b'data: {"choices":[{"index":0,"delta":%s}]}\n\n' % half for half in halves)
    events, ended = play(data + event({}, "stop"))
    assert not isinstance(ended, ProviderError), ended
    assert ended.message == AssistantMessage("x", (ToolCall("c1", "f", {"a": "😀"}),), "😀")
    repr(events).encode()


def test_half_character_of_reasoning_at_the_end_is_replaced() -> None:
    data = b'data: {"choices":[{"index":0,"delta":{"reasoning":"hm\\ud83d"}}]}\n\n' + event({}, "stop")
    events, ended = play(data)
    assert not isinstance(ended, ProviderError), ended
    assert ended.message.reasoning == "hm\ufffd"
    assert events == [ReasoningDelta("hm"), ReasoningDelta("\ufffd")]


def test_half_characters_in_side_fields_are_replaced() -> None:
    fields = (
        b'"id":"r\\ud83d","model":"m\\ud83d","choices":[{"index":0,"%s":{"content":"x"},"finish_reason":"stop\\ud83d"}]'
    )
    for response in (decode(b"{" + fields % b"message" + b"}"), read(b"data: {" + fields % b"delta" + b"}\n\n" + DONE)):
        told = (response.text, response.response_id, response.model, response.raw_finish_reason)
        assert told == ("x", "r\ufffd", "m\ufffd", "stop\ufffd")


# Usage


def test_figures_said_at_different_times_are_put_together() -> None:
    data = event({"content": "x"}, usage={"prompt_tokens": 5, "completion_tokens": None})
    data += event({}, "stop", usage={"prompt_tokens": None, "completion_tokens": 3})
    assert read(data).usage == Usage(input_tokens=5, output_tokens=3)


@pytest.mark.parametrize("count", [-1, 2**60, 1e300, float("inf")], ids=repr)
def test_figure_that_cannot_be_is_unknown(count: Any) -> None:
    data = body({"content": "x"}, usage={"prompt_tokens": count})
    assert decode(data).usage == UNKNOWN_USAGE


@pytest.mark.parametrize(
    ("payload", "kind", "retryable"),
    [
        ({"id": "r1", "object": "error", "message": "bad", "code": 500}, "server", True),
        (
            {"id": "r1", "choices": None, "base_resp": {"status_code": 1002, "status_msg": "slow down"}},
            "rate_limit",
            True,
        ),
        ([{"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}], "overloaded", True),
    ],
    ids=["beside-an-id", "minimax", "in-a-list"],
)
def test_error_in_mid_stream_is_one_whatever_its_shape(payload: Any, kind: str, retryable: bool) -> None:
    data = event({"content": "a"}) + b"data: " + json.dumps(payload).encode() + b"\n\n" + DONE
    events, error = play(data)
    assert text_of(events) == "a"
    assert isinstance(error, ProviderError)
    assert (error.kind, error.retryable, error.partial_text) == (kind, retryable, "a")


def test_usage_beside_a_status_of_all_is_well_is_no_error() -> None:
    usage = event(choices=[], usage={"prompt_tokens": 5}, base_resp={"status_code": 0, "status_msg": "success"})
    response = read(event({"content": "a"}, "stop") + usage + DONE)
    assert (response.message.content, response.usage.input_tokens) == ("a", 5)


def test_empty_object_that_became_a_list_says_nothing() -> None:
    assert read(event({"content": "a"}) + event([], "stop") + DONE).message.content == "a"
    whole = json.loads(body({"content": "a"}))
    whole["choices"][0]["delta"] = []
    assert decode(json.dumps(whole).encode()).message.content == "a"
    whole["choices"][0]["message"] = []
    assert decode(json.dumps(whole).encode()).message.content == ""


def test_lines_that_a_gateway_wrapped_once_more_are_read() -> None:
    data = stream({"content": "a"}).replace(b"data: ", b"data: data: ")
    assert read(data).message.content == "a"


def test_blank_lines_before_a_stream_are_not_kept() -> None:
    decoder = CODEC.stream_decoder(WireRequest("/", b""))
    for _ in range(100_000):  # kept and looked through each time, these would take half a minute
        assert not decoder.feed(b"\r\n")
    decoder.feed(stream({"content": "a"}))
    assert decoder.response().message.content == "a"


@pytest.mark.parametrize(
    "lead", [b"\xef\xbb\xbf", b"\n\n\xef\xbb\xbf", b"\xef\xbb\xbf\n \n", b"\r\n", b" ", b"\n" + b" " * 30]
)
def test_what_stands_before_a_stream_means_the_same_however_it_is_cut(lead: bytes) -> None:
    data = lead + stream({"content": "a"})
    whole = play(data)
    for cut in range(1, len(lead) + 3):
        events, end = play(data, [cut])
        assert text_of(events) == text_of(whole[0])
        assert str(end) == str(whole[1])
    events, end = play(data, range(1, len(data)))
    assert (text_of(events), str(end)) == (text_of(whole[0]), str(whole[1]))


def test_long_reasoning_in_details_costs_no_square_of_time() -> None:
    decoder = CODEC.stream_decoder(WireRequest("/", b""))
    piece = event({"reasoning_details": [{"type": "reasoning.text", "text": "x" * 50, "index": 0}]})
    for _ in range(40_000):  # joined at each of them, these would take ten seconds
        decoder.feed(piece)
    decoder.feed(event({"content": "a"}, "stop") + DONE)
    replay = decoder.response().message.replay
    assert replay is not None
    assert replay["reasoning_details"] == [{"type": "reasoning.text", "text": "x" * 2_000_000, "index": 0}]


def test_empty_body_may_be_asked_for_again() -> None:
    for data in (b"", b" \n"):
        with pytest.raises(DecodeError) as caught:
            decode(data)
        assert caught.value.retryable
