"""@tool: the schema a model is shown, and the arguments a function gets."""

import functools
from dataclasses import dataclass
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
        ({"room": "A", "day": "mon", "tags": '["a"]'}, "got `str` at `tags`"),
    ],
    ids=["missing", "type", "unknown", "nested", "encoded-list"],
)
def test_bad_arguments_get_an_answer_that_says_what_is_allowed(args: dict[str, Any], words: str) -> None:
    @tool
    def book(room: str, day: str, at: Point | None = None, tags: list[str] | None = None) -> str:
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


def test_annotation_that_cannot_be_resolved_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"'f'.*Nowhere"):

        @tool
        def f(x: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


def test_type_without_json_form_is_named() -> None:
    with pytest.raises(ConfigurationError, match="'f'"):

        @tool
        def f(x: object | complex) -> None: ...


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
