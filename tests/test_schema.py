"""Types as JSON Schema, values as types, and errors a model can act on."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

import attrs
import msgspec
import pydantic
import pytest

from agentcore.schema import convert_value, describe_error, schema_of, strict_schema


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclass
class Box:
    at: Point
    color: Color = Color.RED


class Row(TypedDict):
    name: str


@attrs.define
class Pair:
    a: int
    b: str


class Item(pydantic.BaseModel):
    item_id: int = pydantic.Field(alias="itemId")
    when: datetime | None = None


class Shelf(pydantic.BaseModel):
    items: list[Item]


class Tree(msgspec.Struct):
    value: int
    children: "list[Tree]" = []


@pytest.mark.parametrize(
    ("type_", "where", "expected"),
    [
        (Point, "properties.x.type", "integer"),
        (Box, "properties.at.properties.x.type", "integer"),
        (Row, "properties.name.type", "string"),
        (Pair, "properties.b.type", "string"),
        (Item, "properties.itemId.type", "integer"),
        (Shelf, "properties.items.items.properties.itemId.type", "integer"),
        (list[Item], "items.properties.itemId.type", "integer"),
        (Literal["a", "b"], "enum", ["a", "b"]),
        (Color, "enum", ["blue", "red"]),
        (Annotated[int, msgspec.Meta(ge=1)], "minimum", 1),
    ],
    ids=str,
)
def test_schema_is_written_out(type_: Any, where: str, expected: Any) -> None:
    node: Any = schema_of(type_)
    assert "$ref" not in str(node)
    for step in where.split("."):
        node = node[step]
    assert node == expected


def test_recursive_type_keeps_its_references() -> None:
    schema = schema_of(Tree)
    assert schema["type"] == "object"
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert "Tree" in schema["$defs"]


def test_type_without_json_form_is_refused() -> None:
    with pytest.raises((TypeError, NotImplementedError)):
        schema_of(object)


def test_values_are_converted_strictly() -> None:
    assert convert_value({"at": {"x": 1}, "color": "blue"}, Box) == Box(Point(1), Color.BLUE)
    assert convert_value({"items": [{"itemId": 1}]}, Shelf).items[0].item_id == 1
    assert convert_value([{"itemId": 1}], list[Item])[0].item_id == 1
    assert convert_value(Item(itemId=2), Item).item_id == 2
    with pytest.raises(msgspec.ValidationError):
        convert_value({"x": "1"}, Point)


@pytest.mark.parametrize(
    ("value", "type_", "words"),
    [
        ({"at": {"x": "one"}}, Box, "Expected `int`, got `str` at `at.x`"),
        ({}, Point, "missing required field `x`"),
        ([{"x": 1}, {}], list[Point], "`[1]`"),
        ({"items": [{"itemId": "no"}]}, Shelf, "at `items.0.itemId`"),
        ([{"itemId": "no"}], list[Item], "valid integer"),
    ],
    ids=["nested", "missing", "list", "pydantic", "pydantic-nested"],
)
def test_error_says_what_and_where(value: Any, type_: Any, words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        convert_value(value, type_)
    assert words in describe_error(caught.value)


def test_strict_schema_requires_everything_and_lets_the_optional_be_null() -> None:
    schema = {
        "type": "object",
        "properties": {
            "room": {"type": "string"},
            "notes": {"type": "string", "default": ""},
            "when": {"type": "object", "properties": {"day": {"type": "string"}}},
            "tags": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "kind": {"enum": ["a"]},
            "many": {"type": ["string", "null"]},
        },
        "required": ["room"],
    }
    strict = strict_schema(schema)
    assert strict is not None
    assert strict["required"] == list(schema["properties"])
    assert strict["additionalProperties"] is False
    assert strict["properties"]["room"] == {"type": "string"}
    assert strict["properties"]["notes"] == {"type": ["string", "null"]}
    assert strict["properties"]["when"]["type"] == ["object", "null"]
    assert strict["properties"]["when"]["required"] == ["day"]
    assert strict["properties"]["tags"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert strict["properties"]["kind"] == {"anyOf": [{"enum": ["a"]}, {"type": "null"}]}
    assert "default" in schema["properties"]["notes"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": True}}},
    ],
    ids=["free", "mapping", "nested"],
)
def test_free_form_object_cannot_be_strict(schema: dict[str, Any]) -> None:
    assert strict_schema(schema) is None


def test_object_without_properties_can_be_strict_when_closed() -> None:
    assert strict_schema({"type": "object", "properties": {}}) is not None
    assert strict_schema(schema_of(Point)) is not None
