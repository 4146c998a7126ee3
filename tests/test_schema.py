"""Types as JSON Schema, values as types, and errors a model can act on."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, TypedDict

import attrs
import msgspec
import pydantic
import pytest

from agentcore.schema import convert_value, describe_error, inline_references, schema_of, strict_schema


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
        ({"items": [{"itemId": "no"}]}, Shelf, "at `items[0].itemId`"),
        ([{"itemId": "no"}], list[Item], "unable to parse string as an integer at `[0].itemId`"),
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


def object_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {}, "additionalProperties": True},
        object_of(a={"type": "object", "additionalProperties": True}),
        object_of(a={"type": "array", "items": {"type": "object"}}),
        object_of(a={"anyOf": [{"type": "object"}, {"type": "null"}]}),
        object_of(a={"type": ["object", "null"]}),
        {**object_of(a={"$ref": "#/$defs/A"}), "$defs": {"A": {"type": "object"}}},
        object_of(a={}),
        object_of(a={"description": "anything"}),
        object_of(a={"type": "array"}),
        object_of(a={"type": "array", "prefixItems": [{"type": "string"}], "items": False}),
        object_of(a={"allOf": [{"type": "string"}]}),
        {"type": "array", "items": {"type": "string"}},
        {"anyOf": [object_of(a={"type": "string"})]},
        schema_of(dict[str, Any]),
        schema_of(dict[str, int]),
    ],
    ids=lambda schema: str(schema)[:60],
)
def test_what_strict_rules_do_not_know_cannot_be_strict(schema: dict[str, Any]) -> None:
    assert strict_schema(schema) is None


def test_object_without_properties_can_be_strict_when_closed() -> None:
    assert strict_schema({"type": "object", "properties": {}}) is not None
    assert strict_schema(schema_of(Point)) is not None


def test_strict_schema_drops_what_strict_rules_refuse_beside_a_reference() -> None:
    schema = schema_of(Tree)
    schema["properties"]["children"]["items"]["description"] = "a branch"
    strict = strict_schema(schema)
    assert strict is not None
    children = strict["properties"]["children"]
    assert (children["type"], children["items"]) == (["array", "null"], {"$ref": "#/$defs/Tree"})
    assert "default" not in children
    assert strict["$defs"]["Tree"]["required"] == ["value", "children"]


def test_strict_schema_says_any_of_for_one_of() -> None:
    strict = strict_schema(schema_of(Zoo))
    assert strict is not None
    assert [one["title"] for one in strict["properties"]["pet"]["anyOf"]] == ["Cat", "Dog"]
    assert "oneOf" not in str(strict)


def test_strict_rules_leave_property_names_alone() -> None:
    schema = object_of(default={"type": "string"}, type={"type": "string"}, items={"type": "string"})
    assert strict_schema(schema) == {**schema, "additionalProperties": False}


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


class Zoo(pydantic.BaseModel):
    pet: Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]


class Meow(msgspec.Struct, tag="meow"):
    pass


class Bark(msgspec.Struct, tag="bark"):
    pass


class Cage(msgspec.Struct):
    inside: Meow | Bark


class Node(pydantic.BaseModel):
    value: int
    children: list["Node"] = []


class Wood(msgspec.Struct):
    trees: list[Tree]
    nodes: list[Node]
    first: Node
    item: Item


@pytest.mark.parametrize("type_", [Zoo, Cage], ids=["pydantic", "msgspec"])
def test_union_that_is_written_out_points_at_nothing(type_: Any) -> None:
    assert "$defs" not in str(schema_of(type_))
    assert "discriminator" not in str(schema_of(type_))


def references(node: Any) -> set[str]:
    if isinstance(node, list):
        return set().union(*map(references, node))
    if not isinstance(node, dict):
        return set()
    return set().union(*map(references, node.values())) | (
        {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
    )


@pytest.mark.parametrize("type_", [Tree, Node, list[Node], Node | None, Wood, dict[str, Node]], ids=str)
def test_every_reference_points_at_a_definition(type_: Any) -> None:
    schema = schema_of(type_)
    known = {f"#/$defs/{name}" for name in schema["$defs"]}
    assert references(schema)
    assert references(schema) <= known
    assert str(schema).count("'$defs'") == 1


def test_other_types_of_one_name_are_told_apart() -> None:
    def recursive(of: str) -> dict[str, Any]:
        node = {"type": "object", "properties": {"x": {"type": of}, "next": {"$ref": "#/$defs/N"}}}
        return {"$ref": "#/$defs/N", "$defs": {"N": node}}

    schema = inline_references(object_of(a=recursive("string"), b=recursive("integer"), c=recursive("string")))
    properties, definitions = schema["properties"], schema["$defs"]
    assert properties["a"] == properties["c"] == {"$ref": "#/$defs/N"}
    assert properties["b"] == {"$ref": "#/$defs/N_2"}
    assert definitions["N_2"]["properties"] == {"x": {"type": "integer"}, "next": {"$ref": "#/$defs/N_2"}}
    assert definitions["N"]["properties"]["next"] == {"$ref": "#/$defs/N"}


def test_reference_keeps_what_stands_beside_it() -> None:
    schema = inline_references(
        {**object_of(a={"$ref": "#/$defs/A", "description": "mine"}), "$defs": {"A": {"type": "string", "title": "A"}}}
    )
    assert schema == object_of(a={"type": "string", "title": "A", "description": "mine"})


def test_place_of_an_error_goes_through_types_of_every_kind() -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        convert_value({"trees": [], "item": {"itemId": 1}, "first": {"value": 1}, "nodes": [{"value": "x"}]}, Wood)
    assert describe_error(caught.value).endswith("at `nodes[0].value`")


def test_number_of_problems_of_a_model_is_told() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\(and 1 more\)"):
        convert_value({"kind": "x", "lives": "many"}, Lives)


class Lives(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int


def test_values_of_text_like_types_are_made_of_text() -> None:
    assert convert_value("/a", PurePosixPath) == PurePosixPath("/a")
    assert schema_of(list[PurePosixPath]) == {"type": "array", "items": {"type": "string"}}
    with pytest.raises(msgspec.ValidationError, match=r"at `\$\[0\]`"):
        convert_value(["no address"], list[IPv4Address])
