"""PostgresPool: connections to a database, taken for one piece of work at a time, and what their errors mean."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from agentcore.errors import ConfigurationError, InvalidInputError, StoreError
from agentcore.memory.addresses import shown_address
from agentcore.memory.postgres_schema import prepare_schema

logger = logging.getLogger("agentcore.memory")

T = TypeVar("T")

_FIRST_WAIT = 0.05
_LONGEST_WAIT = 1.0

# What a pool meets when its server restarts, or a pooler cuts idle connections; sent again, it may work.
_PASSING: tuple[type[BaseException], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    ConnectionError,
    OSError,
)
_POOLER: tuple[type[BaseException], ...] = (
    asyncpg.DuplicatePreparedStatementError,
    asyncpg.InvalidSQLStatementNameError,
    asyncpg.ProtocolViolationError,
)
_NO_TEXT: tuple[type[BaseException], ...] = (
    asyncpg.CharacterNotInRepertoireError,
    asyncpg.UntranslatableCharacterError,
    UnicodeEncodeError,
)


class _NotSentError(Exception):
    """There was no connection, so nothing was sent."""


class PostgresPool:
    """Connections to one database, of one event loop; made when they are first needed.

    Args:
        dsn: `postgresql://user:password@host/database`.
        size: connections at most.
        patience: seconds that a piece of work may wait for a connection, and go on trying while the server is away; and
            that one statement may take.
        pooler: between us and the server is a pooler in transaction mode, where prepared statements do not last.
        verify_only: never change the schema.
    """

    def __init__(self, dsn: str, *, size: int, patience: float, pooler: bool, verify_only: bool) -> None:
        example = "postgresql://user:password@host/database"
        self.where = shown_address(dsn, ("postgresql", "postgres"), example)
        if size < 1 or patience <= 0:
            raise ConfigurationError("pool_size is at least 1, and patience is positive")
        self._dsn = lambda: dsn  # a closure, so that no repr and no traceback shows the password
        self._size = size
        self._patience = patience
        self._pooler = pooler
        self._verify_only = verify_only
        self._pool: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening: asyncio.Lock | None = None

    async def run(self, work: Callable[[Any], Awaitable[T]], *, again: bool = True) -> T:
        """Do a piece of work on a connection.

        Args:
            work: what to do; a connection it was cancelled on is closed.
            again: it may be done again when its outcome is unknown.

        Raises:
            StoreError: the server is away, refuses, or has no connection free, for longer than our patience.
            ConfigurationError: the address asks for what there is not.
        """
        loop = asyncio.get_running_loop()
        deadline, wait = loop.time() + self._patience, _FIRST_WAIT
        while True:
            try:
                return await self._once(work, deadline)
            except (_NotSentError, *_PASSING, asyncpg.InterfaceError) as error:
                cause = (error.__cause__ or error) if isinstance(error, _NotSentError) else error
                passes = isinstance(error, _NotSentError) or (again and _passes(error))
                if not passes or loop.time() + wait > deadline:
                    raise self._error(cause) from cause
                logger.warning("%s: %s; trying again", self.where, _words(cause))
            except (*_NO_TEXT, asyncpg.PostgresError, asyncpg.InternalClientError) as error:
                raise self._error(error) from error
            await asyncio.sleep(random.uniform(wait / 2, wait))  # noqa: S311 - spreads the waiting, keeps no secret
            wait = min(wait * 2, _LONGEST_WAIT)

    async def aclose(self) -> None:
        """Close the connections when their work is done; those of an event loop that has ended are let go."""
        pool, self._pool = self._pool, None
        loop, self._loop = self._loop, None
        self._opening = None
        if pool is None:
            return
        if loop is not asyncio.get_running_loop():
            pool.terminate()
            return
        try:
            async with asyncio.timeout(self._patience):
                await pool.close()
        except TimeoutError:
            pool.terminate()

    async def _once(self, work: Callable[[Any], Awaitable[T]], deadline: float) -> T:
        try:
            pool = await self._opened(deadline)
            async with asyncio.timeout_at(deadline):
                connection = await pool.acquire()
        except TimeoutError as error:
            raise StoreError(
                f"{self.where}: no connection was free or could be made within {self._patience:g} s; "
                f"pool_size={self._size} may be too small, or the server too slow",
                retryable=True,
            ) from error
        except asyncpg.ClientConfigurationError as error:
            raise ConfigurationError(f"{self.where}: {error}") from error
        except (*_PASSING, asyncpg.InterfaceError) as error:
            raise _NotSentError from error
        try:
            return await work(connection)
        except (asyncio.CancelledError, TimeoutError):
            # Else the reply to what was given up would be there for the next one; and the package would wait for the
            # server's word on the cancellation, which one that hangs does not give.
            with suppress(asyncpg.InterfaceError):  # closed with the pool already
                connection.terminate()
            raise
        finally:
            # One that was lost meanwhile is back in the pool already, and the package complains.
            with suppress(asyncpg.InternalClientError, asyncpg.InterfaceError, *_PASSING):
                await pool.release(connection)

    async def _opened(self, deadline: float) -> Any:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise ConfigurationError(
                    f"this store of {self.where} has connections in another event loop; call aclose() before you use "
                    "it in a second loop, or make one store for each loop"
                )
            self._pool, self._loop, self._opening = None, loop, asyncio.Lock()
        if self._pool is None:
            assert self._opening is not None
            async with self._opening, asyncio.timeout_at(deadline):
                if self._pool is None:
                    await self._open()
        return self._pool

    async def _open(self) -> None:
        settings: dict[str, Any] = {"statement_cache_size": 0} if self._pooler else {}
        create_pool: Any = getattr(asyncpg, "create_pool")  # noqa: B009 - the package's types do not say its arguments
        pool = create_pool(
            self._dsn(),
            min_size=0,
            max_size=self._size,
            command_timeout=self._patience,
            reset=_leave_as_it_is,
            **settings,
        )
        try:
            await pool
            async with pool.acquire() as connection:
                await prepare_schema(connection, self.where, verify_only=self._verify_only)
        except BaseException:
            pool.terminate()
            raise
        self._pool = pool

    def _error(self, error: BaseException) -> Exception:
        if isinstance(error, StoreError | ConfigurationError):
            return error
        if isinstance(error, _NO_TEXT) or isinstance(error.__cause__, UnicodeEncodeError):
            return InvalidInputError("PostgreSQL keeps no NUL characters and no half characters in ids; use other ids")
        if isinstance(error, _POOLER) and not self._pooler:
            return StoreError(
                f"{self.where}: prepared statements do not last, as behind a pooler in transaction mode (PgBouncer): "
                "make the store with pooler=True"
            )
        return StoreError(f"{self.where}: {_words(error)}", retryable=isinstance(error, (*_PASSING, TimeoutError)))


async def _leave_as_it_is(connection: Any) -> None:
    """In place of the package's reset between two uses, a round trip each time: we set nothing that would last.

    A transaction that was left open is rolled back before this is called.
    """


def _passes(error: BaseException) -> bool:
    # An InterfaceError may be a mistake of ours, or a connection that was closed under us.
    return not isinstance(error, asyncpg.InterfaceError) or "closed" in str(error)


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
