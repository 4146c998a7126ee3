"""Gemini to neutral: bodies and streams, cut anywhere, and whatever bytes may come."""

import contextlib
import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from agentcore.chat import ChatResponse
from agentcore.codecs.base import WireRequest
from agentcore.codecs.gemini import GeminiCodec
from agentcore.errors import DecodeError, ProviderError
from agentcore.messages import ToolCall
from agentcore.usage import UNKNOWN_USAGE, Usage
from tests.support.damage import edits, mutate
from tests.support.gemini_wire import (
    CODEC,
    USAGE,
    WIRE,
    body,
    call,
    chunk,
    decode,
    event,
    play,
    said,
    stream_of,
    text,
    thought,
)

CODE = {"executableCode": {"language": "PYTHON", "code": "1+1"}}
PARTS: list[tuple[str, list[Any]]] = [
    ("text", [text("Hel"), text("lo ☀")]),
    ("thought", [text("hm", thought=True), text("Hello")]),
    ("call", [call({"a": 1}, signature="s1")]),
    ("calls", [text("Let me see."), call({"a": 1}, signature="s1"), call({"b": [1, None]}, "sub")]),
    ("signed-text", [text("Hello"), text("", "s2")]),
    ("signed-thought", [text("hm", "s3", thought=True), text("Hello"), call()]),
    ("own-tools", [CODE, text("two")]),
    ("given-ids", [call({"a": 1}, id="fc1"), call({"a": 2}, id="fc1")]),
    ("no-arguments", [call({})]),
]


@pytest.mark.parametrize("parts", [parts for _, parts in PARTS], ids=[name for name, _ in PARTS])
def test_stream_is_the_body_at_every_cut(parts: list[Any]) -> None:
    whole = decode(body(*parts))
    data = stream_of(*parts)
    for cut in range(len(data) + 1):
        events, response = play(data, [cut])
        assert response == whole
        assert said(events) == (whole.message.content or "")
        assert thought(events) == (whole.message.reasoning or "")


@pytest.mark.parametrize(
    ("parts", "content", "calls", "reasoning", "finish"),
    [
        ([text("Hello")], "Hello", (), None, "stop"),
        ([text("hm", thought=True), text("Hello")], "Hello", (), "hm", "stop"),
        ([text("a"), call({"a": 1}, id="x")], "a", (ToolCall("x", "add", {"a": 1}),), None, "tool_calls"),
        ([call('{"a": 1}', id="x")], None, (ToolCall("x", "add", {"a": 1}),), None, "tool_calls"),
        ([call("{oops", id="x")], None, (ToolCall("x", "add", {}, "{oops"),), None, "tool_calls"),
        ([], "", (), None, "stop"),
    ],
    ids=["text", "thought", "both", "text-arguments", "broken-arguments", "empty"],
)
def test_parts_become_the_message(parts: Any, content: Any, calls: Any, reasoning: Any, finish: str) -> None:
    response = decode(body(*parts))
    message = response.message
    assert (message.content, message.tool_calls, message.reasoning) == (content, calls, reasoning)
    assert (response.finish_reason, response.raw_finish_reason) == (finish, "STOP")
    assert (response.model, response.response_id) == ("gemini-3-pro", "r1")


def test_null_arguments_are_none_and_missing_ids_are_made_and_distinct() -> None:
    data = json.dumps(
        chunk({"functionCall": {"name": "add", "args": None}}, {"functionCall": {"name": "add"}}, finish="STOP")
    ).encode()
    first, second = decode(data).message.tool_calls
    assert (first.args, second.args) == ({}, {})
    assert first.id
    assert second.id
    assert first.id != second.id
    assert decode(data).message.tool_calls == (first, second)


def test_name_on_the_wire_is_mapped_back() -> None:
    wire = WireRequest("/", b"", {"math_add": "math.add"})
    assert decode(body(call(name="math_add")), wire=wire).message.tool_calls[0].name == "math.add"
    assert play(stream_of(call(name="math_add")), wire=wire)[1].message.tool_calls[0].name == "math.add"


@pytest.mark.parametrize(
    ("word", "neutral"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("SPII", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "other"),
        ("UNEXPECTED_TOOL_CALL", "other"),
        ("LANGUAGE", "other"),
        ("OTHER", "other"),
        ("A_NEW_ONE", "other"),
    ],
)
def test_reasons_have_neutral_words(word: str, neutral: str) -> None:
    for response in (decode(body(text("x"), finish=word)), play(stream_of(text("x"), finish=word))[1]):
        assert (response.finish_reason, response.raw_finish_reason) == (neutral, word)


def test_calls_of_a_cut_reply_keep_the_cut() -> None:
    assert decode(body(call(), finish="MAX_TOKENS")).finish_reason == "length"


@pytest.mark.parametrize("reason", ["SAFETY", "OTHER", "BLOCKLIST"])
def test_blocked_prompt_is_a_filtered_reply(reason: str) -> None:
    blocked = {"promptFeedback": {"blockReason": reason}, "usageMetadata": {"promptTokenCount": 4}}
    for response in (decode(json.dumps(blocked).encode()), play(event(blocked))[1]):
        assert (response.finish_reason, response.raw_finish_reason, response.text) == ("content_filter", reason, "")
        assert response.usage.input_tokens == 4


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (USAGE, Usage(input_tokens=9, output_tokens=7, cached_input_tokens=5, reasoning_tokens=3)),
        ({"promptTokenCount": 9, "toolUsePromptTokenCount": 2}, Usage(input_tokens=11)),
        ({"thoughtsTokenCount": 3}, Usage(output_tokens=3, reasoning_tokens=3)),
        ({"promptTokenCount": "9", "candidatesTokenCount": None}, Usage(input_tokens=9)),
        ({}, UNKNOWN_USAGE),
    ],
    ids=str,
)
def test_tokens_are_the_whole_prompt_and_the_whole_reply(usage: Any, expected: Usage) -> None:
    assert decode(body(text("x"), usage=usage)).usage == expected


def test_missing_usage_is_unknown() -> None:
    assert decode(body(text("x"), usage=None)).usage == UNKNOWN_USAGE


def test_usage_of_a_stream_is_the_last_word() -> None:
    data = event(chunk(text("a"), usage={"promptTokenCount": 5, "candidatesTokenCount": 1})) + event(
        chunk(text("b"), finish="STOP", usage={"candidatesTokenCount": 2})
    )
    assert play(data)[1].usage == Usage(input_tokens=5, output_tokens=2)


def test_usage_after_the_reason_counts_too() -> None:
    data = event(chunk(text("a"), finish="STOP")) + event({"usageMetadata": {"candidatesTokenCount": 2}})
    assert play(data)[1].usage == Usage(output_tokens=2)


COUNTED = {"promptTokenCount": 1, "candidatesTokenCount": 1}


@pytest.mark.parametrize(
    ("chunks", "words", "finish"),
    [
        ([chunk(text(one), finish="STOP", usage=COUNTED) for one in ("one ", "two")], "one two", "stop"),
        (
            [chunk(finish="STOP", usage=COUNTED), chunk(text("one "), text("two")), chunk(finish="STOP")],
            "one two",
            "stop",
        ),
        (
            [chunk(text("one two"), finish="STOP", usage=COUNTED), chunk(call(id="c"), finish="STOP", usage=COUNTED)],
            "one two",
            "tool_calls",
        ),
        (
            [chunk(text("one two")), chunk(finish="MAX_TOKENS"), chunk(finish="STOP", usage=COUNTED)],
            "one two",
            "length",
        ),
        (
            [chunk(text("one two"), finish="STOP", usage=COUNTED), chunk(finish="SAFETY", usage=COUNTED)],
            "one two",
            "content_filter",
        ),
    ],
    ids=["every-event", "first-event", "before-a-call", "behind-the-cut", "before-the-filter"],
)
def test_reason_that_is_stamped_on_events_before_the_end_cuts_nothing(chunks: Any, words: str, finish: str) -> None:
    data = b"".join(event(one) for one in chunks)
    for cut in range(0, len(data), 7):
        events, response = play(data, [cut])
        assert (said(events), response.text, response.finish_reason) == (words, words, finish)
    assert decode(json.dumps(chunks).encode()) == response


def test_stream_that_went_on_is_at_its_end_with_the_reason_and_the_tokens() -> None:
    decoder = CODEC.stream_decoder(WIRE)
    decoder.feed(event(chunk(text("a"), usage=COUNTED)))
    assert not decoder.done
    decoder.feed(event(chunk(text("b"), finish="STOP", usage=COUNTED)))
    assert decoder.done


def test_half_a_list_is_a_broken_connection() -> None:
    data = b"[" + body(text("Hel"), finish=None) + b",\n" + body(text("lo"))
    for end in (1, 40, len(data) - 3, len(data)):
        with pytest.raises(ProviderError) as caught:
            play(data[:end])
        assert (caught.value.kind, caught.value.retryable) == ("network", True)


def test_list_that_is_no_json_says_so() -> None:
    with pytest.raises(DecodeError, match="not JSON"):
        decode(b"[oops]")


@pytest.mark.parametrize("field", [{"partialArgs": [{"jsonPath": "$.a"}]}, {"willContinue": True}], ids=str)
def test_arguments_in_pieces_are_refused_and_not_run_as_none(field: dict[str, Any]) -> None:
    with pytest.raises(DecodeError, match="streamFunctionCallArguments"):
        decode(body({"functionCall": {"name": "add", **field}}))


def test_further_candidates_have_no_place() -> None:
    value = chunk(text("one"), finish="STOP")
    value["candidates"].append({"index": 1, "content": {"parts": [text("two")]}, "finishReason": "STOP"})
    assert decode(json.dumps(value).encode()).text == "one"


@pytest.mark.parametrize(
    "data",
    [
        b"[" + body(text("Hel"), finish=None) + b",\n" + body(text("lo")) + b"]",
        b"\xef\xbb\xbf" + body(text("Hello")),
        stream_of(text("Hel"), text("lo")).replace(b"\r\n", b"\n"),
        b": ping\n\n" + stream_of(text("Hello")),
        stream_of(text("Hello")) + b"data: [DONE]\n\n",
        b"event: message\n" + stream_of(text("Hello")),
    ],
    ids=["list", "bom", "lf", "comment", "done", "named"],
)
def test_every_form_of_a_stream_is_read(data: bytes) -> None:
    events, response = play(data)
    assert (said(events), response.text) == ("Hello", "Hello")
    assert decode(data).text == "Hello"


def test_stream_that_ends_without_a_reason_is_broken_with_the_text_so_far() -> None:
    decoder = CODEC.stream_decoder(WIRE)
    decoder.feed(event(chunk(text("Hel"))))
    decoder.finish()
    with pytest.raises(ProviderError) as caught:
        decoder.response()
    assert (caught.value.kind, caught.value.partial_text, caught.value.retryable) == ("network", "Hel", True)


def test_half_an_event_at_the_end_is_a_broken_connection() -> None:
    decoder = CODEC.stream_decoder(WIRE)
    decoder.feed(event(chunk(text("Hel"))) + b'data: {"candi')
    decoder.finish()
    assert decoder.error is not None
    assert decoder.error.kind == "network"


FAILURE = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}


@pytest.mark.parametrize(
    "data",
    [
        event(FAILURE),
        event([FAILURE]),
        b"event: error\n" + event(FAILURE),
        json.dumps([FAILURE]).encode(),
        json.dumps(FAILURE).encode(),
    ],
    ids=["event", "list-event", "named", "list", "body"],
)
def test_error_inside_a_good_status_is_that_error(data: bytes) -> None:
    for attempt in (lambda: play(data), lambda: decode(data)):
        with pytest.raises(ProviderError) as caught:
            attempt()
        assert (caught.value.kind, caught.value.retryable, caught.value.provider) == ("overloaded", True, "gemini")


def test_error_in_mid_stream_keeps_the_text() -> None:
    decoder = CODEC.stream_decoder(WIRE)
    events = decoder.feed(event(chunk(text("Hel"))) + event(FAILURE))
    assert said(events) == "Hel"
    assert decoder.error is not None
    assert (decoder.error.kind, decoder.error.partial_text) == ("overloaded", "Hel")


LIMITED = {
    "error": {
        "code": 429,
        "message": "Slow down.",
        "status": "RESOURCE_EXHAUSTED",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}],
    }
}
BAD_KEY = {"error": {"code": 400, "message": "API key not valid. Pass a valid one.", "status": "INVALID_ARGUMENT"}}
DAILY = {"error": {"code": 429, "message": "x", "status": "RESOURCE_EXHAUSTED", "details": [{"quotaId": "NPerDay"}]}}


@pytest.mark.parametrize(
    ("error", "kind", "wait"),
    [(LIMITED, "rate_limit", 34.5), (BAD_KEY, "auth", None), (DAILY, "quota", None)],
    ids=["limited", "key", "daily"],
)
def test_details_of_an_error_count_wherever_it_stands(error: Any, kind: str, wait: float | None) -> None:
    whole = chunk(text("a"))
    places = [
        lambda: decode(json.dumps(error).encode()),
        lambda: decode(json.dumps([error]).encode()),
        lambda: decode(json.dumps([whole, error]).encode()),
        lambda: play(event(whole) + event(error)),
        lambda: play(event(whole) + event([error])),
        lambda: play(b"event: error\n" + event(error)),
        lambda: play(event({**whole, **error})),
    ]
    for place in places:
        with pytest.raises(ProviderError) as caught:
            place()
        assert (caught.value.kind, caught.value.retry_after) == (kind, wait)
        assert caught.value.retryable == (kind == "rate_limit")


def failure(status: str, code: int, message: str, **detail: Any) -> bytes:
    return json.dumps({"error": {"code": code, "message": message, "status": status, "details": [detail]}}).encode()


@pytest.mark.parametrize(
    ("code", "data", "kind", "retryable", "wait"),
    [
        (429, failure("RESOURCE_EXHAUSTED", 429, "Too many.", retryDelay="34s"), "rate_limit", True, 34.0),
        (
            429,
            failure("RESOURCE_EXHAUSTED", 429, "x", violations=[{"quotaId": "RequestsPerDay"}]),
            "quota",
            False,
            None,
        ),
        (429, failure("RESOURCE_EXHAUSTED", 429, "Please retry in 20.5s."), "rate_limit", True, 20.5),
        (429, failure("RESOURCE_EXHAUSTED", 429, "Exceeded: requests, limit: 0, model: m"), "quota", False, None),
        (429, failure("RESOURCE_EXHAUSTED", 429, "Exceeded: requests, limit: 0.5"), "rate_limit", True, None),
        (429, failure("RESOURCE_EXHAUSTED", 429, "Quota exceeded: requests per day"), "quota", False, None),
        (429, b"[" + failure("RESOURCE_EXHAUSTED", 429, "x", retryDelay="3s") + b"]", "rate_limit", True, 3.0),
        (400, failure("INVALID_ARGUMENT", 400, "API key expired.", reason="API_KEY_INVALID"), "auth", False, None),
        (400, failure("INVALID_ARGUMENT", 400, "API key not valid."), "auth", False, None),
        (401, failure("UNAUTHENTICATED", 401, "no"), "auth", False, None),
        (403, failure("PERMISSION_DENIED", 403, "no"), "permission", False, None),
        (404, failure("NOT_FOUND", 404, "models/x is not found"), "not_found", False, None),
        (
            400,
            failure(
                "INVALID_ARGUMENT", 400, "The input token count (9) exceeds the maximum number of tokens allowed (8)."
            ),
            "context_length",
            False,
            None,
        ),
        (400, failure("INVALID_ARGUMENT", 400, "Bad."), "invalid_request", False, None),
        (500, failure("INTERNAL", 500, "x"), "server", True, None),
        (503, failure("UNAVAILABLE", 503, "overloaded"), "overloaded", True, None),
        (504, failure("DEADLINE_EXCEEDED", 504, "x"), "timeout", True, None),
        (502, b"<html>bad gateway</html>", "server", True, None),
    ],
)
def test_refusals_have_their_kind(code: int, data: bytes, kind: str, retryable: bool, wait: float | None) -> None:
    error = CODEC.decode_error(code, data)
    assert (error.kind, error.retryable, error.retry_after, error.status) == (kind, retryable, wait, code)


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b'{"candidates": 5}', b'{"candidates": []}', b"<html>", b'"text"', b"null"],
    ids=repr,
)
def test_body_without_an_answer_is_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(data)


def test_characters_cut_in_half_are_put_together() -> None:
    halves = [text("\ud83d"), text("\ude00!")]
    events, response = play(stream_of(*halves))
    assert (said(events), response.text) == ("\U0001f600!", "\U0001f600!")
    assert "\ufffd" in decode(body(text("a\ud83d"))).text


@pytest.mark.parametrize("thinking", [False, True], ids=["text", "thought"])
def test_half_a_character_at_the_end_is_replaced(thinking: bool) -> None:
    events, response = play(stream_of(text("a", thought=thinking), text("\ud83d", thought=thinking)))
    told = thought(events) if thinking else said(events)
    assert told == "a\ufffd"
    assert (response.message.reasoning if thinking else response.text) == told


def test_events_without_blank_lines_between_them_are_told_apart() -> None:
    data = stream_of(text("Hel"), text("lo"), text("!")).replace(b"\r\n\r\n", b"\n") + b"\n"
    events, response = play(data)
    assert (said(events), response.text, response.finish_reason) == ("Hello!", "Hello!", "stop")


def test_part_that_is_not_in_a_list_is_read() -> None:
    value = {"candidates": [{"content": {"parts": text("Hello")}, "finishReason": "STOP"}]}
    assert decode(json.dumps(value).encode()).text == "Hello"


def test_calls_of_one_reply_are_capped() -> None:
    with pytest.raises(DecodeError, match="more than 1024"):
        decode(body(*[call({})] * 1025))


def test_list_of_chunks_nested_without_end_is_too_deep() -> None:
    with pytest.raises(DecodeError):
        decode(b"[" + b'{"candidates":' + b"[" * 100_000 + b"]" * 100_000 + b"}]")


def test_raw_is_kept_when_asked_for() -> None:
    keeping = GeminiCodec(keep_raw=True)
    assert decode(body(text("x")), keeping).raw == body(text("x"))
    raw = play(stream_of(text("a"), text("b")), codec=keeping)[1].raw
    assert raw is not None
    assert raw.count(b"\n") == 1


BODY = body(
    text("hm", "s", thought=True),
    text("晴 \U0001f600"),
    CODE,
    call({"a": [1, {"b": None}]}, signature="s"),
    call({}, "sub"),
)
STREAM = stream_of(text("hm", thought=True), text("晴 "), text("x", "s"), call({"a": 1}, signature="s"))
SMALL = GeminiCodec(max_event_bytes=200)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
strange_parts = st.fixed_dictionaries(
    {},
    optional={
        "text": st.sampled_from(["", "a", "\ud83d"]) | json_values,
        "thought": st.booleans() | json_values,
        "thoughtSignature": st.sampled_from(["s", ""]) | json_values,
        "functionCall": st.fixed_dictionaries(
            {}, optional={"name": st.sampled_from(["f", ""]) | json_values, "args": json_values, "id": json_values}
        )
        | json_values,
    },
)
strange_chunks = st.fixed_dictionaries(
    {},
    optional={
        "candidates": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "index": st.sampled_from([0, 1]) | json_values,
                    "content": st.fixed_dictionaries(
                        {}, optional={"parts": st.lists(strange_parts, max_size=3) | json_values}
                    )
                    | json_values,
                    "finishReason": st.sampled_from(["STOP", "MAX_TOKENS"]) | json_values,
                },
            )
            | json_values,
            max_size=2,
        )
        | json_values,
        "usageMetadata": st.fixed_dictionaries({}, optional={"promptTokenCount": json_values}) | json_values,
        "promptFeedback": st.fixed_dictionaries({}, optional={"blockReason": json_values}) | json_values,
        "modelVersion": json_values,
        "responseId": json_values,
        "error": json_values,
    },
)


def outcome(data: bytes, codec: GeminiCodec = CODEC) -> None:
    """A response or one of our errors, as a body and as a stream cut in two."""
    with contextlib.suppress(ProviderError):
        assert isinstance(decode(data, codec), ChatResponse)
    for cuts in ([], [len(data) // 2]):
        with contextlib.suppress(ProviderError):
            events, response = play(data, cuts, codec)
            assert said(events) == (response.message.content or "")


@given(st.sampled_from([BODY, STREAM]), edits)
@settings(max_examples=300, deadline=None)
def test_mutated_bytes_end_well(data: bytes, edits: list[tuple[int, bytes]]) -> None:
    outcome(mutate(data, edits))
    outcome(mutate(data, edits), SMALL)


@given(st.sampled_from([BODY, STREAM]), st.integers(0, 2000))
@settings(max_examples=150, deadline=None)
def test_truncated_bytes_end_well(data: bytes, cut: int) -> None:
    outcome(data[:cut])


@given(st.lists(strange_chunks, min_size=1, max_size=3))
@example([{"candidates": [{"content": {"parts": [{"functionCall": None}]}}]}])
@settings(max_examples=300, deadline=None)
def test_strange_chunks_end_well(chunks: list[Any]) -> None:
    outcome(b"".join(event(json.dumps(one).encode()) for one in chunks))
    outcome(json.dumps(chunks).encode())
    outcome(json.dumps(chunks[0]).encode())


def test_nesting_without_end_is_one_of_our_errors() -> None:
    deep = b'{"candidates":' + b"[" * 100_000
    outcome(deep)
    outcome(event(deep))


def test_single_event_is_capped() -> None:
    decoder = SMALL.stream_decoder(WIRE)
    decoder.feed(b"data: " + b"x" * 1000)
    assert decoder.error is not None
