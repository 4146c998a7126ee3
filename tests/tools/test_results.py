"""What tools give back, as a model reads it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

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
        ([], "[]"),
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


@pytest.mark.parametrize(
    "value", [Plain(), endless(), {(1, Plain()): 2}, [Plain()]], ids=["object", "generator", "key", "inside"]
)
def test_value_without_json_form_is_named(value: Any) -> None:
    with pytest.raises(UnpresentableResultError, match="the tool ran, but its result of type"):
        render(value)


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
    parts = (TextPart("x" * 100),)
    assert shorten(parts, 10) is parts


def test_struct_of_msgspec_is_json() -> None:
    class S(msgspec.Struct):
        a: int = 1

    assert render(S()) == '{"a":1}'
