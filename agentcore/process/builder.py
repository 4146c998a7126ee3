"""ProcessBuilder: steps, events and inputs are declared here; `build` checks them and gives the process."""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, overload

from agentcore.context import Reducer
from agentcore.errors import ConfigurationError
from agentcore.process.events import Binding, EventType, Failures, Source, StepFailure
from agentcore.process.graph import FAILURE_CODEC, START, Graph, Input, Node, event_type
from agentcore.process.process import Process
from agentcore.process.result import DEFAULT_LIMITS, ProcessLimits
from agentcore.process.step import NoResult, Step
from agentcore.process.validation import check_graph
from agentcore.process.values import ValueCodec

T = TypeVar("T")

KEEP_FINISHED_SECONDS = 86_400.0
"""How long the outcome of a finished run stays in the store."""


class ProcessBuilder:
    """Declares a process: `@builder.step` for each step, then `builder.build(result=last_step)`.

    An input of a step takes the event that has its name: the result of the step of that name, an input of the process,
    an event from outside, a named event. `inputs={"text": …}` binds it to something else.

    Args:
        name: of the process.
        inputs: what `run` is given, by name: each the type of its value.
        slots: of the flat context that steps write: each the type of its value; others hold plain JSON values.
        reducers: for slots that several steps of a superstep may write: how values are folded (else: the last one).
        version: a mark of your own; a run is resumed only by a process of the same one.
    """

    def __init__(
        self,
        name: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        slots: Mapping[str, Any] | None = None,
        reducers: Mapping[str, Reducer] | None = None,
        version: str = "",
    ) -> None:
        if not name:
            raise ConfigurationError("a process needs a name: it is told by it in errors, snapshots and drawings")
        self.name = name
        self.version = version
        self._kinds: dict[str, str] = {}  # of every name that is taken
        self._steps: list[Step] = []
        self._events: dict[str, EventType[Any]] = {}
        self._inputs: dict[str, Any] = {}
        self._outside: dict[str, EventType[Any]] = {}
        self._slots = dict(slots or {})
        self._reducers = dict(reducers or {})
        for one, type_ in (inputs or {}).items():
            self._take(one, "an input of the process")
            self._inputs[one] = type_

    @overload
    def event(self, name: str, type_: type[T]) -> EventType[T]: ...
    @overload
    def event(self, name: str, type_: Any = None) -> EventType[Any]: ...
    def event(self, name: str, type_: Any = None) -> EventType[Any]:
        """Declare a named event that steps may emit (`emits=[it]`), and the type of its value.

        Raises:
            ConfigurationError: the name is taken.
        """
        self._take(name, "an event")
        self._events[name] = EventType(name, type(None) if type_ is None else type_)
        return self._events[name]

    @overload
    def outside(self, name: str, type_: type[T]) -> EventType[T]: ...
    @overload
    def outside(self, name: str, type_: Any = None) -> EventType[Any]: ...
    def outside(self, name: str, type_: Any = None) -> EventType[Any]:
        """Declare an event that comes from outside: a decision, an answer, a webhook.

        A step that takes it waits for it; a run in which nothing else is left to do pauses until `resume` brings it.

        Raises:
            ConfigurationError: the name is taken.
        """
        self._take(name, "an event from outside")
        self._outside[name] = EventType(name, type(None) if type_ is None else type_)
        return self._outside[name]

    @overload
    def step(self, function: Callable[..., Any], /) -> Step: ...
    @overload
    def step(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        inputs: Mapping[str, Source] | None = None,
        emits: Sequence[EventType[Any]] = (),
        max_runs: int | None = None,
    ) -> Callable[[Callable[..., Any]], Step]: ...
    def step(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        inputs: Mapping[str, Source] | None = None,
        emits: Sequence[EventType[Any]] = (),
        max_runs: int | None = None,
    ) -> Step | Callable[[Callable[..., Any]], Step]:
        """Make a step of a function, async or sync (in a worker thread): `@builder.step`, or `@builder.step(…)`.

        It runs whenever there is an event for each of its inputs, and takes them. What it returns is the event of its
        name; a returned `Event` is that event instead; a `StepResult` is both, with writes into the context. A
        parameter annotated `StepContext` or `ToolContext` gets the context.

        Args:
            function: the function.
            name: instead of the function's own.
            inputs: sources of inputs that do not go by their own name: a name, an event, a step, several of them (any
                one will do), or `each(…)`, `gather(…)`, `latest(…)`, `failed(…)`.
            emits: the named events it may return.
            max_runs: how often it may run in one run of the process; every cycle needs a step that says so.

        Raises:
            ConfigurationError: the name is taken, or the function cannot be a step.
        """
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        local_names = dict(caller.f_locals) if caller is not None else {}
        del frame, caller  # a frame that knows itself is garbage only the collector finds

        def make(one: Callable[..., Any]) -> Step:
            step = Step(one, name=name, inputs=inputs, emits=emits, max_runs=max_runs, local_names=local_names)
            self._take(step.name, "a step")
            self._steps.append(step)
            return step

        return make if function is None else make(function)

    def build(
        self,
        result: str | Step | EventType[Any] | None = None,
        *,
        limits: ProcessLimits = DEFAULT_LIMITS,
        max_threads: int = 40,
        keep_finished: float | None = KEEP_FINISHED_SECONDS,
    ) -> Process:
        """Check what was declared and give the process; the builder may be used further, for another one.

        Args:
            result: the step or event whose value is the result: the run ends at the barrier where it is there. None for
                a process that runs until nothing is left to do.
            limits: bounds of each run, unless a call says otherwise.
            max_threads: worker threads for sync steps, shared by all runs.
            keep_finished: seconds for which the outcome of a finished run stays in the store; None for ever.

        Raises:
            ConfigurationError: naming the thing, the place and the cure: unknown or unbound sources, unreachable steps,
                fan-ins that can never be complete, cycles without a bound, names declared and not used, types that
                cannot fit.
        """
        if not self._steps:
            raise ConfigurationError(f"process {self.name!r} has no steps; declare them with @builder.step")
        resolved = [self._resolve(step) for step in self._steps]
        taken = {event for inputs in resolved for one in inputs for event in one.events}
        types: dict[str, Any] = {START: None, **self._inputs}
        types |= {name: event.type for name, event in (self._events | self._outside).items()}
        nodes: list[Node] = []
        for order, (step, inputs) in enumerate(zip(self._steps, resolved, strict=True)):
            fanned = [one.name for one in inputs if one.mode == "each"]
            if len(fanned) > 1:
                raise ConfigurationError(
                    f"step {step.name!r} of process {self.name!r} has more than one each(…) input "
                    f"({', '.join(fanned)}); make one list of what belongs together in a step before it"
                )
            types[step.name] = event_type(step.result_type, bool(fanned))
            failure = _failure_name(step.name)
            types[failure] = StepFailure
            nodes.append(
                Node(
                    order,
                    step,
                    inputs,
                    fanned[0] if fanned else None,
                    None if step.result_type is NoResult else ValueCodec(step.result_type),
                    {one.name: ValueCodec(one.type) for one in self._own_events(step)},
                    failure if failure in taken else None,
                )
            )
        codecs = {name: ValueCodec(type_) for name, type_ in types.items() if type_ is not StepFailure}
        codecs |= {name: FAILURE_CODEC for name, type_ in types.items() if type_ is StepFailure}
        graph = Graph(
            self.name,
            self.version,
            nodes,
            {name: codecs[name] for name in self._inputs},
            {name: codecs[name] for name in self._outside},
            codecs,
            {name: ValueCodec(type_) for name, type_ in self._slots.items()},
            self._reducers,
            self._name_of_source(result, "the result of the process") if result is not None else None,
        )
        check_graph(graph, self._events)
        return Process(graph, limits=limits, max_threads=max_threads, keep_finished=keep_finished)

    def _take(self, name: str, kind: str) -> None:
        if not name:
            raise ConfigurationError(f"process {self.name!r}: {kind} has an empty name; give it one")
        taken = self._kinds.get(name)
        if taken is not None:
            raise ConfigurationError(
                f"process {self.name!r}: {name!r} is {taken} already and cannot be {kind} as well, since inputs go by "
                "name; give one of them another name"
            )
        self._kinds[name] = kind

    def _own_events(self, step: Step) -> Iterable[EventType[Any]]:
        for one in step.emits:
            if self._events.get(one.name) is not one:
                raise ConfigurationError(
                    f"step {step.name!r} emits {one.name!r}, which is no event of process {self.name!r}; declare it "
                    "with event(name, type) of this builder"
                )
        return step.emits

    def _resolve(self, step: Step) -> tuple[Input, ...]:
        inputs: list[Input] = []
        for name in step.parameters:
            binding = step.bindings.get(name)
            if binding is None:
                if name not in self._kinds:
                    if name in step.optional:
                        continue
                    raise ConfigurationError(
                        f"step {step.name!r} of process {self.name!r}: input {name!r} is unbound, for nothing here has "
                        f"that name{self._nearest(name)}; bind it with inputs={{{name!r}: …}}"
                    )
                binding = Binding("one", (name,))
            events: list[str] = []
            for source in binding.sources:
                events.extend(self._names_of(source, step, name))
            inputs.append(Input(name, binding.mode, tuple(dict.fromkeys(events))))
        if not inputs:
            return (Input(START, "one", (START,)),)
        if all(one.mode == "latest" for one in inputs):
            raise ConfigurationError(
                f"step {step.name!r} of process {self.name!r} has only latest(…) inputs, which start nothing; let one "
                "of them take its event plainly"
            )
        return tuple(inputs)

    def _names_of(self, source: Source, step: Step, input_name: str) -> Iterable[str]:
        place = f"input {input_name!r} of step {step.name!r}"
        if isinstance(source, Binding):
            raise ConfigurationError(f"{place} has {source.mode}(…) inside another binding; use one of them")
        if not isinstance(source, Failures):
            return (self._name_of_source(source, place),)
        if not source.steps:
            return [_failure_name(one.name) for one in self._steps if one is not step]
        names = [self._name_of_source(one, place) for one in source.steps]
        for name in names:
            if self._kinds[name] != "a step":
                raise ConfigurationError(f"{place} takes failed({name!r}), which is {self._kinds[name]}; name a step")
        return [_failure_name(name) for name in names]

    def _name_of_source(self, source: Source, place: str) -> str:
        if isinstance(source, Step):
            if source not in self._steps:
                raise ConfigurationError(f"{place} is bound to {source!r}, which is no step of process {self.name!r}")
            return source.name
        if isinstance(source, EventType):
            if (self._events | self._outside).get(source.name) is not source:  # pyright: ignore[reportUnknownMemberType]
                raise ConfigurationError(
                    f"{place} is bound to event {source.name!r}, which process {self.name!r} does not declare; "  # pyright: ignore[reportUnknownMemberType]
                    "declare it with event or outside of this builder"
                )
            return source.name  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if not isinstance(source, str):
            raise ConfigurationError(
                f"{place} is bound to a {type(source).__name__}; name a step, an event or an input of the process"
            )
        if source not in self._kinds:
            raise ConfigurationError(
                f"{place} is bound to {source!r}, but process {self.name!r} has no step, event or input of that name"
                f"{self._nearest(source)}"
            )
        return source

    def _nearest(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._kinds, n=1)
        known = ", ".join(self._kinds)
        return f" (did you mean {near[0]!r}?)" if near else f" (there are: {known})"


def _failure_name(step: str) -> str:
    return f"{step}.failed"
