"""The table of tools' guards can be made; what it says is for people to read."""

import subprocess
import sys
from pathlib import Path


def test_table_of_guards_has_a_row_for_each() -> None:
    command = [sys.executable, "-m", "benchmarks.tool_round", "--quick"]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=100, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 17
    assert sum(line.startswith("  all of it") for line in lines) == 2
