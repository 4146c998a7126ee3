"""One real local model for all of these tests."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from agentcore.cli.local_model import INSTALL, local_model_available


@contextmanager
def running(arguments: Sequence[str] = ()) -> Iterator[str]:
    if not local_model_available():
        pytest.fail(f"the local model is not installed: {INSTALL}; or leave these tests out with -m 'not real'")
    command = [sys.executable, "-m", "agentcore.cli.local_server", *arguments]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("COV")}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("READY "), f"the server said {line!r}"
            yield line.split()[1]
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with running() as url:
        yield url


@pytest.fixture(scope="session")
def locked_server() -> Iterator[str]:
    with running(["--api-key", "sk-right-key"]) as url:
        yield url
