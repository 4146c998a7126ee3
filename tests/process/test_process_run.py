"""What a process does: steps start when their inputs are there, events go where they are bound, outcomes are values."""

import asyncio
import contextvars
import operator
import threading
from collections.abc import Awaitable
from functools import partial
from typing import Any

import pytest

from agentcore import ConfigurationError, InvalidInputError, ProviderError, ToolContext
from agentcore.process import (
    Event,
    ProcessBuilder,
    ProcessLimits,
    StepContext,
    StepFailure,
    StepResult,
    each,
    failed,
    gather,
    latest,
)

pytestmark = pytest.mark.asyncio


async def test_results_flow_to_the_inputs_of_their_name() -> None:
    flow = ProcessBuilder("greet", inputs={"name": str})

    @flow.step
    async def greeting(name: str) -> str:
        return f"Hello {name}"

    @flow.step
    def shout(greeting: str) -> str:
        return greeting.upper()

    result = await flow.build(result=shout).run({"name": "Ada"})
    assert (result.status, result.value, result.supersteps) == ("completed", "HELLO ADA", 2)


async def test_fan_out_and_fan_in_of_declared_steps_run_at_once() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    meeting = asyncio.Barrier(2)

    @flow.step
    async def left(x: int) -> int:
        await meeting.wait()
        return x + 1

    @flow.step
    async def right(x: int) -> int:
        await meeting.wait()
        return x * 10

    @flow.step
    async def both(left: int, right: int) -> tuple[int, int]:
        return left, right

    assert (await flow.build(both).run({"x": 3})).value == (4, 30)


async def test_dynamic_fan_out_gives_a_list_in_order_of_the_items() -> None:
    flow = ProcessBuilder("p", inputs={"words": list[str]})
    gates = {"a": asyncio.Event(), "b": asyncio.Event(), "c": asyncio.Event()}
    order: list[str] = []

    @flow.step(inputs={"word": each("words")})
    async def upper(word: str) -> str:
        if word != "c":
            await gates[chr(ord(word) + 1)].wait()
        order.append(word)
        gates[word].set()
        return word.upper()

    result = await flow.build(upper).run({"words": ["a", "b", "c"]})
    assert result.value == ["A", "B", "C"]
    assert order == ["c", "b", "a"]


async def test_fan_out_over_nothing_gives_an_empty_list_and_goes_on() -> None:
    flow = ProcessBuilder("p", inputs={"words": list[str]})

    @flow.step(inputs={"word": each("words")})
    async def upper(word: str) -> str:
        raise AssertionError(word)

    @flow.step
    async def count(upper: list[str]) -> int:
        return len(upper)

    assert (await flow.build(count).run({"words": []})).value == 0


async def test_other_inputs_are_the_same_for_all_instances() -> None:
    flow = ProcessBuilder("p", inputs={"text": str, "words": list[str]})

    @flow.step(inputs={"word": each("words")})
    async def join(text: str, word: str) -> str:
        return text + word

    assert (await flow.build(join).run({"text": "x", "words": ["a", "b"]})).value == ["xa", "xb"]


async def test_fan_outs_can_follow_each_other_without_a_gather_between() -> None:
    flow = ProcessBuilder("p", inputs={"n": int})

    @flow.step
    async def numbers(n: int) -> list[int]:
        return list(range(n))

    @flow.step(inputs={"number": each(numbers)})
    async def square(number: int) -> int:
        return number**2

    @flow.step(inputs={"number": each(square)})
    async def negative(number: int) -> int:
        return -number

    assert (await flow.build(negative).run({"n": 4})).value == [0, -1, -4, -9]


async def test_named_events_choose_the_way() -> None:
    flow = ProcessBuilder("p", inputs={"n": int})
    odd = flow.event("odd", int)
    even = flow.event("even", int)

    @flow.step(emits=[odd, even])
    async def sort(n: int) -> Event[int]:
        return odd(n) if n % 2 else even(n)

    @flow.step(inputs={"n": odd})
    async def on_odd(n: int) -> str:
        return f"odd {n}"

    @flow.step(inputs={"n": even})
    async def on_even(n: int) -> str:
        return f"even {n}"

    @flow.step(inputs={"text": (on_odd, on_even)})
    async def tell(text: str) -> str:
        return text

    process = flow.build(tell)
    assert [(await process.run({"n": n})).value for n in (1, 2)] == ["odd 1", "even 2"]


async def test_an_event_without_value_starts_a_step() -> None:
    flow = ProcessBuilder("p", inputs={"n": int})
    done = flow.event("done")

    @flow.step(emits=[done])
    async def work(n: int) -> Event[None]:
        return done()

    @flow.step(inputs={"_": done})
    async def after(_: None) -> str:
        return "after"

    assert (await flow.build(after).run({"n": 1})).value == "after"


async def test_each_event_of_a_name_is_one_run_and_gather_takes_them_all() -> None:
    flow = ProcessBuilder("p", inputs={"numbers": list[int]})
    found = flow.event("found", int)

    @flow.step(emits=[found])
    async def search(numbers: list[int]) -> StepResult[None]:
        return StepResult(events=[found(number) for number in numbers if number > 1])

    @flow.step(inputs={"number": found})
    async def double(number: int) -> int:
        return number * 2

    @flow.step(inputs={"numbers": gather(double)})
    async def total(numbers: list[int]) -> list[int]:
        return numbers

    assert (await flow.build(total).run({"numbers": [1, 2, 3, 4]})).value == [4, 6, 8]


async def test_instances_that_give_no_value_are_left_out_of_the_list() -> None:
    flow = ProcessBuilder("p", inputs={"numbers": list[int]})
    odd = flow.event("odd", int)

    @flow.step(inputs={"number": each("numbers")}, emits=[odd])
    async def half(number: int) -> int | Event[int]:
        return odd(number) if number % 2 else number // 2

    @flow.step(inputs={"odds": gather(odd), "halves": half})
    async def both(odds: list[int], halves: list[int]) -> tuple[list[int], list[int]]:
        return odds, halves

    assert (await flow.build(both).run({"numbers": [1, 2, 3, 4]})).value == ([1, 3], [1, 2])


async def test_cycle_runs_until_its_event_leaves_it() -> None:
    flow = ProcessBuilder("p", inputs={"n": int})
    again = flow.event("again", int)

    @flow.step(inputs={"n": ("n", again)}, emits=[again], max_runs=10)
    async def halve(n: int) -> int | Event[int]:
        return n if n % 2 else again(n // 2)

    result = await flow.build(halve).run({"n": 48})
    assert (result.value, result.supersteps) == (3, 5)


async def test_bound_of_a_cycle_ends_the_run_as_a_limit_that_names_the_step() -> None:
    flow = ProcessBuilder("p", inputs={"n": int})
    again = flow.event("again", int)
    seen: list[int | None] = []

    @flow.step(inputs={"n": ("n", again)}, emits=[again], max_runs=3)
    async def loop(n: int, context: StepContext) -> int | Event[int]:
        seen.append(context.runs_left)
        return again(n + 1)

    result = await flow.build(loop).run({"n": 0})
    assert (result.status, result.limit, result.limited_step) == ("limit", "max_runs", "loop")
    assert seen == [2, 1, 0]


async def test_latest_keeps_the_newest_value_and_starts_nothing() -> None:
    flow = ProcessBuilder("p", inputs={"text": str})
    rejected = flow.event("rejected", str)
    seen: list[str] = []

    @flow.step(inputs={"feedback": ("text", rejected)}, max_runs=3)
    async def draft(feedback: str) -> str:
        return f"draft after {feedback}"

    @flow.step(emits=[rejected])
    async def check(draft: str) -> Event[str] | str:
        seen.append(draft)
        return "fine" if len(seen) > 1 else rejected("feedback")

    @flow.step(inputs={"draft": latest("draft")})
    async def publish(draft: str, check: str) -> str:
        return f"{check}: {draft}"

    assert (await flow.build(publish).run({"text": "start"})).value == "fine: draft after feedback"


async def test_step_without_inputs_starts_the_process() -> None:
    flow = ProcessBuilder("p")

    @flow.step
    async def begin() -> int:
        return 1

    assert (await flow.build(begin).run()).value == 1


async def test_parameter_with_a_default_is_left_to_it_unless_an_event_has_its_name() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})

    @flow.step
    async def add(x: int, y: int = 5) -> int:
        return x + y

    assert (await flow.build(add).run({"x": 1})).value == 6


async def test_context_writes_fold_in_order_of_declaration_then_of_instances() -> None:
    flow = ProcessBuilder("p", inputs={"numbers": list[int]}, reducers={"log": lambda old, new: [*(old or []), new]})
    gates = [asyncio.Event() for _ in range(3)]

    @flow.step(inputs={"numbers": "numbers"})
    async def first(numbers: list[int]) -> StepResult[int]:
        await gates[0].wait()
        return StepResult(0, writes={"log": "first", "last": "first"})

    @flow.step(inputs={"number": each("numbers")})
    async def second(number: int) -> StepResult[int]:
        if number < 2:
            await gates[number + 1].wait()
        gates[number].set()
        return StepResult(number, writes={"log": number, "last": number})

    @flow.step
    async def end(first: int, second: list[int], context: ToolContext) -> dict[str, Any]:
        return dict(context)

    result = await flow.build(end).run({"numbers": [0, 1, 2]}, context={"user": "u1"})
    assert result.value == {"user": "u1", "log": ["first", 0, 1, 2], "last": 2}
    assert dict(result.context) == result.value


async def test_steps_of_a_superstep_see_the_context_of_the_last_barrier() -> None:
    flow = ProcessBuilder("p", inputs={"numbers": list[int]}, reducers={"n": operator.add})

    @flow.step(inputs={"number": each("numbers")})
    async def write(number: int, context: StepContext) -> StepResult[int]:
        return StepResult(context["n"], writes={"n": number})

    result = await flow.build(write).run({"numbers": [1, 2, 3]}, context={"n": 0})
    assert (result.value, result.context["n"]) == ([0, 0, 0], 6)


async def test_error_of_a_reducer_names_the_slot() -> None:
    flow = ProcessBuilder("p", inputs={"x": int}, reducers={"n": operator.add})

    @flow.step
    async def write(x: int) -> StepResult[None]:
        return StepResult(writes={"n": x})

    with pytest.raises(TypeError) as caught:
        await flow.build(None).run({"x": 1})
    assert "slot 'n'" in str(caught.value.__notes__)


async def test_context_knows_the_instance_and_gives_a_stable_key() -> None:
    flow = ProcessBuilder("p", inputs={"numbers": list[int]})

    @flow.step(inputs={"number": each("numbers")})
    async def show(number: int, context: StepContext) -> tuple[str, str, int, int]:
        return context.run_id, context.call_key, context.superstep, context.index

    result = await flow.build(show).run({"numbers": [7, 8]}, run_id="r1")
    assert result.value == [("r1", "r1:0:show:0", 0, 0), ("r1", "r1:0:show:1", 0, 1)]


async def test_without_a_result_the_run_ends_when_nothing_is_left() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    seen: list[int] = []

    @flow.step
    async def note(x: int) -> None:
        seen.append(x)

    result = await flow.build().run({"x": 1})
    assert (result.status, result.value, seen) == ("completed", None, [1])


async def test_result_of_the_process_may_be_a_named_event_and_the_first_one_counts() -> None:
    flow = ProcessBuilder("p", inputs={"numbers": list[int]})
    found = flow.event("found", int)

    @flow.step(inputs={"number": each("numbers")}, emits=[found])
    async def search(number: int) -> Event[int]:
        return found(number)

    assert (await flow.build(found).run({"numbers": [3, 4]})).value == 3


async def test_run_in_which_the_result_cannot_come_any_more_is_stalled_and_says_where() -> None:
    flow = ProcessBuilder("p", inputs={"n": int})
    odd = flow.event("odd", int)

    @flow.step(emits=[odd])
    async def sort(n: int) -> int | Event[int]:
        return odd(n) if n % 2 else n

    @flow.step
    async def join(n: int, sort: int) -> int:
        return n + sort

    process = flow.build(join)
    assert (await process.run({"n": 2})).status == "completed"
    result = await process.run({"n": 1})
    assert result.status == "stalled"
    assert [(one.step, one.events, one.inputs) for one in result.waiting] == [("join", ("sort",), {"n": 1})]


async def test_limit_of_supersteps() -> None:
    flow = ProcessBuilder("p", inputs={"n": int})
    again = flow.event("again", int)

    @flow.step(inputs={"n": ("n", again)}, emits=[again], max_runs=100)
    async def loop(n: int) -> int | Event[int]:
        return again(n + 1)

    result = await flow.build(loop, limits=ProcessLimits(supersteps=7)).run({"n": 0})
    assert (result.status, result.limit, result.supersteps) == ("limit", "supersteps", 7)


async def test_last_allowed_superstep_may_bring_the_result() -> None:
    flow = ProcessBuilder("p", inputs={"n": int})

    @flow.step
    async def one(n: int) -> int:
        return n

    assert (await flow.build(one).run({"n": 1}, limits=ProcessLimits(supersteps=1))).status == "completed"


async def test_limit_of_concurrency_makes_steps_wait() -> None:
    flow = ProcessBuilder("p", inputs={"numbers": list[int]})
    running, most = 0, 0

    @flow.step(inputs={"number": each("numbers")})
    async def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(3):
            await asyncio.sleep(0)
        running -= 1
        return number

    result = await flow.build(work).run({"numbers": list(range(20))}, limits=ProcessLimits(concurrency=3))
    assert (result.value, most) == (list(range(20)), 3)


async def test_sync_steps_run_in_threads_with_the_context_variables_of_the_caller() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("mine")

    @flow.step
    def sync(x: int) -> tuple[bool, str]:
        return threading.current_thread() is threading.main_thread(), variable.get()

    assert (await flow.build(sync).run({"x": 1})).value == (False, "mine")


async def test_context_variables_of_a_step_do_not_reach_others() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    @flow.step
    async def one(x: int) -> int:
        variable.set("one")
        return x

    @flow.step
    async def two(one: int) -> str:
        return variable.get()

    assert (await flow.build(two).run({"x": 1})).value == "unset"


async def test_methods_partials_and_objects_are_steps() -> None:
    class Work:
        def __init__(self, plus: int) -> None:
            self.plus = plus

        async def add(self, x: int) -> int:
            return x + self.plus

        async def __call__(self, add: int) -> int:
            return add * 2

    def minus(Work: int, by: int) -> int:
        return Work - by

    flow = ProcessBuilder("p", inputs={"x": int})
    flow.step(Work(1).add)
    flow.step(Work(0))
    last = flow.step(name="last")(partial(minus, by=3))
    assert (await flow.build(last).run({"x": 1})).value == 1


async def test_sync_step_may_return_an_awaitable() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})

    async def inner(x: int) -> int:
        return x + 1

    @flow.step
    def outer(x: int) -> Awaitable[int]:
        return inner(x)

    assert (await flow.build(outer).run({"x": 1})).value == 2


async def test_step_can_still_be_called_as_a_function() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})

    @flow.step
    async def add(x: int) -> int:
        return x + 1

    assert await add(x=1) == 2


async def test_process_is_shared_by_concurrent_runs() -> None:
    flow = ProcessBuilder("p", inputs={"x": int}, reducers={"n": operator.add})

    @flow.step
    async def one(x: int) -> StepResult[int]:
        await asyncio.sleep(0)
        return StepResult(x, writes={"n": x})

    @flow.step
    async def two(one: int, context: StepContext) -> int:
        await asyncio.sleep(0)
        return context["n"] + one

    process = flow.build(two)
    results = await asyncio.gather(*(process.run({"x": x}, context={"n": 0}) for x in range(50)))
    assert [result.value for result in results] == [2 * x for x in range(50)]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "'x' missing"),
        ({"x": 1, "y": 2}, "'y' unknown"),
        ({"x": "text"}, "input 'x' of process 'p' is a str, but is declared int"),
        ({"x": object()}, "has no JSON form"),
    ],
    ids=["missing", "unknown", "wrong type", "no data"],
)
async def test_wrong_inputs_are_refused_before_anything_runs(inputs: dict[str, Any], words: str) -> None:
    flow = ProcessBuilder("p", inputs={"x": int})

    @flow.step
    async def one(x: int) -> int:
        raise AssertionError

    with pytest.raises(InvalidInputError, match=words):
        await flow.build(one).run(inputs)


async def test_error_of_a_step_comes_out_as_it_is_with_a_note_where() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})

    @flow.step
    async def bad(x: int) -> int:
        raise ProviderError("no", kind="server")

    with pytest.raises(ProviderError) as caught:
        await flow.build(bad).run({"x": 1}, run_id="r1")
    assert caught.value.__notes__ == ["in step 'bad' (instance 0, superstep 0) of process 'p', run 'r1'"]


async def test_error_stops_the_other_steps_and_waits_for_their_clean_up() -> None:
    flow = ProcessBuilder("p", inputs={"numbers": list[int]})
    started, cleaned = asyncio.Event(), []

    @flow.step(inputs={"number": each("numbers")})
    async def work(number: int) -> int:
        if number == 0:
            await started.wait()
            raise RuntimeError("broken")
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(number)
        return number

    with pytest.raises(RuntimeError, match="broken"):
        await flow.build(work).run({"numbers": [0, 1]})
    assert cleaned == [1]


async def test_error_leaves_the_calling_task_uncancelled() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})

    @flow.step
    async def bad(x: int) -> int:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError):
        await flow.build(bad).run({"x": 1})
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_errors_of_several_steps_are_one_error_that_tells_of_the_others() -> None:
    flow = ProcessBuilder("p", inputs={"numbers": list[int]})
    started = asyncio.Event()

    @flow.step(inputs={"number": each("numbers")})
    async def work(number: int) -> int:
        if number == 0:
            await started.wait()
            raise RuntimeError("first")
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            raise ValueError("in the clean-up")

    with pytest.raises(RuntimeError, match="first") as caught:
        await flow.build(work).run({"numbers": [0, 1]})
    assert "step 'work' failed as well: ValueError" in caught.value.__notes__


@pytest.mark.parametrize("exit_", [KeyboardInterrupt, SystemExit])
async def test_exits_come_out_after_the_others_have_cleaned_up(exit_: type[BaseException]) -> None:
    flow = ProcessBuilder("p", inputs={"numbers": list[int]})
    started, cleaned = asyncio.Event(), []

    @flow.step(inputs={"number": each("numbers")})
    async def work(number: int) -> int:
        if number == 0:
            await started.wait()
            raise exit_
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            cleaned.append(number)
        return number

    with pytest.raises(exit_):
        await flow.build(work).run({"numbers": [0, 1]})
    assert cleaned == [1]


async def test_cancellation_that_a_library_lets_out_is_an_error_of_the_step() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})

    @flow.step
    async def odd(x: int) -> int:
        raise asyncio.CancelledError

    with pytest.raises(Exception, match="step 'odd': something inside it cancelled it"):
        await flow.build(odd).run({"x": 1})


async def test_error_step_takes_the_failure_and_the_others_go_on() -> None:
    flow = ProcessBuilder("p", inputs={"numbers": list[int]})

    @flow.step(inputs={"number": each("numbers")})
    async def work(number: int) -> int:
        if number == 1:
            raise ProviderError("busy", kind="overloaded", retryable=True)
        return number

    @flow.step(inputs={"failure": failed(work)})
    async def explain(failure: StepFailure) -> str:
        return f"{failure.step}[{failure.index}] {failure.error} {failure.kind} {failure.retryable} {failure.message}"

    @flow.step
    async def end(work: list[int], explain: str) -> tuple[list[int], str]:
        return work, explain

    result = await flow.build(end).run({"numbers": [0, 1, 2]})
    assert result.value == ([0, 2], "work[1] ProviderError overloaded True provider overloaded: busy")


async def test_error_step_may_have_the_step_run_again_within_its_bound() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    again = flow.event("again", int)
    tries: list[int] = []

    @flow.step(inputs={"x": ("x", again)})
    async def work(x: int) -> int:
        tries.append(x)
        if len(tries) < 3:
            raise RuntimeError("not yet")
        return x

    @flow.step(inputs={"failure": failed(work), "x": latest("x")}, emits=[again], max_runs=5)
    async def retry(failure: StepFailure, x: int) -> Event[int]:
        return again(x)

    result = await flow.build(work).run({"x": 7})
    assert (result.value, tries) == (7, [7, 7, 7])


async def test_error_step_for_all_does_not_take_its_own_failure() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})

    @flow.step
    async def work(x: int) -> int:
        raise RuntimeError("first")

    @flow.step(inputs={"failure": failed()})
    async def handle(failure: StepFailure) -> int:
        raise ValueError(f"second, after {failure.message}")

    with pytest.raises(ValueError, match="second, after first"):
        await flow.build(handle).run({"x": 1})


async def test_cancellation_inside_is_a_failure_for_the_error_step() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})

    @flow.step
    async def odd(x: int) -> int:
        raise asyncio.CancelledError

    @flow.step(inputs={"failure": failed(odd)})
    async def handle(failure: StepFailure) -> str:
        return failure.message

    assert "something inside it cancelled it" in (await flow.build(handle).run({"x": 1})).value


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (Event("other", 1), "step 'one' emitted 'other', which it does not declare; its events are known"),
        (StepResult(1, events=["known"]), "returned a str among its events"),  # type: ignore[list-item]
        ([Event("known", 1)], "returned a list of events; return StepResult"),
        (StepResult(1, writes=["a"]), "its writes are a list, not a mapping"),  # type: ignore[arg-type]
    ],
    ids=["undeclared event", "no event", "list of events", "no mapping"],
)
async def test_what_a_step_may_not_return_is_told(returned: Any, words: str) -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    known = flow.event("known", int)

    @flow.step(emits=[known])
    async def one(x: int) -> Any:
        return returned

    with pytest.raises(ConfigurationError, match=words):
        await flow.build(one).run({"x": 1})


async def test_result_of_a_step_that_declares_only_events_is_refused() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    known = flow.event("known", int)

    @flow.step(emits=[known])
    async def one(x: int) -> Event[int]:
        return 5  # type: ignore[return-value]

    with pytest.raises(ConfigurationError, match="its return type has only events"):
        await flow.build(known).run({"x": 1})


async def test_step_that_declares_only_events_may_emit_none() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    known = flow.event("known", int)

    @flow.step(emits=[known])
    async def one(x: int) -> Event[int] | None:
        return None

    assert (await flow.build().run({"x": 1})).status == "completed"
    assert (await flow.build(known).run({"x": 1})).status == "stalled"


@pytest.mark.parametrize("bound", ["supersteps", "seconds", "concurrency"])
async def test_bound_that_lets_nothing_run_is_refused(bound: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{bound}=0 lets no step run"):
        ProcessLimits(**{bound: 0})
