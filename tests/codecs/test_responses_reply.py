"""Responses replies: every habit of the services, as a body and as a stream."""

import itertools
import json
from typing import Any

import pytest

from agentcore.codecs.base import WireRequest
from agentcore.codecs.openai_responses import OpenAIResponsesCodec
from agentcore.errors import DecodeError, ProviderError
from agentcore.messages import AssistantMessage, ToolCall
from agentcore.usage import UNKNOWN_USAGE, Usage
from tests.support.responses_wire import (
    CODEC,
    USAGE,
    WIRE,
    body,
    call,
    decode,
    play,
    played,
    reasoning,
    refusal,
    said,
    stream_of,
    text,
    thought,
    whole,
)

ADD = ToolCall("call_1", "add", {"a": 1})
KEPT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Two."}, {"type": "summary_text", "text": "And two."}],
    "encrypted_content": "gAAA",
}
REPLAY = {"format": "openai-responses", "origin": "openai", "model": "gpt-5", "items": [KEPT]}

PAIRS: list[tuple[str, list[dict[str, Any]], AssistantMessage]] = [
    ("text", [text("Hello, 晴 🌤!")], AssistantMessage("Hello, 晴 🌤!")),
    ("parts", [text("Hel", "lo")], AssistantMessage("Hello")),
    ("messages", [text("Hel"), text("lo", item_id="msg_2")], AssistantMessage("Hello")),
    ("empty", [text("")], AssistantMessage("")),
    ("nothing", [], AssistantMessage("")),
    ("call", [call()], AssistantMessage(None, (ADD,))),
    ("text-and-call", [text("Look."), call()], AssistantMessage("Look.", (ADD,))),
    (
        "calls",
        [call(), call('{"b": {"c": [2]}}', "call_2", "sub", "fc_2")],
        AssistantMessage(None, (ADD, ToolCall("call_2", "sub", {"b": {"c": [2]}}))),
    ),
    ("call-without-arguments", [call("{}")], AssistantMessage(None, (ToolCall("call_1", "add"),))),
    ("call-with-blank-arguments", [call("")], AssistantMessage(None, (ToolCall("call_1", "add"),))),
    ("call-encoded-twice", [call('"{\\"a\\":1}"')], AssistantMessage(None, (ADD,))),
    ("broken-call", [call('{"a":')], AssistantMessage(None, (ToolCall("call_1", "add", {}, '{"a":'),))),
    (
        "reasoning-summary",
        [reasoning("Two.", "And two."), text("4")],
        AssistantMessage("4", reasoning="Two.\n\nAnd two.", replay=REPLAY),
    ),
    (
        "reasoning-text",
        [
            reasoning(encrypted=None, content=[{"type": "reasoning_text", "text": one} for one in ("two ", "and two")]),
            text("4"),
        ],
        AssistantMessage("4", reasoning="two \n\nand two"),
    ),
    (
        "reasoning-before-each-call",
        [reasoning("First.", encrypted=None), call(), reasoning("Then.", item_id="rs_2", encrypted=None)],
        AssistantMessage(None, (ADD,), reasoning="First.\n\nThen."),
    ),
    (
        "refusal",
        [text(refusal("I can't do that."))],
        AssistantMessage("I can't do that.", finish_reason="content_filter"),
    ),
    (
        "refusal-after-text",
        [text("Well. ", refusal("No."))],
        AssistantMessage("Well. No.", finish_reason="content_filter"),
    ),
    (
        "own-tool",
        [{"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}}, text("4")],
        AssistantMessage(
            "4",
            replay=REPLAY
            | {
                "items": [
                    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}},
                ]
            },
        ),
    ),
    ("unknown-item", [{"type": "hologram", "id": "h_1", "status": "completed"}, text("4")], AssistantMessage("4")),
]


@pytest.mark.parametrize(("items", "message"), [row[1:] for row in PAIRS], ids=[row[0] for row in PAIRS])
@pytest.mark.parametrize("size", [1, 4, 1000])
def test_body_and_stream_give_the_same_reply(items: list[Any], message: AssistantMessage, size: int) -> None:
    reply = decode(body(*items))
    assert reply.message == message
    events, streamed = play(stream_of(*items, size=size))
    assert streamed == reply
    assert said(events) == (message.content or "")
    assert thought(events) == (message.reasoning or "")


@pytest.mark.parametrize("items", [row[1] for row in PAIRS], ids=[row[0] for row in PAIRS])
def test_stream_cut_at_every_byte_gives_the_same(items: list[Any]) -> None:
    data = stream_of(*items)
    expected = play(data)
    for cut in range(len(data)):
        assert play(data, [cut]) == expected, cut
    assert play(data, range(len(data))) == expected


@pytest.mark.parametrize("items", [row[1] for row in PAIRS], ids=[row[0] for row in PAIRS])
def test_plain_body_in_place_of_a_stream_is_read(items: list[Any]) -> None:
    events, ended = play(body(*items), [5])
    assert ended == decode(body(*items))
    assert said(events) == (ended.message.content or "")  # type: ignore[union-attr]


def test_stream_in_place_of_a_body_is_read() -> None:
    assert decode(stream_of(text("Hello"))) == decode(body(text("Hello")))


# Why it ended


CUT = {"reason": "max_output_tokens"}
ENDS: list[tuple[str, dict[str, Any], list[Any], str, str]] = [
    ("completed", {}, [text("x")], "stop", "completed"),
    ("limit", {"status": "incomplete", "incomplete_details": CUT}, [text("x")], "length", "max_output_tokens"),
    (
        "filter",
        {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
        [text("x")],
        "content_filter",
        "content_filter",
    ),
    ("new-reason", {"status": "incomplete", "incomplete_details": {"reason": "lunch"}}, [text("x")], "other", "lunch"),
    ("no-reason", {"status": "incomplete", "incomplete_details": None}, [text("x")], "length", "incomplete"),
    ("odd-details", {"status": "incomplete", "incomplete_details": ["x"]}, [text("x")], "length", "incomplete"),
    ("status-denies-it", {"incomplete_details": CUT}, [text("x")], "length", "max_output_tokens"),
    ("item-says-it", {}, [text("x", status="incomplete")], "length", "completed"),
    ("calls-decide", {}, [text("x"), call()], "tool_calls", "completed"),
    ("calls-cut", {"status": "incomplete", "incomplete_details": CUT}, [call('{"a"')], "length", "max_output_tokens"),
    ("in-progress-with-output", {"status": "in_progress"}, [text("x")], "stop", "in_progress"),
    ("status-of-another-type", {"status": 7}, [text("x")], "stop", "completed"),
]


@pytest.mark.parametrize(("fields", "items", "finish", "raw"), [e[1:] for e in ENDS], ids=[e[0] for e in ENDS])
def test_reason_is_put_in_neutral_words(fields: Any, items: list[Any], finish: str, raw: str) -> None:
    reply = decode(body(*items, **fields))
    assert reply.finish_reason == finish
    assert reply.message.finish_reason == (None if finish in ("stop", "tool_calls") else finish)
    if fields.get("status") != 7:
        assert reply.raw_finish_reason == raw
        kind = {"status": "completed", "kind": "response.completed", **fields}
        if kind["status"] == "incomplete":
            kind["kind"] = "response.incomplete"
        assert played(stream_of(*items, **kind)) == reply


def test_stream_says_that_it_is_incomplete_where_the_response_does_not() -> None:
    data = stream_of(text("x"), kind="response.incomplete", status=None)
    assert played(data).finish_reason == "length"


@pytest.mark.parametrize("arguments", ["", None, " "], ids=["blank", "null", "space"])
def test_call_without_arguments_in_a_reply_that_was_cut_must_not_run(arguments: Any) -> None:
    reply = decode(body(call(), call(arguments, "call_2"), status="incomplete", incomplete_details=CUT))
    assert [one.raw_arguments for one in reply.message.tool_calls] == [None, ""]
    filtered = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    reply = decode(body(call(arguments, status="incomplete"), **filtered))
    assert [one.raw_arguments for one in reply.message.tool_calls] == [""]


LIMITED = WireRequest("/responses", b'{"model":"m","input":[],"max_output_tokens":7}')


@pytest.mark.parametrize(
    ("wire", "fields", "finish"),
    [
        (LIMITED, {}, "length"),
        (LIMITED, {"usage": USAGE | {"output_tokens": 6}}, "stop"),
        (LIMITED, {"usage": None}, "stop"),
        (LIMITED, {"incomplete_details": None}, "stop"),
        (WIRE, {}, "stop"),
        (WireRequest("/responses", b""), {}, "stop"),
    ],
    ids=["reached", "not-reached", "unknown-usage", "server-that-would-say-it", "no-limit", "unknown-request"],
)
def test_limit_is_found_where_the_server_calls_the_reply_completed(wire: Any, fields: Any, finish: str) -> None:
    response = {**whole(text("Once upon")), **fields}
    if "incomplete_details" not in fields:
        del response["incomplete_details"]
    assert decode(json.dumps(response).encode(), wire=wire).finish_reason == finish


# Figures


@pytest.mark.parametrize(
    ("given", "usage"),
    [
        (
            USAGE,
            Usage(input_tokens=9, output_tokens=7, cached_input_tokens=4, cache_write_tokens=2, reasoning_tokens=3),
        ),
        ({"input_tokens": 5, "output_tokens": 0}, Usage(input_tokens=5, output_tokens=0)),
        (
            {"input_tokens": 5, "output_tokens": 6, "input_tokens_details": {"cached_tokens": 1}},
            Usage(input_tokens=5, output_tokens=6, cached_input_tokens=1),
        ),
        ({"prompt_tokens": 5, "completion_tokens": 6}, Usage(input_tokens=5, output_tokens=6)),
        (
            {"input_tokens": "5", "output_tokens": 6.0, "input_tokens_details": None},
            Usage(input_tokens=5, output_tokens=6),
        ),
        ({"input_tokens": -1, "output_tokens": 1e300, "output_tokens_details": [3]}, UNKNOWN_USAGE),
        (None, UNKNOWN_USAGE),
        ({}, UNKNOWN_USAGE),
        ([5], UNKNOWN_USAGE),
    ],
    ids=["whole", "zero", "llama.cpp", "chat-names", "odd-types", "impossible", "null", "empty", "list"],
)
def test_usage_is_read_and_unknown_is_not_zero(given: Any, usage: Usage) -> None:
    assert decode(body(text("x"), usage=given)).usage == usage
    assert played(stream_of(text("x"), usage=given)).usage == usage


def test_names_of_the_response_are_read() -> None:
    reply = decode(body(text("x")))
    assert (reply.response_id, reply.model) == ("resp_1", "gpt-5-2025-08-07")


# Dialects


OUTPUTS: list[tuple[str, Any, AssistantMessage]] = [
    ("content-as-text", [text(content="Hello")], AssistantMessage("Hello")),
    ("content-null", [text(content=None)], AssistantMessage("")),
    ("content-absent", [{"type": "message", "role": "assistant"}], AssistantMessage("")),
    ("content-one-part", [text(content={"type": "output_text", "text": "Hello"})], AssistantMessage("Hello")),
    ("content-bare-texts", [text(content=["Hel", "lo", None, 3])], AssistantMessage("Hello")),
    ("part-of-type-text", [text({"type": "text", "text": "Hello"})], AssistantMessage("Hello")),
    ("part-without-text", [text({"type": "output_text"}, {"type": "output_text", "text": None})], AssistantMessage("")),
    ("item-without-type", [{"role": "assistant", "content": "Hello"}], AssistantMessage("Hello")),
    ("one-item", text("Hello"), AssistantMessage("Hello")),
    ("odd-items", [None, "x", 3, text("Hello")], AssistantMessage("Hello")),
    ("arguments-object", [call({"a": 1})], AssistantMessage(None, (ADD,))),
    ("arguments-null", [call(None)], AssistantMessage(None, (ToolCall("call_1", "add"),))),
    ("arguments-list", [call([1])], AssistantMessage(None, (ToolCall("call_1", "add", {}, "[1]"),))),
    (
        "call-without-type",
        [{"call_id": "call_1", "name": "add", "arguments": '{"a":1}'}],
        AssistantMessage(None, (ADD,)),
    ),
    ("id-alone", [call(call_id=None, item_id="call_1")], AssistantMessage(None, (ADD,))),
    ("number-as-id", [call(call_id=7)], AssistantMessage(None, (ToolCall("7", "add", {"a": 1}),))),
    ("nameless-empty-call", [call("", name=None), text("Hello")], AssistantMessage("Hello")),
    (
        "custom-tool",
        [{"type": "custom_tool_call", "call_id": "call_1", "name": "add", "input": "a = 1"}],
        AssistantMessage(None, (ToolCall("call_1", "add", {"input": "a = 1"}),)),
    ),
    (
        "summary-as-text",
        [reasoning(encrypted=None, summary="hm"), text("Hello")],
        AssistantMessage("Hello", reasoning="hm"),
    ),
    (
        "summary-null",
        [reasoning(encrypted="", summary=None, content=None), text("Hello")],
        AssistantMessage("Hello"),
    ),
    (
        "thought-copied-to-the-summary",
        [reasoning("hm", encrypted=None, content=[{"type": "reasoning_text", "text": "hm"}]), text("Hello")],
        AssistantMessage("Hello", reasoning="hm"),
    ),
]


@pytest.mark.parametrize(("output", "message"), [row[1:] for row in OUTPUTS], ids=[row[0] for row in OUTPUTS])
def test_habit_of_a_server_is_understood(output: Any, message: AssistantMessage) -> None:
    assert decode(json.dumps({**whole(), "output": output}).encode()).message == message
    stream = b'data: {"type":"response.completed","response":' + json.dumps({**whole(), "output": output}).encode()
    events, ended = play(stream + b"}\n\n")
    assert ended.message == message  # type: ignore[union-attr]
    assert said(events) == (message.content or "")


def test_text_of_the_packages_convenience_is_read_where_there_is_no_output() -> None:
    assert decode(b'{"id":"r","output_text":"Hello","output":[]}').message == AssistantMessage("Hello")
    assert decode(body(text("Hello"), output_text="Hello")).message == AssistantMessage("Hello")


def test_ids_that_are_missing_or_repeated_are_made_the_same_however_the_reply_came() -> None:
    items = [call(call_id="", item_id=""), call(call_id="x"), call('{"a":2}', call_id="x", item_id="fc_2")]
    reply = decode(body(*items))
    ids = [one.id for one in reply.message.tool_calls]
    assert len(set(ids)) == 3
    assert all(ids)
    assert ids[1] == "x"
    assert decode(body(*items)) == reply
    assert play(stream_of(*items))[1] == reply


def test_names_are_mapped_back() -> None:
    wire = WireRequest("/responses", b"", {"math_add": "math.add"})
    items = [call(name="math_add")]
    assert decode(body(*items), wire=wire).message.tool_calls[0].name == "math.add"
    events, ended = play(stream_of(*items), wire=wire)
    assert ended.message.tool_calls[0].name == "math.add"  # type: ignore[union-attr]
    assert {one.name for one in events} == {"math.add"}  # type: ignore[union-attr]


# Errors


ERRORS: list[tuple[str, bytes, str, str]] = [
    (
        "failed",
        body(status="failed", error={"code": "server_error", "message": "The model failed."}),
        "server",
        "The model failed.",
    ),
    (
        "failed-limit",
        body(status="failed", error={"code": "rate_limit_exceeded", "message": "Slow down."}),
        "rate_limit",
        "Slow down.",
    ),
    (
        "failed-image",
        body(status="failed", error={"code": "invalid_image_url", "message": "Cannot fetch."}),
        "invalid_request",
        "Cannot fetch.",
    ),
    (
        "failed-policy",
        body(status="failed", error={"code": "image_content_policy_violation", "message": "Not this picture."}),
        "content_filter",
        "Not this picture.",
    ),
    ("failed-silently", body(status="failed"), "server", "failed"),
    ("cancelled", body(status="cancelled"), "server", "cancelled"),
    ("error-in-a-good-status", b'{"error":{"message":"No such model","type":"invalid_request_error"}}', "", "No such"),
    ("bare-message", b'{"message":"Rate limit reached"}', "rate_limit", "Rate limit reached"),
    ("detail", b'{"detail":"Invalid API key"}', "auth", "Invalid API key"),
    ("list", b'[{"error":{"code":429,"message":"slow"}}]', "rate_limit", "slow"),
    ("no-output", b'{"id":"r","object":"response","status":"completed"}', "decode", "no output"),
    ("queued", body(status="queued"), "decode", "status queued"),
    ("chat-completion", b'{"choices":[{"message":{"content":"x"}}]}', "decode", "no output"),
    ("output-of-another-type", b'{"output":"x"}', "decode", "output is not a list"),
    ("content-of-another-type", body(text(content=3)), "decode", "neither text nor parts: 3"),
    ("nameless-call", body(call(name=None)), "decode", "without a name"),
    ("not-json", b"Hello", "decode", "not JSON: Hello"),
    ("html", b"<html><title>502</title></html>", "decode", "HTML"),
    ("empty", b"", "decode", "(empty)"),
]


@pytest.mark.parametrize(("data", "kind", "words"), [e[1:] for e in ERRORS], ids=[e[0] for e in ERRORS])
def test_body_without_a_reply_is_a_named_error(data: bytes, kind: str, words: str) -> None:
    with pytest.raises(ProviderError) as caught:
        decode(data)
    assert caught.value.provider == "openai"
    assert caught.value.kind == (kind or "invalid_request")
    assert words in str(caught.value)


@pytest.mark.parametrize(("data", "kind", "words"), [e[1:] for e in ERRORS[:6]], ids=[e[0] for e in ERRORS[:6]])
def test_failure_at_the_end_of_a_stream_costs_no_event_before_it(data: bytes, kind: str, words: str) -> None:
    response = json.loads(data)
    events, ended = play(stream_of(text("Hello"), kind=f"response.{response['status']}", **response))
    assert said(events) == "Hello"
    assert isinstance(ended, ProviderError)
    assert (ended.kind, ended.partial_text, ended.provider) == (kind, "Hello", "openai")
    assert words in str(ended)


@pytest.mark.parametrize("code", ["server_error", "rate_limit_exceeded", "vector_store_timeout"])
def test_failure_that_may_pass_can_be_retried(code: str) -> None:
    with pytest.raises(ProviderError) as caught:
        decode(body(status="failed", error={"code": code, "message": "x"}))
    assert caught.value.retryable


@pytest.mark.parametrize("code", ["invalid_prompt", "image_too_large", "empty_image_file", "bio_policy"])
def test_failure_of_the_request_is_not_retried(code: str) -> None:
    with pytest.raises(ProviderError) as caught:
        decode(body(status="failed", error={"code": code, "message": "x"}))
    assert not caught.value.retryable


def test_error_status_is_read() -> None:
    error = CODEC.decode_error(
        400,
        b'{"error":{"code":400,"message":"request (6021 tokens) exceeds the available context size (4096 tokens)",'
        b'"type":"exceed_context_size_error"}}',
    )
    assert (error.kind, error.status, error.retryable) == ("context_length", 400, False)


def test_nesting_beyond_reason_is_an_error_of_ours() -> None:
    deep = b'{"output":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(DecodeError, match="deep|not JSON"):
        decode(deep)


# The rest


def test_other_fields_and_types_are_no_fault() -> None:
    fields: dict[str, Any] = {"reasoning": 3, "tools": "x", "metadata": [], "id": 5, "model": None, "created_at": "x"}
    reply = decode(body(text("x", annotations=7, phase=[]), **fields))
    assert (reply.text, reply.response_id, reply.model) == ("x", None, None)


def test_half_characters_are_replaced() -> None:
    data = body(text("sun \ud83d"), call('{"a":"\\ud83d"}', "call_\ud83d"), id="r\ud83d").replace(b"\\\\u", b"\\u")
    reply = decode(data)
    repr(reply).encode()
    assert reply.text == "sun \ufffd"
    assert reply.message.tool_calls[0].args == {"a": "\ufffd"}


def test_raw_is_kept_when_asked() -> None:
    keeping = OpenAIResponsesCodec(keep_raw=True)
    data = body(text("x"))
    assert decode(data, keeping).raw == data
    streamed = play(stream_of(text("x")), codec=keeping)[1]
    assert streamed.raw is not None  # type: ignore[union-attr]
    assert streamed.raw.count(b"output_text.delta") == 1  # type: ignore[union-attr]
    assert all(json.loads(line) for line in streamed.raw.split(b"\n"))  # type: ignore[union-attr]


def test_orders_of_items_all_give_the_text_and_the_calls() -> None:
    for items in itertools.permutations([text("x"), call(), reasoning("r")]):
        reply = decode(body(*items))
        assert (reply.text, reply.message.tool_calls, reply.message.reasoning) == ("x", (ADD,), "r")
        assert play(stream_of(*items))[1] == reply
