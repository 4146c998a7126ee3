"""Pauses, resumption, crashes: what was done is never done again, what was said counts once, the record is whole."""

import asyncio
import json
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import Struct
from pydantic import BaseModel, Field

from agentcore import ChatMemory, ConfigurationError, InMemoryChatMemory, InvalidInputError, WindowedChatMemory
from agentcore.errors import StoreError
from agentcore.process import (
    Event,
    GraphChangedError,
    Process,
    ProcessBuilder,
    ProcessLimits,
    ProcessResult,
    RunConflictError,
    StepContext,
    StepFailure,
    StepResult,
    UnknownRunError,
    UnstorableValueError,
    each,
    failed,
    gather,
    latest,
)
from agentcore.process.values import ValueCodec

pytestmark = pytest.mark.asyncio


class Review(Struct, frozen=True):
    by: str
    text: str


@dataclass
class Decision:
    approved: bool
    note: str = ""


def publishing(calls: list[str] | None = None) -> Process:
    flow = ProcessBuilder("publishing", inputs={"topic": str, "reviewers": list[str]})
    flow.outside("decision", Decision)

    @flow.step
    async def draft(topic: str) -> str:
        _note(calls, "draft")
        return f"about {topic}"

    @flow.step(inputs={"reviewer": each("reviewers")})
    async def review(draft: str, reviewer: str) -> Review:
        _note(calls, f"review {reviewer}")
        return Review(reviewer, draft)

    @flow.step
    async def merge(draft: str, review: list[Review]) -> str:
        _note(calls, "merge")
        return f"{draft} ({', '.join(one.by for one in review)})"

    @flow.step
    async def publish(merge: str, decision: Decision) -> str:
        _note(calls, "publish")
        return f"{merge}: {'published' if decision.approved else 'dropped'}{decision.note}"

    return flow.build(publish)


def _note(calls: list[str] | None, what: str) -> None:
    if calls is not None:
        calls.append(what)


INPUTS = {"topic": "fjords", "reviewers": ["ann", "bob"]}


async def test_pause_shows_what_is_waited_for_and_resume_goes_on_in_another_process_object() -> None:
    store, calls = InMemoryChatMemory(), []
    paused = await publishing(calls).run(INPUTS, store=store, run_id="r1")
    assert (paused.status, paused.supersteps) == ("paused", 3)
    (waiting,) = paused.waiting
    assert (waiting.step, waiting.events, waiting.inputs) == (
        "publish",
        ("decision",),
        {"merge": "about fjords (ann, bob)"},
    )
    done = await publishing(calls).resume("r1", {"decision": Decision(True)}, store=store)
    assert (done.status, done.value) == ("completed", "about fjords (ann, bob): published")
    assert calls == ["draft", "review ann", "review bob", "merge", "publish"]


async def test_answer_may_be_plain_data_of_the_declared_type() -> None:
    store, process = InMemoryChatMemory(), publishing()
    await process.run(INPUTS, store=store, run_id="r1")
    done = await process.resume("r1", {"decision": {"approved": False, "note": "!"}}, store=store)
    assert done.value == "about fjords (ann, bob): dropped!"


async def test_resume_that_brings_nothing_tells_the_pause_again() -> None:
    store, process = InMemoryChatMemory(), publishing()
    paused = await process.run(INPUTS, store=store, run_id="r1")
    assert await process.resume("r1", store=store) == paused


async def test_finished_run_tells_its_result_again_and_takes_no_more_events() -> None:
    store, process = InMemoryChatMemory(), publishing()
    await process.run(INPUTS, store=store, run_id="r1")
    done = await process.resume("r1", {"decision": Decision(True)}, store=store)
    assert await process.resume("r1", store=store) == done
    with pytest.raises(RunConflictError, match="run 'r1' has ended"):
        await process.resume("r1", {"decision": Decision(True)}, store=store)


async def test_outcome_of_a_finished_run_is_kept_for_its_time_and_nothing_else_is() -> None:
    now = 0.0
    store, process = InMemoryChatMemory(clock=lambda: now), publishing()
    await process.run(INPUTS, store=store, run_id="r1")
    await process.resume("r1", {"decision": Decision(True)}, store=store)
    assert [len(await store.list_records(*place)) for place in PLACES] == [1, 0, 0]
    now = 86_401.0
    with pytest.raises(UnknownRunError):
        await process.resume("r1", store=store)


PLACES = [
    ("process:r1", "process_snapshot"),
    ("process:r1", "process_answer"),
    ("process-outcomes:r1", "process_outcome"),
]


async def test_unknown_run_is_told() -> None:
    with pytest.raises(UnknownRunError, match="no run 'r9' of process 'publishing' in this store"):
        await publishing().resume("r9", {"decision": Decision(True)}, store=InMemoryChatMemory())


async def test_run_id_is_used_once() -> None:
    store, process = InMemoryChatMemory(), publishing()
    await process.run(INPUTS, store=store, run_id="r1")
    with pytest.raises(RunConflictError, match="there is a run 'r1' in this store already"):
        await process.run(INPUTS, store=store, run_id="r1")


@pytest.mark.parametrize(
    ("events", "answers", "words"),
    [
        ({"approval": True}, {}, "takes no event 'approval' from outside; it takes decision"),
        ({"decision": "yes"}, {}, "event 'decision' for process 'publishing' is a str, but is declared Decision"),
        ({}, {"publish:99": True}, "run 'r1' has no wait 'publish:99'.*it waits with publish:"),
    ],
    ids=["unknown event", "wrong type", "unknown wait"],
)
async def test_wrong_event_changes_nothing(events: dict[str, Any], answers: dict[str, Any], words: str) -> None:
    store, process = InMemoryChatMemory(), publishing()
    paused = await process.run(INPUTS, store=store, run_id="r1")
    before = await store.get_record("process:r1", "process_snapshot", "")
    with pytest.raises(InvalidInputError, match=words):
        await process.resume("r1", events, store=store, answers=answers)
    assert await store.get_record("process:r1", "process_snapshot", "") == before
    assert await process.resume("r1", store=store) == paused


async def test_event_that_nobody_waits_for_now_is_refused() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    first, second = flow.outside("first", int), flow.outside("second", int)

    @flow.step(inputs={"first": first})
    async def one(x: int, first: int) -> int:
        return x + first

    @flow.step(inputs={"second": second})
    async def two(one: int, second: int) -> int:
        return one + second

    store, process = InMemoryChatMemory(), flow.build(two)
    await process.run({"x": 1}, store=store, run_id="r1")
    with pytest.raises(InvalidInputError, match="does not wait for event 'second' now; it waits for first"):
        await process.resume("r1", {"second": 5}, store=store)
    assert (await process.resume("r1", {"first": 2}, store=store)).status == "paused"
    with pytest.raises(InvalidInputError, match="it waits for second"):
        await process.resume("r1", {"first": 2}, store=store)
    assert (await process.resume("r1", {"second": 3}, store=store)).value == 6


async def test_of_many_who_answer_at_once_one_is_heard() -> None:
    store, calls = InMemoryChatMemory(), []
    await publishing(calls).run(INPUTS, store=store, run_id="r1")
    answers = [{"decision": Decision(True, str(n))} for n in range(10)]
    results = await asyncio.gather(
        *(publishing(calls).resume("r1", answer, store=store) for answer in answers), return_exceptions=True
    )
    completed = [one for one in results if isinstance(one, ProcessResult)]
    assert len(completed) == 1
    assert all(isinstance(one, RunConflictError) for one in results if one is not completed[0])
    assert calls.count("publish") == 1


class LocklessStore:
    """A store that keeps records and cannot lock, seen by several machines."""

    def __init__(self) -> None:
        self._store = InMemoryChatMemory()
        for name in ("get", "add", "clear", "put_record", "get_record", "take_record", "list_records"):
            setattr(self, name, getattr(self._store, name))


async def test_of_many_machines_that_answer_at_once_one_is_heard_without_any_lock() -> None:
    store: Any = LocklessStore()
    await publishing().run(INPUTS, store=store, run_id="r1")
    results = await asyncio.gather(
        *(publishing().resume("r1", {"decision": Decision(True, str(n))}, store=store) for n in range(5)),
        return_exceptions=True,
    )
    assert len({one.value for one in results if isinstance(one, ProcessResult)}) == 1
    assert sum(isinstance(one, RunConflictError) for one in results) == 4


async def test_run_that_is_running_is_not_run_beside_itself() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    started, gate = asyncio.Event(), asyncio.Event()

    @flow.step
    async def work(x: int) -> int:
        started.set()
        await gate.wait()
        return x

    store, process = InMemoryChatMemory(), flow.build(work)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(process.run({"x": 1}, store=store, run_id="r1"))
        await started.wait()
        with pytest.raises(RunConflictError, match="run 'r1' is running, here or in another process"):
            await process.resume("r1", store=store)
        waiting = tasks.create_task(process.resume("r1", store=store, on_busy="wait"))
        gate.set()
    assert running.result().value == 1
    assert waiting.result() == running.result()


async def test_superseded_run_ends_as_cancelled_and_the_other_goes_on() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    started, attempts = asyncio.Event(), []

    @flow.step
    async def work(x: int) -> int:
        attempts.append(x)
        started.set()
        if len(attempts) == 1:
            await asyncio.Event().wait()
        return x

    store, process = InMemoryChatMemory(), flow.build(work)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(process.run({"x": 1}, store=store, run_id="r1"))
        await started.wait()
        other = tasks.create_task(process.resume("r1", store=store, on_busy="supersede"))
    assert (running.result().status, other.result().status) == ("cancelled", "completed")


async def test_answers_go_to_the_waits_they_name_in_any_order() -> None:
    flow = ProcessBuilder("p", inputs={"items": list[str]})
    verdict = flow.outside("verdict", bool)
    flagged = flow.event("flagged", str)

    @flow.step(inputs={"item": each("items")}, emits=[flagged])
    async def scan(item: str) -> Event[str]:
        return flagged(item)

    @flow.step(inputs={"item": flagged, "verdict": verdict})
    async def decide(item: str, verdict: bool) -> StepResult[None]:
        return StepResult(writes={item: verdict})

    store, process = InMemoryChatMemory(), flow.build()
    paused = await process.run({"items": ["a", "b", "c"]}, store=store, run_id="r1")
    ids = {one.inputs["item"]: one.id for one in paused.waiting}
    assert list(ids) == ["a", "b", "c"]
    still = await process.resume("r1", store=store, answers={ids["b"]: True})
    assert {one.inputs["item"]: one.id for one in still.waiting} == {"a": ids["a"], "c": ids["c"]}
    with pytest.raises(InvalidInputError, match="has no wait"):
        await process.resume("r1", store=store, answers={ids["b"]: False})
    one_left = await process.resume("r1", {"verdict": False}, store=store)  # whoever has waited longest
    assert [one.inputs["item"] for one in one_left.waiting] == ["c"]
    done = await process.resume("r1", store=store, answers={ids["c"]: True})
    assert (done.status, dict(done.context)) == ("completed", {"a": False, "b": True, "c": True})


async def test_several_answers_at_once_are_one_superstep() -> None:
    flow = ProcessBuilder("p", inputs={"items": list[str]})
    verdict = flow.outside("verdict", int)
    flagged = flow.event("flagged", str)

    @flow.step(inputs={"item": each("items")}, emits=[flagged])
    async def scan(item: str) -> Event[str]:
        return flagged(item)

    @flow.step(inputs={"item": flagged, "verdict": verdict})
    async def decide(item: str, verdict: int) -> str:
        return f"{item}{verdict}"

    @flow.step(inputs={"all_": gather(decide)})
    async def end(all_: list[str]) -> list[str]:
        return all_

    store, process = InMemoryChatMemory(), flow.build(end)
    paused = await process.run({"items": ["a", "b", "c"]}, store=store, run_id="r1")
    answers = {one.id: number for number, one in enumerate(paused.waiting)}
    done = await process.resume("r1", store=store, answers=dict(reversed(answers.items())))
    assert done.value == ["a0", "b1", "c2"]


async def test_wait_for_several_events_is_answered_by_name_and_may_come_in_parts() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    flow.outside("first", int)
    flow.outside("second", int)

    @flow.step
    async def add(x: int, first: int, second: int) -> int:
        return x + first * second

    store, process = InMemoryChatMemory(), flow.build(add)
    paused = await process.run({"x": 1}, store=store, run_id="r1")
    (waiting,) = paused.waiting
    assert waiting.events == ("first", "second")
    with pytest.raises(InvalidInputError, match="is for several events"):
        await process.resume("r1", store=store, answers={waiting.id: 5})
    half = await process.resume("r1", {"first": 5}, store=store)
    assert (half.status, half.waiting[0].events, half.waiting[0].inputs) == (
        "paused",
        ("second",),
        {"x": 1, "first": 5},
    )
    done = await process.resume("r1", store=store, answers={half.waiting[0].id: 2})
    assert done.value == 11


async def test_process_may_be_started_by_an_event_from_outside() -> None:
    flow = ProcessBuilder("p")
    message = flow.outside("message", str)
    stop = flow.outside("stop", bool)

    @flow.step(inputs={"message": message})
    async def note(message: str, context: StepContext) -> StepResult[None]:
        return StepResult(writes={"notes": [*context.get("notes", []), message]})

    @flow.step(inputs={"stop": stop})
    async def end(stop: bool, context: StepContext) -> list[str]:
        return context["notes"]

    store, process = InMemoryChatMemory(), flow.build(end)
    first = await process.run(store=store, run_id="r1")
    assert (first.status, [one.id for one in first.waiting]) == ("paused", ["note", "end"])
    for text in ("a", "b"):
        assert (await process.resume("r1", {"message": text}, store=store)).status == "paused"
    assert (await process.resume("r1", store=store, answers={"end": True})).value == ["a", "b"]


async def test_latest_value_may_come_from_outside() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    rate = flow.outside("rate", int)

    @flow.step(inputs={"rate": latest(rate)})
    async def apply(x: int, rate: int) -> int:
        return x * rate

    store, process = InMemoryChatMemory(), flow.build(apply)
    paused = await process.run({"x": 4}, store=store, run_id="r1")
    assert paused.waiting[0].events == ("rate",)
    assert (await process.resume("r1", store=store, answers={paused.waiting[0].id: 5})).value == 20


@pytest.mark.parametrize("seconds", [None, 30.0], ids=["supersteps", "within time"])
async def test_run_that_reached_a_limit_goes_on(seconds: float | None) -> None:
    store, calls = InMemoryChatMemory(), []
    process = publishing(calls)
    cut = await process.run(INPUTS, store=store, run_id="r1", limits=ProcessLimits(supersteps=1, seconds=seconds))
    assert (cut.status, cut.limit, calls) == ("limit", "supersteps", ["draft"])
    assert (await process.resume("r1", store=store)).status == "paused"
    assert calls == ["draft", "review ann", "review bob", "merge"]


async def test_run_that_was_broken_off_takes_events_only_once_it_waits() -> None:
    store, process = InMemoryChatMemory(), publishing()
    await process.run(INPUTS, store=store, run_id="r1", limits=ProcessLimits(supersteps=1))
    with pytest.raises(RunConflictError, match="has steps to run before it waits for anything; resume it without"):
        await process.resume("r1", {"decision": Decision(True)}, store=store)


def _with_other_type() -> Process:
    flow = ProcessBuilder("publishing", inputs={"topic": str, "reviewers": list[str]})
    flow.outside("decision", bool)
    return _rest(flow, bool)


def _with_another_step() -> Process:
    flow = ProcessBuilder("publishing", inputs={"topic": str, "reviewers": list[str]})
    flow.outside("decision", Decision)

    @flow.step(name="archive", inputs={"text": "merge"})
    async def archive(text: str) -> None: ...

    return _rest(flow, Decision)


def _with_another_version() -> Process:
    flow = ProcessBuilder("publishing", inputs={"topic": str, "reviewers": list[str]}, version="2")
    flow.outside("decision", Decision)
    return _rest(flow, Decision)


def _with_another_name() -> Process:
    flow = ProcessBuilder("printing", inputs={"topic": str, "reviewers": list[str]})
    flow.outside("decision", Decision)
    return _rest(flow, Decision)


def _with_another_order() -> Process:
    flow = ProcessBuilder("publishing", inputs={"topic": str, "reviewers": list[str]})
    flow.outside("decision", Decision)
    return _rest(flow, Decision, late_draft=True)


def _rest(flow: ProcessBuilder, decided: Any, *, late_draft: bool = False) -> Process:
    async def draft(topic: str) -> str:
        return topic

    async def review(draft: str, reviewer: str) -> Review:
        return Review(reviewer, draft)

    async def merge(draft: str, review: list[Review]) -> str:
        return draft

    async def publish(merge: str, decision: decided) -> str:  # type: ignore[valid-type]
        return merge

    if not late_draft:
        flow.step(draft)
    flow.step(inputs={"reviewer": each("reviewers")})(review)
    if late_draft:
        flow.step(draft)
    flow.step(merge)
    flow.step(publish)
    return flow.build("publish")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (_with_other_type, r"changed: outside event 'decision'"),
        (_with_another_step, r"new: step 'archive'"),
        (_with_another_version, r"changed: process 'publishing'"),
        (_with_another_name, r"new: process 'printing'; gone: process 'publishing'"),
        (_with_another_order, r"changed: order of steps"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_changed_graph_is_refused_by_name(changed: Callable[[], Process], words: str) -> None:
    store = InMemoryChatMemory()
    await publishing().run(INPUTS, store=store, run_id="r1")
    with pytest.raises(GraphChangedError, match=words):
        await changed().resume("r1", store=store)
    assert (await publishing().resume("r1", {"decision": Decision(True)}, store=store)).status == "completed"


async def test_other_code_in_the_same_graph_goes_on() -> None:
    store = InMemoryChatMemory()
    await publishing().run(INPUTS, store=store, run_id="r1")
    flow = ProcessBuilder("publishing", inputs={"topic": str, "reviewers": list[str]})
    flow.outside("decision", Decision)
    done = await _rest(flow, Decision).resume("r1", {"decision": Decision(True)}, store=store)
    assert done.value == "about fjords (ann, bob)"


class Crash(BaseException):
    """The process is gone: nothing below it may clean up by means of the store."""


class CrashingStore(InMemoryChatMemory):
    """Ends the process before, or right after, the write of a certain number."""

    def __init__(self, at: int, *, after: bool) -> None:
        super().__init__()
        self.at = at
        self.after = after
        self.writes = 0
        self.is_dead = False

    async def put_record(self, *args: Any, **kwargs: Any) -> bool:
        await self._maybe_die(before=True)
        written = await super().put_record(*args, **kwargs)
        await self._maybe_die(before=False)
        return written

    async def clear(self, conversation_id: str) -> None:
        await self._maybe_die(before=True)
        await super().clear(conversation_id)
        await self._maybe_die(before=False)

    async def take_record(self, *args: Any) -> Any:
        await self._maybe_die(before=True)
        return await super().take_record(*args)

    async def _maybe_die(self, *, before: bool) -> None:
        if self.is_dead:
            raise StoreError("the process is gone")
        if before:
            self.writes += 1
        if self.writes == self.at and before is not self.after:
            self.is_dead = True
            raise StoreError("the process is gone")


def counted(calls: dict[str, int]) -> Process:
    """Fan-out, cycle, failure, context and a pause: everything that has to survive."""
    flow = ProcessBuilder(
        "counted",
        inputs={"numbers": list[int]},
        slots={"log": list[str]},
        reducers={"log": lambda old, new: (old or []) + new},
    )
    flow.outside("factor", int)
    again = flow.event("again", list[int])

    def called(key: str) -> None:
        calls[key] = calls.get(key, 0) + 1

    @flow.step(inputs={"number": each("numbers", again)}, max_runs=4)
    async def work(number: int, context: StepContext) -> StepResult[int]:
        called(context.call_key)
        if number == 3:
            raise ValueError("three")
        return StepResult(number + 1, writes={"log": [f"{number}"]})

    @flow.step(inputs={"failure": failed(work)})
    async def excuse(failure: StepFailure, context: StepContext) -> StepResult[None]:
        called(context.call_key)
        return StepResult(writes={"log": [failure.message]})

    @flow.step(emits=[again])
    async def check(work: list[int], context: StepContext) -> int | Event[list[int]]:
        called(context.call_key)
        return sum(work) if context.superstep > 2 else again(work)

    @flow.step
    async def scale(check: int, factor: int, context: StepContext) -> tuple[int, list[str]]:
        called(context.call_key)
        return check * factor, context["log"]

    return flow.build(scale)


NUMBERS = {"numbers": [1, 3, 5]}


async def uninterrupted() -> tuple[Any, Any]:
    store = InMemoryChatMemory()
    paused = await counted({}).run(NUMBERS, store=store, run_id="r1")
    assert paused.status == "paused"
    done = await counted({}).resume("r1", {"factor": 10}, store=store)
    return paused, done


async def go_on(store: InMemoryChatMemory, calls: dict[str, int]) -> ProcessResult:
    """What a caller does after any crash: begin if it had not begun, go on if it had."""
    process = counted(calls)
    try:
        result = await process.run(NUMBERS, store=store, run_id="r1")
    except RunConflictError:
        result = await process.resume("r1", store=store)
    if result.status == "paused":
        result = await process.resume("r1", {"factor": 10}, store=store)
    return result


@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write"])
async def test_crash_at_any_write_changes_nothing_of_the_outcome(after: bool) -> None:
    _, done = await uninterrupted()
    at = 0
    while True:
        at += 1
        store, calls = CrashingStore(at, after=after), dict[str, int]()
        try:
            await go_on(store, calls)
        except StoreError:
            pass
        else:
            break
        store.is_dead, store.at = False, 0
        result = await go_on(store, calls)
        assert result == done, at
        # Only those whose outcome nobody had acknowledged run once more: the three of a fan-out at most.
        assert sum(calls.values()) - len(calls) <= 3, (at, calls)
    assert at > 12


@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write"])
async def test_recorded_outcomes_are_never_brought_about_again(after: bool) -> None:
    flow = ProcessBuilder("p", inputs={"numbers": list[int]})
    calls: list[int] = []
    gates = [asyncio.Event() for _ in range(4)]
    gates[0].set()

    @flow.step(inputs={"number": each("numbers")})
    async def work(number: int) -> int:
        if len(calls) < 4:
            await gates[number].wait()
        calls.append(number)
        if number < 3:
            gates[number + 1].set()
        return number * 2

    store = CrashingStore(4, after=after)  # the first snapshot, then the outcomes of 0, 1, 2
    process = flow.build(work)
    with pytest.raises(StoreError):
        await process.run({"numbers": [0, 1, 2, 3]}, store=store, run_id="r1")
    recorded = await store.list_records("process-outcomes:r1", "process_outcome")
    ran = len(calls)
    store.is_dead, store.at = False, 0
    calls.extend([-1] * 4)  # the gates are for the first attempt
    result = await process.resume("r1", store=store)
    assert result.value == [0, 2, 4, 6]
    assert len(recorded) >= (3 if after else 2)
    again = calls[ran + 4 :]
    assert set(again) == set(range(4)) - {int(record.key.rpartition(":")[2]) for record in recorded}


async def test_failed_step_is_run_again_by_resume_and_its_finished_siblings_are_not() -> None:
    flow = ProcessBuilder("p", inputs={"numbers": list[int]})
    calls: list[int] = []
    others = asyncio.Event()

    @flow.step(inputs={"number": each("numbers")})
    async def work(number: int) -> int:
        calls.append(number)
        if number == 1 and calls.count(1) == 1:
            await others.wait()
            raise ConnectionError("away")
        return number

    class Store(InMemoryChatMemory):
        outcomes = 0

        async def put_record(self, conversation_id: str, kind: str, key: str, body: str, **kwargs: Any) -> bool:
            written = await super().put_record(conversation_id, kind, key, body, **kwargs)
            if kind == "process_outcome":
                self.outcomes += 1
                if self.outcomes == 2:
                    others.set()
            return written

    store, process = Store(), flow.build(work)
    with pytest.raises(ConnectionError):
        await process.run({"numbers": [0, 1, 2]}, store=store, run_id="r1")
    assert (await process.resume("r1", store=store)).value == [0, 1, 2]
    assert sorted(calls) == [0, 1, 1, 2]


async def test_handled_failure_is_an_outcome_and_is_not_tried_again() -> None:
    flow = ProcessBuilder("p", inputs={"numbers": list[int]})
    calls: list[int] = []

    @flow.step(inputs={"number": each("numbers")})
    async def work(number: int) -> int:
        calls.append(number)
        if number == 0:
            raise ValueError("no")
        if calls.count(1) == 1:
            while not await store.list_records("process-outcomes:r1", "process_outcome"):
                await asyncio.sleep(0)
            raise OSError("the process is gone") if number == 9 else Crashed
        return number

    class Crashed(KeyboardInterrupt):
        pass

    @flow.step(inputs={"failure": failed(work)})
    async def note(failure: StepFailure) -> str:
        return failure.message

    @flow.step
    async def end(work: list[int], note: str) -> tuple[list[int], str]:
        return work, note

    store, process = InMemoryChatMemory(), flow.build(end)
    with pytest.raises(KeyboardInterrupt):
        await process.run({"numbers": [0, 1]}, store=store, run_id="r1")
    assert (await process.resume("r1", store=store)).value == ([1], "no")
    assert calls == [0, 1, 1]


async def test_kept_answer_counts_although_the_process_ended_right_after_it() -> None:
    store = CrashingStore(0, after=True)
    await publishing().run(INPUTS, store=store, run_id="r1")
    store.at = store.writes + 1  # the answer is kept, and then it is over
    with pytest.raises(StoreError):
        await publishing().resume("r1", {"decision": Decision(True, " by A")}, store=store)
    store.is_dead, store.at = False, 0
    with pytest.raises(RunConflictError, match="was answered already, with something else"):
        await publishing().resume("r1", {"decision": Decision(False, " by B")}, store=store)
    assert (await publishing().resume("r1", {"decision": Decision(True, " by A")}, store=store)).value is not None


async def test_kept_answer_counts_for_a_resume_that_brings_nothing() -> None:
    store = CrashingStore(0, after=True)
    await publishing().run(INPUTS, store=store, run_id="r1")
    store.at = store.writes + 1
    with pytest.raises(StoreError):
        await publishing().resume("r1", {"decision": Decision(True)}, store=store)
    store.is_dead, store.at = False, 0
    assert (await publishing().resume("r1", store=store)).value == "about fjords (ann, bob): published"


async def test_store_behind_a_window_is_used() -> None:
    store = InMemoryChatMemory()
    await publishing().run(INPUTS, store=WindowedChatMemory(store, max_messages=5), run_id="r1")
    assert (await publishing().resume("r1", store=store)).status == "paused"


async def test_store_without_records_is_refused() -> None:
    class Plain:
        async def get(self, conversation_id: str) -> Sequence[Any]:
            return ()

        async def add(self, conversation_id: str, messages: Sequence[Any]) -> None: ...

        async def clear(self, conversation_id: str) -> None: ...

    store: ChatMemory = Plain()
    with pytest.raises(ConfigurationError, match="Plain keeps no records"):
        await publishing().run(INPUTS, store=store)


async def test_what_is_no_snapshot_is_told() -> None:
    store = InMemoryChatMemory()
    await store.put_record("process:r1", "process_snapshot", "", '{"process": 1}')
    with pytest.raises(StoreError, match="is no snapshot of a process"):
        await publishing().resume("r1", store=store)


async def test_snapshot_is_readable_json_with_the_events_in_flight() -> None:
    store = InMemoryChatMemory()
    await publishing().run(INPUTS, store=store, run_id="r1", context={"user": "u1"})
    record = await store.get_record("process:r1", "process_snapshot", "")
    assert record is not None
    snapshot = json.loads(record.body)
    assert snapshot["events"] == [{"id": 5, "name": "merge", "value": "about fjords (ann, bob)"}]
    assert snapshot["queues"] == [["publish", "merge", [5]]]
    assert (snapshot["process"], snapshot["run_id"], snapshot["superstep"]) == ("publishing", "r1", 3)
    assert snapshot["context"] == {"user": "u1"}


class Opaque:
    pass


@pytest.mark.parametrize(
    ("annotation", "returned", "words"),
    [
        (Any, Opaque(), "the result of step 'one' is a Opaque, which has no JSON form"),
        (str, 5, "the result of step 'one' is a int, but is declared str: Expected `str`, got `int`"),
        (Any, (1, 2), "is a tuple and would come back from the snapshot as a list"),
        (Any, Review("a", "b"), "is a Review and would come back .* as a dict .*no declared type"),
        (Opaque, {"a": 1}, "is a dict, but is declared Opaque"),
        (float, float("nan"), "is a float, but is declared float: Expected `float`, got `null`"),
    ],
    ids=["opaque", "wrong type", "tuple", "struct", "no way back", "nan"],
)
async def test_value_that_a_snapshot_cannot_hold_is_refused_by_step_and_type(
    annotation: Any, returned: Any, words: str
) -> None:
    flow = ProcessBuilder("p", inputs={"x": int})

    async def one(x: int) -> Any:
        return returned

    one.__annotations__["return"] = annotation
    flow.step(one)
    process = flow.build("one")
    assert (await process.run({"x": 1})).value is returned  # nothing is kept, nothing is asked
    with pytest.raises(UnstorableValueError, match=words):
        await process.run({"x": 1}, store=InMemoryChatMemory())


async def test_event_and_write_that_cannot_be_kept_are_named() -> None:
    flow = ProcessBuilder("p", inputs={"x": int}, slots={"count": int})
    found = flow.event("found", str)

    @flow.step(emits=[found])
    async def one(x: int) -> Any:
        return found(5) if x else StepResult(writes={"count": Opaque()})  # type: ignore[arg-type]

    process, store = flow.build(found), InMemoryChatMemory()
    with pytest.raises(UnstorableValueError, match="event 'found' of step 'one' is a int, but is declared str"):
        await process.run({"x": 1}, store=store)
    with pytest.raises(UnstorableValueError, match="what step 'one' writes into slot 'count' is a Opaque"):
        await process.run({"x": 0}, store=store)
    with pytest.raises(UnstorableValueError, match="the context's slot 'count' is a str, but is declared int"):
        await process.run({"x": 0}, store=store, context={"count": "many"})


async def test_slot_that_a_reducer_makes_unstorable_is_named_with_its_writer() -> None:
    flow = ProcessBuilder("p", inputs={"x": int}, slots={"count": int}, reducers={"count": lambda old, new: str(new)})

    @flow.step
    async def one(x: int) -> StepResult[int]:
        return StepResult(x, writes={"count": 1})

    with pytest.raises(
        UnstorableValueError, match="slot 'count', written by step 'one', is a str, but is declared int"
    ):
        await flow.build(one).run({"x": 1}, store=InMemoryChatMemory())


async def test_writes_of_another_type_than_the_slot_survive_a_crash() -> None:
    flow = ProcessBuilder(
        "p",
        inputs={"numbers": list[int]},
        slots={"seen": list[int]},
        reducers={"seen": lambda old, new: [*(old or []), new]},
    )
    tries: list[int] = []

    @flow.step(inputs={"number": each("numbers")})
    async def one(number: int) -> StepResult[int]:
        tries.append(number)
        if number == 2 and tries.count(2) == 1:
            while not await store.list_records("process-outcomes:r1", "process_outcome"):
                await asyncio.sleep(0)
            raise OSError
        return StepResult(number, writes={"seen": number})

    store, process = InMemoryChatMemory(), flow.build(one)
    with pytest.raises(OSError):  # noqa: PT011
        await process.run({"numbers": [1, 2]}, store=store, run_id="r1")
    result = await process.resume("r1", store=store)
    assert (result.context["seen"], tries) == ([1, 2], [1, 2, 2])


async def test_stored_run_hands_each_step_values_of_its_own() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})

    @flow.step
    async def make(x: int) -> list[int]:
        return kept

    kept = [1]

    @flow.step
    async def end(make: list[int]) -> bool:
        return make is kept

    assert (await flow.build(end).run({"x": 1}, store=InMemoryChatMemory())).value is False


async def test_context_is_restored_with_the_types_of_its_slots() -> None:
    flow = ProcessBuilder("p", inputs={"x": int}, slots={"review": Review, "n": int}, reducers={"n": operator.add})
    flow.outside("go", bool)

    @flow.step
    async def one(x: int) -> StepResult[int]:
        return StepResult(x, writes={"review": Review("a", "b"), "n": 2})

    @flow.step
    async def two(one: int, go: bool, context: StepContext) -> tuple[Review, int]:
        return context["review"], context["n"]

    store, process = InMemoryChatMemory(), flow.build(two)
    await process.run({"x": 1}, store=store, run_id="r1", context={"n": 1})
    done = await process.resume("r1", {"go": True}, store=store)
    assert done.value == (Review("a", "b"), 3)
    assert dict((await process.resume("r1", store=store)).context) == {"review": Review("a", "b"), "n": 3}


async def test_pause_without_a_store_tells_what_it_waits_for() -> None:
    result = await publishing().run(INPUTS)
    assert (result.status, result.waiting[0].events) == ("paused", ("decision",))


async def test_run_that_nobody_will_resume_is_forgotten() -> None:
    store, process = InMemoryChatMemory(), publishing()
    await process.run(INPUTS, store=store, run_id="r1")
    await process.forget("r1", store=store)
    assert [len(await store.list_records(*place)) for place in PLACES] == [0, 0, 0]
    await process.forget("r1", store=store)
    with pytest.raises(UnknownRunError):
        await process.resume("r1", store=store)


async def test_finished_run_without_a_result_goes_after_its_time() -> None:
    now = 0.0
    flow = ProcessBuilder("p", inputs={"x": int})

    @flow.step
    async def one(x: int) -> None: ...

    store, process = InMemoryChatMemory(clock=lambda: now), flow.build(keep_finished=60)
    done = await process.run({"x": 1}, store=store, run_id="r1")
    assert await process.resume("r1", store=store) == done
    now = 61.0
    with pytest.raises(UnknownRunError):
        await process.resume("r1", store=store)


class Note(BaseModel):
    text: str
    stars: int = Field(ge=1)


async def test_pydantic_models_pause_and_come_back() -> None:
    flow = ProcessBuilder("p", inputs={"note": Note})
    flow.outside("reply", Note)

    @flow.step
    async def one(note: Note) -> list[Note]:
        return [note, Note(text="own", stars=5)]

    @flow.step
    async def two(one: list[Note], reply: Note) -> list[Note]:
        return [*one, reply]

    store, process = InMemoryChatMemory(), flow.build(two)
    await process.run({"note": {"text": "a", "stars": 1}}, store=store, run_id="r1")
    with pytest.raises(InvalidInputError, match="greater than or equal to 1"):
        await process.resume("r1", {"reply": {"text": "b", "stars": 0}}, store=store)
    done = await process.resume("r1", {"reply": Note(text="b", stars=2)}, store=store)
    assert done.value == [Note(text="a", stars=1), Note(text="own", stars=5), Note(text="b", stars=2)]


async def test_words_about_a_type_are_no_part_of_it() -> None:
    def described(words: str) -> str:
        type_ = type("Described", (Struct,), {"__annotations__": {"description": str, "title": int}, "__doc__": words})
        return ValueCodec(type_).schema_text()

    assert described("one") == described("another")
    assert "description" in described("one")


async def test_step_that_gathers_may_wait_for_an_answer() -> None:
    flow = ProcessBuilder("p", inputs={"items": list[str]})
    flow.outside("verdict", bool)
    flagged = flow.event("flagged", str)

    @flow.step(inputs={"item": each("items")}, emits=[flagged])
    async def scan(item: str) -> Event[str]:
        return flagged(item)

    @flow.step(inputs={"items": gather(flagged)})
    async def decide(items: list[str], verdict: bool) -> tuple[list[str], bool]:
        return items, verdict

    store, process = InMemoryChatMemory(), flow.build(decide)
    paused = await process.run({"items": ["a", "b"]}, store=store, run_id="r1")
    (waiting,) = paused.waiting
    assert waiting.inputs == {"items": ["a", "b"]}
    assert (await process.resume("r1", store=store, answers={waiting.id: True})).value == (["a", "b"], True)


async def test_event_that_came_early_is_kept_and_shown_where_the_rest_cannot_come_any_more() -> None:
    flow = ProcessBuilder("p", inputs={"n": int})
    flow.outside("extra", int)
    odd = flow.event("odd", int)
    started, gate = asyncio.Event(), asyncio.Event()

    @flow.step(emits=[odd])
    async def sort(n: int) -> int | Event[int]:
        started.set()
        await gate.wait()
        return odd(n)

    @flow.step
    async def join(sort: int, extra: int) -> int:
        return sort + extra

    store, process = InMemoryChatMemory(), flow.build(join)
    async with process.stream({"n": 1}, store=store, run_id="r1") as run:
        await started.wait()
        run.send("extra", 5)
        gate.set()
        async for _ in run:
            pass
    assert run.result.status == "stalled"
    assert [(one.step, one.events, one.inputs) for one in run.result.waiting] == [("join", ("sort",), {"extra": 5})]
    assert (await process.resume("r1", store=store)).waiting == run.result.waiting


async def test_event_sent_while_the_last_snapshot_is_stored_still_counts() -> None:
    flow = ProcessBuilder("p", inputs={"n": int})
    flow.outside("first", int)
    flow.outside("second", int)
    started = asyncio.Event()

    @flow.step
    async def begin(n: int) -> int:
        started.set()
        await asyncio.sleep(0)
        return n

    @flow.step
    async def join(begin: int, first: int, second: int) -> int:
        return begin + first + second

    class Store(InMemoryChatMemory):
        async def put_record(self, conversation_id: str, kind: str, key: str, body: str, **kwargs: Any) -> bool:
            if not late and '"first"' in body.partition('"events"')[2]:  # the other comes while this one is stored
                late.append(True)
                run.send("second", 20)
            return await super().put_record(conversation_id, kind, key, body, **kwargs)

    late: list[bool] = []
    async with flow.build(join).stream({"n": 1}, store=Store(), run_id="r1") as run:
        await started.wait()
        run.send("first", 300)
        async for _ in run:
            pass
    assert (late, run.result.value) == ([True], 321)
