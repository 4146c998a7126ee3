"""What is wrong with a process is said when it is built: the thing, the place and the cure."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Sized
from typing import Annotated, Any, Literal, NoReturn, Protocol, TypedDict, TypeVar, cast

import pytest

from agentcore import ConfigurationError
from agentcore.context import ToolContext
from agentcore.process import (
    Event,
    EventType,
    Process,
    ProcessBuilder,
    StepContext,
    StepFailure,
    StepResult,
    each,
    failed,
    gather,
    latest,
)
from agentcore.process.fits import fits, item_of
from agentcore.process.step import NoResult, Step


async def passes(x: int) -> int:
    return x


def unknown_source(flow: ProcessBuilder) -> Process:
    flow.step(name="first")(passes)
    flow.step(name="second", inputs={"x": "frist"})(passes)
    return flow.build("second")


def unbound_input(flow: ProcessBuilder) -> Process:
    @flow.step
    async def draft(x: int) -> int:
        return x

    @flow.step
    async def merge(draf: int) -> int:
        return draf

    return flow.build(merge)


def binds_no_parameter(flow: ProcessBuilder) -> Process:
    flow.step(name="first", inputs={"y": "x"})(passes)
    return flow.build("first")


def no_source(flow: ProcessBuilder) -> Process:
    flow.step(name="first", inputs={"x": ()})(passes)
    return flow.build("first")


def no_name_of_anything(flow: ProcessBuilder) -> Process:
    flow.step(name="first", inputs={"x": 5})(passes)
    return flow.build("first")


def two_steps_of_a_name(flow: ProcessBuilder) -> Process:
    flow.step(name="first")(passes)
    flow.step(name="first")(passes)
    return flow.build("first")


def step_named_as_an_input(flow: ProcessBuilder) -> Process:
    flow.step(name="x")(passes)
    return flow.build("x")


def event_named_as_a_step(flow: ProcessBuilder) -> Process:
    flow.step(name="first")(passes)
    flow.event("first", int)
    return flow.build("first")


def empty_name(flow: ProcessBuilder) -> Process:
    flow.event("", int)
    return flow.build()


def unreachable(flow: ProcessBuilder) -> Process:
    flow.step(name="first")(passes)
    flow.step(name="second", inputs={"x": "third"})(passes)
    flow.step(name="third", inputs={"x": "second"}, max_runs=3)(passes)
    return flow.build("first")


def fan_in_never_complete(flow: ProcessBuilder) -> Process:
    @flow.step(inputs={"later": "after"})
    async def join(x: int, later: int) -> int:
        return x

    flow.step(name="after", inputs={"x": join}, max_runs=3)(passes)
    return flow.build("after")


def event_nobody_emits(flow: ProcessBuilder) -> Process:
    flow.event("approved", int)
    flow.step(name="first")(passes)
    flow.step(name="second", inputs={"x": "approved"})(passes)
    return flow.build("second")


def result_of_a_step_that_has_none(flow: ProcessBuilder) -> Process:
    approved = flow.event("approved", int)

    @flow.step(emits=[approved])
    async def check(x: int) -> Event[int]:
        return approved(x)

    flow.step(name="second", inputs={"x": check})(passes)
    return flow.build("second")


def cycle_without_a_bound(flow: ProcessBuilder) -> Process:
    again = flow.event("again", int)

    @flow.step(inputs={"x": ("x", "check")})
    async def draft(x: int) -> int:
        return x

    @flow.step(emits=[again])
    async def check(draft: int) -> int:
        return draft

    return flow.build(check)


def cycle_through_a_failure(flow: ProcessBuilder) -> Process:
    again = flow.event("again", int)

    @flow.step(inputs={"x": ("x", again)})
    async def work(x: int) -> int:
        return x

    @flow.step(inputs={"failure": failed(work)}, emits=[again])
    async def retry(failure: StepFailure) -> Event[int]:
        return again(1)

    return flow.build(work)


def join_outside_of_a_cycle(flow: ProcessBuilder) -> Process:
    rejected = flow.event("rejected", str)

    @flow.step(inputs={"x": ("x", rejected)}, max_runs=3)
    async def draft(x: Any) -> str:
        return str(x)

    @flow.step(emits=[rejected])
    async def check(draft: str) -> str | Event[str]:
        return draft

    @flow.step
    async def publish(draft: str, check: str) -> str:
        return draft

    return flow.build(publish)


def unused_input(flow: ProcessBuilder) -> Process:
    @flow.step
    async def first() -> int:
        return 1

    return flow.build(first)


def unused_outside_event(flow: ProcessBuilder) -> Process:
    flow.outside("decision", bool)
    flow.step(name="first")(passes)
    return flow.build("first")


def unknown_result(flow: ProcessBuilder) -> Process:
    flow.step(name="first")(passes)
    return flow.build("last")


def result_nobody_emits(flow: ProcessBuilder) -> Process:
    approved = flow.event("approved", int)
    flow.step(name="first")(passes)
    return flow.build(approved)


def result_from_outside(flow: ProcessBuilder) -> Process:
    flow.step(name="first")(passes)
    return flow.build("x")


def result_of_only_events(flow: ProcessBuilder) -> Process:
    approved = flow.event("approved", int)

    @flow.step(emits=[approved])
    async def check(x: int) -> Event[int]:
        return approved(x)

    return flow.build(check)


def foreign_step(flow: ProcessBuilder) -> Process:
    other = ProcessBuilder("other", inputs={"x": int}).step(name="theirs")(passes)
    flow.step(name="first", inputs={"x": other})(passes)
    return flow.build("first")


def foreign_event(flow: ProcessBuilder) -> Process:
    other = ProcessBuilder("other").event("theirs", int)
    flow.step(name="first", inputs={"x": ("x", other)})(passes)
    return flow.build("first")


def foreign_event_emitted(flow: ProcessBuilder) -> Process:
    other = ProcessBuilder("other").event("theirs", int)
    flow.step(name="first", emits=[other])(passes)
    return flow.build("first")


def emits_a_name(flow: ProcessBuilder) -> Process:
    flow.step(name="first", emits=cast("Any", ["approved"]))(passes)
    return flow.build("first")


def two_fan_outs_of_a_step(flow: ProcessBuilder) -> Process:
    @flow.step
    async def many(x: int) -> list[int]:
        return [x]

    @flow.step(inputs={"a": each(many), "b": each(many)})
    async def pair(a: int, b: int) -> int:
        return a * b

    return flow.build(pair)


def fan_out_over_no_list(flow: ProcessBuilder) -> Process:
    @flow.step(inputs={"item": each("x")})
    async def work(item: int) -> int:
        return item

    return flow.build(work)


def only_latest(flow: ProcessBuilder) -> Process:
    flow.step(name="first", inputs={"x": latest("x")})(passes)
    return flow.build("first")


def binding_inside_a_binding(flow: ProcessBuilder) -> Process:
    flow.step(name="first", inputs={"x": gather(latest("x"))})(passes)
    return flow.build("first")


def failures_of_no_step(flow: ProcessBuilder) -> Process:
    flow.step(name="first", inputs={"x": failed("x")})(passes)
    return flow.build("first")


def types_that_cannot_fit(flow: ProcessBuilder) -> Process:
    @flow.step
    async def draft(x: int) -> str:
        return ""

    @flow.step
    async def merge(draft: list[str]) -> int:
        return 1

    return flow.build(merge)


def list_taken_as_an_item(flow: ProcessBuilder) -> Process:
    @flow.step
    async def many(x: int) -> list[int]:
        return [x]

    @flow.step(inputs={"n": each(many)})
    async def double(n: int) -> int:
        return n

    @flow.step
    async def total(double: int) -> int:
        return double

    return flow.build(total)


def never_may_run(flow: ProcessBuilder) -> Process:
    flow.step(name="first", max_runs=0)(passes)
    return flow.build("first")


def no_steps(flow: ProcessBuilder) -> Process:
    return flow.build()


def a_class(flow: ProcessBuilder) -> Process:
    flow.step(int)
    return flow.build()


def a_step_again(flow: ProcessBuilder) -> Process:
    flow.step(cast("Any", flow.step(name="first")(passes)))
    return flow.build()


def a_lambda(flow: ProcessBuilder) -> Process:
    flow.step(lambda x: x)
    return flow.build()


def a_generator(flow: ProcessBuilder) -> Process:
    @flow.step
    async def many(x: int) -> AsyncIterator[int]:
        yield x

    return flow.build()


def any_number_of_parameters(flow: ProcessBuilder) -> Process:
    @flow.step
    async def many(*x: int) -> int:
        return 1

    return flow.build()


def unresolvable_annotation(flow: ProcessBuilder) -> Process:
    @flow.step
    async def first(x: "Nowhere") -> int:  # type: ignore[name-defined] # noqa: F821
        return 1

    return flow.build()


CASES: list[tuple[Callable[[ProcessBuilder], Process], str]] = [
    (unknown_source, r"input 'x' of step 'second' is bound to 'frist'.*did you mean 'first'\?"),
    (unbound_input, r"step 'merge' of process 'p': input 'draf' is unbound.*did you mean 'draft'\?.*inputs="),
    (binds_no_parameter, r"step 'first': inputs binds 'y', which is no parameter of it; its parameters are x"),
    (no_source, r"step 'first': input 'x' is bound to no source; name an event"),
    (no_name_of_anything, r"input 'x' of step 'first' is bound to a int; name a step"),
    (two_steps_of_a_name, r"'first' is a step already and cannot be a step as well.*another name"),
    (step_named_as_an_input, r"'x' is an input of the process already and cannot be a step"),
    (event_named_as_a_step, r"'first' is a step already and cannot be an event"),
    (empty_name, r"an event has an empty name"),
    (unreachable, r"step 'second' of process 'p' is unreachable: its input 'x' waits for 'third'.*bind it to"),
    (fan_in_never_complete, r"the fan-in of step 'join'.*can never be complete: its input 'later' waits for 'after'"),
    (event_nobody_emits, r"step 'second'.*can never run.*event 'approved', which no step emits; add it to the emits"),
    (result_of_a_step_that_has_none, r"step 'second'.*the result of step 'check', whose return type has none"),
    (cycle_without_a_bound, r"a cycle without a bound: .*draft → .*; give one of these steps max_runs"),
    (cycle_through_a_failure, r"a cycle without a bound: .*work"),
    (
        join_outside_of_a_cycle,
        r"input 'draft' of step 'publish'.*cycle through 'check'.*bind it with latest\('draft'\)",
    ),
    (unused_input, r"input 'x' of process 'p' is taken by no step"),
    (unused_outside_event, r"event 'decision' from outside is taken by no step"),
    (unknown_result, r"the result of the process is bound to 'last', but process 'p' has no step"),
    (result_nobody_emits, r"the result of process 'p' is 'approved', but no step emits it"),
    (result_from_outside, r"the result of process 'p' is 'x', but it does not come from a step"),
    (result_of_only_events, r"the result of process 'p' is 'check', but its return type has none"),
    (foreign_step, r"is bound to Step\(theirs\), which is no step of process 'p'"),
    (foreign_event, r"is bound to event 'theirs', which process 'p' does not declare"),
    (foreign_event_emitted, r"step 'first' emits 'theirs', which is no event of process 'p'"),
    (emits_a_name, r"step 'first': emits has 'approved', which is no event"),
    (two_fan_outs_of_a_step, r"step 'pair' of process 'p' has more than one each\(…\) input \(a, b\)"),
    (fan_out_over_no_list, r"input 'item' of step 'work'.*takes each item of 'x', which is a int; let it be a list"),
    (only_latest, r"step 'first' of process 'p' has only latest\(…\) inputs, which start nothing"),
    (binding_inside_a_binding, r"has latest\(…\) inside another binding"),
    (failures_of_no_step, r"takes failed\('x'\), which is an input of the process; name a step"),
    (types_that_cannot_fit, r"input 'draft' of step 'merge'.*is declared list\[str\], but 'draft' brings str"),
    (list_taken_as_an_item, r"input 'double' of step 'total'.*is declared int, but 'double' brings list\[int\]"),
    (never_may_run, r"step 'first': max_runs=0 would never let it run"),
    (no_steps, r"process 'p' has no steps"),
    (a_class, r"is no function; a step is a function"),
    (a_step_again, r"Step\(first\) is a step already"),
    (a_lambda, r"has no name to go by"),
    (a_generator, r"step 'many' is a generator"),
    (any_number_of_parameters, r"step 'many': parameter 'x' cannot be given by name"),
    (unresolvable_annotation, r"step 'first': an annotation cannot be resolved: .*Nowhere"),
]


@pytest.mark.parametrize(("make", "words"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_what_cannot_work_is_refused_at_build_time(make: Callable[[ProcessBuilder], Process], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make(ProcessBuilder("p", inputs={"x": int}))


def test_process_needs_a_name() -> None:
    with pytest.raises(ConfigurationError, match="a process needs a name"):
        ProcessBuilder("")


def test_cycle_that_takes_an_event_from_outside_in_every_round_needs_no_bound() -> None:
    flow = ProcessBuilder("p", inputs={"x": str})
    answer = flow.outside("answer", str)

    @flow.step(inputs={"text": ("x", "reply")})
    async def ask(text: str) -> str:
        return text

    @flow.step(inputs={"answer": answer})
    async def reply(ask: str, answer: str) -> str:
        return answer

    flow.build()


def test_approval_after_a_cycle_is_no_ambiguous_join() -> None:
    flow = ProcessBuilder("p", inputs={"x": str})
    rejected = flow.event("rejected", str)
    flow.outside("decision", bool)

    @flow.step(inputs={"text": ("x", rejected)}, max_runs=3)
    async def draft(text: str) -> str:
        return text

    @flow.step(emits=[rejected])
    async def check(draft: str) -> str | Event[str]:
        return draft

    @flow.step
    async def publish(check: str, decision: bool) -> str:
        return check

    flow.build(publish)


def test_builder_makes_more_than_one_process() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    flow.step(name="first")(passes)
    one = flow.build("first")
    flow.step(name="second", inputs={"x": "first"})(passes)
    two = flow.build("second")
    assert (repr(one), repr(two)) == ("Process(p: first)", "Process(p: first, second)")


class Shaped(Protocol):
    name: str


class Keyed(TypedDict):
    name: str


class _Refuses(type):
    def __subclasscheck__(cls, subclass: type) -> bool:
        raise TypeError("not for you to ask")


class Picky(metaclass=_Refuses):
    pass


@pytest.mark.parametrize(
    ("brought", "wanted", "expected"),
    [
        (str, str, True),
        (str, int, False),
        (int, float, True),
        (bool, int, True),
        (str, Any, True),
        (str, object, True),
        (None, type(None), True),
        (str, str | None, True),
        (str | None, str, True),
        (str | None, int, False),
        (str, int | None, False),
        (int, float | None, True),
        (list[str], Sized, True),
        (type[int], type[str], False),
        (str, Picky, True),
        (list[str], Sequence[str], True),
        (list[str], list[int], False),
        (list[str], list, True),
        (list, list[int], True),
        (list[str], str, False),
        (dict[str, int], Mapping[str, int], True),
        (dict[str, int], Mapping[str, str], False),
        (tuple[int, str], tuple[int, ...], True),
        (Literal["a"], str, True),
        (Literal["a"], int, False),
        (str, Literal["a"], True),
        (int, Literal["a"], False),
        (Literal["a"], Literal["b"], True),
        (Annotated[str, "note"], str, True),
        (str, Annotated[int, "note"], False),
        (str, Shaped, True),
        (Keyed, dict[str, Any], True),
        (Callable[[], int], str, False),
    ],
    ids=str,
)
def test_types_that_certainly_cannot_fit_are_told_apart(brought: Any, wanted: Any, expected: bool) -> None:
    assert fits(brought, wanted) is expected


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (list[str], str),
        (list, Any),
        (tuple[int, ...], int),
        (tuple[int, str], Any),
        (Sequence[str], Any),
        (Any, Any),
        (list[str] | None, Any),
        (str, None),
        (dict[str, int], None),
        (Annotated[list[int], "note"], int),
    ],
    ids=str,
)
def test_items_of_a_list_type(type_: Any, expected: Any) -> None:
    assert item_of(type_) == expected


def returning(annotation: Any) -> Callable[[], Any]:
    def step() -> Any:
        return None

    step.__annotations__["return"] = annotation
    return step


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (str, str),
        (None, type(None)),
        (Event[str], NoResult),
        (Event, NoResult),
        (str | Event[int], str),
        (str | None | Event[int], str | None),
        (StepResult[str], str),
        (StepResult, Any),
        (StepResult[str] | Event[int], str),
        (Awaitable[str], str),
        (NoReturn, NoResult),
        (list[str], list[str]),
        (Annotated[str, "note"], Annotated[str, "note"]),
        (Annotated[str | Event[int], "note"], str),
        (TypeVar("T"), Any),
    ],
    ids=str,
)
def test_result_type_is_the_return_type_without_the_events(annotation: Any, expected: Any) -> None:
    assert Step(returning(annotation)).result_type == expected


def test_unannotated_return_is_any_plain_value() -> None:
    def step():  # type: ignore[no-untyped-def]
        return 1

    assert Step(step).result_type is Any


def test_contexts_are_no_inputs() -> None:
    def step(x: int, a: StepContext, b: ToolContext, c: StepContext | None = None) -> int:
        return x

    one = Step(step)
    assert (list(one.parameters), one.contexts) == (["x"], ("a", "b", "c"))


def test_names_of_the_scope_around_a_step_are_found_for_text_annotations() -> None:
    class Local:
        pass

    flow = ProcessBuilder("p", inputs={"x": int})

    @flow.step
    async def first(x: "int") -> "Local":
        return Local()

    assert first.result_type is Local


def test_event_types_and_steps_show_their_names() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    one: EventType[int] = flow.event("one", int)
    assert (repr(one), repr(flow.step(name="first")(passes))) == ("EventType(one)", "Step(first)")
