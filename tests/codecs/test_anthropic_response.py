"""Bodies of Anthropic replies as neutral responses; the stream of the same reply says the same."""

import json
from typing import Any

import pytest

from agentcore.codecs.anthropic_messages import AnthropicMessagesCodec
from agentcore.errors import DecodeError, ProviderError
from agentcore.messages import ToolCall
from agentcore.usage import Usage
from tests.support.anthropic_wire import WIRE, call, decode, message, play, stream_of, text, thinking

ADD = ToolCall("toolu_1", "add", {"a": 1})


@pytest.mark.parametrize(
    ("body", "content", "calls", "finish"),
    [
        pytest.param(message(text("Hi.")), "Hi.", (), "stop", id="text"),
        pytest.param(message(text("A "), text("b")), "A b", (), "stop", id="two texts"),
        pytest.param(
            message(text("See."), call(args={"a": 1}), stop="tool_use"), "See.", (ADD,), "tool_calls", id="call"
        ),
        pytest.param(message(call(args={"a": 1}), stop="end_turn"), None, (ADD,), "tool_calls", id="blocks decide"),
        pytest.param(message(call(args={"a": 1}), stop="refusal"), None, (ADD,), "tool_calls", id="call and refusal"),
        pytest.param(message(call(args={"a": 1}), stop="pause_turn"), None, (ADD,), "tool_calls", id="call and pause"),
        pytest.param(message(), "", (), "stop", id="empty content"),
        pytest.param(message(stop="tool_use"), "", (), "other", id="tool_use without blocks"),
        pytest.param(message(text("x"), stop="stop_sequence"), "x", (), "stop", id="stop sequence"),
        pytest.param(message(text("x"), stop="max_tokens"), "x", (), "length", id="max_tokens"),
        pytest.param(message(text("x"), stop="model_context_window_exceeded"), "x", (), "length", id="window exceeded"),
        pytest.param(message(stop="refusal"), "", (), "content_filter", id="refusal"),
        pytest.param(message(text("x"), stop="pause_turn"), "x", (), "other", id="pause"),
        pytest.param(message(text("x"), stop="compaction"), "x", (), "other", id="unknown reason"),
        pytest.param(
            message(call(), stop="max_tokens"),
            None,
            (ToolCall("toolu_1", "add", {}, "{}"),),
            "length",
            id="cut in a call",
        ),
        pytest.param(
            message(call(args={"s": ["a", "晴"]}), stop="max_tokens"),
            None,
            (ToolCall("toolu_1", "add", {}, '{"s":["a","晴"]}'),),
            "length",
            id="cut in a call with some of its arguments",
        ),
        pytest.param(
            message(call(args={"a": 1}), call("mul", {}, "toolu_2"), stop="max_tokens"),
            None,
            (ADD, ToolCall("toolu_2", "mul", {}, "{}")),
            "length",
            id="cut in the second call",
        ),
        pytest.param(
            message(call(args={"a": 1}), text("and"), stop="max_tokens"), "and", (ADD,), "length", id="cut after"
        ),
        pytest.param(
            message({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1}}, text("found")),
            "found",
            (),
            "stop",
            id="server tool is no local call",
        ),
        pytest.param(message({"type": "mcp_tool_use", "id": "s", "name": "x", "input": {}}), "", (), "stop", id="mcp"),
        pytest.param(message({"type": "novelty"}, text("x")), "x", (), "stop", id="unknown block"),
    ],
)
def test_reply_by_body_and_by_stream(body: bytes, content: str | None, calls: tuple[Any, ...], finish: str) -> None:
    response = decode(body)
    assert (response.message.content, response.message.tool_calls, response.finish_reason) == (content, calls, finish)
    assert response.message.finish_reason == (None if finish in ("stop", "tool_calls") else finish)
    assert response.raw_finish_reason == json.loads(body)["stop_reason"]
    decoder, events = play(stream_of(body))
    assert decoder.response() == response
    assert "".join(e.text for e in events if type(e).__name__ == "TextDelta") == (content or "")


def test_thinking_is_readable_beside_the_answer() -> None:
    response = decode(message(thinking("a"), thinking("b"), text("4")))
    assert (response.message.reasoning, response.text) == ("ab", "4")


def test_reply_names_model_and_id() -> None:
    response = decode(message(text("x")))
    assert (response.model, response.response_id) == ("claude-test", "msg_1")


@pytest.mark.parametrize(
    ("usage", "neutral"),
    [
        pytest.param({"input_tokens": 5, "output_tokens": 3}, Usage(input_tokens=5, output_tokens=3), id="plain"),
        pytest.param(
            {
                "input_tokens": 2,
                "cache_creation_input_tokens": 10,
                "cache_read_input_tokens": 100,
                "output_tokens": 1,
            },
            Usage(input_tokens=112, output_tokens=1, cached_input_tokens=100, cache_write_tokens=10),
            id="cache",
        ),
        pytest.param(
            {"input_tokens": 2, "cache_read_input_tokens": 0, "cache_creation_input_tokens": None, "output_tokens": 1},
            Usage(input_tokens=2, output_tokens=1, cached_input_tokens=0),
            id="zero is not absent",
        ),
        pytest.param(
            {"input_tokens": 2, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}},
            Usage(input_tokens=2, output_tokens=9, reasoning_tokens=4),
            id="thinking",
        ),
        pytest.param({"output_tokens": 1}, Usage(output_tokens=1), id="output alone"),
        pytest.param({}, Usage(), id="empty"),
        pytest.param(
            {"input_tokens": "7", "output_tokens": 1.0}, Usage(input_tokens=7, output_tokens=1), id="odd numbers"
        ),
    ],
)
def test_usage_counts_the_whole_prompt_and_leaves_unknown_unknown(usage: dict[str, Any], neutral: Usage) -> None:
    body = message(text("x"), usage=usage)
    assert decode(body).usage == neutral
    assert play(stream_of(body))[0].response().usage == neutral


@pytest.mark.parametrize(
    ("body", "content"),
    [
        pytest.param(b'{"content":null,"stop_reason":"end_turn"}', "", id="content null"),
        pytest.param(b'{"stop_reason":"end_turn"}', "", id="content missing"),
        pytest.param(b'{"content":[]}', "", id="stop reason missing"),
        pytest.param(b'{"content":"plain"}', "plain", id="content a text"),
        pytest.param(b'{"content":[{"type":"text"}],"stop_reason":"end_turn"}', "", id="text missing"),
        pytest.param(b'{"content":[{"type":"text","text":null},{"type":"text","text":"x"}]}', "x", id="text null"),
        pytest.param(b'{"content":[null,3,{"type":"text","text":"x"}]}', "x", id="odd blocks"),
        pytest.param(
            b'{"content":[{"type":"text","text":"x"}],"usage":null,"id":3,"model":null}', "x", id="odd fields"
        ),
        pytest.param(b'\xef\xbb\xbf{"content":[{"type":"text","text":"x"}]}', "x", id="byte order mark"),
        pytest.param(b'{"content":[{"type":"text","text":"a\\ud800b"}]}', "a\ufffdb", id="lone surrogate"),
        pytest.param(b'{"error":null,"content":[{"type":"text","text":"x"}]}', "x", id="null error"),
        pytest.param(
            b'{"message":"ok","content":[{"type":"text","text":"x"}]}', "x", id="a message beside the content"
        ),
    ],
)
def test_body_with_gaps_is_read(body: bytes, content: str) -> None:
    response = decode(body)
    assert (response.message.content, response.finish_reason) == (content, "stop")


def test_reply_of_a_compatible_server_is_read() -> None:
    body = (
        b'{"id":"chatcmpl-fKXo","type":"message","content":[{"type":"text","text":"The capital is "}],'
        b'"model":"smollm2","stop_reason":"end_turn","stop_sequence":"Paris",'
        b'"usage":{"cache_read_input_tokens":26,"input_tokens":1,"output_tokens":6}}'
    )
    response = decode(body)
    assert (response.text, response.finish_reason, response.response_id) == ("The capital is ", "stop", "chatcmpl-fKXo")
    assert response.usage == Usage(input_tokens=27, output_tokens=6, cached_input_tokens=26)


def test_calls_without_ids_or_with_the_same_get_distinct_ones() -> None:
    body = message(call(args={"a": 1}), call(args={"a": 2}), {"type": "tool_use", "name": "now"}, stop="tool_use")
    calls = decode(body).message.tool_calls
    assert len({one.id for one in calls}) == 3
    assert [one.args for one in calls] == [{"a": 1}, {"a": 2}, {}]
    assert calls[0].id == "toolu_1"


@pytest.mark.parametrize(
    ("given", "args", "raw"),
    [
        ('{"a": 1}', {"a": 1}, None),
        ("", {}, None),
        (None, {}, None),
        ("{broken", {}, "{broken"),
        ([1], {}, "[1]"),
    ],
    ids=["json text", "empty text", "null", "broken text", "a list"],
)
def test_input_that_is_not_an_object_is_kept_raw(given: Any, args: dict[str, Any], raw: str | None) -> None:
    body = message({"type": "tool_use", "id": "t", "name": "add", "input": given}, stop="tool_use")
    (made,) = decode(body).message.tool_calls
    assert (made.args, made.raw_arguments) == (args, raw)


@pytest.mark.parametrize(
    ("body", "kind", "retryable"),
    [
        pytest.param(
            b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
            "overloaded",
            True,
            id="overloaded",
        ),
        pytest.param(b'{"type":"error","error":{"type":"api_error","message":"x"}}', "server", True, id="api_error"),
        pytest.param(
            b'{"error":{"message":"Invalid API Key","type":"authentication_error"}}', "auth", False, id="no type"
        ),
        pytest.param(b'{"error":"rate_limit_error"}', "rate_limit", True, id="error a text"),
        pytest.param(b'{"type":"error"}', "server", True, id="error without words"),
        pytest.param(b'{"message":"Internal error"}', "server", True, id="a message of some gateway"),
        pytest.param(b'{"detail":"Rate limit reached"}', "rate_limit", True, id="detail"),
        pytest.param(b'{"code":500,"msg":"bad","success":false}', "server", True, id="msg"),
        pytest.param(b'[{"error":{"code":503,"message":"busy"}}]', "overloaded", True, id="in a list"),
        pytest.param(
            b'{"content":null,"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}',
            "quota",
            False,
            id="minimax",
        ),
    ],
)
def test_error_inside_a_good_status_is_an_error(body: bytes, kind: str, retryable: bool) -> None:
    for read in (lambda: decode(body), play(body)[0].response):
        with pytest.raises(ProviderError) as caught:
            read()
        assert (caught.value.kind, caught.value.retryable, caught.value.provider) == (kind, retryable, "anthropic")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b"<html><title>502</title></html>",
        b'{"content":',
        b'{"content":{"type":"text"}}',
        b'{"content":7}',
        b'{"content":[{"type":"tool_use","id":"t","input":{}}]}',
        b"[" * 5000,
    ],
    ids=lambda body: repr(body[:30]),
)
def test_body_that_cannot_be_read_is_a_decode_error(body: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(body)
    assert caught.value.provider == "anthropic"


@pytest.mark.parametrize(
    ("status", "body", "kind", "retryable"),
    [
        pytest.param(
            400,
            b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 2 > 1"}}',
            "context_length",
            False,
            id="prompt too long",
        ),
        pytest.param(
            400,
            b'{"error":{"code":400,"message":"request (9 tokens) exceeds","type":"exceed_context_size_error"}}',
            "context_length",
            False,
            id="llama.cpp context",
        ),
        pytest.param(
            413,
            b'{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}',
            "invalid_request",
            False,
            id="too large",
        ),
        pytest.param(
            401,
            b'{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}',
            "auth",
            False,
            id="key",
        ),
        pytest.param(529, b"", "overloaded", True, id="529 without a body"),
        pytest.param(502, b"<html><title>Bad Gateway</title></html>", "server", True, id="html"),
        pytest.param(
            400,
            b'{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}',
            "quota",
            False,
            id="credit",
        ),
    ],
)
def test_error_status_is_told_in_neutral_words(status: int, body: bytes, kind: str, retryable: bool) -> None:
    error = AnthropicMessagesCodec().decode_error(status, body)
    assert (error.kind, error.retryable, error.status) == (kind, retryable, status)


def test_stream_that_comes_where_a_body_was_asked_for_is_read() -> None:
    body = message(thinking(), text("Hi."), call(args={"a": 1}))
    assert decode(stream_of(body)) == decode(body)
    assert decode(b"\xef\xbb\xbf: comment\n\n" + stream_of(body)) == decode(body)


def test_raw_body_is_kept_on_request() -> None:
    body = message(text("x"))
    assert AnthropicMessagesCodec(keep_raw=True).decode(body, WIRE).raw == body
    assert decode(body).raw is None


def test_text_that_does_not_say_what_it_is_is_not_lost() -> None:
    body = b'{"type":"message","content":["a",{"text":"b"},{"type":"text","text":"c"},null],"stop_reason":"end_turn"}'
    response = decode(body)
    assert (response.message.content, response.message.replay) == ("abc", None)


@pytest.mark.parametrize("head", [b"id: 1\n", b"retry: 10\n"])
def test_stream_for_a_body_may_begin_with_any_field(head: bytes) -> None:
    assert decode(head + stream_of(message(text("Hi.")))).message.content == "Hi."
