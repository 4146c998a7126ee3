"""Server-sent events: every way to write them, cut anywhere."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.codecs.sse import SSEParser
from agentcore.errors import DecodeError

FORMS = [
    ("plain", b"data: a\n\ndata: b\n\n", [("", b"a"), ("", b"b")]),
    ("no-space", b"data:a\n\n", [("", b"a")]),
    ("crlf", b"data: a\r\n\r\ndata: b\r\n\r\n", [("", b"a"), ("", b"b")]),
    ("cr", b"data: a\r\rdata: b\r\r", [("", b"a"), ("", b"b")]),
    ("mixed-ends", b"data: a\r\n\ndata: b\n\r\n", [("", b"a"), ("", b"b")]),
    ("bom", b"\xef\xbb\xbfdata: a\n\n", [("", b"a")]),
    ("comments", b": hi\n\n:\n\ndata: a\n: between\n\n", [("", b"a")]),
    ("blank-lines", b"\n\n\n\ndata: a\n\n\n\n\ndata: b\n\n", [("", b"a"), ("", b"b")]),
    ("event-name", b"event: error\ndata: a\n\n", [("error", b"a")]),
    ("name-after", b"data: a\nevent: ping\n\n", [("ping", b"a")]),
    ("other-fields", b"id: 7\nretry: 3000\nx-foo: bar\ndata: a\n\n", [("", b"a")]),
    ("multi-line", b"data: {\ndata: }\n\n", [("", b"{\n}")]),
    ("empty-data", b"data\n\ndata:\n\n", [("", b""), ("", b"")]),
    ("no-data", b"event: ping\n\nid: 1\n\n", []),
    ("no-last-blank", b"data: a\n\ndata: tail", [("", b"a"), ("", b"tail")]),
    ("colon-in-data", b"data: a: b\n\n", [("", b"a: b")]),
    ("two-spaces", b"data:  a\n\n", [("", b" a")]),
    ("utf-8", "data: 晴 🌤\n\n".encode(), [("", "晴 🌤".encode())]),
    ("crlf-then-lf", b"data: a\r\n\ndata: b\r\n\n", [("", b"a"), ("", b"b")]),
    ("bare-json", b'data: a\n\n{"error": "x"}\n\ndata: b\n\n', [("", b"a"), ("", b'{"error": "x"}'), ("", b"b")]),
    ("mixed-lines", b"data: a\n\nevent: e\ndata: b\n\ndata: c\n\n", [("", b"a"), ("e", b"b"), ("", b"c")]),
    ("nothing", b"", []),
]
forms = pytest.mark.parametrize(("data", "events"), [form[1:] for form in FORMS], ids=[form[0] for form in FORMS])


def parse(*pieces: bytes) -> list[tuple[str, bytes]]:
    parser = SSEParser()
    return [one for piece in pieces for one in parser.feed(piece)] + parser.finish()


@forms
def test_form_is_read(data: bytes, events: list[tuple[str, bytes]]) -> None:
    assert parse(data) == events


@forms
def test_form_is_read_cut_at_every_byte(data: bytes, events: list[tuple[str, bytes]]) -> None:
    for cut in range(len(data) + 1):
        assert parse(data[:cut], data[cut:]) == events
    assert parse(*(data[n : n + 1] for n in range(len(data)))) == events


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=4))
def test_cuts_never_change_what_is_read(data: bytes, cuts: list[int]) -> None:
    borders = [0, *sorted(cuts), len(data)]
    assert parse(*(data[a:b] for a, b in itertools.pairwise(borders))) == parse(data)


def test_event_over_the_cap_is_refused() -> None:
    parser = SSEParser(max_event_bytes=10)
    assert parser.feed(b"data: abc\n\n") == [("", b"abc")]
    with pytest.raises(DecodeError, match="larger than 10 bytes"):
        parser.feed(b"data: abcdefgh")
    with pytest.raises(DecodeError, match="larger than 10 bytes"):
        parser.feed(b"x")
    with pytest.raises(DecodeError, match="larger than 10 bytes"):
        parser.finish()


@pytest.mark.parametrize("after", [b"data: " + b"x" * 50, b"data: " + b"x" * 50 + b"\n\n"], ids=["cut", "whole"])
def test_event_over_the_cap_does_not_cost_those_before_it(after: bytes) -> None:
    parser = SSEParser(max_event_bytes=20)
    assert parser.feed(b"data: a\n\ndata: b\n\n" + after) == [("", b"a"), ("", b"b")]
    with pytest.raises(DecodeError, match="larger than 20 bytes"):
        parser.finish()


def test_many_events_in_one_read_may_be_larger_than_the_cap_together() -> None:
    assert SSEParser(max_event_bytes=10).feed(b"data: abc\n\n" * 9) == [("", b"abc")] * 9


def test_event_of_exactly_the_cap_is_read_however_it_is_cut() -> None:
    data = b"data: abcd\n\n"
    for cut in range(len(data)):
        parser = SSEParser(max_event_bytes=10)
        assert parser.feed(data[:cut]) + parser.feed(data[cut:]) == [("", b"abcd")]


def test_large_event_in_small_reads_is_not_copied_at_each() -> None:
    parser = SSEParser()
    piece, count = b"x" * 100, 100_000  # ten million bytes: copied at every read they would take minutes
    assert parser.feed(b"data: ") == []
    for _ in range(count):
        parser.feed(piece)
    [(_, data)] = parser.feed(b"\n\n")
    assert len(data) == len(piece) * count
