"""Error bodies of every known shape: the text is found, the kind is right."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.codecs.failures import is_failure, provider_error, read_failure

CASES: list[tuple[str, int | None, Any, str, bool, str]] = [
    ("openai-key", 401, {"error": {"message": "bad key", "code": "invalid_api_key"}}, "auth", False, "bad key"),
    ("forbidden", 403, {"error": {"message": "no"}}, "permission", False, "no"),
    ("no-model", 404, {"error": {"message": "The model `x` does not exist"}}, "not_found", False, "`x`"),
    ("text-error", 404, {"error": "model 'llama9' not found"}, "not_found", False, "llama9"),
    ("timeout", 408, {"error": {"message": "slow"}}, "timeout", True, "slow"),
    ("conflict", 409, {"error": {"message": "again"}}, "server", True, "again"),
    ("rate", 429, {"error": {"message": "slow down", "type": "rate_limit_error"}}, "rate_limit", True, "slow down"),
    ("quota", 429, {"error": {"message": "check billing", "code": "insufficient_quota"}}, "quota", False, "billing"),
    ("quota-words", 429, {"error": {"message": "You exceeded your current quota"}}, "quota", False, "quota"),
    ("balance", 402, {"error": {"message": "Insufficient Balance"}}, "quota", False, "Balance"),
    ("credit", 400, {"error": {"message": "Your credit balance is too low"}}, "quota", False, "credit"),
    ("code-and-text", 429, {"error": "INSUFFICIENT QUOTA", "message": "Too many concurrent requests"}, "rate_limit", True, "concurrent"),
    ("context-openai", 400, {"error": {"message": "m", "code": "context_length_exceeded"}}, "context_length", False, "m"),
    ("context-vllm", 400, {"object": "error", "message": "This model's maximum context length is 4096 tokens.", "code": 400}, "context_length", False, "4096"),
    ("context-llamacpp", 400, {"error": {"code": 400, "message": "request (9216 tokens) exceeds the available context size", "type": "exceed_context_size_error"}}, "context_length", False, "9216"),
    ("context-anthropic", 400, {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 200913 tokens > 200000 maximum"}}, "context_length", False, "200913"),
    ("context-lmstudio", None, {"error": "context window exceeded while generating"}, "context_length", False, "context window"),
    ("context-gemini", 400, {"error": {"code": 400, "message": "The input token count (1200000) exceeds the maximum number of tokens allowed", "status": "INVALID_ARGUMENT"}}, "context_length", False, "1200000"),
    ("filter-azure", 400, {"error": {"message": "filtered", "code": "content_filter"}}, "content_filter", False, "filtered"),
    ("filter-inner", 400, {"error": {"message": "x", "code": None, "innererror": {"code": "ResponsibleAIPolicyViolation"}}}, "content_filter", False, "x"),
    ("detail-list", 422, {"detail": [{"loc": ["body", "messages"], "msg": "Field required"}]}, "invalid_request", False, "body.messages: Field required"),
    ("detail-text", 400, {"detail": "no such thing"}, "invalid_request", False, "no such thing"),
    ("top-level", 400, {"object": "error", "message": "length of 9", "type": "invalid_function_call", "code": "3280"}, "invalid_request", False, "length of 9"),
    ("errors-list", 400, {"errors": [{"message": "first"}]}, "invalid_request", False, "first"),
    ("gemini-list", 429, [{"error": {"code": 429, "message": "Resource exhausted", "status": "RESOURCE_EXHAUSTED"}}], "rate_limit", True, "Resource"),
    ("too-large", 413, {"error": {"type": "request_too_large", "message": "big"}}, "invalid_request", False, "big"),
    ("server", 500, {"error": {"message": "boom"}}, "server", True, "boom"),
    ("gateway", 502, {"error": {"message": "bad"}}, "server", True, "bad"),
    ("busy", 503, {"error": {"message": "busy"}}, "overloaded", True, "busy"),
    ("slow-gateway", 504, {"error": {"message": "late"}}, "timeout", True, "late"),
    ("overloaded", 529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded", True, "Overloaded"),
    ("unknown-5xx", 520, {"x": 1}, "server", True, '"x": 1'),
    ("teapot", 418, {"error": {"message": "no"}}, "invalid_request", False, "no"),
    ("in-200-code", None, {"error": {"message": "Provider returned error", "code": 429}}, "rate_limit", True, "Provider"),
    ("in-200-502", None, {"error": {"code": 502, "message": "Upstream connection closed"}}, "server", True, "Upstream"),
    ("in-200-type", None, {"error": {"type": "overloaded_error", "message": "o"}}, "overloaded", True, "o"),
    ("in-200-text", None, {"error": "something"}, "server", True, "something"),
    ("openrouter-raw", None, {"error": {"code": 400, "message": "Provider returned error", "metadata": {"raw": "upstream words"}}}, "invalid_request", False, "upstream words"),
    ("code-as-text", None, {"error": {"message": "x", "code": "429"}}, "rate_limit", True, "x"),
    ("detail-object", 400, {"detail": {"message": "inner"}}, "invalid_request", False, "inner"),
    ("quota-that-passes", 429, {"error": {"message": "Too many requests per minute", "code": "insufficient_quota"}}, "rate_limit", True, "minute"),
    ("gemini-minute", 429, {"error": {"message": "You exceeded your current quota, check your plan and billing", "status": "RESOURCE_EXHAUSTED"}}, "rate_limit", True, "quota"),
    ("tokens-per-minute", 429, {"error": {"message": "Too many tokens, please wait", "code": "throttling"}}, "rate_limit", True, "tokens"),
    ("dashscope-arrears", 400, {"code": "Arrearage", "message": "Access denied"}, "quota", False, "Access"),
    ("dashscope-rate", 429, {"code": "Throttling.RateQuota", "message": "slow"}, "rate_limit", True, "slow"),
    ("dashscope-filter", 400, {"code": "DataInspectionFailed", "message": "no"}, "content_filter", False, "no"),
    ("camel-key", 401, {"code": "InvalidApiKey", "message": "no"}, "auth", False, "no"),
    ("zhipu-balance", 429, {"error": {"code": "1113", "message": "余额不足"}}, "quota", False, "余额"),
    ("minimax", None, {"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}, "quota", False, "balance"),
    ("minimax-limit", None, {"base_resp": {"status_code": 1039, "status_msg": "m"}}, "rate_limit", True, "m"),
    ("minimax-key", None, {"base_resp": {"status_code": 1004, "status_msg": "m"}}, "auth", False, "m"),
    ("minimax-filter", None, {"base_resp": {"status_code": "1027", "status_msg": "m"}}, "content_filter", False, "m"),
    ("minimax-unknown", None, {"base_resp": {"status_code": "E1", "status_msg": "m"}}, "server", True, "m"),
    ("minimax-fine", None, {"base_resp": {"status_code": 0}, "error": {"message": "m", "code": 500}}, "server", True, "m"),
    ("param-is-no-word", None, {"error": {"message": "bad", "type": "invalid_request_error", "param": "timeout"}}, "invalid_request", False, "bad"),
    ("bare-rate", None, {"error": "Rate limit reached"}, "rate_limit", True, "Rate"),
    ("bare-model", None, {"error": "model 'llama9' not found"}, "not_found", False, "llama9"),
    ("bare-key", None, {"message": "Invalid API key"}, "auth", False, "key"),
    ("bare-timeout", None, {"error": "upstream timed out"}, "timeout", True, "timed"),
    ("bare-busy", None, {"error": "The engine is currently overloaded"}, "overloaded", True, "engine"),
    ("loc-of-text", 422, {"detail": [{"loc": "body", "msg": "m"}, {"loc": 3, "msg": "n"}, 4]}, "invalid_request", False, "body: m; n; 4"),
    ("error-list", 400, {"error": [{"message": "inside"}]}, "invalid_request", False, "inside"),
    ("status-code-outside", None, {"error": {"message": "m"}, "status_code": 429}, "rate_limit", True, "m"),
    ("half-character", 500, {"error": {"message": "a\ud83d"}}, "server", True, "a\ufffd"),
    ("filter-words", 400, {"error": {"message": "The response was filtered due to Azure's content management policy"}}, "content_filter", False, "policy"),
    ("engine-503", 503, {"error": {"message": "died", "type": "server_error"}}, "server", True, "died"),
    ("no-text", 400, {"error": {}}, "invalid_request", False, "{"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "value", "kind", "retryable", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_error_body_is_understood(status: int | None, value: Any, kind: str, retryable: bool, words: str) -> None:
    error = provider_error("p", json.dumps(value).encode(), status=status)
    assert (error.kind, error.retryable, error.status) == (kind, retryable, status)
    assert words in error.message


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"<html><head><title>502 Bad\n Gateway</title></head>" + b"<p>x</p>" * 1000, "an HTML page: 502 Bad Gateway"),
        (b"<!DOCTYPE html><p>Sign <b>in</b></p>", "an HTML page: Sign in"),
        (b"upstream connect error", "upstream connect error"),
        (b"", "an empty body with status 502"),
        (b'"text"', "text"),
        (b"3", "3"),
        (b"\xff\xfe", "\ufffd"),
        (b"[" * 100_000, "[["),
    ],
    ids=["title", "page", "text", "empty", "json-text", "number", "binary", "deep"],
)
def test_body_of_another_kind_is_shown_shortly(data: bytes, words: str) -> None:
    error = provider_error("p", data, status=502)
    assert (error.kind, error.retryable) == ("server", True)
    assert words in error.message
    assert len(str(error)) < 400


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"error": {"message": "m"}}, True), ({"error": None}, False), ({"object": "error"}, True), ({"detail": "d"}, True),
        ([{"error": "x"}], True), ([], False), ("error", False), ({"id": "x", "choices": []}, False),
        ({"base_resp": {"status_code": 0}}, False), ({"base_resp": {"status_code": 1004}}, True), ({"base_resp": 1}, False),
    ],
    ids=str,
)  # fmt: skip
def test_value_that_says_why_there_is_no_answer_is_told_from_others(value: Any, told: bool) -> None:
    assert is_failure(value) is told


@given(st.binary(max_size=80))
def test_any_body_gives_an_error(data: bytes) -> None:
    assert read_failure(data, 500).message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["error", "message", "detail", "code", "type", "metadata", "errors", "raw", "loc", "msg"]), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(json_values, st.sampled_from([None, 200, 400, 401, 429, 500, 529]))
def test_any_json_gives_an_error(value: Any, status: int | None) -> None:
    error = provider_error("p", json.dumps(value).encode(), status=status)
    assert error.message
    assert len(str(error)) < 450
