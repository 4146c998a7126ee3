"""What a function takes: its parameters as types, as JSON Schema, and in words a model can act on."""

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from enum import Enum
from math import isfinite
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

import msgspec

from agentcore import pydantic_types
from agentcore.context import ToolContext
from agentcore.errors import ConfigurationError
from agentcore.schema import convert_value, schema_of

_MISSING: Any = inspect.Parameter.empty
_MAX_SHOWN_VALUES = 20


class Signature:
    """A function's parameters as a tool needs them.

    Attributes:
        arguments: a Struct of what the model may give; parameters with a default are `UNSET` when it did not.
        contexts: parameters that get the tool context; the model never sees them.
        positional: parameters that can only be given by place, in order, with their defaults.
        nullable_away: optional parameters that cannot be null: a null for one of them stands for its default.
            A strict schema leaves the model no other way to leave one out (OpenAI "Structured outputs" guide).

    Raises:
        ConfigurationError: a parameter without annotation, `*args`/`**kwargs`, a type without JSON form.
    """

    def __init__(
        self, function: Callable[..., Any], target: Callable[..., Any], name: str, local_names: Mapping[str, Any]
    ) -> None:
        self._name = name
        self.contexts: list[str] = []
        self.positional: list[tuple[str, Any]] = []
        self._fields: list[tuple[str, Any, Any]] = []  # name, type, default
        self._notes: dict[str, str] = {}
        self._read(function, target, local_names)
        self.arguments = self._struct()
        self.nullable_away = [
            name for name, hint, default in self._fields if default is not _MISSING and not _fits(None, hint)
        ]

    def schema(self, descriptions: Mapping[str, str]) -> dict[str, Any]:
        """JSON Schema of the arguments, with descriptions from annotations or else from the docstring."""
        schema = schema_of(self.arguments)
        schema.pop("title", None)
        properties = cast("dict[str, dict[str, Any]]", schema.setdefault("properties", {}))
        for name, _, default in self._fields:
            described = self._notes.get(name) or descriptions.get(name)
            if described and "description" not in properties[name]:
                properties[name]["description"] = described
            shown = default.value if isinstance(default, Enum) else default
            if isinstance(shown, str | int) or (isinstance(shown, float) and isfinite(shown)):
                properties[name]["default"] = shown
        return schema

    def _read(self, function: Callable[..., Any], target: Callable[..., Any], local_names: Mapping[str, Any]) -> None:
        parameters = inspect.signature(function).parameters
        fixed = _fixed_names(function)
        hints = self._hints(target, [name for name in parameters if name not in fixed], local_names)
        for parameter in parameters.values():
            name = parameter.name
            if name in fixed:
                continue
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise ConfigurationError(
                    f"tool {self._name!r}: parameter *{name} has no schema; name the parameters one by one"
                )
            if name not in hints:
                cure = (
                    "make the tool of the bound method: tool(instance.method)"
                    if name in ("self", "cls")
                    else "the model needs its type"
                )
                raise ConfigurationError(f"tool {self._name!r}: parameter {name!r} has no annotation; {cure}")
            hint = hints[name]
            if parameter.kind is parameter.POSITIONAL_ONLY:
                self.positional.append((name, parameter.default))
            if ToolContext in (hint, *get_args(hint)):
                self.contexts.append(name)
                continue
            note = _note(hint)
            if note:
                self._notes[name] = note
            self._fields.append((name, self._readable(name, hint), parameter.default))

    def _hints(self, target: Callable[..., Any], names: list[str], local_names: Mapping[str, Any]) -> dict[str, Any]:
        """The annotations of the parameters alone: what a tool returns may be a name that only a type checker knows."""
        annotations = cast("dict[str, Any]", getattr(target, "__annotations__", {}))
        holder = types.SimpleNamespace(
            __annotations__={name: annotations[name] for name in names if name in annotations}
        )
        known = {**_closure(target), **local_names}
        try:
            return get_type_hints(holder, getattr(target, "__globals__", {}), known, include_extras=True)
        except NameError as error:
            raise ConfigurationError(
                f"tool {self._name!r}: an annotation cannot be resolved: {error}; "
                "import the type where the function is defined, not for type checkers only"
            ) from error

    def _readable(self, name: str, hint: Any) -> Any:
        """The type, or what stands for it where only Pydantic can read it."""
        problem: Exception | None = None
        if not pydantic_types.has_field_notes(hint):
            try:
                schema_of(hint)
                _fits(None, hint)
            except (TypeError, NotImplementedError) as error:
                problem = error
            else:
                return hint
        stand_in = pydantic_types.adapted(hint)
        if stand_in is None:
            raise ConfigurationError(
                f"tool {self._name!r}: the type of parameter {name!r} has no JSON form: {hint!r}"
            ) from problem
        return stand_in

    def _struct(self) -> type[msgspec.Struct]:
        fields: list[Any] = [
            (name, hint) if default is _MISSING else (name, hint | msgspec.UnsetType, msgspec.UNSET)
            for name, hint, default in self._fields
        ]
        return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)


def in_words(schema: Mapping[str, Any]) -> str:
    """The parameters of a schema in one line: names, types, and which are required."""
    required = set(cast("list[str]", schema.get("required", [])))
    properties = cast("dict[str, dict[str, Any]]", schema.get("properties", {}))
    return (
        ", ".join(
            f"{name} ({_type_in_words(one)}{', required' if name in required else ''})"
            for name, one in properties.items()
        )
        or "none"
    )


def _type_in_words(schema: Mapping[str, Any]) -> str:
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if values is not None:
        shown = [msgspec.json.encode(value).decode() for value in values[:_MAX_SHOWN_VALUES]]
        return " or ".join(shown) + (" or …" if len(values) > _MAX_SHOWN_VALUES else "")
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return " or ".join(dict.fromkeys(_type_in_words(option) for option in options))
    kind = schema.get("type", "object" if "$ref" in schema else "any")
    if isinstance(kind, list):
        return " or ".join(cast("list[str]", kind))
    return f"array of {_type_in_words(schema['items'])}" if kind == "array" and schema.get("items") else kind


def _fixed_names(function: Callable[..., Any]) -> set[str]:
    """Parameters that a partial has filled in by name: decided, and perhaps secret; never the model's to see or set."""
    names: set[str] = set()
    while isinstance(function, functools.partial):
        names.update(function.keywords)
        function = cast("Callable[..., Any]", function.func)
    return names


def _closure(target: Callable[..., Any]) -> dict[str, Any]:
    """Names of the scopes around a function that it uses itself: string annotations may name their types."""
    code, cells = getattr(target, "__code__", None), getattr(target, "__closure__", None)
    if code is None or not cells:
        return {}
    found: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _note(hint: Any) -> str | None:
    """The description in `Annotated[int, "how many"]`, `Doc("how many")` or `Field(description="how many")`."""
    if get_origin(hint) is not Annotated:
        return None
    for note in get_args(hint)[1:]:
        text = note if isinstance(note, str) else getattr(note, "documentation", getattr(note, "description", None))
        if isinstance(text, str) and text:
            return text
    return None


def _fits(value: object, type_: Any) -> bool:
    try:
        convert_value(value, type_)
    except msgspec.ValidationError:
        return False
    return True
