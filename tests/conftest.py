"""What all tests share: servers that are started once, and the option to do without them."""

import signal
import threading
from collections.abc import Iterator
from itertools import count

import pytest

from tests.support.browser import Chromium, find_chromium
from tests.support.servers import PostgresServer, RedisServer, postgres_server, redis_server

_numbers = count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--without postgres`, `--without redis`, `--without browser`: leave out the tests that need it."""
    parser.addoption(
        "--without",
        action="append",
        default=[],
        choices=["postgres", "redis", "browser"],
        help="leave out the tests that need this",
    )


def pytest_configure() -> None:
    """Let a run that is told to end (by `timeout`, by a CI) take its servers down, as one that is interrupted does."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def _leave_out(request: pytest.FixtureRequest, name: str) -> None:
    if name in request.config.getoption("--without"):
        pytest.skip(f"--without {name}")


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A PostgreSQL server for the whole run."""
    _leave_out(request, "postgres")
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_dsn(postgres: PostgresServer) -> Iterator[str]:
    """The address of a database of the test's own, empty."""
    import asyncio

    import asyncpg

    name = f"test_{next(_numbers)}"

    async def execute(statement: str) -> None:
        connection = await asyncpg.connect(postgres.dsn)
        await connection.execute(statement)
        await connection.close()

    asyncio.run(execute(f'create database "{name}"'))
    yield postgres.dsn_of(name)
    asyncio.run(execute(f'drop database if exists "{name}" with (force)'))


@pytest.fixture(scope="session")
def redis_of_run(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A Redis server for the whole run."""
    _leave_out(request, "redis")
    with redis_server() as server:
        yield server


@pytest.fixture
def redis_url(redis_of_run: RedisServer) -> str:
    """The address of the run's Redis, which a test shares with others: it takes a namespace of its own."""
    return redis_of_run.url


@pytest.fixture(scope="session")
def chromium(request: pytest.FixtureRequest) -> Chromium:
    """A browser that starts on this machine."""
    _leave_out(request, "browser")
    return find_chromium()


@pytest.fixture
def namespace() -> str:
    """A namespace of the test's own."""
    return f"test{next(_numbers)}"
