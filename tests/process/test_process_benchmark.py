"""The benchmark of the process runtime runs, and compares the same work."""

import asyncio
import sys
from pathlib import Path

import pytest

from benchmarks import process as benchmark

ROOT = Path(__file__).parents[2]


@pytest.mark.asyncio
async def test_both_sides_do_the_same_work() -> None:
    numbers = list(range(20))
    result = await benchmark.fan_out_process().run({"numbers": numbers})
    assert result.value == await benchmark.bare_fan_out(numbers) == numbers
    assert (await benchmark.cycle_process().run({"left": 5})).supersteps == 6
    assert await benchmark.bare_cycle(5) == 0


@pytest.mark.asyncio
async def test_quick_run_prints_every_row() -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.process", "--quick", cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(child.communicate(), 100)
    lines = output.decode().splitlines()
    assert child.returncode == 0
    assert len(lines) == 10
    assert all("±" in line for line in lines[1:])
