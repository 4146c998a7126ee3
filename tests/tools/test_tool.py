"""@tool: the schema a model is shown, and the arguments a function gets."""

import functools
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from agentcore.context import ToolContext
from agentcore.errors import ConfigurationError
from agentcore.tools.tool import ArgumentError, Tool, tool, tools_by_name

CONTEXT = ToolContext({"user_id": "kim"})


def bind(one: Tool, **args: Any) -> Any:
    return one.bind(args, CONTEXT)()


def test_schema_comes_from_the_signature_and_the_docstring() -> None:
    @tool
    def book(room: str, day: Literal["mon", "tue"], seats: Annotated[int, "how many"] = 2, *, vip: bool = False) -> str:
        """Book a room.

        It is held for an hour.

        Args:
            room: the room's name.
            day: when.
        """
        return f"{room} {day} {seats} {vip}"

    assert (book.name, book.description) == ("book", "Book a room.\n\nIt is held for an hour.")
    assert book.parameters == {
        "type": "object",
        "properties": {
            "room": {"type": "string", "description": "the room's name."},
            "day": {"enum": ["mon", "tue"], "description": "when."},
            "seats": {"type": "integer", "description": "how many", "default": 2},
            "vip": {"type": "boolean", "default": False},
        },
        "required": ["room", "day"],
        "additionalProperties": False,
    }
    assert book("A", "mon") == "A mon 2 False"
    assert bind(book, room="A", day="mon") == "A mon 2 False"
    assert bind(book, room="A", day="mon", seats=3, vip=True) == "A mon 3 True"


@pytest.mark.parametrize(
    "doc",
    [
        "Do it.\n\nArgs:\n    x: the number.\n",
        "Do it.\n\nParameters\n----------\nx : int\n    the number.\n",
        "Do it.\n\n:param x: the number.\n",
    ],
    ids=["google", "numpy", "sphinx"],
)
def test_every_docstring_style_is_read(doc: str) -> None:
    def f(x: int) -> int:
        return x

    f.__doc__ = doc
    one = tool(f)
    assert one.description == "Do it."
    assert one.parameters["properties"]["x"]["description"] == "the number."


def test_options_are_kept() -> None:
    @tool(name="other", description="Else.", timeout=3, retry=2, serial=True, return_direct=True)
    def f() -> None: ...

    assert (f.name, f.description, f.timeout, f.retry, f.serial, f.return_direct) == (
        "other",
        "Else.",
        3,
        2,
        True,
        True,
    )
    assert repr(f) == "Tool(other)"
    assert f.parameters["properties"] == {}


def test_context_is_filled_in_and_never_shown() -> None:
    @tool
    def who(context: ToolContext, greeting: str = "hi") -> str:
        return f"{greeting} {context['user_id']}"

    assert list(who.parameters["properties"]) == ["greeting"]
    assert bind(who) == "hi kim"

    @tool
    def maybe(context: ToolContext | None = None) -> bool:
        return context is not None

    assert maybe.parameters["properties"] == {}
    assert bind(maybe) is True


class Greeter:
    def __init__(self, word: str) -> None:
        self.word = word

    def greet(self, name: str) -> str:
        """Greet."""
        return f"{self.word} {name}"

    @classmethod
    def make(cls, word: str) -> str:
        """Make."""
        return cls(word).word

    async def __call__(self, name: str) -> str:
        """Call."""
        return f"{self.word} {name}"


async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def test_methods_partials_and_objects_are_functions_too() -> None:
    assert bind(Tool(Greeter("hi").greet), name="x") == "hi x"
    assert bind(Tool(Greeter.make), word="x") == "x"
    partial = Tool(functools.partial(add, 1))
    assert (partial.name, partial.is_async, list(partial.parameters["properties"])) == ("add", True, ["b"])
    called = Tool(Greeter("hi"))
    assert (called.name, called.is_async, called.description) == ("Greeter", True, "Call.")


def test_what_a_partial_has_filled_in_is_neither_shown_nor_to_be_set() -> None:
    def query(text: str, key: str, limit: int = 3) -> str:
        return f"{text} {key} {limit}"

    one = Tool(functools.partial(functools.partial(query, key="sk-secret"), limit=1))
    assert list(one.parameters["properties"]) == ["text"]
    assert "sk-secret" not in str(one.parameters)
    assert bind(one, text="a") == "a sk-secret 1"
    with pytest.raises(ArgumentError, match="unknown field `key`"):
        bind(one, text="a", key="mine")


class Silent:
    """What it is for."""

    def __call__(self, x: int) -> int:
        return x


class Cached:
    @functools.lru_cache  # noqa: B019 - that it is an object and no function is the point
    def look(self, x: int) -> int:
        """Look."""
        return x

    @staticmethod
    def still(x: int) -> int:
        """Still."""
        return x


def test_object_without_a_docstring_of_its_call_is_described_by_its_class() -> None:
    assert Tool(Silent()).description == "What it is for."


def test_cached_function_and_static_method_are_functions_too() -> None:
    @tool
    @functools.lru_cache
    def f(x: int) -> int:
        """F."""
        return x

    assert (f.name, f.description, bind(f, x=2)) == ("f", "F.", 2)
    assert bind(Tool(Cached.still), x=2) == 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Tool(Silent), "'Silent' is a class"),
        (lambda: Tool(Greeter.greet), r"'self' has no annotation; make the tool of the bound method"),
        (lambda: Tool(vars(Greeter)["make"]), "below @classmethod"),
        (lambda: Tool(add, timeout=0), "timeout=0 leaves no time"),
        (lambda: Tool(add, timeout=float("nan")), "timeout=nan"),
        (lambda: Tool(add, retry=-1), "retry=-1"),
    ],
    ids=["class", "unbound", "classmethod", "no-time", "nan", "negative-retry"],
)
def test_what_cannot_be_a_tool_is_refused_with_the_cure(make: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()


def test_wrapped_function_shows_its_own_signature() -> None:
    @functools.wraps(add)
    async def wrapper(*args: Any, **kwargs: Any) -> int:
        return await add(*args, **kwargs)

    assert list(Tool(wrapper).parameters["properties"]) == ["a", "b"]


def test_positional_only_parameters_are_given_by_place() -> None:
    @tool
    def f(a: int, b: int = 2, /, c: int = 3) -> tuple[int, int, int]:
        return a, b, c

    assert bind(f, a=1) == (1, 2, 3)
    assert bind(f, a=1, b=5, c=6) == (1, 5, 6)


def test_positional_only_parameter_left_out_keeps_its_default_before_one_that_is_given() -> None:
    @tool
    def f(a: int = 1, b: int = 2, /) -> tuple[int, int]:
        return a, b

    assert bind(f, b=5) == (1, 5)


def test_context_may_stand_anywhere_and_more_than_once() -> None:
    @tool
    def f(context: ToolContext, /, n: int, *, again: Annotated[ToolContext, "hidden"]) -> Any:
        return context is again, n

    assert list(f.parameters["properties"]) == ["n"]
    assert bind(f, n=1) == (True, 1)
    with pytest.raises(ArgumentError, match="unknown field `context`"):
        bind(f, n=1, context={})


def test_string_annotations_may_name_local_types() -> None:
    class Local(msgspec.Struct):
        x: int

    @tool
    def f(value: "Local") -> int:
        return value.x

    assert bind(f, value={"x": 4}) == 4


@dataclass
class Point:
    x: int
    y: int = 0


class Item(pydantic.BaseModel):
    item_id: int = pydantic.Field(alias="itemId")


def test_structured_parameters_arrive_as_their_types() -> None:
    @tool
    def f(at: Point, items: list[Item], unit: Literal["C", "F"] | None = None) -> Any:
        return at, items[0].item_id, unit

    assert f.parameters["properties"]["items"]["items"]["properties"]["itemId"]["type"] == "integer"
    assert bind(f, at={"x": 1}, items=[{"itemId": 7}], unit=None) == (Point(1), 7, None)


class Node(pydantic.BaseModel):
    value: int
    children: list["Node"] = []


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


def test_recursive_model_inside_a_signature_has_its_definition_where_references_point() -> None:
    @tool
    def f(tree: Node, others: list[Node] = []) -> int:  # noqa: B006 - shown as a default
        return tree.children[0].value

    assert f.parameters["properties"]["tree"] == {"$ref": "#/$defs/Node"}
    assert f.parameters["properties"]["others"]["items"] == {"$ref": "#/$defs/Node"}
    assert list(f.parameters["$defs"]) == ["Node"]
    assert bind(f, tree={"value": 1, "children": [{"value": 2}]}) == 2


def test_union_of_models_is_read_by_pydantic() -> None:
    @tool
    def f(pet: Cat | Dog | None = None) -> str:
        return type(pet).__name__

    assert "$ref" not in str(f.parameters)
    assert bind(f, pet={"kind": "dog"}) == "Dog"
    assert bind(f, pet=None) == bind(f) == "NoneType"
    with pytest.raises(ArgumentError, match=r"at `pet\.Cat\.kind`"):
        bind(f, pet={"kind": "bird"})


def test_bounds_and_descriptions_of_pydantic_fields_hold() -> None:
    @tool
    def f(
        n: Annotated[int, pydantic.Field(ge=1, description="how many")],
        names: list[Annotated[str, pydantic.Field(min_length=2)]] | None = None,
    ) -> Any:
        return n, names

    assert f.parameters["properties"]["n"] == {"type": "integer", "minimum": 1, "description": "how many"}
    assert bind(f, n=1, names=["ab"]) == (1, ["ab"])
    with pytest.raises(ArgumentError, match="greater than or equal to 1 at `n`"):
        bind(f, n=0)
    with pytest.raises(ArgumentError, match=r"at `names\[0\]`"):
        bind(f, n=1, names=["a"])


class Doc:
    def __init__(self, documentation: str) -> None:
        self.documentation = documentation


def test_notes_of_annotated_describe_parameters() -> None:
    @tool
    def f(
        a: Annotated[int, "text"],
        b: Annotated[int, Doc("doc")],
        c: Annotated[int, msgspec.Meta(description="meta", ge=1)],
        d: Annotated[int, 3],
    ) -> None:
        """F.

        Args:
            a: not this.
            d: this.
        """

    described = {name: one.get("description") for name, one in f.parameters["properties"].items()}
    assert described == {"a": "text", "b": "doc", "c": "meta", "d": "this."}
    assert f.parameters["properties"]["c"]["minimum"] == 1


class Unit(StrEnum):
    C = "c"


def test_defaults_are_shown_where_json_has_them() -> None:
    @tool
    def f(
        unit: Unit = Unit.C,
        n: float = 0.5,
        top: float = float("inf"),
        tags: list[str] | None = None,
        names: tuple[str, ...] = (),
    ) -> Any:
        return unit, n, top, tags, names

    shown = {name: one["default"] for name, one in f.parameters["properties"].items() if "default" in one}
    assert shown == {"unit": "c", "n": 0.5}
    assert bind(f) == (Unit.C, 0.5, float("inf"), None, ())


def test_path_is_text_that_arrives_as_a_path() -> None:
    @tool
    def f(path: Path) -> Any:
        return path

    assert f.parameters["properties"]["path"] == {"type": "string"}
    assert bind(f, path="/a/b") == Path("/a/b")
    with pytest.raises(ArgumentError, match="Expected `str`, got `int` at `path`"):
        bind(f, path=3)


@pytest.mark.parametrize(
    "doc", ["Do.\n\n:param: odd\n:raises\n", "Args:\n  - x\n", ":::\n---\n", "Do.\n\nParameters\n----------\n"]
)
def test_docstring_of_no_style_is_no_obstacle(doc: str) -> None:
    def f(x: int) -> int:
        return x

    f.__doc__ = doc
    assert list(tool(f).parameters["properties"]) == ["x"]


def test_null_is_null_where_it_may_be_and_the_default_where_it_may_not() -> None:
    @tool
    def f(city: str, unit: Literal["C", "F"] | None, days: int = 2, note: str | None = "x", any_: Any = "y") -> Any:
        return unit, days, note, any_

    assert bind(f, city="Oslo", unit=None, days=None, note=None, any_=None) == (None, 2, None, None)
    with pytest.raises(ArgumentError, match="got `null` at `city`"):
        bind(f, city=None, unit=None)


def test_changing_an_argument_does_not_change_the_call_it_came_from() -> None:
    @tool
    def f(data: dict[str, Any], rows: list[list[int]], any_: Any) -> None:
        data["deep"]["x"] = rows[0][0] = any_["y"] = 5

    args = {"data": {"deep": {"x": 1}}, "rows": [[1]], "any_": {"y": 1}}
    f.bind(args, CONTEXT)()
    assert args == {"data": {"deep": {"x": 1}}, "rows": [[1]], "any_": {"y": 1}}


def test_text_that_looks_like_json_stays_text() -> None:
    @tool
    def write(text: str) -> str:
        return text

    assert bind(write, text='{"k": 1}') == '{"k": 1}'


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"room": "A"}, "missing required field `day`"),
        ({"room": "A", "day": 3}, "Expected `str`, got `int` at `day`"),
        ({"room": "A", "day": "mon", "color": 1}, "unknown field `color`"),
        ({"room": "A", "day": "mon", "at": {"x": "1"}}, "at `at.x`"),
        ({"room": "A", "day": "mon", "tags": '["a"]'}, "got `str` at `tags` (give the value itself, not a text of it)"),
        ({"room": "A", "day": "mon", "at": '{"x": 1}'}, "got `str` at `at` (give the value itself"),
        ({"room": "A", "day": "mon", "tags": ["a", 1]}, "Expected `str`, got `int` at `tags[1]`"),
        ({"room": "A", "day": "mon", "kind": "c"}, 'kind ("a" or "b" or null)'),
        ({"room": "A", "day": "mon", "points": [{}]}, "missing required field `x` at `points[0]`"),
        ({"room": "A", "day": True}, "points (array of object or null)"),
        ({"room": 1.0, "day": "mon"}, "Expected `str`, got `float` at `room`"),
        ({}, "missing required field `room`"),
    ],
    ids=[
        "missing",
        "type",
        "unknown",
        "nested",
        "encoded-list",
        "encoded-object",
        "item",
        "literal",
        "nested-missing",
        "bool",
        "float",
        "none-at-all",
    ],
)
def test_bad_arguments_get_an_answer_that_says_what_is_allowed(args: dict[str, Any], words: str) -> None:
    @tool
    def book(
        room: str,
        day: str,
        at: Point | None = None,
        tags: list[str] | None = None,
        kind: Literal["a", "b"] | None = None,
        points: list[Point] | None = None,
    ) -> str:
        return room

    with pytest.raises(ArgumentError) as caught:
        bind(book, **args)
    assert words in str(caught.value)
    assert "book" in str(caught.value)
    assert "room (string, required)" in str(caught.value)


def test_parameter_without_annotation_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"'f'.*'x' has no annotation"):

        @tool
        def f(x) -> None:  # type: ignore[no-untyped-def]
            ...


def test_open_parameters_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'f'.*\*rest"):

        @tool
        def f(*rest: int) -> None: ...

    with pytest.raises(ConfigurationError, match=r"'g'.*\*more"):

        @tool
        def g(**more: int) -> None: ...


def test_string_annotations_may_name_types_of_a_closure() -> None:
    class Local(msgspec.Struct):
        x: int

    def f(value: "Local") -> Any:
        return value.x, Local

    assert bind(Tool(f), value={"x": 4})[0] == 4


def test_closure_that_is_not_filled_yet_is_no_obstacle() -> None:
    def f(x: "int") -> Any:
        return later + x

    one = Tool(f)
    later = 1
    assert bind(one, x=1) == 2


def test_return_annotation_need_not_exist() -> None:
    @tool
    def f(x: int) -> "OnlyForTypeCheckers":  # type: ignore[name-defined]  # noqa: F821
        return x

    assert bind(f, x=1) == 1


def test_annotation_that_cannot_be_resolved_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"'f'.*Nowhere"):

        @tool
        def f(x: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


class Opaque:
    pass


def test_type_without_json_form_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"'f'.*'x' has no JSON form.*Opaque"):

        @tool
        def f(x: list[Opaque]) -> None: ...


def test_empty_name_and_tool_of_a_tool_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="name is empty"):
        tool(name=" ")(lambda: None)
    with pytest.raises(ConfigurationError, match="already"):
        Tool(tool(add))


def test_tools_are_named_once_and_may_be_plain_functions() -> None:
    assert list(tools_by_name([add, Tool(add, name="plus")])) == ["add", "plus"]
    with pytest.raises(ConfigurationError, match="two tools are named 'add'"):
        tools_by_name([add, tool(add)])
    with pytest.raises(ConfigurationError, match="not a tool"):
        tools_by_name([3])  # type: ignore[list-item]
