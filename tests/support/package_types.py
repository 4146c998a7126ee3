"""The request types of the services' own packages, made strict."""

from typing import Any

import pydantic
import pydantic_core


def request_validator(type_: Any) -> pydantic_core.SchemaValidator:
    """A validator of a package's request type that refuses unknown keys at every level."""
    return pydantic_core.SchemaValidator(_closed(pydantic.TypeAdapter(type_).core_schema))


def _closed(schema: Any) -> Any:
    """A core schema that refuses unknown keys at every level and looks into every list."""
    if isinstance(schema, list | tuple):
        return type(schema)(_closed(one) for one in schema)
    if not isinstance(schema, dict):
        return schema
    made = {key: value if key in ("cls", "metadata") else _closed(value) for key, value in schema.items()}
    if made.get("type") == "generator":
        made["type"] = "list"
    if made.get("type") in ("typed-dict", "model-fields"):
        made["extra_behavior"] = "forbid"
    if "config" in made and isinstance(made["config"], dict):
        made["config"] = made["config"] | {"extra_fields_behavior": "forbid"}
    return made
