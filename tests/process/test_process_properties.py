"""Properties: whatever finishes first, and wherever a run is broken off, the snapshots and the outcome are the same."""

import asyncio
import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore import InMemoryChatMemory
from agentcore.process import (
    Event,
    Process,
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

Pause = Callable[[str], Any]


class Recorder(InMemoryChatMemory):
    """Keeps every snapshot that was ever stored."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshots: list[str] = []

    async def put_record(self, conversation_id: str, kind: str, key: str, body: str, **kwargs: Any) -> bool:
        if kind == "process_snapshot":
            self.snapshots.append(body)
        return await super().put_record(conversation_id, kind, key, body, **kwargs)


def interleaving(seed: int) -> Pause:
    """Each instance takes a number of turns of the event loop that the seed decides."""

    async def pause(key: str) -> None:
        for _ in range(random.Random(f"{seed}:{key}").randrange(8)):
            await asyncio.sleep(0)

    return pause


def rich_process(pause: Pause) -> Process:
    """Fan-outs side by side, named events, failures, writes into shared slots, a cycle, a gather, a kept value."""
    flow = ProcessBuilder(
        "rich",
        inputs={"numbers": list[int], "words": list[str]},
        slots={"log": list[str]},
        reducers={"log": lambda old, new: (old or []) + new},
    )
    odd = flow.event("odd", int)
    again = flow.event("again", list[int])

    @flow.step(inputs={"number": each("numbers", again)}, emits=[odd], max_runs=6)
    async def split(number: int, context: StepContext) -> StepResult[int]:
        await pause(context.call_key)
        if number == 13:
            raise ValueError("thirteen")
        return StepResult(
            number // 2,
            events=[odd(number)] if number % 2 else [],
            writes={"log": [context.call_key], "last": context.call_key},
        )

    @flow.step(inputs={"word": each("words")})
    async def upper(word: str, context: StepContext) -> StepResult[str]:
        await pause(context.call_key)
        return StepResult(word.upper(), writes={"log": [word], "last": word})

    @flow.step(inputs={"failures": gather(failed(split))})
    async def excuse(failures: list[StepFailure], context: StepContext) -> StepResult[None]:
        await pause(context.call_key)
        return StepResult(writes={"log": [f"{one.index}" for one in failures]})

    @flow.step(inputs={"number": odd})
    async def seen(number: int, context: StepContext) -> StepResult[int]:
        await pause(context.call_key)
        return StepResult(number, writes={"log": [f"odd {number}"]})

    @flow.step(inputs={"numbers": split}, emits=[again])
    async def check(numbers: list[int], context: StepContext) -> int | Event[list[int]]:
        await pause(context.call_key)
        return sum(numbers) if max(numbers, default=0) < 2 else again(numbers)

    @flow.step(inputs={"numbers": latest(seen), "words": latest(upper)})
    async def end(check: int, numbers: int, words: list[str], context: StepContext) -> tuple[int, int, list[str]]:
        return check, numbers, words

    return flow.build(end)


INPUTS = st.fixed_dictionaries(
    {
        "numbers": st.lists(st.integers(min_value=0, max_value=30), max_size=6),
        "words": st.lists(st.text(alphabet="abc", max_size=3), max_size=4),
    }
)


async def _run(process: Process, inputs: Mapping[str, Any], store: InMemoryChatMemory) -> Any:
    return await process.run(inputs, store=store, run_id="r1", context={"user": "u1"})


@settings(max_examples=60, deadline=None)
@given(inputs=INPUTS, seeds=st.tuples(st.integers(), st.integers()))
def test_snapshots_are_the_same_whatever_finishes_first(inputs: dict[str, Any], seeds: tuple[int, int]) -> None:
    async def both() -> None:
        stores = Recorder(), Recorder()
        results = [
            await _run(rich_process(interleaving(seed)), inputs, store)
            for seed, store in zip(seeds, stores, strict=True)
        ]
        assert stores[0].snapshots == stores[1].snapshots
        assert results[0] == results[1]

    asyncio.run(both())


@settings(max_examples=60, deadline=None)
@given(inputs=INPUTS, seed=st.integers(), cut=st.integers(min_value=1, max_value=8))
def test_run_that_is_broken_off_and_resumed_again_and_again_is_the_same_run(
    inputs: dict[str, Any], seed: int, cut: int
) -> None:
    async def both() -> None:
        whole, parts = Recorder(), Recorder()
        process = rich_process(interleaving(seed))
        expected = await _run(process, inputs, whole)
        limits = ProcessLimits(supersteps=cut)
        result = await process.run(inputs, store=parts, run_id="r1", context={"user": "u1"}, limits=limits)
        while result.limit == "supersteps":
            result = await rich_process(interleaving(seed)).resume("r1", store=parts, limits=limits)
        assert result == expected
        assert parts.snapshots == whole.snapshots

    asyncio.run(both())


@settings(max_examples=60, deadline=None)
@given(inputs=INPUTS, seed=st.integers(), turns=st.integers(min_value=0, max_value=60))
def test_run_that_is_cancelled_anywhere_and_resumed_is_the_same_run(
    inputs: dict[str, Any], seed: int, turns: int
) -> None:
    async def both() -> None:
        whole, parts = Recorder(), Recorder()
        process = rich_process(interleaving(seed))
        expected = await _run(process, inputs, whole)
        task = asyncio.ensure_future(_run(process, inputs, parts))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        if not parts.snapshots:
            return  # not even begun
        assert await process.resume("r1", store=parts) == expected
        assert parts.snapshots == whole.snapshots

    asyncio.run(both())


@settings(max_examples=40, deadline=None)
@given(inputs=INPUTS, seed=st.integers(), concurrency=st.integers(min_value=1, max_value=4))
def test_how_many_run_at_once_makes_no_difference(inputs: dict[str, Any], seed: int, concurrency: int) -> None:
    async def both() -> None:
        free, narrow = Recorder(), Recorder()
        process = rich_process(interleaving(seed))
        await _run(process, inputs, free)
        await process.run(
            inputs, store=narrow, run_id="r1", context={"user": "u1"}, limits=ProcessLimits(concurrency=concurrency)
        )
        assert narrow.snapshots == free.snapshots

    asyncio.run(both())


@settings(max_examples=40, deadline=None)
@given(inputs=INPUTS, seed=st.integers())
def test_stored_or_not_the_outcome_is_the_same(inputs: dict[str, Any], seed: int) -> None:
    async def both() -> None:
        process = rich_process(interleaving(seed))
        stored = await _run(process, inputs, InMemoryChatMemory())
        assert await process.run(inputs, run_id="r1", context={"user": "u1"}) == stored

    asyncio.run(both())


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    """For each step the steps before it whose results it takes."""
    size = draw(st.integers(min_value=1, max_value=12))
    return [
        sorted(draw(st.sets(st.integers(min_value=0, max_value=number - 1), max_size=4))) if number else []
        for number in range(size)
    ]


def built(graph: Sequence[Sequence[int]], pause: Pause) -> Process:
    flow = ProcessBuilder("random", inputs={"x": int})
    for number, before in enumerate(graph):
        names = [f"s{one}" for one in before] or ["x"]

        def make(number: int, names: list[str]) -> Any:
            async def step(**values: int) -> int:
                await pause(f"{number}")
                return sum(place * values[name] for place, name in enumerate(names, 1)) + number

            step.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
                [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
            )
            return step

        flow.step(name=f"s{number}")(make(number, names))
    ends = [number for number in range(len(graph)) if not any(number in before for before in graph)]

    async def end(**values: int) -> list[int]:
        return list(values.values())

    end.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(f"s{number}", inspect.Parameter.KEYWORD_ONLY) for number in ends]
    )
    flow.step(name="end")(end)
    return flow.build("end")


@settings(max_examples=80, deadline=None)
@given(graph=graphs(), x=st.integers(min_value=-5, max_value=5), seed=st.integers())
def test_any_graph_gives_what_its_steps_give_one_after_another(graph: list[list[int]], x: int, seed: int) -> None:
    values: list[int] = []
    for number, before in enumerate(graph):
        given_values = [values[one] for one in before] or [x]
        values.append(sum(place * value for place, value in enumerate(given_values, 1)) + number)
    ends = [number for number in range(len(graph)) if not any(number in before for before in graph)]

    async def run() -> None:
        store = Recorder()
        result = await built(graph, interleaving(seed)).run({"x": x}, store=store, run_id="r1")
        assert result.value == [values[number] for number in ends]
        assert len(store.snapshots) == result.supersteps + 1

    asyncio.run(run())
