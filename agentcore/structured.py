"""Structured output: the schema a model is asked to answer in, and its answer as a value of that type."""

import re
from collections.abc import Mapping
from itertools import islice
from json import JSONDecodeError, JSONDecoder
from typing import Any, TypeVar, cast

import msgspec

from agentcore.errors import OutputError

T = TypeVar("T")

WRAPPED = "value"
"""Services take only objects as the top level of a schema: anything else is asked for under this name."""

_EXCERPT_CHARS = 200
_MOST_BEGINNINGS = 20  # prose before the JSON may hold a bracket or two
_FENCE = re.compile(r"```[a-zA-Z0-9_-]*[ \t]*\r?\n(.*?)(?:\r?\n)?```", re.DOTALL)
_BEGINNING = re.compile(r"[\[{]")
_json = JSONDecoder()


def output_schema(wanted: Any) -> dict[str, Any]:
    """The JSON Schema that a model is asked to answer in.

    Args:
        wanted: a JSON Schema (a dict), taken as it is, or a type: Struct, dataclass, TypedDict, attrs class, Pydantic
            model, or any composition. What is no object is wrapped in one, under the name `value`.

    Raises:
        TypeError: a type that has no JSON form.
    """
    if isinstance(wanted, Mapping):
        return dict(cast("Mapping[str, Any]", wanted))
    from agentcore.schema import schema_of

    schema = schema_of(wanted)
    if _is_object(schema):
        return schema
    definitions = schema.pop("$defs", None)
    wrapper: dict[str, Any] = {
        "title": schema.get("title") or "answer",
        "type": "object",
        "properties": {WRAPPED: schema},
        "required": [WRAPPED],
    }
    return wrapper if definitions is None else {**wrapper, "$defs": definitions}


def parse_output(text: str, type_: type[T]) -> T:
    """An answer as a value of the type that was asked for.

    Text around the JSON is passed over (models without native support add fences and pleasantries); the value itself is
    read strictly: no number from text, no text from number.

    Args:
        text: the model's answer.
        type_: the type that `response_format` named; `dict` or `Any` for whatever JSON it is.

    Raises:
        OutputError: there is no JSON in it, or it does not fit; the message says what was expected, and where.
    """
    from agentcore.schema import convert_value, describe_error

    value = _json_in(text)
    try:
        return convert_value(_unwrapped(value, type_), type_)
    except (msgspec.ValidationError, ValueError) as error:
        name = getattr(type_, "__name__", str(type_))
        raise OutputError(f"the answer does not fit {name}: {describe_error(error)}", text=text) from error


def _unwrapped(value: Any, type_: Any) -> Any:
    """The value inside the object that `output_schema` put around it."""
    if type_ is Any or not isinstance(value, dict):
        return value
    members = cast("dict[str, Any]", value)
    return members[WRAPPED] if set(members) == {WRAPPED} and is_wrapped(type_) else members


def is_wrapped(type_: Any) -> bool:
    """Whether values of a type are asked for inside an object, because they are none themselves."""
    from agentcore.schema import schema_of

    return type_ is not Any and not _is_object(schema_of(type_))


def _is_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object" or "properties" in schema


def _json_in(text: str) -> Any:
    """The JSON value in an answer: the whole of it, or what a fence holds, or the first object or list."""
    stripped = text.strip().removeprefix("\ufeff")
    found, value = _whole(stripped)
    if found:
        return value
    for fenced in _FENCE.finditer(stripped):
        found, value = _whole(fenced[1])
        if found:
            return value
    for start in islice(_BEGINNING.finditer(stripped), _MOST_BEGINNINGS):
        try:
            return _json.raw_decode(stripped, start.start())[0]
        except JSONDecodeError as error:
            if error.pos >= len(stripped) or error.msg.startswith("Unterminated"):
                break  # cut off in the middle: a whole value further in is only a part of the answer
        except RecursionError:
            break
    shown = " ".join(stripped[: _EXCERPT_CHARS + 1].split())
    shown = shown[:_EXCERPT_CHARS] + "…" if len(shown) > _EXCERPT_CHARS else shown or "(empty)"
    raise OutputError(f"the answer holds no complete JSON value: {shown}", text=text)


def _whole(text: str) -> tuple[bool, Any]:
    try:
        return True, msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False, None
