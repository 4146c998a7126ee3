"""Pydantic's types in schemas and values; never imports Pydantic, since only who did can have one of its types."""

import sys
from typing import Any, cast, get_args

import msgspec


class Adapted:
    """A value that Pydantic made of a type that msgspec cannot read; subclasses stand for one such type each."""

    adapter: Any

    def __init__(self, value: Any) -> None:
        self.value = value


def is_model(type_: Any) -> bool:
    """Whether it is a Pydantic model."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(type_, type) and issubclass(type_, pydantic.BaseModel)


def is_pydantic(type_: Any) -> bool:
    """Whether Pydantic makes its schema and its values: a model, or a stand-in of `adapted`."""
    return is_model(type_) or (isinstance(type_, type) and issubclass(type_, Adapted))


def adapted(type_: Any) -> type[Adapted] | None:
    """A stand-in for a type that Pydantic can read, with which msgspec will ask us; None if Pydantic cannot either."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None:
        return None
    try:
        adapter = pydantic.TypeAdapter(type_)
        adapter.json_schema()
    except (pydantic.PydanticUserError, AttributeError, TypeError):
        return None
    return type("Adapted", (Adapted,), {"adapter": adapter})


def has_field_notes(type_: Any) -> bool:
    """Whether `pydantic.Field(…)` stands somewhere in it: its bounds and descriptions are for Pydantic to read."""
    fields = sys.modules.get("pydantic.fields")
    if fields is None:
        return False
    return isinstance(type_, fields.FieldInfo) or any(has_field_notes(argument) for argument in get_args(type_))


def json_schema(type_: Any) -> dict[str, Any]:
    """The schema of a model or stand-in, by the names the outside uses."""
    if issubclass(type_, Adapted):
        return cast("dict[str, Any]", type_.adapter.json_schema())
    return cast("dict[str, Any]", type_.model_json_schema())


def from_json_value(type_: Any, value: object) -> Any:
    """A JSON value as the type says.

    Raises:
        ValueError: it does not fit; the text ends with the place, written as msgspec writes it.
    """
    if isinstance(value, type_):
        return value
    pydantic = sys.modules["pydantic"]
    try:
        if issubclass(type_, Adapted):
            return type_(type_.adapter.validate_python(value))
        return type_.model_validate(value)
    except pydantic.ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in problems[0]["loc"])
        raise ValueError(f"{problems[0]['msg']}{more} - at `${path}`") from error


def to_json_value(value: Any) -> Any:
    """A model as plain values, by the names its schema shows."""
    return value.model_dump(mode="json", by_alias=True)


def unwrapped(struct: msgspec.Struct, name: str) -> Any:
    """A field's value, without the stand-in around it."""
    value = getattr(struct, name)
    return value.value if isinstance(value, Adapted) else value
