"""JSON Schemas as Gemini takes them, for tools and for answers.

They go to `parametersJsonSchema` and `responseJsonSchema`, which read JSON Schema. `parameters` and `responseSchema`
are a subset of OpenAPI that refuses a whole request for a keyword it does not know (`$schema`, `exclusiveMinimum`,
`const`). One rule is left: beside a `$ref` stand only keywords that begin with `$` (Gemini API reference,
`GenerationConfig`).
"""

from collections.abc import Mapping
from typing import Any, cast

from agentcore.chat import ToolSchema
from agentcore.codecs.shared import encode_json

_SAYS_NOTHING = frozenset(("$schema", "additionalProperties", "description", "properties", "required", "title", "type"))
_DATA = frozenset(("const", "default", "enum", "examples"))  # keywords that hold values, not schemas
_BY_NAME = frozenset(("$defs", "definitions", "patternProperties", "properties"))  # that hold schemas by name


def declaration(one: ToolSchema, names: Mapping[str, str]) -> dict[str, Any]:
    """A tool as one of `functionDeclarations`; one that takes nothing has no schema.

    Args:
        one: the tool.
        names: neutral name → name on the wire, where they differ.
    """
    made: dict[str, Any] = {"name": names.get(one.name, one.name)}
    if one.description:
        made["description"] = one.description
    parameters = one.parameters
    if parameters.keys() - _SAYS_NOTHING or parameters.get("properties") or parameters.get("additionalProperties"):
        schema = fitting_schema(_without_root_reference(parameters))
        made["parametersJsonSchema"] = schema if "type" in schema or "$ref" in schema else {"type": "object", **schema}
    return made


def fitting_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema itself, or one of the same meaning whose references stand alone."""
    # Most have none; looking for the bytes costs a tenth of a walk through the values.
    return _alone(schema) if b'"$ref":' in encode_json(schema) else schema


def _alone(node: Any) -> Any:
    if isinstance(node, list):
        return [_alone(item) for item in cast("list[Any]", node)]
    if not isinstance(node, Mapping):
        return node
    known = cast("Mapping[str, Any]", node)
    made: dict[str, Any] = {}
    for key, value in known.items():
        if key in _BY_NAME and isinstance(value, Mapping):
            made[key] = {name: _alone(one) for name, one in cast("Mapping[str, Any]", value).items()}
        else:
            made[key] = value if key in _DATA else _alone(value)
    reference = made.get("$ref")
    if isinstance(reference, str) and "anyOf" not in made and any(not key.startswith("$") for key in made):
        del made["$ref"]
        made["anyOf"] = [{"$ref": reference}]
    return made


def _without_root_reference(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema with what it refers to in its place: parameters have to be an object themselves."""
    path = schema.get("$ref")
    if not isinstance(path, str) or not path.startswith("#/"):
        return schema
    target: Any = schema
    for step in path[2:].split("/"):
        target = cast("Mapping[str, Any]", target).get(step) if isinstance(target, Mapping) else None
    if not isinstance(target, Mapping) or "$ref" in target:
        return schema
    return {**cast("Mapping[str, Any]", target), **{key: value for key, value in schema.items() if key != "$ref"}}
