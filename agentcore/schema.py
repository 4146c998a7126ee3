"""Types to JSON Schema and values to types: what tools and structured output have in common."""

import re
import sys
from collections.abc import Mapping
from typing import Any, cast

import msgspec


def schema_of(type_: Any) -> dict[str, Any]:
    """JSON Schema of a type: msgspec Structs, dataclasses, TypedDicts, enums, attrs, Pydantic models, and compositions.

    References are written out, since several services do not follow `$ref`; recursive types keep theirs.

    Raises:
        TypeError: a type that has no JSON form.
    """
    if _is_pydantic(type_):
        return _pydantic_schema(type_)
    return inline_references(msgspec.json.schema(type_, schema_hook=_pydantic_schema))


def convert_value(value: object, type_: Any) -> Any:
    """A JSON value as the type says, strictly: no number from text, no text from number.

    Raises:
        msgspec.ValidationError: it does not fit; `describe_error` gives it in words for a model.
    """
    if _is_pydantic(type_):
        return _from_json_value(type_, value)
    return msgspec.convert(value, type_, dec_hook=_from_json_value)


def describe_error(error: Exception) -> str:
    """A validation error in words a model can act on: what was expected, and where (`items[0].day`)."""
    text = re.sub(r" - at `\$\.?(.*?)`$", r" at `\1`", str(error))
    text = text.replace("Object missing required field", "missing required field")
    return text.replace("Object contains unknown field", "unknown field")


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema under OpenAI's strict rules, or None if it cannot be put so.

    Every object forbids further properties and requires all of its own; what was optional may be null instead.
    Source: OpenAI "Structured outputs" guide, supported schemas.
    """
    try:
        return _strict(schema)
    except _NotStrictError:
        return None


def inline_references(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with every `$ref` into its own `$defs` written out; recursive definitions are kept."""
    definitions = cast("dict[str, Any]", schema.get("$defs", {}))
    if not definitions:
        return schema
    recursive = {name for name in definitions if _reaches(name, name, definitions)}

    def inline(node: Any) -> Any:
        if isinstance(node, list):
            return [inline(item) for item in cast("list[Any]", node)]
        if not isinstance(node, dict):
            return node
        mapping = cast("dict[str, Any]", node)
        name = _reference(mapping)
        if name is not None and name in definitions and name not in recursive:
            rest = {key: inline(value) for key, value in mapping.items() if key not in ("$ref", "$defs")}
            return {**inline(definitions[name]), **rest}
        return {key: inline(value) for key, value in mapping.items() if key != "$defs"}

    result = inline(schema)
    name = _reference(result)
    if name in recursive:  # a recursive type on top: the top level has to be an object of its own
        result = {**inline(definitions[name]), **{key: value for key, value in result.items() if key != "$ref"}}
    if recursive:
        result["$defs"] = {name: inline(definitions[name]) for name in definitions if name in recursive}
    return result


def json_default(value: object) -> Any:
    """`enc_hook` for what msgspec does not know: Pydantic models, by the names their schema shows.

    Raises:
        NotImplementedError: the value has no JSON form.
    """
    if _is_pydantic(type(value)):
        return cast("Any", value).model_dump(mode="json", by_alias=True)
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


def _reference(node: Mapping[str, Any]) -> str | None:
    reference = node.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        return reference.removeprefix("#/$defs/")
    return None


def _reaches(start: str, goal: str, definitions: Mapping[str, Any]) -> bool:
    seen: set[str] = set()
    todo: list[Any] = [definitions.get(start)]
    while todo:
        node = todo.pop()
        if isinstance(node, list):
            todo.extend(cast("list[Any]", node))
        elif isinstance(node, dict):
            mapping = cast("dict[str, Any]", node)
            name = _reference(mapping)
            if name == goal:
                return True
            if name is not None and name not in seen:
                seen.add(name)
                todo.append(definitions.get(name))
            todo.extend(mapping.values())
    return False


class _NotStrictError(Exception):
    pass


def _strict(node: Any) -> Any:
    if isinstance(node, list):
        return [_strict(item) for item in cast("list[Any]", node)]
    if not isinstance(node, Mapping):
        return node
    mapping = dict(cast("Mapping[str, Any]", node))
    mapping.pop("default", None)
    if mapping.get("type") == "object" or "properties" in mapping:
        properties = cast("dict[str, Any]", mapping.get("properties", {}))
        closed = mapping.get("additionalProperties") is False
        if not closed and ("properties" not in mapping or mapping.get("additionalProperties") is not None):
            raise _NotStrictError  # a free-form mapping
        required = set(mapping.get("required", ()))
        mapping["properties"] = {
            name: _strict(value) if name in required else _nullable(_strict(value))
            for name, value in properties.items()
        }
        mapping["required"] = list(properties)
        mapping["additionalProperties"] = False
        if "$defs" in mapping:
            mapping["$defs"] = {name: _strict(value) for name, value in mapping["$defs"].items()}
        return mapping
    return {key: _strict(value) for key, value in mapping.items()}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type")
    if isinstance(kind, str) and "enum" not in schema and "const" not in schema:
        return schema if kind == "null" else {**schema, "type": [kind, "null"]}
    if isinstance(kind, list):
        return schema if "null" in kind else {**schema, "type": [*cast("list[str]", kind), "null"]}
    options = schema.get("anyOf")
    if isinstance(options, list):
        known = cast("list[Any]", options)
        return schema if {"type": "null"} in known else {**schema, "anyOf": [*known, {"type": "null"}]}
    return {"anyOf": [schema, {"type": "null"}]}


def _is_pydantic(type_: Any) -> bool:
    pydantic = sys.modules.get("pydantic")  # a value can only be a model if somebody has imported it
    return pydantic is not None and isinstance(type_, type) and issubclass(type_, pydantic.BaseModel)


def _pydantic_schema(type_: Any) -> dict[str, Any]:
    if not _is_pydantic(type_):
        raise NotImplementedError(f"{type_!r} has no JSON form")
    return inline_references(type_.model_json_schema())


def _from_json_value(type_: Any, value: object) -> Any:
    if not _is_pydantic(type_):
        raise NotImplementedError(f"{type_!r} cannot be made from JSON")
    if isinstance(value, type_):
        return value
    pydantic = sys.modules["pydantic"]
    try:
        return type_.model_validate(value)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise msgspec.ValidationError(f"{first['msg']}{f' at `{where}`' if where else ''}") from error
