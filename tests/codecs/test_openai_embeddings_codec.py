"""OpenAI Embeddings: what is sent, what is read, and what is refused."""

import base64
import json
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.codecs.openai_embeddings import OpenAIEmbeddingsCodec
from agentcore.embeddings import EmbeddingOptions
from agentcore.errors import DecodeError, ProviderError
from agentcore.usage import UNKNOWN_USAGE, Usage
from tests.support.embeddings_wire import base64_of, embeddings_body

CODEC = OpenAIEmbeddingsCodec("acme")
NAMED = EmbeddingOptions(model="m")
FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**100), max_value=2.0**100)


def decode(body: Any, count: int = 1, **more: Any) -> Any:
    return CODEC.decode(json.dumps(body).encode(), count, **more)


@pytest.mark.parametrize(
    ("codec", "options", "expected"),
    [
        (CODEC, NAMED, {"model": "m", "input": ["a", "ü"], "encoding_format": "base64"}),
        (OpenAIEmbeddingsCodec(encoding_format="float"), NAMED, {"model": "m", "input": ["a", "ü"]}),
        (
            OpenAIEmbeddingsCodec(encoding_format="float", dimensions_field="output_dimension"),
            EmbeddingOptions(model="m", dimensions=4),
            {"model": "m", "input": ["a", "ü"], "output_dimension": 4},
        ),
        (
            CODEC,
            EmbeddingOptions(model="m", extra={"input_type": "query", "encoding_format": "float"}),
            {"model": "m", "input": ["a", "ü"], "encoding_format": "float", "input_type": "query"},
        ),
    ],
    ids=["base64", "float", "own-field", "extra-has-the-last-word"],
)
def test_request(codec: OpenAIEmbeddingsCodec, options: EmbeddingOptions, expected: Any) -> None:
    wire = codec.encode(["a", "ü"], options)
    assert (wire.path, json.loads(wire.body)) == ("/embeddings", expected)


def test_lone_surrogate_does_not_stop_the_request() -> None:
    assert json.loads(CODEC.encode(["a\ud800"], NAMED).body)["input"] == ["a\ufffd"]


@given(st.lists(st.lists(FLOAT32, min_size=3, max_size=3), min_size=1, max_size=6), st.booleans(), st.randoms())
def test_vectors_come_back_exactly_in_any_order_and_form(
    vectors: list[list[float]], as_base64: bool, chance: Any
) -> None:
    order = list(range(len(vectors)))
    chance.shuffle(order)
    response = decode(embeddings_body(vectors, as_base64=as_base64, order=order), len(vectors))
    assert [vector.tolist() for vector in response.embeddings] == vectors
    assert (response.model, response.usage, response.dimensions) == ("embedder-001", Usage(input_tokens=7), 3)


def test_both_forms_in_one_reply_are_read() -> None:
    data = [{"embedding": [1, 2], "index": 0}, {"embedding": base64_of([3.0, 4.0]), "index": 1}]
    assert decode({"data": data}, 2).embeddings == (array("f", [1, 2]), array("f", [3, 4]))


@pytest.mark.parametrize(
    ("indices", "order"),
    [
        ([None, None, None], [0, 1, 2]),
        ([None, 1, 2], [0, 1, 2]),
        ([2, None, 1], [1, 2, 0]),
        (["1", 0.0, "2"], [1, 0, 2]),
    ],
    ids=["none-at-all", "zero-left-out", "zero-left-out-elsewhere", "texts-and-floats"],
)
def test_order_is_found_from_what_indices_there_are(indices: list[Any], order: list[int]) -> None:
    data = [
        {"embedding": [float(place)]} | ({} if index is None else {"index": index})
        for place, index in enumerate(indices)
    ]
    assert [vector[0] for vector in decode({"data": data}, 3).embeddings] == order


def item(value: Any, **more: Any) -> dict[str, Any]:
    return {"embedding": value, **more}


@pytest.mark.parametrize(
    ("body", "count", "words"),
    [
        ({"data": []}, 1, "0 embeddings came for 1 texts"),
        ({"data": None}, 1, "0 embeddings came for 1 texts"),
        ({"object": "list"}, 2, "0 embeddings came for 2 texts"),
        ({"data": [item([1]), item([2])]}, 1, "2 embeddings came for 1 texts"),
        ({"data": [item([1], index=0), item([2], index=0)]}, 2, "two embeddings have the index 0"),
        ({"data": [item([1]), item([2]), item([3], index=2)]}, 3, "two embeddings have the index 0"),
        ({"data": [item([1], index=0), item([2], index=2)]}, 2, "the index 2, of 2 texts"),
        ({"data": [item([1], index=-1)]}, 1, "the index -1"),
        ({"data": [item([1], index="first")]}, 1, "the index 'first'"),
        ({"data": [item([1, 2], index=0), item([1], index=1)]}, 2, "1 and 2 dimensions"),
        ({"data": [item([])]}, 1, "0 dimensions"),
        ({"data": [item("")]}, 1, "0 dimensions"),
        ({"data": [item(None)]}, 1, "unexpected shape"),
        ({"data": [item([1, None])]}, 1, "unexpected shape"),
        ({"data": [item([[1, 2]])]}, 1, "unexpected shape"),
        ({"data": [{"index": 0}]}, 1, "unexpected shape"),
        ({"data": [item("AAA")]}, 1, "base64"),
        ({"data": [item("!!!!")]}, 1, "base64"),
        ({"data": [item("AAAA")]}, 1, "not a row of float32"),
        ({"data": [item(base64_of([1.0, float("nan")]))]}, 1, "not a number"),
        ({"data": [item(base64_of([1.0, float("-inf")]))]}, 1, "not a number"),
        ({"data": [item([1e39])]}, 1, "not a number"),
        ("text", 1, "unexpected shape"),
    ],
)
def test_reply_that_cannot_be_right_is_refused(body: Any, count: int, words: str) -> None:
    with pytest.raises(DecodeError, match=words) as caught:
        decode(body, count)
    assert caught.value.provider == "acme"


@pytest.mark.parametrize("body", [b"", b"<html>busy</html>", b'{"data":[{"embedding":[NaN]}]}', b'{"data":[{"emb'])
def test_reply_that_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        CODEC.decode(body, 1)


def test_reply_with_too_few_vectors_may_be_asked_for_again() -> None:
    with pytest.raises(DecodeError) as caught:
        decode({"data": []})
    assert caught.value.retryable


def test_dimensions_that_were_ignored_are_told() -> None:
    with pytest.raises(DecodeError, match="256 dimensions were asked for, and the embeddings have 3"):
        decode(embeddings_body([[1, 2, 3]]), dimensions=256)


def test_dimensions_that_were_followed_pass() -> None:
    assert decode(embeddings_body([[1, 2, 3]]), dimensions=3).dimensions == 3


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 5, "total_tokens": 6}, Usage(input_tokens=5)),
        ({"total_tokens": 6}, Usage(input_tokens=6)),
        ({"prompt_tokens": "5"}, Usage(input_tokens=5)),
        ({"prompt_tokens": 0, "total_tokens": 0}, UNKNOWN_USAGE),
        ({}, UNKNOWN_USAGE),
        (None, UNKNOWN_USAGE),
        ("many", UNKNOWN_USAGE),
    ],
    ids=["openai", "total-only", "text", "zero-is-unknown", "empty", "null", "odd"],
)
def test_usage_is_what_the_service_counted(usage: Any, expected: Usage) -> None:
    assert decode(embeddings_body([[1.0]]) | {"usage": usage}).usage == expected


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, "rate_limit"),
        ([{"error": {"message": "no such model", "status": "NOT_FOUND"}}], "not_found"),
        ({"code": 20042, "message": "input batch size 136 > maximum allowed batch size 64", "data": None}, "server"),
    ],
    ids=["openai", "list", "siliconflow"],
)
def test_error_inside_a_good_status_is_that_error(body: Any, kind: str) -> None:
    with pytest.raises(ProviderError) as caught:
        decode(body)
    assert not isinstance(caught.value, DecodeError)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "Too many tokens overall, split into more batches."),
        (400, "Too many tokens in batch. Max is 16384 got 17555"),
        (400, "This model's maximum context length is 8192 tokens, however you requested 9021 tokens"),
        (
            500,
            "input (3001 tokens) is too large to process. increase the physical batch size (current batch size: 512)",
        ),
    ],
    ids=["mistral", "mistral-older", "openai", "llamacpp"],
)
def test_too_long_an_input_is_told_so_and_not_sent_again(status: int, message: str) -> None:
    error = CODEC.decode_error(status, json.dumps({"error": {"message": message, "code": status}}).encode())
    assert (error.kind, error.status, error.retryable) == ("context_length", status, False)


def test_machine_of_the_other_byte_order_turns_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    # Here the bytes are turned the wrong way first, as such a machine would read them.
    monkeypatch.setattr("agentcore.codecs.openai_embeddings.sys.byteorder", "big")
    turned = array("f", [1.5, -2.25])
    turned.byteswap()
    body = {"data": [item(base64.b64encode(turned.tobytes()).decode())]}
    assert decode(body).embeddings[0].tolist() == [1.5, -2.25]
