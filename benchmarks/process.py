"""The process runtime: what a step and a superstep cost, beside the same work in a bare asyncio task group.

python -m benchmarks.process [--rounds N] [--quick]
"""

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from agentcore import ChatMemory, InMemoryChatMemory
from agentcore.process import Event, Process, ProcessBuilder, ProcessLimits, StepContext, StepResult, each


async def work(number: int) -> int:
    """What a step does here: one turn of the event loop."""
    await asyncio.sleep(0)
    return number


def fan_out_process(*, with_context: bool = False) -> Process:
    flow = ProcessBuilder(
        "fan-out", inputs={"numbers": list[int]}, slots={"n": int}, reducers={"n": lambda a, b: (a or 0) + b}
    )

    @flow.step(name="work", inputs={"number": each("numbers")})
    async def plain(number: int) -> int:
        return await work(number)

    if with_context:
        flow = ProcessBuilder(
            "fan-out", inputs={"numbers": list[int]}, slots={"n": int}, reducers={"n": lambda a, b: (a or 0) + b}
        )

        @flow.step(name="work", inputs={"number": each("numbers")})
        async def writing(number: int, context: StepContext) -> StepResult[int]:
            return StepResult(await work(number), writes={"n": 1})

    return flow.build("work")


def cycle_process() -> Process:
    """One step a superstep, again and again."""
    flow = ProcessBuilder("cycle", inputs={"left": int})
    again = flow.event("again", int)

    @flow.step(inputs={"left": ("left", again)}, emits=[again], max_runs=1_000_000)
    async def count(left: int) -> int | Event[int]:
        await work(left)
        return again(left - 1) if left else 0

    return flow.build(count)


async def bare_fan_out(numbers: Sequence[int]) -> list[int]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work(number)) for number in numbers]
    return [task.result() for task in tasks]


async def bare_cycle(left: int) -> int:
    """The same number of task groups of one task each."""
    while left:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work(left))
        left = task.result() - 1
    return left


async def timed(run: Callable[[], Awaitable[Any]], units: int) -> float:
    """Microseconds a unit; what other rows left behind is collected before."""
    gc.collect()
    start = time.perf_counter()
    await run()
    return (time.perf_counter() - start) / units * 1e6


class Row:
    """One line: ours beside the reference, interleaved."""

    def __init__(self, name: str, units: int, ours: Callable[[], Awaitable[Any]], reference: Any = None) -> None:
        self.name, self.units, self.ours, self.reference = name, units, ours, reference
        self.figures: tuple[list[float], list[float]] = ([], [])

    async def measure(self) -> None:
        self.figures[0].append(await timed(self.ours, self.units))
        if self.reference is not None:
            self.figures[1].append(await timed(self.reference, self.units))

    def print(self) -> None:
        ours = statistics.median(self.figures[0])
        noise = 100 * statistics.pstdev(self.figures[0]) / ours
        bare = statistics.median(self.figures[1]) if self.figures[1] else None
        cells = f"{bare:>9.2f} {ours - bare:>9.2f}" if bare is not None else f"{'':>19}"
        print(f"{self.name:<52} {ours:>9.2f} {cells}   ±{noise:.0f} %")


async def main(rounds: int, scale: int) -> None:
    many, supersteps = list(range(1_000 // scale)), 1_000 // scale
    plain, writing, cycle = fan_out_process(), fan_out_process(with_context=True), cycle_process()
    limits = ProcessLimits(supersteps=None)
    narrow = ProcessLimits(concurrency=20)

    async def read() -> None:
        async with plain.stream({"numbers": many}) as run:
            async for _ in run:
                pass

    async with AsyncExitStack() as stack:
        stores: dict[str, Callable[[], ChatMemory]] = {"in memory": InMemoryChatMemory}
        try:
            from agentcore.memory.sqlite import SQLiteChatMemory
        except ImportError:
            pass
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            sqlite = await stack.enter_async_context(SQLiteChatMemory(Path(folder) / "bench.db", synchronous="NORMAL"))
            stores["SQLite, synchronous=NORMAL"] = lambda: sqlite

        def stored(make: Callable[[], ChatMemory], process: Process, inputs: dict[str, Any]) -> Any:
            return lambda: process.run(inputs, store=make(), limits=limits)

        rows = [
            Row(
                f"fan-out of {len(many):,}: a step",
                len(many),
                lambda: plain.run({"numbers": many}),
                lambda: bare_fan_out(many),
            ),
            Row(
                "… with context and a write",
                len(many),
                lambda: writing.run({"numbers": many}),
                lambda: bare_fan_out(many),
            ),
            Row(
                "… 20 at once",
                len(many),
                lambda: plain.run({"numbers": many}, limits=narrow),
                lambda: bare_fan_out(many),
            ),
            Row("… streamed (2 events a step)", len(many), read, lambda: bare_fan_out(many)),
            Row(
                "cycle: a superstep of one step",
                supersteps,
                lambda: cycle.run({"left": supersteps}, limits=limits),
                lambda: bare_cycle(supersteps),
            ),
        ]
        for name, make in stores.items():
            rows.append(
                Row(
                    f"fan-out, stored {name}: a step",
                    len(many),
                    stored(make, plain, {"numbers": many}),
                    lambda: bare_fan_out(many),
                )
            )
            rows.append(
                Row(
                    f"cycle, stored {name}: a superstep",
                    supersteps,
                    stored(make, cycle, {"left": supersteps}),
                    lambda: bare_cycle(supersteps),
                )
            )
        for _ in range(rounds):
            for row in rows:
                await row.measure()
    print(f"{'µs':<52} {'agentcore':>9} {'bare':>9} {'more':>9}   noise")
    for row in rows:
        row.print()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    arguments = parser.parse_args()
    asyncio.run(main(2 if arguments.quick else arguments.rounds, 10 if arguments.quick else 1))
