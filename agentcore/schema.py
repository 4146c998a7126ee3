"""Types to JSON Schema and values to types: what tools and structured output have in common."""

import re
from collections import UserString
from collections.abc import Mapping, Sequence, Set, ValuesView
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any, cast

import msgspec

from agentcore import pydantic_types

_TEXT_LIKE = (
    PurePath,
    Fraction,
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    UserString,
)
"""Types whose text is their JSON form, and that can be made of it."""

_DEFINITIONS = "#/$defs/"


def schema_of(type_: Any) -> dict[str, Any]:
    """JSON Schema of a type: msgspec Structs, dataclasses, TypedDicts, enums, attrs, Pydantic models, and compositions.

    References are written out, since several services do not follow `$ref`; recursive types keep theirs.

    Raises:
        TypeError: a type that has no JSON form.
    """
    return inline_references(msgspec.json.schema(type_, schema_hook=_schema_of_other))


def convert_value(value: object, type_: Any) -> Any:
    """A JSON value as the type says, strictly: no number from text, no text from number.

    Raises:
        msgspec.ValidationError: it does not fit; `describe_error` gives it in words for a model.
    """
    return msgspec.convert(value, type_, dec_hook=_from_json_value)


def describe_error(error: Exception) -> str:
    """A validation error in words a model can act on: what was expected, and where (`items[0].day`)."""
    text, *inside = re.split(r" - at `\$(.*?)`", str(error))
    # A type with a validator of its own says where in itself; msgspec adds, after that, where that type was.
    place = "".join(reversed([step for step in inside if step])).lstrip(".")
    text = text.replace("Object missing required field", "missing required field")
    text = text.replace("Object contains unknown field", "unknown field")
    return f"{text} at `{place}`" if place else text


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema under OpenAI's strict rules, or None if it cannot be put so.

    Every object forbids further properties and requires all of its own; what was optional may be null instead.
    Source: OpenAI "Structured outputs" guide, supported schemas.
    """
    if _types(schema) != ["object"] and "properties" not in schema:
        return None  # the top level has to be an object
    try:
        return _strict(schema)
    except _NotStrictError:
        return None


def inline_references(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with every `$ref` into its own `$defs` written out; recursive definitions are kept."""
    definitions: dict[str, Any] = {}
    schema = _gather(schema, definitions, {})
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
            rest = {key: inline(value) for key, value in mapping.items() if key != "$ref"}
            return {**inline(definitions[name]), **rest}
        return {key: inline(value) for key, value in mapping.items() if not _is_discriminator(key, value)}

    result = inline(schema)
    name = _reference(result)
    if name in recursive:  # a recursive type on top: the top level has to be an object of its own
        result = {**inline(definitions[name]), **{key: value for key, value in result.items() if key != "$ref"}}
    if recursive:
        result["$defs"] = {name: inline(definitions[name]) for name in definitions if name in recursive}
    return result


def json_default(value: object) -> Any:
    """`enc_hook` for what msgspec does not know: Pydantic models, by the names their schema shows, and plain Python.

    Raises:
        NotImplementedError: the value has no JSON form.
    """
    if pydantic_types.is_model(type(value)):
        return pydantic_types.to_json_value(value)
    if value is None or isinstance(value, bool):  # as keys only: elsewhere msgspec knows them
        return msgspec.json.encode(value).decode()
    if isinstance(value, _TEXT_LIKE):
        return str(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    if isinstance(value, Sequence | Set | ValuesView):
        return list(cast("Sequence[Any]", value))
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


def _gather(node: Any, definitions: dict[str, Any], names: Mapping[str, str]) -> Any:
    """The node without `$defs`, which move to `definitions`: a type's own ones cannot be found inside another type."""
    if isinstance(node, list):
        return [_gather(item, definitions, names) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    mapping = dict(cast("dict[str, Any]", node))
    own = cast("dict[str, Any]", mapping.pop("$defs", {}))
    if own:
        other = {name for name, one in own.items() if definitions.get(name, one) != one}  # another type of that name
        names = {**names, **{name: _free_name(name, definitions) if name in other else name for name in own}}
        for name, one in own.items():
            if names[name] not in definitions:
                definitions[names[name]] = _gather(one, definitions, names)
    name = _reference(mapping)
    if name is not None:
        mapping["$ref"] = _DEFINITIONS + names.get(name, name)
    return {key: _gather(value, definitions, names) for key, value in mapping.items()}


def _free_name(name: str, definitions: Mapping[str, Any]) -> str:
    free, number = name, 1
    while free in definitions:
        number += 1
        free = f"{name}_{number}"
    return free


def _is_discriminator(key: str, value: Any) -> bool:
    """OpenAPI's hint which member of a union a value is: it points at definitions that are written out now."""
    return key == "discriminator" and isinstance(value, dict) and "propertyName" in value


def _reference(node: Mapping[str, Any]) -> str | None:
    reference = node.get("$ref")
    if isinstance(reference, str) and reference.startswith(_DEFINITIONS):
        return reference.removeprefix(_DEFINITIONS)
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


_NOT_IN_STRICT = frozenset(
    {"allOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties", "prefixItems"}
)
_TYPED_BY = frozenset({"type", "anyOf", "enum", "const"})


def _strict(node: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in node:
        return {"$ref": node["$ref"]}  # with nothing beside it
    schema = {key: value for key, value in node.items() if key not in ("default", "discriminator")}
    if "oneOf" in schema and "anyOf" not in schema:
        schema["anyOf"] = schema.pop("oneOf")
    is_object, is_array = (kind in _types(schema) for kind in ("object", "array"))
    if _NOT_IN_STRICT & schema.keys() or not (_TYPED_BY & schema.keys() or "properties" in schema):
        raise _NotStrictError
    if is_array:
        if "items" not in schema:
            raise _NotStrictError
        schema["items"] = _strict(schema["items"])
    if "anyOf" in schema:
        schema["anyOf"] = [_strict(option) for option in schema["anyOf"]]
    if is_object or "properties" in schema:
        if schema.get("additionalProperties", "properties" not in schema) is not False:
            raise _NotStrictError  # open to names that are not written down
        schema.update(_closed(schema))
    if "$defs" in schema:
        schema["$defs"] = {name: _strict(one) for name, one in schema["$defs"].items()}
    return schema


def _closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An object's part of a strict schema: everything required, nothing else allowed."""
    properties = cast("dict[str, dict[str, Any]]", schema.get("properties", {}))
    required = set(cast("list[str]", schema.get("required", [])))
    return {
        "properties": {
            name: _strict(one) if name in required else _nullable(_strict(one)) for name, one in properties.items()
        },
        "required": list(properties),
        "additionalProperties": False,
    }


def _types(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type", [])
    return [kind] if isinstance(kind, str) else cast("list[str]", kind)


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


def _schema_of_other(type_: Any) -> dict[str, Any]:
    """`schema_hook` for what msgspec does not know."""
    if pydantic_types.is_pydantic(type_):
        return pydantic_types.json_schema(type_)
    if isinstance(type_, type) and issubclass(type_, _TEXT_LIKE):
        return {"type": "string"}
    raise NotImplementedError(f"{type_!r} has no JSON form")


def _from_json_value(type_: Any, value: object) -> Any:
    """`dec_hook` for what msgspec does not know; msgspec adds the place to the text of a ValueError."""
    if pydantic_types.is_pydantic(type_):
        return pydantic_types.from_json_value(type_, value)
    if isinstance(type_, type) and issubclass(type_, _TEXT_LIKE):
        if not isinstance(value, str):
            raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
        return type_(value)
    raise NotImplementedError(f"{type_!r} cannot be made from JSON")
