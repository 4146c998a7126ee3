"""A process of the operating system that is killed in the middle of a superstep, over a durable store."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from agentcore.memory.sqlite import SQLiteChatMemory
from agentcore.process import Process, ProcessBuilder, StepContext, StepResult, each

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is POSIX's"),
]

NUMBERS = [0, 1, 2, 3, 4, 5]
RECORDED_FIRST = 3
"""How many outcomes have to be on disk before the process is killed."""


def effects_process(effects: Path, store: SQLiteChatMemory, *, is_doomed: bool) -> Process:
    """Every step leaves a line in a file when it has run, before it returns; the doomed one kills the process."""
    flow = ProcessBuilder(
        "effects", inputs={"numbers": list[int]}, slots={"log": list[int]}, reducers={"log": lambda a, b: (a or []) + b}
    )
    flow.outside("factor", int)

    def leave(line: str) -> None:
        with effects.open("a") as file:
            file.write(line + "\n")

    @flow.step
    async def prepare(numbers: list[int]) -> list[int]:
        leave("prepare")
        return numbers

    @flow.step(inputs={"number": each(prepare)})
    async def work(number: int, context: StepContext) -> StepResult[int]:
        if is_doomed and number >= RECORDED_FIRST:
            while len(await store.list_records("process-outcomes:r1", "process_outcome")) < RECORDED_FIRST:
                await asyncio.sleep(0.01)
            if number == NUMBERS[-1]:
                os.kill(os.getpid(), signal.SIGKILL)
            await asyncio.Event().wait()
        leave(f"work {number} {context.call_key}")
        return StepResult(number * 2, writes={"log": [number]})

    @flow.step
    async def total(work: list[int], factor: int, context: StepContext) -> tuple[int, list[int]]:
        leave("total")
        return sum(work) * factor, context["log"]

    return flow.build(total)


async def run_doomed(folder: str) -> None:
    """What the killed process does."""
    async with SQLiteChatMemory(Path(folder) / "runs.db", lease_seconds=1.0) as store:
        process = effects_process(Path(folder) / "effects", store, is_doomed=True)
        await process.run({"numbers": NUMBERS}, store=store, run_id="r1")


async def killed(folder: Path) -> None:
    code = "import asyncio, sys; from tests.process.test_process_crash import run_doomed; asyncio.run(run_doomed(sys.argv[1]))"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(folder), cwd=Path(__file__).parents[2], stderr=asyncio.subprocess.PIPE
    )
    _, errors = await asyncio.wait_for(child.communicate(), 60)
    assert child.returncode == -signal.SIGKILL, errors.decode()


@pytest.mark.parametrize("on_busy", ["wait", "supersede"])
async def test_killed_process_is_taken_over_and_no_finished_step_runs_again(tmp_path: Path, on_busy: str) -> None:
    await killed(tmp_path)
    effects = tmp_path / "effects"
    assert sorted(effects.read_text().splitlines()) == [
        "prepare",
        "work 0 r1:1:work:0",
        "work 1 r1:1:work:1",
        "work 2 r1:1:work:2",
    ]
    async with SQLiteChatMemory(tmp_path / "runs.db", lease_seconds=1.0) as store:
        process = effects_process(effects, store, is_doomed=False)
        paused = await process.resume("r1", store=store, on_busy=on_busy)  # type: ignore[arg-type]
        assert (paused.status, dict(paused.context)) == ("paused", {"log": NUMBERS})
        done = await process.resume("r1", {"factor": 10}, store=store)
    assert done.value == (300, NUMBERS)
    lines = effects.read_text().splitlines()
    assert lines[4:] == [f"work {number} r1:1:work:{number}" for number in NUMBERS[3:]] + ["total"]
