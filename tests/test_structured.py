"""Structured output: what is asked for, and what is made of the answer."""

import dataclasses
from typing import Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest

from agentcore.chat import ChatResponse
from agentcore.errors import OutputError
from agentcore.exchange import InvokeResult
from agentcore.messages import AssistantMessage
from agentcore.structured import output_schema, parse_output


class City(msgspec.Struct):
    name: str
    people: int


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Row(TypedDict):
    a: int


class Model(pydantic.BaseModel):
    name: str
    tags: list[str] = []


class Tree(msgspec.Struct):
    name: str
    children: list["Tree"] = []


@pytest.mark.parametrize("type_", [City, Point, Row, Model, Tree, dict[str, int]])
def test_object_types_are_asked_for_as_they_are(type_: Any) -> None:
    schema = output_schema(type_)
    assert schema["type"] == "object"
    assert "value" not in schema.get("properties", {})


@pytest.mark.parametrize("type_", [list[City], int, str | int, list[Tree], City | None])
def test_what_is_no_object_is_asked_for_inside_one(type_: Any) -> None:
    schema = output_schema(type_)
    assert schema["type"] == "object"
    assert schema["required"] == ["value"]
    assert list(schema["properties"]) == ["value"]


def test_schema_given_as_such_is_taken_as_it_is() -> None:
    given = {"type": "array", "items": {"type": "string"}}
    assert output_schema(given) == given


@pytest.mark.parametrize(
    ("text", "type_", "expected"),
    [
        ('{"name":"Oslo","people":700000}', City, City("Oslo", 700000)),
        ('\n {"x":1,"y":2}\n', Point, Point(1, 2)),
        ('{"a":1}', Row, {"a": 1}),
        ('{"name":"n","tags":["t"]}', Model, Model(name="n", tags=["t"])),
        ('{"value":[1,2]}', list[int], [1, 2]),
        ("[1,2]", list[int], [1, 2]),
        ('{"value":null}', City | None, None),
        ('{"value":{"name":"Oslo","people":1}}', City | None, City("Oslo", 1)),
        ("7", int, 7),
        ('"words"', str, "words"),
        ('{"value": 3}', dict[str, int], {"value": 3}),
        ('{"value": 3}', Any, {"value": 3}),
        ('```json\n{"x":1,"y":2}\n```', Point, Point(1, 2)),
        ('Here you are:\n```\n{"x":1,"y":2}\n```\nAnything else?', Point, Point(1, 2)),
        ('```json\r\n{"x":1,"y":2}\r\n```', Point, Point(1, 2)),
        ('Sure! {"x":1,"y":2} is the point.', Point, Point(1, 2)),
        ('A set {like this} and then {"x":1,"y":2}', Point, Point(1, 2)),
        ('\ufeff{"x":1,"y":2}', Point, Point(1, 2)),
        ("The list [1, 2]", list[int], [1, 2]),
        ('{"name":"a","children":[{"name":"b"}]}', Tree, Tree("a", [Tree("b")])),
    ],
)
def test_answer_becomes_the_value_that_was_asked_for(text: str, type_: Any, expected: object) -> None:
    assert parse_output(text, type_) == expected


@pytest.mark.parametrize(
    ("text", "type_", "told"),
    [
        ("", City, "no complete JSON value: \\(empty\\)"),
        ("I cannot say.", City, "no complete JSON value: I cannot say."),
        ('{"name":"Oslo","people":"many"}', City, "does not fit City: .*`people`"),
        ('{"name":"Oslo"}', City, "missing required field `people`"),
        ('{"name":"Oslo","peop', City, "no complete JSON value"),
        ('{"rows":[{"a":1},{"a":', Row, "no complete JSON value"),
        ('{"value":["x"]}', list[int], r"`\[0\]`"),
        ('{"tags":[]}', Model, "Field required"),
        ("{" * 5000, City, "no complete JSON value"),
        ('{"a":1' + "[" * 100_000, Row, "no complete JSON value"),
    ],
)
def test_answer_that_does_not_fit_says_what_and_where(text: str, type_: Any, told: str) -> None:
    with pytest.raises(OutputError, match=told) as caught:
        parse_output(text, type_)
    assert caught.value.text == text


def test_bounds_of_a_type_count() -> None:
    small = Annotated[int, msgspec.Meta(le=10)]
    with pytest.raises(OutputError, match="<= 10"):
        parse_output("11", small)


def test_response_and_result_parse_their_text() -> None:
    message = AssistantMessage('{"x":1,"y":2}')
    assert ChatResponse(message, "stop").parse(Point) == Point(1, 2)
    assert InvokeResult(status="completed", turn_id="t", message=message).parse(Point) == Point(1, 2)


def test_type_without_a_json_form_is_refused_when_asked_for() -> None:
    with pytest.raises(TypeError):
        output_schema(object())
