"""What tools give back, as a model reads it."""

import json
from collections import OrderedDict, UserString, deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore.context import ToolContext
from agentcore.messages import ImagePart, TextPart
from agentcore.tools.results import MAX_INLINE_BYTES, UnpresentableResultError, render, shorten


class Color(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: float


class Item(pydantic.BaseModel):
    item_id: int = pydantic.Field(alias="itemId")
    when: datetime


class Name(str):
    __slots__ = ()


class Whole(int):
    pass


class Ratio(float):
    pass


class Size(IntEnum):
    BIG = 2


class Word(StrEnum):
    HI = "hi"


class Pair(NamedTuple):
    a: int
    b: Color


@attrs.define
class Box:
    size: Size
    when: datetime


class Crate(msgspec.Struct):
    item: Item


NOON = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        ("", ""),
        (Name("x"), "x"),
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (10**30, "1" + "0" * 30),
        (1.5, "1.5"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (NOON, "2026-01-02T03:04:05Z"),
        (Decimal("1.10"), "1.10"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Color.RED, "red"),
        ("a\ud83db", "a\ufffdb"),
        ("\ud83d\ude00", "😀"),
        (b"\xff\xfe\x00", "[3 bytes of binary data, base64] //4A"),
        (TextPart("a"), (TextPart("a"),)),
        ([TextPart("a"), ImagePart(url="u")], (TextPart("a"), ImagePart(url="u"))),
        (["look", ImagePart(url="u")], (TextPart("look"), ImagePart(url="u"))),
        ([TextPart("\ud83d")], (TextPart("\ufffd"),)),
        ([], "[]"),
        (Whole(3), "3"),
        (Ratio(1.5), "1.5"),
        (Size.BIG, "2"),
        (Word.HI, "hi"),
        (date(2026, 1, 2), "2026-01-02"),
        (timedelta(seconds=3), "PT3S"),
        (PurePosixPath("/a/b"), "/a/b"),
        (IPv4Address("10.0.0.1"), "10.0.0.1"),
        (Fraction(1, 3), "1/3"),
        (UserString("text"), "text"),
        (bytearray(b"ab"), "[2 bytes of binary data, base64] YWI="),
        (memoryview(b"ab"), "[2 bytes of binary data, base64] YWI="),
        ((1, 2), "[1,2]"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_value_is_rendered(value: Any, content: Any) -> None:
    assert render(value) == content


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Point(1, 2.5), {"x": 1, "y": 2.5}),
        ({3}, [3]),
        ({"城": [Point(1, 2)]}, {"城": [{"x": 1, "y": 2}]}),
        (Item(itemId=7, when=NOON), {"itemId": 7, "when": "2026-01-02T03:04:05Z"}),
        ([Item(itemId=7, when=NOON)], [{"itemId": 7, "when": "2026-01-02T03:04:05Z"}]),
        ({"a": "\ud83d"}, {"a": "\ufffd"}),
        ({"\ud83d": ["\ud83d", ("\ud83d",)]}, {"\ufffd": ["\ufffd", ["\ufffd"]]}),
        (
            {"n": Whole(3), "r": Ratio(1.5), "s": Name("x"), "p": PurePosixPath("/a")},
            {"n": 3, "r": 1.5, "s": "x", "p": "/a"},
        ),
        (deque([1, 2]), [1, 2]),
        (range(3), [0, 1, 2]),
        ({"a": 1}.keys(), ["a"]),
        ({"a": 1}.values(), [1]),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (ToolContext({"a": 1}), {"a": 1}),
        ({None: 1, True: 2, 3: 4}, {"null": 1, "true": 2, "3": 4}),
        (Pair(1, Color.RED), [1, "red"]),
        (Box(Size.BIG, NOON), {"size": 2, "when": "2026-01-02T03:04:05Z"}),
        ([Box(Size.BIG, NOON)], [{"size": 2, "when": "2026-01-02T03:04:05Z"}]),
        (Crate(item=Item(itemId=7, when=NOON)), {"item": {"itemId": 7, "when": "2026-01-02T03:04:05Z"}}),
        ({"raw": b"ab"}, {"raw": "YWI="}),
        ([Point(1, float("nan"))], [{"x": 1, "y": None}]),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_structured_value_is_json(value: Any, plain: Any) -> None:
    content = render(value)
    assert isinstance(content, str)
    assert json.loads(content) == plain


def test_letters_stay_letters() -> None:
    assert render(["北京"]) == '["北京"]'


def endless() -> Iterator[int]:
    yield 1


class Plain:
    pass


class Touchy(pydantic.BaseModel):
    @pydantic.model_serializer
    def write(self) -> Any:
        raise RuntimeError("not now")


class Anything(pydantic.BaseModel):
    model_config = {"arbitrary_types_allowed": True}
    inside: Plain


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Plain(), "Plain"),
        (endless(), "generator"),
        ({(1, Plain()): 2}, "dict"),
        ([Plain()], "list"),
        (["\ud83d", Plain()], "list"),
        (1j, "complex"),
        (Plain, "type"),
        (ValueError("x"), "ValueError"),
        (Touchy(), "Touchy"),
        (Anything(inside=Plain()), "Anything"),
    ],
    ids=["object", "generator", "key", "inside", "after-surrogate", "complex", "class", "exception", "touchy", "model"],
)
def test_value_without_json_form_is_named(value: Any, name: str) -> None:
    with pytest.raises(UnpresentableResultError, match=f"the tool ran, but its result of type {name} has no JSON form"):
        render(value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=[])),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=[])), inner),
    )
)
@settings(max_examples=100, deadline=None)
def test_every_plain_value_is_text_that_can_be_sent(value: Any) -> None:
    content = render(value)
    assert isinstance(content, str)
    content.encode()
    if not isinstance(value, str | float):
        json.loads(content)


def test_nested_too_deeply_is_named() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UnpresentableResultError):
        render(deep)


def test_large_binary_is_refused_in_words() -> None:
    with pytest.raises(UnpresentableResultError, match=f"{MAX_INLINE_BYTES + 1} bytes"):
        render(b"x" * (MAX_INLINE_BYTES + 1))


def test_cut_is_marked_with_how_much() -> None:
    content = shorten("a" * 600 + "b" * 400, 90)
    assert isinstance(content, str)
    assert "[… 910 of 1000 characters cut …]" in content
    assert content.startswith("a" * 60)
    assert content.endswith("b" * 30)
    assert shorten("short", 90) == "short"
    assert shorten("x" * 100, None) == "x" * 100


def test_text_among_parts_is_cut_too() -> None:
    picture = ImagePart(url="u")
    short, shown = shorten((TextPart("x" * 100), picture), 10)
    assert short == TextPart("xxxxxx\n[… 90 of 100 characters cut …]\nxxxx")
    assert shown is picture


def test_struct_of_msgspec_is_json() -> None:
    class S(msgspec.Struct):
        a: int = 1

    assert render(S()) == '{"a":1}'
