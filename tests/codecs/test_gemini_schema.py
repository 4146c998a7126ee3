"""Schemas for Gemini: said in full, and references left alone."""

from typing import Any

import pydantic
import pytest

from agentcore.chat import ToolDefinition
from agentcore.codecs.gemini_schema import declaration, fitting_schema
from agentcore.messages import UserMessage
from tests.support.gemini_wire import encode

POINT = {"type": "object", "properties": {"x": {"type": "integer"}}}


class Leaf(pydantic.BaseModel):
    size: int


class Tree(pydantic.BaseModel):
    leaf: Leaf = pydantic.Field(description="the first leaf")
    children: list["Tree"] = []


def references(node: Any) -> list[dict[str, Any]]:
    """Every node of a schema that refers to another."""
    if isinstance(node, list):
        return [found for item in node for found in references(item)]
    if not isinstance(node, dict):
        return []
    own = [node] if isinstance(node.get("$ref"), str) else []
    return own + [found for value in node.values() for found in references(value)]


@pytest.mark.parametrize(
    "parameters",
    [{}, {"type": "object"}, {"type": "object", "properties": {}, "required": [], "additionalProperties": False}],
    ids=str,
)
def test_tool_that_takes_nothing_has_no_schema(parameters: dict[str, Any]) -> None:
    assert declaration(ToolDefinition("f", "Do.", parameters), {}) == {"name": "f", "description": "Do."}


@pytest.mark.parametrize(
    ("parameters", "sent"),
    [
        (POINT, POINT),
        ({"properties": {"x": {}}}, {"type": "object", "properties": {"x": {}}}),
        ({"additionalProperties": True}, {"type": "object", "additionalProperties": True}),
        ({"anyOf": [POINT]}, {"type": "object", "anyOf": [POINT]}),
        ({"$ref": "#/$defs/P", "$defs": {"P": POINT}}, {**POINT, "$defs": {"P": POINT}}),
        ({"$ref": "https://elsewhere/p.json"}, {"$ref": "https://elsewhere/p.json"}),
        ({"$ref": "#/$defs/P"}, {"$ref": "#/$defs/P"}),
    ],
    ids=["object", "untyped", "anything", "alternatives", "reference", "elsewhere", "dangling"],
)
def test_what_a_tool_takes_is_said_in_full(parameters: dict[str, Any], sent: dict[str, Any]) -> None:
    made = declaration(ToolDefinition("f", "", parameters), {"f": "wire_f"})
    assert made == {"name": "wire_f", "parametersJsonSchema": sent}


@pytest.mark.parametrize(
    ("schema", "fitting"),
    [
        (
            {"properties": {"a": {"$ref": "#/$defs/P", "description": "d"}}},
            {"properties": {"a": {"description": "d", "anyOf": [{"$ref": "#/$defs/P"}]}}},
        ),
        (
            {"items": [{"$ref": "#/$defs/P", "title": "t"}]},
            {"items": [{"title": "t", "anyOf": [{"$ref": "#/$defs/P"}]}]},
        ),
        (
            {"properties": {"default": {"$ref": "#/$defs/P", "title": "t"}}},
            {"properties": {"default": {"title": "t", "anyOf": [{"$ref": "#/$defs/P"}]}}},
        ),
    ],
    ids=["property", "list", "property-called-default"],
)
def test_reference_with_words_beside_it_becomes_an_alternative(schema: Any, fitting: Any) -> None:
    assert fitting_schema(schema) == fitting


@pytest.mark.parametrize(
    "schema",
    [
        POINT,
        {"properties": {"a": {"$ref": "#/$defs/P"}}, "$defs": {"P": POINT}},
        {"properties": {"$ref": {"type": "string", "title": "a property of that name"}}},
        {"default": {"$ref": "data", "x": 1}},
        {"$ref": "#/$defs/P", "anyOf": [POINT]},
    ],
    ids=["none", "alone", "property-of-that-name", "data", "both"],
)
def test_other_schemas_keep_their_meaning_to_the_letter(schema: Any) -> None:
    assert fitting_schema(schema) == schema


def test_models_that_hold_themselves_are_sent_with_lone_references() -> None:
    schema = Tree.model_json_schema()
    tool = ToolDefinition("f", "", schema)
    sent = encode(UserMessage("x"), tools=(tool,), response_format=Tree)
    parameters = sent["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"]
    answer = sent["generationConfig"]["responseJsonSchema"]
    assert parameters["properties"].keys() == {"leaf", "children"}
    for one in (parameters, answer):
        assert references(one)
        assert all(key.startswith("$") for node in references(one) for key in node)
    assert schema == Tree.model_json_schema()
