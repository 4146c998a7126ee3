"""The table of streams over an app can be made; what it says is for people to read."""

import subprocess
import sys
from pathlib import Path


def test_table_of_streams_has_both_ways_and_loses_none() -> None:
    command = [sys.executable, "-m", "benchmarks.web", "--quick"]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=100, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    title, _, head, *rows = done.stdout.splitlines()
    assert title.startswith("50 streams at once, 5 deltas each")
    assert [row[:20].strip() for row in rows] == [
        "bare Starlette",
        "chat_routes",
        "bare Starlette, gc",
        "chat_routes, gc",
    ]
    assert head.split()[0] == "whole"
    for row in rows:
        assert row[20:].split()[0] == "50", row  # streams that came whole
