"""What the codecs share: arguments, ids, names, tolerant JSON."""

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.codecs.shared import (
    LegalIds,
    as_int,
    decode_json,
    encode_json,
    excerpt,
    legal_names,
    mend_surrogates,
    parse_arguments,
    with_distinct_ids,
)
from agentcore.errors import DecodeError
from agentcore.messages import ToolCall

ANY: "msgspec.json.Decoder[dict[str, Any]]" = msgspec.json.Decoder(dict[str, Any])


@pytest.mark.parametrize(
    ("raw", "args", "kept"),
    [
        (None, {}, None),
        ("", {}, None),
        (" \n", {}, None),
        ("null", {}, None),
        ("{}", {}, None),
        ('{"a":1}', {"a": 1}, None),
        ({"a": 1}, {"a": 1}, None),
        (json.dumps('{"a":1}'), {"a": 1}, None),
        (json.dumps(json.dumps('{"a":1}')), {}, json.dumps(json.dumps('{"a":1}'))),
        ('"text"', {}, '"text"'),
        ('["a"]', {}, '["a"]'),
        (["a"], {}, '["a"]'),
        ("3", {}, "3"),
        (3, {}, "3"),
        ("{'a': 1}", {}, "{'a': 1}"),
        ('{"a":1', {}, '{"a":1'),
        ('{"a":NaN}', {}, '{"a":NaN}'),
        ('{"a":"}{"}', {"a": "}{"}, None),
        ('{"a":"\\ud83d"}', {"a": "\ufffd"}, None),  # a lone half cannot be stored or sent
        ('{"a":"\\ud83d\\ude00"}', {"a": "😀"}, None),
        ('{"a":"\ud83d\ude00"}', {"a": "😀"}, None),
        ("{'a':'\ud83d'}", {}, "{'a':'\ufffd'}"),
        ("[" * 5000, {}, "[" * 5000),
    ],
    ids=str,
)
def test_arguments_are_read_or_kept_never_guessed(raw: object, args: dict[str, Any], kept: str | None) -> None:
    assert parse_arguments(raw) == (args, kept)


def test_calls_without_or_with_repeated_ids_get_their_own() -> None:
    calls = [ToolCall("x", "f", {"a": 1}), ToolCall("x", "f", {"a": 2}), ToolCall("", "g"), ToolCall("", "g")]
    ids = [call.id for call in with_distinct_ids(calls, "r1")]
    assert ids[0] == "x"
    assert len(set(ids)) == 4
    assert all(ids)
    assert ids == [call.id for call in with_distinct_ids(calls, "r1")]
    assert with_distinct_ids([ToolCall("", "f")], "r1") != with_distinct_ids([ToolCall("", "f")], "r2")


def test_ids_on_the_wire_are_legal_and_never_repeat() -> None:
    ids = LegalIds(r"[a-z0-9_]+", 10)
    seen = []
    for call_id in ("abc", "abc", "x" * 50, "A B", "abc"):
        ids.open_batch([ToolCall(call_id, "f")])
        seen.append(ids[call_id])
    assert seen[0] == "abc"
    assert len(set(seen)) == 5
    assert all(len(one) <= 10 and one.replace("_", "a").isalnum() for one in seen)


@given(st.lists(st.text(max_size=70), max_size=6))
def test_names_on_the_wire_are_legal_and_differ(names: list[str]) -> None:
    legal = legal_names(names)
    assert set(legal) == set(names)
    assert len(set(legal.values())) == len(set(names))
    for wire in legal.values():
        assert 0 < len(wire) <= 64
        assert all(c.isascii() and (c.isalnum() or c in "_-") for c in wire)


@given(st.lists(st.text("aZ_-3.", max_size=70), max_size=6))
def test_names_keep_to_a_services_own_rule(names: list[str]) -> None:
    rule = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
    legal = legal_names(names, legal_name=rule)
    assert len(set(legal.values())) == len(set(names))
    assert all(rule.fullmatch(wire) for wire in legal.values())
    assert all(legal[name] == name for name in names if rule.fullmatch(name))


def test_legal_names_keep_themselves() -> None:
    assert legal_names(["a.b", "a_b", "f"]) | {"a.b": ""} == {"a.b": "", "a_b": "a_b", "f": "f"}


@pytest.mark.parametrize(
    ("value", "count"),
    [(3, 3), (3.0, 3), ("3", 3), (3.5, None), ("x", None), (True, None), (None, None), ("9" * 30, None)],
    ids=repr,
)
def test_counts_are_read_as_meant(value: object, count: int | None) -> None:
    assert as_int(value) == count


def test_json_with_a_mark_or_half_characters_is_read() -> None:
    assert decode_json(b'\xef\xbb\xbf{"a":1}', ANY, dict) == {"a": 1}
    assert decode_json(b'{"a":"\\ud83d"}', ANY, dict, mend=True) == {"a": "\ufffd"}
    assert decode_json(b'{"a":"\\ud83d"}', ANY, dict) == {"a": "\ud83d"}
    assert decode_json(b'{"a":"\xff"}', ANY, dict) == {"a": "\ufffd"}


def test_figure_that_is_no_number_does_not_cost_the_answer() -> None:
    assert decode_json(b'{"a":"x","logprob":NaN,"p":-Infinity}', ANY, dict) == {"a": "x", "logprob": None, "p": None}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"x" * 500, "not JSON: " + "x" * 200 + "…"),
        (b"<!DOCTYPE html><p>hi", "HTML"),
        (b"", "(empty)"),
        (b"[1]", "unexpected shape"),
        (b'{"a":' * 3000 + b"1" + b"}" * 3000, "nested too deeply"),
    ],
    ids=["text", "html", "empty", "list", "deep"],
)
def test_what_cannot_be_read_is_shown_shortly(data: bytes, words: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_json(data, ANY, dict)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "mended"), [("a", "a"), ("\ud83d\ude00", "😀"), ("a\ud83d", "a\ufffd"), ("\ude00b", "\ufffdb")]
)
def test_surrogates_are_mended(text: str, mended: str) -> None:
    assert mend_surrogates(text) == mended
    assert json.loads(encode_json({"k\ud83d": [text]}))["k\ufffd"] == [mended]


def test_excerpt_is_one_short_line() -> None:
    assert excerpt("a\n\n b") == "a b"
    assert len(excerpt("x" * 1000)) == 201


def test_number_beyond_all_numbers_is_not_guessed() -> None:
    assert parse_arguments('{"a":1e999}') == ({}, '{"a":1e999}')
    assert decode_json(b'{"a":1e999,"b":1.5}', ANY, dict) == {"a": None, "b": 1.5}
