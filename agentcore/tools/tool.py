"""Tool and the `@tool` decorator: a function, what the model is told of it, and how it may be run."""

import copy
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast, overload

import msgspec

from agentcore.chat import ToolDefinition
from agentcore.context import ToolContext
from agentcore.errors import ConfigurationError
from agentcore.messages import ToolCall
from agentcore.pydantic_types import unwrapped
from agentcore.schema import convert_value, describe_error
from agentcore.tools.signature import Signature, in_words

ToolSource: TypeAlias = "Tool | ToolDefinition | Callable[..., Any]"
"""A tool, a plain function that becomes one, or the definition of a tool that runs on the caller's side."""

Gate: TypeAlias = Callable[[ToolCall, ToolContext], "bool | str | Awaitable[bool | str]"]
"""Whether a call needs a person's consent: a bool, or the reason as text. A gate that fails keeps the call waiting."""


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
        approval: whether a person has to consent before it runs: a bool, or a gate that is asked for each call.
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
        approval: "bool | Gate" = False,
        local_names: Mapping[str, Any] | None = None,
    ) -> None:
        target = _annotated_function(function)
        own_name = getattr(target, "__name__", "__call__")
        self.__wrapped__ = function
        self.__name__ = self.name = name or (
            own_name if own_name != "__call__" else type(_unwrapped(function)).__name__
        )
        if name is not None and not name.strip():
            raise ConfigurationError("a tool's name is empty")
        if timeout is not None and not timeout > 0:
            raise ConfigurationError(f"tool {self.name!r}: timeout={timeout!r} leaves no time; give seconds, or None")
        if retry < 0:
            raise ConfigurationError(f"tool {self.name!r}: retry={retry!r} is not a number of further attempts")
        summary, of_parameters = _documentation(_docstring(function, target))
        self.description = description if description is not None else summary
        self.timeout, self.retry, self.serial, self.return_direct = timeout, retry, serial, return_direct
        self.approval = approval
        self.is_async = _is_async(function)
        signature = Signature(function, target, self.name, local_names or {})
        self._contexts = tuple(signature.contexts)
        self._positional = tuple(signature.positional)
        self._nullable_away = tuple(signature.nullable_away)
        self._arguments = signature.arguments
        self.parameters = signature.schema(of_parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.name})"

    def renamed(self, name: str) -> "Tool":
        """The same tool under another name."""
        other = copy.copy(self)
        other.__name__ = other.name = name
        return other

    def bind(self, args: Mapping[str, Any], context: ToolContext) -> functools.partial[Any]:
        """The call, ready to be made, with its arguments converted and the context put in.

        Raises:
            ArgumentError: they do not fit; the text says which, how, and what is allowed.
        """
        # A copy all the way down: what a tool does to its arguments is no change of the history they come from.
        given = {name: _copy(value) for name, value in args.items()}
        for name in self._nullable_away:
            if name in given and given[name] is None:
                del given[name]
        try:
            values = convert_value(given, self._arguments)
        except msgspec.ValidationError as error:
            problem = describe_error(error)
            if problem.startswith(("Expected `array", "Expected `object")) and "got `str`" in problem:
                problem += " (give the value itself, not a text of it)"
            raise ArgumentError(
                f"Invalid arguments for {self.name}: {problem}. Its parameters are: {in_words(self.parameters)}."
            ) from error
        named = {
            name: value
            for name in self._arguments.__struct_fields__
            if (value := unwrapped(values, name)) is not msgspec.UNSET
        }
        for name in self._contexts:
            named[name] = context
        positional = [named.pop(name, default) for name, default in self._positional]
        return functools.partial(self.__wrapped__, *positional, **named)


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
    approval: "bool | Gate" = False,
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
    approval: "bool | Gate" = False,
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
        approval: True, and the turn pauses before each call until a person has decided on it; or a function of the call
            and the tool context, sync or async, that says whether it has to: True, False, or the reason as text. A gate
            that fails counts as True.

    Raises:
        ConfigurationError: a parameter without annotation, `*args`/`**kwargs`, a type without JSON form.
    """
    # String annotations may name types of the scope the function is defined in.
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    local_names = dict(caller.f_locals) if caller is not None else {}
    del frame, caller  # a frame that knows itself is garbage only the collector finds

    def make(function: Callable[..., Any]) -> Tool:
        return Tool(
            function,
            name=name,
            description=description,
            timeout=timeout,
            retry=retry,
            serial=serial,
            return_direct=return_direct,
            approval=approval,
            local_names=local_names,
        )

    return make if function is None else make(function)


def tools_by_name(tools: Sequence[ToolSource]) -> "dict[str, Tool | ToolDefinition]":
    """The tools by name; plain functions are made tools.

    Raises:
        ConfigurationError: two tools of one name, or something that cannot be called.
    """
    named: dict[str, Tool | ToolDefinition] = {}
    for source in tools:
        if not isinstance(source, ToolDefinition) and not callable(source):
            raise ConfigurationError(f"{source!r} is not a tool: give functions or what @tool returns")
        one = source if isinstance(source, Tool | ToolDefinition) else Tool(source)
        if one.name in named:
            raise ConfigurationError(f"two tools are named {one.name!r}; give one of them another name")
        named[one.name] = one
    return named


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_copy(item) for item in cast("list[Any]", value)]
    return value


def _annotated_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that carries name, docstring and annotations: inside a partial, a method, a callable object."""
    function = _unwrapped(function)
    if isinstance(function, Tool):
        raise ConfigurationError(f"{function!r} is a tool already")
    if isinstance(function, type):
        raise ConfigurationError(f"{function.__name__!r} is a class; a tool is a function, a method or an object")
    if not callable(function):
        raise ConfigurationError(
            f"{function!r} cannot be called; put @tool below @classmethod, or make the tool of the bound method"
        )
    if inspect.ismethod(function):
        return inspect.unwrap(function.__func__)
    if inspect.isroutine(function):
        return inspect.unwrap(function)
    return inspect.unwrap(type(function).__call__)


def _docstring(function: Callable[..., Any], target: Callable[..., Any]) -> str:
    owner = type(_unwrapped(function))
    if target.__doc__ is None and "__call__" in vars(owner):  # an object: its class says what it does
        return inspect.cleandoc(owner.__doc__ or "")
    return inspect.getdoc(target) or ""


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
