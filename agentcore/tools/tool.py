"""Tool and the `@tool` decorator: a function, what the model is told of it, and how it may be run."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias, cast, get_args, get_origin, get_type_hints, overload

import msgspec

from agentcore.context import ToolContext
from agentcore.errors import ConfigurationError
from agentcore.schema import convert_value, describe_error, inline_references, schema_of

ToolSource: TypeAlias = "Tool | Callable[..., Any]"
"""A tool, or a plain function that becomes one."""


class ArgumentError(Exception):
    """The arguments of a call do not fit the tool; the text is meant for the model."""


class Tool:
    """A function a model may call. Immutable; calling it calls the function.

    Attributes:
        name: what the model calls it.
        description: what the model is told it does.
        parameters: JSON Schema of the arguments.
        timeout: seconds it may take; None for the client's default.
        retry: how often it is tried again after a `TransientToolError`; declares that a repeated call does no harm.
        serial: never runs beside another serial tool of the same batch.
        return_direct: its result is the answer of the turn, if all calls of the batch say so.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout: float | None = None,
        retry: int = 0,
        serial: bool = False,
        return_direct: bool = False,
        local_names: Mapping[str, Any] | None = None,
    ) -> None:
        target = _annotated_function(function)
        self.__wrapped__ = function
        self.__name__ = self.name = name or (
            target.__name__ if target.__name__ != "__call__" else type(_unwrapped(function)).__name__
        )
        if name is not None and not name.strip():
            raise ConfigurationError("a tool's name is empty")
        summary, of_parameters = _documentation(inspect.getdoc(target) or "")
        self.description = description if description is not None else summary
        self.timeout, self.retry, self.serial, self.return_direct = timeout, retry, serial, return_direct
        self.is_async = _is_async(function)
        signature = _Signature(function, target, self.name, local_names)
        self._context_parameter = signature.context_parameter
        self._positional = tuple(signature.positional)
        self._type = signature.struct()
        self.parameters = signature.schema(self._type, of_parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.name})"

    def bind(self, args: Mapping[str, Any], context: ToolContext) -> functools.partial[Any]:
        """The call, ready to be made, with its arguments converted and the context put in.

        Raises:
            ArgumentError: they do not fit; the text says which, how, and what is allowed.
        """
        try:
            values = convert_value(args, self._type)
        except msgspec.ValidationError as error:
            raise ArgumentError(
                f"Invalid arguments for {self.name}: {describe_error(error)}. Its parameters are: {self._shape()}."
            ) from error
        given = {
            name: value
            for name in self._type.__struct_fields__
            if (value := getattr(values, name)) is not msgspec.UNSET
        }
        if self._context_parameter is not None:
            given[self._context_parameter] = context
        positional: list[Any] = []
        for name in self._positional:
            if name not in given:
                break
            positional.append(given.pop(name))
        return functools.partial(self.__wrapped__, *positional, **given)

    def _shape(self) -> str:
        properties = cast("dict[str, dict[str, Any]]", self.parameters.get("properties", {}))
        required = set(cast("list[str]", self.parameters.get("required", [])))
        return (
            ", ".join(
                f"{name} ({schema.get('type', 'any')}{', required' if name in required else ''})"
                for name, schema in properties.items()
            )
            or "none"
        )


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    retry: int = 0,
    serial: bool = False,
    return_direct: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    retry: int = 0,
    serial: bool = False,
    return_direct: bool = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, sync or async: `@tool`, or `@tool(name=…, timeout=…)`.

    The schema comes from the signature, the descriptions from the docstring (Google, NumPy or Sphinx style); a
    parameter annotated `ToolContext` is filled in and never shown to the model.

    Args:
        function: the function.
        name: instead of the function's own.
        description: instead of the docstring's.
        timeout: seconds a call may take.
        retry: attempts after the first for a `TransientToolError`; only for tools that may safely run twice.
        serial: calls of serial tools run one after another.
        return_direct: the result is the answer; the model is not asked again.

    Raises:
        ConfigurationError: a parameter without annotation, `*args`/`**kwargs`, a type without JSON form.
    """
    frame = inspect.currentframe()
    # String annotations may name types of the scope the function is defined in.
    local_names = dict(frame.f_back.f_locals) if frame is not None and frame.f_back is not None else {}

    def make(function: Callable[..., Any]) -> Tool:
        return Tool(
            function,
            name=name,
            description=description,
            timeout=timeout,
            retry=retry,
            serial=serial,
            return_direct=return_direct,
            local_names=local_names,
        )

    return make if function is None else make(function)


def tools_by_name(tools: Sequence[ToolSource]) -> dict[str, Tool]:
    """The tools by name; plain functions are made tools.

    Raises:
        ConfigurationError: two tools of one name, or something that cannot be called.
    """
    named: dict[str, Tool] = {}
    for source in tools:
        if not callable(source):
            raise ConfigurationError(f"{source!r} is not a tool: give functions or what @tool returns")
        one = source if isinstance(source, Tool) else Tool(source)
        if one.name in named:
            raise ConfigurationError(f"two tools are named {one.name!r}; give one of them another name")
        named[one.name] = one
    return named


class _Signature:
    """A function's parameters as a tool needs them."""

    def __init__(
        self, function: Callable[..., Any], target: Callable[..., Any], name: str, local_names: Mapping[str, Any] | None
    ) -> None:
        self.name = name
        self.context_parameter: str | None = None
        self.positional: list[str] = []
        self.fields: list[tuple[str, Any, Any]] = []  # name, type, default
        self.notes: dict[str, str] = {}
        try:
            hints = get_type_hints(target, localns=dict(local_names or {}), include_extras=True)
        except NameError as error:
            raise ConfigurationError(f"tool {name!r}: an annotation cannot be resolved: {error}") from error
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise ConfigurationError(
                    f"tool {name!r}: parameter *{parameter.name} has no schema; name the parameters one by one"
                )
            if parameter.name not in hints:
                raise ConfigurationError(
                    f"tool {name!r}: parameter {parameter.name!r} has no annotation; the model needs its type"
                )
            self._take(parameter, hints[parameter.name])

    def _take(self, parameter: inspect.Parameter, hint: Any) -> None:
        if parameter.kind is parameter.POSITIONAL_ONLY:
            self.positional.append(parameter.name)
        if ToolContext in (hint, *get_args(hint)):
            self.context_parameter = parameter.name
            return
        if get_origin(hint) is Annotated:  # Annotated[int, "how many"]: the text describes the parameter
            notes = [note for note in get_args(hint)[1:] if isinstance(note, str)]
            if notes:
                self.notes[parameter.name] = notes[0]
        self.fields.append((parameter.name, hint, parameter.default))

    def struct(self) -> type[msgspec.Struct]:
        fields: list[Any] = [
            (name, hint) if default is inspect.Parameter.empty else (name, hint | msgspec.UnsetType, msgspec.UNSET)
            for name, hint, default in self.fields
        ]
        try:
            made = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
            convert_probe(made)
        except (TypeError, NotImplementedError) as error:
            raise ConfigurationError(f"tool {self.name!r}: {error}") from error
        return made

    def schema(self, type_: type[msgspec.Struct], descriptions: Mapping[str, str]) -> dict[str, Any]:
        try:
            schema = inline_references(schema_of(type_))
        except (TypeError, NotImplementedError) as error:
            raise ConfigurationError(f"tool {self.name!r}: {error}") from error
        schema.pop("title", None)
        properties = cast("dict[str, dict[str, Any]]", schema.setdefault("properties", {}))
        for name, _, default in self.fields:
            described = self.notes.get(name) or descriptions.get(name)
            if described and "description" not in properties[name]:
                properties[name]["description"] = described
            if default is not inspect.Parameter.empty and isinstance(default, str | int | float | bool):
                properties[name]["default"] = default
        return schema


def convert_probe(type_: type[msgspec.Struct]) -> None:
    """Have msgspec look at the type now, so that a type it cannot handle is reported where the tool is made."""
    try:
        convert_value({"": None}, type_)
    except msgspec.ValidationError:
        return


def _annotated_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that carries name, docstring and annotations: inside a partial, a method, a callable object."""
    function = _unwrapped(function)
    if isinstance(function, Tool):
        raise ConfigurationError(f"{function!r} is a tool already")
    if inspect.isfunction(function) or inspect.ismethod(function) or inspect.isbuiltin(function):
        return inspect.unwrap(function)
    return type(function).__call__


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = cast("Callable[..., Any]", function.func)
    return function


def _is_async(function: Callable[..., Any]) -> bool:
    function = _unwrapped(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _documentation(docstring: str) -> tuple[str, dict[str, str]]:
    """The description and the parameters' descriptions, of any common docstring style."""
    if not docstring:
        return "", {}
    from docstring_parser import parse

    parsed = parse(docstring)
    described = "\n\n".join(part for part in (parsed.short_description, parsed.long_description) if part)
    return described or docstring, {one.arg_name: one.description or "" for one in parsed.params}
