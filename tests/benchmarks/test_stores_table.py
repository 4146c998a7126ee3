"""The table of stores can be made; what it says is for people to read."""

import subprocess
import sys
from pathlib import Path

import pytest


def test_table_of_stores_has_sqlite_rows() -> None:
    command = [sys.executable, "-m", "benchmarks.stores", "--quick", "--only", "SQLite"]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=100, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    for word in ("append ", "64 tasks", "of 100", "of 200"):
        assert any(word in line for line in lines)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("benchmarks.codecs", ["decode a delta", "encode 1,000", "request, beside"]),
        ("benchmarks.process", ["fan-out", "superstep"]),
        ("benchmarks.in_memory", ["text, 15 characters", "tool rounds", "at 1,000 messages"]),
    ],
)
def test_other_tables_can_be_made(module: str, words: list[str]) -> None:
    command = [sys.executable, "-m", module, "--quick"]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=100, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    for word in words:
        assert word in done.stdout
