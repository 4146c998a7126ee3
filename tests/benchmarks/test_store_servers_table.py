"""The table of the stores on servers can be made; what it says is for people to read."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.usefixtures("postgres", "redis_of_run")  # skipped where those servers are left out
def test_table_of_stores_on_servers_has_all_rows() -> None:
    command = [sys.executable, "-m", "benchmarks.store_servers", "--quick"]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=100, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for server in ("PostgreSQL", "Redis"):
        for word in ("append ", "64 tasks", "of 100", "of 200", "rate limit"):
            assert any(line.startswith(server) and word in line for line in lines), (server, word)
