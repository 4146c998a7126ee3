"""Step: a plain function as a process sees it: what it takes, what it gives, and how it is called."""

import functools
import inspect
import types
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Annotated, Any, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from agentcore.context import ToolContext
from agentcore.errors import ConfigurationError
from agentcore.process.context import StepContext, StepResult
from agentcore.process.events import Binding, Event, EventType, sources_of

_UNSAID: Any = inspect.Parameter.empty


class NoResult:
    """The result type of a step that only emits named events."""


class Step:
    """A function that is a step of a process. Immutable; calling it calls the function.

    Attributes:
        name: unique in the process; also the name of the event that brings its result.
        parameters: its inputs, by name, with their annotations.
        optional: inputs with a default: left to it unless an event of that name exists.
        contexts: parameters that get the context.
        bindings: of the inputs that do not go by their own name.
        result_type: declared type of the result; `NoResult` if it only emits named events.
        emits: the named events it may emit.
        max_runs: how often it may run in one run of the process.
        is_async: a sync function runs in a worker thread.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        emits: Sequence[EventType[Any]] = (),
        max_runs: int | None = None,
        local_names: Mapping[str, Any] | None = None,
    ) -> None:
        target = _annotated(function)
        self.__wrapped__ = function
        self.name = name or _name_of(function, target)
        self.emits = tuple(emits)
        self.max_runs = max_runs
        self.is_async = _is_async(function)
        if max_runs is not None and max_runs < 1:
            raise ConfigurationError(
                f"step {self.name!r}: max_runs={max_runs!r} would never let it run; give 1 or more"
            )
        for one in self.emits:
            if not isinstance(one, EventType):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
                raise ConfigurationError(
                    f"step {self.name!r}: emits has {one!r}, which is no event; declare it with "
                    "builder.event(name, type)"
                )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError(
                f"step {self.name!r} is a generator; return a StepResult with events, or send to the stream by "
                "context.send"
            )
        hints = _hints(target, self.name, local_names or {})
        self.parameters: dict[str, Any] = {}
        self.optional: set[str] = set()
        self.contexts: tuple[str, ...] = ()
        self._read_parameters(function, hints)
        self.bindings = self._read_bindings(inputs or {})
        self.result_type = _result_type(hints.get("return", Any))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Step({self.name})"

    def _read_parameters(self, function: Callable[..., Any], hints: Mapping[str, Any]) -> None:
        fixed = _fixed_names(function)
        contexts: list[str] = []
        for parameter in inspect.signature(function).parameters.values():
            name = parameter.name
            if name in fixed:
                continue
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise ConfigurationError(
                    f"step {self.name!r}: parameter {name!r} cannot be given by name; inputs are bound by name"
                )
            hint = hints.get(name, Any)
            if any(one in (ToolContext, StepContext) for one in (hint, *get_args(hint))):
                contexts.append(name)
                continue
            self.parameters[name] = hint
            if parameter.default is not _UNSAID:
                self.optional.add(name)
        self.contexts = tuple(contexts)

    def _read_bindings(self, inputs: Mapping[str, Any]) -> dict[str, Binding]:
        bindings: dict[str, Binding] = {}
        for name, given in inputs.items():
            if name not in self.parameters:
                raise ConfigurationError(
                    f"step {self.name!r}: inputs binds {name!r}, which is no parameter of it; "
                    f"its parameters are {', '.join(self.parameters) or 'none'}"
                )
            binding = given if isinstance(given, Binding) else Binding("one", tuple(sources_of(given)))
            if not binding.sources:
                raise ConfigurationError(f"step {self.name!r}: input {name!r} is bound to no source; name an event")
            bindings[name] = binding
        return bindings


def _result_type(annotation: Any) -> Any:
    """The type of the result in a return annotation: events beside it are not part of it."""
    origin = get_origin(annotation)
    if origin is Annotated:
        bare = get_args(annotation)[0]
        inner = _result_type(bare)
        return annotation if inner == bare else inner
    if origin in (Awaitable, Coroutine) or annotation in (Awaitable, Coroutine):
        return _result_type((get_args(annotation) or (Any,))[-1])
    kept: list[Any] = []
    for one in get_args(annotation) if origin in (Union, types.UnionType) else (annotation,):
        kind = get_origin(one) or one
        if kind is Event or one is NoReturn:
            continue
        kept.append((get_args(one) or (Any,))[0] if kind is StepResult else one)
    kept = [Any if isinstance(one, TypeVar) else one for one in kept]
    if not kept:
        return NoResult
    return Union[tuple(type(None) if one is None else one for one in kept)]  # noqa: UP007 - of a computed list


def _hints(target: Callable[..., Any], name: str, local_names: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return get_type_hints(
            target, getattr(target, "__globals__", {}), {**_closure(target), **local_names}, include_extras=True
        )
    except NameError as error:
        raise ConfigurationError(
            f"step {name!r}: an annotation cannot be resolved: {error}; import the type where the step is defined, not "
            "for type checkers only"
        ) from error


def _closure(target: Callable[..., Any]) -> dict[str, Any]:
    code, cells = getattr(target, "__code__", None), getattr(target, "__closure__", None)
    found: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars if code is not None else (), cells or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = cast("Callable[..., Any]", function.func)
    return function


def _annotated(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that carries the annotations: inside a partial, a method, a callable object."""
    function = _unwrapped(function)
    if isinstance(function, Step):
        raise ConfigurationError(
            f"{function!r} is a step already; make the steps of two processes of the plain function"
        )
    if isinstance(function, type) or not callable(function):
        raise ConfigurationError(f"{function!r} is no function; a step is a function, a method or a callable object")
    if inspect.ismethod(function):
        return inspect.unwrap(function.__func__)
    return inspect.unwrap(function if inspect.isroutine(function) else type(function).__call__)


def _name_of(function: Callable[..., Any], target: Callable[..., Any]) -> str:
    name = getattr(target, "__name__", "")
    if name == "__call__":
        return type(_unwrapped(function)).__name__
    if not name or name == "<lambda>":
        raise ConfigurationError(f"{function!r} has no name to go by; give one: builder.step(name=…)")
    return name


def _is_async(function: Callable[..., Any]) -> bool:
    function = _unwrapped(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _fixed_names(function: Callable[..., Any]) -> set[str]:
    """Parameters that a partial has filled in by name."""
    names: set[str] = set()
    while isinstance(function, functools.partial):
        names.update(function.keywords)
        function = cast("Callable[..., Any]", function.func)
    return names
