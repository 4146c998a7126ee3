"""The benchmark table can be made; what it says is for people to read."""

import asyncio
import sys
from pathlib import Path

import pytest


@pytest.mark.asyncio
async def test_table_has_all_rows() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.table",
        "--quick",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    output, errors = await asyncio.wait_for(process.communicate(), 100)
    assert process.returncode == 0, errors.decode()
    lines = output.decode().splitlines()
    assert lines[0].split()[:2] == ["agentcore", "httpx"]
    assert len(lines) == 9
    for word in ("turn ", "8 tools", "16 events", "1 event", "200 messages", "1,000 messages", "concurrent", "import"):
        assert any(word in line for line in lines[1:])
