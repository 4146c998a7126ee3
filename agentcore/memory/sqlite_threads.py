"""The threads that work on a SQLite file: one writes, many appends to a commit; a few read."""

import logging
import os
import queue
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from msgspec import Struct

from agentcore.errors import AgentCoreError, InvalidInputError, StoreError
from agentcore.memory.sqlite_file import OpenFile, SQLiteFile, is_busy
from agentcore.memory.sqlite_jobs import Job, Outcome, tell

logger = logging.getLogger("agentcore.memory")

_LARGEST_BATCH = 512
_GATHERING_SECONDS = 0.0001
_READERS = 2
_EXIT_SECONDS = 5.0

_Jobs: TypeAlias = "queue.SimpleQueue[Job[Any] | None]"  # None ends the thread that gets it


class Transaction(Struct):
    """What a write works with.

    Attributes:
        connection: inside a transaction that has the file's write lock.
        now: Unix time in seconds, read inside the transaction: it grows in the order of commits.
        movable_bytes: see `sqlite_file.movable_bytes`.
        forgets: content was deleted.
    """

    connection: sqlite3.Connection
    now: float
    movable_bytes: int
    forgets: bool = False

    def delete(self, statement: str, values: tuple[object, ...]) -> None:
        """Delete rows with content, which then has to leave the log as well."""
        self.forgets = self.connection.execute(statement, values).rowcount > 0 or self.forgets

    def filler(self, *keys: str) -> bytes:
        """What has to come between a row's keys and its content, so that the content is never moved."""
        return bytes(max(0, self.movable_bytes - len("".join(keys))))


class SQLiteThreads:
    """The threads of one file, from their start to their end; they end when `end` was called.

    They are daemons: a process may exit without them, and loses nothing that was acknowledged.

    Args:
        file: what they open, each for itself.
        clock: Unix time in seconds.
        before: threads of the same file that are ending; what was given to them is written first.
    """

    def __init__(self, file: SQLiteFile, clock: Callable[[], float], before: "SQLiteThreads | None" = None) -> None:
        self.process_id = os.getpid()
        self._lock = threading.Lock()
        self._ending = False
        self._reads: _Jobs = queue.SimpleQueue()
        self._read_count = 0  # asked for and not done
        self._readers: list[threading.Thread] = []
        self._file = file
        self._writer = _Writer(file, clock, self._readers, None if before is None else partial(before.join, None))
        self._writer.start()

    def write(self, job: Job[Any]) -> bool:
        """Have a job done in a transaction, in the order in which they come; False if the threads are ending."""
        with self._lock:
            if not self._ending:
                self._writer.jobs.put(job)
            return not self._ending

    def read(self, job: Job[Any]) -> bool:
        """Have a job done on a reading connection; False if the threads are ending."""
        with self._lock:
            if self._ending:
                return False
            self._read_count += 1
            if self._read_count > len(self._readers) < _READERS:
                reader = threading.Thread(target=self._run_reader, name="agentcore-sqlite-reader", daemon=True)
                self._readers.append(reader)
                reader.start()
            self._reads.put(job)
            return True

    def end(self, job: Job[None] | None = None) -> bool:
        """Do what was asked for, then let go of the file; False if that is under way already.

        Args:
            job: is told at the end of the last thread.
        """
        with self._lock:
            if self._ending:
                return False
            self._ending = True
            for _ in self._readers:
                self._reads.put(None)
            self._writer.closing = job
            self._writer.jobs.put(None)
            return True

    def join(self, seconds: float | None = _EXIT_SECONDS) -> None:
        """Block until the last thread has ended."""
        if threading.current_thread() not in (self._writer, *self._readers):
            self._writer.join(seconds)

    def _run_reader(self) -> None:
        opened: OpenFile | None = None
        while (job := self._reads.get()) is not None:
            if job.claim():
                try:
                    if opened is None:
                        opened = self._file.connect(read_only=True)
                    opened.check_place()
                    outcome = Outcome(job, job.work(opened.connection))
                except Exception as error:  # noqa: BLE001 - told to the task that waits for it
                    if opened is not None and isinstance(error, sqlite3.Error | StoreError):
                        opened.close()  # the next read begins afresh
                        opened = None
                    outcome = Outcome(job, error=_told(error, self._file))
                tell([outcome])
                del outcome
            del job  # what it refers to must not live until the next one comes
            with self._lock:
                self._read_count -= 1
        if opened is not None:
            opened.close()


class _Writer(threading.Thread):
    """Takes what has come in meanwhile into one transaction, and commits once for all.

    A write that is refused has changed nothing, and the others go on. Should one fail half-way, the transaction is
    taken back and each has one of its own: that is rare, and savepoints would cost every one of them.
    """

    def __init__(
        self,
        file: SQLiteFile,
        clock: Callable[[], float],
        readers: list[threading.Thread],
        before: Callable[[], None] | None,
    ) -> None:
        super().__init__(name="agentcore-sqlite-writer", daemon=True)
        self.jobs: _Jobs = queue.SimpleQueue()
        self.closing: Job[None] | None = None
        self._file = file
        self._clock = clock
        self._readers = readers
        self._before = before
        self._opened: OpenFile | None = None
        self._ended = False
        self._crowd = False  # several shared the last commit
        self._forgotten = False  # content is still in the log

    def run(self) -> None:
        if self._before is not None:
            self._before()
            self._before = None
        while not self._ended:
            first = self.jobs.get()
            if first is None:
                break
            if self._crowd:  # the others that waited for the last commit are about to come again
                time.sleep(_GATHERING_SECONDS)
            self._write(first)
            del first  # what it refers to must not live until the next one comes
        for reader in self._readers:
            reader.join()
        self._disconnect()
        if self.closing is not None:
            tell([Outcome(self.closing)])

    def _write(self, first: Job[Any]) -> None:
        try:
            transaction = self._begin()
        except Exception as error:  # noqa: BLE001 - told to the tasks that wait
            # All that wait share the fate of the first: else each would wait for the lock in turn.
            tell([Outcome(job, error=_told(error, self._file)) for job in (first, *self._waiting()) if job.claim()])
            return
        batch = [job for job in (first, *self._waiting()) if job.claim()]
        self._crowd = len(batch) > 1
        outcomes = self._commit(transaction, batch)
        if outcomes is None:  # one of them may have been the reason
            outcomes = [self._alone(job) for job in batch]
        if self._forgotten:
            self._empty_log()
        tell(outcomes)

    def _waiting(self) -> list[Job[Any]]:
        jobs: list[Job[Any]] = []
        while not self._ended and len(jobs) < _LARGEST_BATCH:
            try:
                job = self.jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._ended = True
            else:
                jobs.append(job)
        return jobs

    def _begin(self) -> Transaction:
        try:
            if self._opened is None:
                self._opened = self._file.connect(read_only=False)
                self._opened.connection.execute("PRAGMA busy_timeout = 0")
            self._opened.check_place()
            self._lock(self._opened.connection)
            return Transaction(self._opened.connection, self._clock(), self._opened.movable_bytes)
        except Exception:
            self._disconnect()
            raise

    def _lock(self, connection: sqlite3.Connection) -> None:
        deadline = time.monotonic() + self._file.busy_timeout
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
            # SQLite's own waiting grows to 0.1 s; a process that commits all the time is hardly ever met free that way.
            time.sleep(random.uniform(0.0005, 0.004))  # noqa: S311 - spreads the waiting, keeps no secret

    def _commit(self, transaction: Transaction, batch: list[Job[Any]]) -> list[Outcome[Any]] | None:
        """Do jobs in a transaction; None if it failed as a whole, and nothing was done."""
        connection = transaction.connection
        outcomes: list[Outcome[Any]] = []
        try:
            for job in batch:
                changes = connection.total_changes
                try:
                    outcomes.append(Outcome(job, job.work(transaction)))
                except sqlite3.OperationalError:
                    raise
                except Exception as error:  # noqa: BLE001 - told to the task that waits for it
                    outcomes.append(Outcome(job, error=_told(error, self._file)))
                    if connection.total_changes != changes:  # half of it is done: nothing of it may stay
                        connection.execute("ROLLBACK")
                        return outcomes if len(batch) == 1 else None
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._disconnect()  # which takes everything back
            return None if len(batch) > 1 else [Outcome(batch[0], error=_told(error, self._file))]
        self._forgotten = self._forgotten or transaction.forgets
        return outcomes

    def _alone(self, job: Job[Any]) -> Outcome[Any]:
        try:
            transaction = self._begin()
        except Exception as error:  # noqa: BLE001 - told to the task that waits for it
            return Outcome(job, error=_told(error, self._file))
        outcomes = self._commit(transaction, [job])
        assert outcomes is not None
        return outcomes[0]

    def _disconnect(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _empty_log(self) -> None:
        """Take forgotten content out of the write-ahead log. If somebody is reading, that waits for the next commit."""
        if self._opened is None:
            return
        try:
            (busy, _, _) = self._opened.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._forgotten = bool(busy)
        except sqlite3.Error as error:
            logger.warning("%s: its log could not be emptied: %s", self._file.path, error)


def _told(error: Exception, file: SQLiteFile) -> Exception:
    """An error of its own for each task that hears it."""
    match error:
        case sqlite3.Error():
            told: Exception = file.failure(error)
        case UnicodeEncodeError():
            told = InvalidInputError("an id or a text holds a lone surrogate, which no database keeps; leave it out")
        case OverflowError():
            told = InvalidInputError("a number is too large for a place in a conversation")
        case StoreError():
            told = StoreError(str(error), retryable=error.retryable)
        case AgentCoreError():
            return error
        case _:
            return error
    told.__cause__ = error
    return told
