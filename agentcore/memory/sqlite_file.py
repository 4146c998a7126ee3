"""How SQLiteChatMemory opens its file, and how SQLite's refusals are told."""

import os
import random
import sqlite3
import time
from typing import Literal, TypeAlias

from msgspec import Struct

from agentcore.errors import StoreError
from agentcore.memory.sqlite_schema import prepare_schema

Synchronous: TypeAlias = Literal["FULL", "NORMAL"]

PAGE_SIZE = 512
"""Of new files; see `sqlite_schema`."""

_OLDEST_SQLITE = (3, 35, 0)  # RETURNING
_WAL_PAGES = 4 * 1024 * 1024 // PAGE_SIZE
_CACHE_KIB = 16 * 1024
_STATEMENTS = 256

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
_RETRYABLE = (*_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


class SQLiteFile(Struct, frozen=True):
    """A database file, and how it is to be opened.

    Attributes:
        path: absolute.
        busy_timeout: seconds to wait for the locks of other processes.
        synchronous: FULL waits for the disk at each commit; NORMAL may lose the last ones when the power fails.
        verify_only: never change the schema, nor make a file.
    """

    path: str
    busy_timeout: float
    synchronous: Synchronous
    verify_only: bool

    def connect(self, *, read_only: bool) -> "OpenFile":
        """Open the file, with the newest schema in it. What is returned belongs to the calling thread.

        Raises:
            StoreError: the file cannot be used.
        """
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            oldest = ".".join(str(number) for number in _OLDEST_SQLITE)
            raise StoreError(f"this Python has SQLite {sqlite3.sqlite_version}; {oldest} or newer is needed")
        if self.verify_only and not os.path.exists(self.path):
            raise StoreError(f"{self.path} does not exist, and verify_only=True forbids to make it")
        deadline = time.monotonic() + self.busy_timeout
        while True:
            try:
                return OpenFile(self._open(read_only), self.path)
            except sqlite3.Error as error:
                # The change to WAL, and the first look at the file, may find it locked without any waiting.
                if not is_busy(error) or time.monotonic() > deadline:
                    raise self.failure(error) from error
            time.sleep(random.uniform(0.001, 0.02))  # noqa: S311 - spreads the waiting, keeps no secret

    def _open(self, read_only: bool) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self.busy_timeout, isolation_level=None, cached_statements=_STATEMENTS
        )
        try:
            connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise StoreError(
                    f"{self.path} cannot be kept in SQLite's WAL mode (it is in mode {mode!r}); put it on a local disk "
                    "where files can be locked and mapped"
                )
            for pragma in (
                f"synchronous = {self.synchronous}",
                "foreign_keys = ON",
                "secure_delete = ON",
                f"cache_size = -{_CACHE_KIB}",
                f"wal_autocheckpoint = {_WAL_PAGES}",
                f"journal_size_limit = {16 * 1024 * 1024}",
            ):
                connection.execute(f"PRAGMA {pragma}").fetchall()
            prepare_schema(connection, self.path, verify_only=self.verify_only)
            if read_only:
                connection.execute("PRAGMA query_only = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def failure(self, error: sqlite3.Error) -> StoreError:
        """What to tell of a refusal of SQLite: what, where, and what helps."""
        code = _code(error)
        match code:
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
                told = (
                    f"was locked by another process for {self.busy_timeout:g} s; end long transactions on it, or raise "
                    "busy_timeout"
                )
            case sqlite3.SQLITE_FULL:
                told = "has no room left on its disk; free some space, then do the same again"
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
                told = "may only be read; make the file and its directory writable for this user"
            case sqlite3.SQLITE_CANTOPEN:
                told = (
                    "cannot be opened; its directory has to exist and this user needs to write there: " + self._place()
                )
            case sqlite3.SQLITE_NOTADB:
                told = "is no SQLite database; name another file"
            case sqlite3.SQLITE_CORRUPT:
                told = "is damaged; restore a backup, or save what can be read with sqlite3's .recover"
            case sqlite3.SQLITE_IOERR:
                told = f"could not be read or written ({_name(error)}); look after its disk, its limits and quotas"
            case _:
                told = f"refused: {error} ({_name(error)})"
        return StoreError(f"{self.path} {told}", retryable=code in _RETRYABLE)

    def _place(self) -> str:
        directory = os.path.dirname(self.path)
        if os.path.isdir(self.path):
            return "it is a directory"
        return "the directory is there" if os.path.isdir(directory) else f"there is no directory {directory}"


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else has the lock, and trying again helps."""
    return _code(error) in _BUSY


class OpenFile:
    """A file that one thread has opened.

    Attributes:
        connection: outside of transactions it commits by itself.
        movable_bytes: how much of the beginning of a row SQLite may move from page to page.
    """

    __slots__ = ("_identity", "_path", "connection", "movable_bytes")

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self.connection = connection
        self._path = path
        self._identity = _identity(path)
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        # SQLite's file format, "B-tree pages": of an entry in an index, at most this much stays in the tree.
        self.movable_bytes = (int(page) - 12) * 64 // 255 - 23

    def check_place(self) -> None:
        """Make sure that the file is still the one at its path: what is written to another is lost.

        Raises:
            StoreError: it was moved, deleted or replaced.
        """
        if _identity(self._path) != self._identity:
            raise StoreError(
                f"{self._path} was moved, deleted or replaced while it was in use; nothing was stored; the next call "
                "opens what is there then",
                retryable=True,
            )

    def close(self) -> None:
        """Let go of it."""
        self.connection.close()


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the extension


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", type(error).__name__)
