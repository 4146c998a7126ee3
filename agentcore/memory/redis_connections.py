"""RedisConnections: connections to a Redis server, taken for one command at a time, and what their errors mean."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from redis import asyncio as redis_asyncio
from redis import exceptions as redis_errors
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from agentcore.errors import ConfigurationError, InvalidInputError, StoreError
from agentcore.memory.addresses import shown_address

logger = logging.getLogger("agentcore.memory")

T = TypeVar("T")

# What a pool meets when its server restarts, or another one takes over; sent again, it may work.
_PASSING: tuple[type[BaseException], ...] = (
    redis_errors.ConnectionError,
    redis_errors.TimeoutError,
    redis_errors.ClusterDownError,
    redis_errors.TryAgainError,
    OSError,
)
_REFUSED: tuple[type[BaseException], ...] = (
    redis_errors.AuthenticationError,  # a ConnectionError by its class, but it does not pass
    redis_errors.AuthorizationError,
)
_FULL = "No connection available"
_READ_ONLY = "READONLY"  # its class depends on whether a script met it, and on the server's version
_NOT_SENT = (_FULL, "connecting to")
_FIRST_WAIT = 0.05
_LONGEST_WAIT = 1.0


class RedisConnections:
    """Connections to one server, of one event loop; made when they are first needed.

    The package drops a connection on which a task was cancelled, so that the reply is not there for the next one. It
    sends nothing again by itself: only we know what may be.

    Args:
        url: `redis://host:port/0`, or `rediss://`.
        size: connections at most.
        patience: seconds that a command may wait for a connection and for its answer, and be sent again meanwhile.
    """

    def __init__(self, url: str, *, size: int, patience: float) -> None:
        self.where = shown_address(url, ("redis", "rediss"), "redis://:password@host:port/0")
        if size < 1 or patience <= 0:
            raise ConfigurationError("pool_size is at least 1, and patience is positive")
        self._url = lambda: url  # a closure, so that no repr and no traceback shows the password
        self._size = size
        self._patience = patience
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scripts: dict[str, Any] = {}

    async def script(self, source: str, keys: Sequence[str], arguments: Sequence[Any], *, again: bool = True) -> Any:
        """Run a script; a server that does not know it (any more) is given its source.

        Args:
            source: the script.
            keys: its keys.
            arguments: its arguments.
            again: it may be run again when its outcome is unknown.
        """

        async def work(client: Any) -> Any:
            script = self._scripts.get(source)
            if script is None:
                script = self._scripts[source] = client.register_script(source)
            return await script(keys=keys, args=arguments)

        return await self.run(work, again=again)

    async def run(self, work: Callable[[Any], Awaitable[T]], *, again: bool = True) -> T:
        """Do a piece of work with the client.

        Raises:
            StoreError: the server is away, refuses, or has no connection free, for longer than our patience.
            InvalidInputError: an id that cannot be encoded.
        """
        loop = asyncio.get_running_loop()
        client = self._opened(loop)
        deadline, wait = loop.time() + self._patience, _FIRST_WAIT
        while True:
            try:
                return await work(client)
            except _REFUSED as error:
                raise StoreError(f"{self.where}: {_words(error)}") from error
            except _PASSING as error:
                passes = again or any(words in str(error) for words in _NOT_SENT)
                if not passes or loop.time() + wait > deadline:
                    raise self._away(error) from error
                logger.warning("%s: %s; trying again", self.where, _words(error))
            except redis_errors.RedisError as error:
                if _READ_ONLY not in str(error):
                    raise StoreError(f"{self.where}: {_words(error)}") from error
                if loop.time() + wait > deadline:
                    raise self._away(error) from error
                # Nothing was done. The server has become a replica: connections made anew find the one in its place.
                logger.warning("%s: %s; trying again", self.where, _words(error))
                await client.connection_pool.disconnect(inuse_connections=False)
            except UnicodeEncodeError as error:
                raise InvalidInputError("Redis keeps no half characters in ids; use other ids") from error
            await asyncio.sleep(random.uniform(wait / 2, wait))  # noqa: S311 - spreads the waiting, keeps no secret
            wait = min(wait * 2, _LONGEST_WAIT)

    async def aclose(self) -> None:
        """Close the connections; those of an event loop that has ended are let go."""
        client, self._client = self._client, None
        loop, self._loop = self._loop, None
        self._scripts = {}
        if client is not None and loop is asyncio.get_running_loop():
            await client.aclose(close_connection_pool=True)

    def _opened(self, loop: asyncio.AbstractEventLoop) -> Any:
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise ConfigurationError(
                    f"this store of {self.where} has connections in another event loop; call aclose() before you use "
                    "it in a second loop, or make one store for each loop"
                )
            from_url: Any = getattr(redis_asyncio.BlockingConnectionPool, "from_url")  # noqa: B009 - typed in part only
            try:
                pool = from_url(
                    self._url(),
                    max_connections=self._size,
                    timeout=self._patience,
                    socket_timeout=self._patience,
                    socket_connect_timeout=min(self._patience, 5.0),
                    retry=Retry(NoBackoff(), 0),
                )
                pool.make_connection()  # so that an option it does not know is found now
            except (ValueError, TypeError) as error:
                raise ConfigurationError(f"{self.where}: {error}") from error
            self._client, self._loop, self._scripts = redis_asyncio.Redis(connection_pool=pool), loop, {}
        return self._client

    def _away(self, error: BaseException) -> StoreError:
        if _FULL in str(error):
            return StoreError(
                f"{self.where}: no connection was free within {self._patience:g} s; pool_size={self._size} may be too "
                "small, or the server too slow",
                retryable=True,
            )
        return StoreError(f"{self.where}: {_words(error)}", retryable=True)


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
