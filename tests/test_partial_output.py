"""Values out of JSON that is still being written, and the turn that yields them."""

import json
import time
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from agentcore import ChatClient, ChatOptions, ToolCall, tool
from agentcore.filters.structured import StructuredOutputFilter
from agentcore.partial_output import PartialOutput
from agentcore.testing import Reply, ScriptedModel


class Person(Struct):
    name: str
    bio: str = ""
    age: int | None = None
    role: Literal["admin", "guest"] | None = None
    friends: "list[Friend]" = []


class Friend(Struct):
    name: str
    since: int


def grown(text: str, type_: Any, size: int = 1) -> list[Any]:
    output: PartialOutput[Any] = PartialOutput(type_)
    values: list[Any] = []
    for start in range(0, len(text), size):
        output.feed(text[start : start + size])
        values.extend(output.step())
    return values


def test_text_grows_letter_by_letter() -> None:
    assert grown('{"name":"Kim"}', Person) == [Person(""), Person("K"), Person("Ki"), Person("Kim")]


def test_unfinished_number_is_not_there_yet() -> None:
    assert [one.age for one in grown('{"name":"K","age":123}', Person)][-2:] == [None, 123]


def test_unfinished_word_that_fits_nothing_is_left_out() -> None:
    values = grown('{"name":"K","role":"admin","bio":"b"}', Person)
    assert {one.role for one in values} == {None, "admin"}
    assert values[-1] == Person("K", "b", None, "admin")


def test_list_grows_by_items_that_fit() -> None:
    text = '{"name":"K","friends":[{"name":"A","since":2001},{"name":"B","since":2002}]}'
    assert [len(one.friends) for one in grown(text, Person)] == [0, 0, 1, 2]


def test_wrapped_list_grows() -> None:
    assert grown('{"value":[1,22,333]}', list[int]) == [[], [1], [1, 22], [1, 22, 333]]


def test_whatever_json_grows_without_a_schema() -> None:
    assert grown('{"a":[true,{"b":"c"}],"d":null}', Any)[-1] == {"a": [True, {"b": "c"}], "d": None}


def test_text_around_the_json_is_passed_over() -> None:
    assert grown('Sure:\n```json\n{"name":"K"}\n```\n{not this}', Person)[-1] == Person("K")


@pytest.mark.parametrize("text", [r'{"name":"a\\\"\n\u00e9\ud83d\ude00z"}'], ids=["escapes"])
def test_escape_is_never_taken_in_half(text: str) -> None:
    whole = json.loads(text)["name"]
    values = [one.name for one in grown(text, Person)]
    assert all(whole.startswith(value) for value in values)
    assert values[-1] == whole
    assert [len(value) for value in values] == sorted(len(value) for value in values)


@pytest.mark.parametrize("text", ["", "no json", "[note] and more", '{"name":}', '{"name"]', "}{"])
def test_what_is_no_json_gives_no_false_value(text: str) -> None:
    assert grown(text, Person) == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=4), json_values, max_size=4), st.integers(1, 9), st.booleans())
def test_whole_text_gives_the_whole_value_and_its_parts_on_the_way(value: Any, size: int, ascii_only: bool) -> None:
    values = grown(json.dumps(value, ensure_ascii=ascii_only), dict, size)
    assert values[-1] == value
    assert all(part.keys() <= value.keys() for part in values)


def test_time_grows_with_the_length_and_not_with_its_square() -> None:
    def seconds(count: int) -> float:
        text = json.dumps({"name": "K", "bio": "word " * count})
        output: PartialOutput[Any] = PartialOutput(Person)
        start = time.process_time()
        for position in range(0, len(text), 5):
            output.feed(text[position : position + 5])
            if output.due:
                list(output.step())
        return time.process_time() - start

    short = min(seconds(5_000) for _ in range(3))
    assert min(seconds(40_000) for _ in range(3)) < 24 * short  # 8 times the text; its square would be 64 times


@pytest.mark.asyncio
async def test_turn_yields_the_answer_as_it_grows() -> None:
    client = ChatClient(ScriptedModel([Reply(text=['{"name":"K', "im", '","age":3', "0}"])]))
    async with client.stream("who?", options=ChatOptions(response_format=Person)) as turn:
        values = [value async for value in turn.partial(Person)]
        assert turn.result.parse(Person) == values[-1]
    assert values == [Person("K"), Person("Kim"), Person("Kim", age=30)]


@pytest.mark.asyncio
async def test_reply_that_was_given_up_and_words_before_tools_are_forgotten() -> None:
    @tool
    async def look_up() -> str:
        """Look up."""
        return "Kim"

    script = [
        Reply(text='{"name":"draft"}', tool_calls=[ToolCall("c", "look_up")]),
        Reply(text='{"name":"Bad","age":"x"}'),
        Reply(text='{"name":"Kim"}'),
    ]
    client = ChatClient(ScriptedModel(script), tools=[look_up], filters=[StructuredOutputFilter()])
    async with client.stream("who?", options=ChatOptions(response_format=Person)) as turn:
        values = [value async for value in turn.partial(Person)]
    assert [value.name for value in values] == ["draft", "Kim"]
