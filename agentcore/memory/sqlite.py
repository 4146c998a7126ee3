"""SQLiteChatMemory: conversations in a file on this machine, with nothing to install and nothing to run."""

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from agentcore.errors import ConfigurationError, StoreError
from agentcore.memory import sqlite_heads, sqlite_log, sqlite_records
from agentcore.memory.base import (
    BusyPolicy,
    ConversationInfo,
    ConversationPage,
    Lease,
    Record,
    StoredMessage,
)
from agentcore.memory.leases import LEASE_SECONDS, LeasedTurns
from agentcore.memory.paging import ListingOrder, check_limit, make_page, read_cursor
from agentcore.memory.refusals import check_position, check_storable
from agentcore.memory.sqlite_file import SQLiteFile, Synchronous
from agentcore.memory.sqlite_jobs import Job
from agentcore.memory.sqlite_threads import SQLiteThreads
from agentcore.memory.stored_form import role_of, to_text
from agentcore.messages import Message

T = TypeVar("T")


class SQLiteChatMemory:
    """Conversations in a SQLite file, shared by the tasks, event loops and processes of one machine.

    What was acknowledged survives the end of the process, and with `synchronous="FULL"` a power cut too. Appends that
    are asked for at the same moment share a commit. The file is opened at first use, made if it is missing, and its
    schema upgraded; `aclose()`, or `async with`, lets go of it, and a later call opens it again. An object that is used
    before `os.fork()` must be closed first.

    What is forgotten (`clear`, `rollback`, `delete_inactive`) leaves no content in the file, nor, unless somebody is
    reading at that moment, in its `-wal` file: there it goes with the next commit, or when the file is closed. Ids,
    times and numbers stay until `delete_inactive` removes them. Backups keep what they hold, and a disk may keep
    blocks that it has written anew elsewhere.

    Args:
        path: the file, on a local disk: processes share memory beside it. It is kept in WAL mode.
        lease_seconds: how long a turn that is not heard of any more keeps its conversation.
        busy_timeout: seconds to wait while another process is writing.
        synchronous: "FULL" waits for the disk at each commit. "NORMAL" does not: faster, and a power cut may take the
            last commits, while the file stays whole.
        verify_only: never change the schema: a file that is missing or has an older one is refused.
        clock: Unix time in seconds; that of the machine, which all processes share.

    Raises:
        ConfigurationError: the path or another argument is of no use.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        lease_seconds: float = LEASE_SECONDS,
        busy_timeout: float = 10.0,
        synchronous: Synchronous = "FULL",
        verify_only: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        name = os.fspath(path)
        if name in ("", ":memory:"):
            raise ConfigurationError(
                f"SQLiteChatMemory keeps conversations in a file, and {name!r} names none; for memory that ends with "
                "the process use InMemoryChatMemory()"
            )
        if synchronous not in ("FULL", "NORMAL"):
            raise ConfigurationError(f"synchronous is 'FULL' or 'NORMAL', not {synchronous!r}")
        if lease_seconds <= 0 or busy_timeout < 0:
            raise ConfigurationError("lease_seconds has to be positive, and busy_timeout not negative")
        self._file = SQLiteFile(os.path.abspath(name), busy_timeout, synchronous, verify_only)
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._threads: SQLiteThreads | None = None
        self._ended: SQLiteThreads | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LeasedTurns] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"SQLiteChatMemory({self._file.path!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Write what was asked for, and let go of the file. Does nothing if it is not open."""
        with self._lock:
            threads = self._threads
            if threads is None or threads.process_id != os.getpid():
                return
            self._threads, self._ended = None, threads
            if self._finalizer is not None:
                self._finalizer.detach()
        job = Job[None](_nothing)
        threads.end(job)
        await job.outcome()
        threads.join()

    async def get(self, conversation_id: str) -> Sequence[Message]:
        """All messages of a conversation, oldest first."""
        return await self._read(partial(sqlite_log.messages, conversation_id=conversation_id))

    async def get_tail(self, conversation_id: str, count: int) -> Sequence[Message]:
        """The last `count` messages, preceded by the system messages from before them."""
        return await self._read(partial(sqlite_log.tail, conversation_id=conversation_id, count=count))

    async def add(self, conversation_id: str, messages: Sequence[Message]) -> None:
        """Append messages to a conversation, all or none.

        Raises:
            InvalidInputError: something that is not a message, or cannot be stored; nothing was stored.
            StoreError: the file cannot be written; nothing was stored.
        """
        bodies = _bodies(messages)
        if bodies:
            await self._write(partial(sqlite_log.add, conversation_id=conversation_id, bodies=bodies))

    async def append(
        self,
        conversation_id: str,
        messages: Sequence[Message],
        *,
        turn_id: str,
        position: int,
        lease: Lease | None = None,
        expected_version: int | None = None,
    ) -> int:
        """Append the messages of a turn, once; see `MessageLog.append`."""
        check_position(position)
        work = partial(
            sqlite_log.append,
            conversation_id=conversation_id,
            bodies=_bodies(messages),
            turn_id=turn_id,
            position=position,
            lease=lease,
            expected_version=expected_version,
        )
        return await self._write(work)

    async def version(self, conversation_id: str) -> int:
        """The version of a conversation; see `MessageLog.version`."""
        return await self._read(partial(sqlite_log.version, conversation_id=conversation_id))

    async def read(self, conversation_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[StoredMessage]:
        """Stored messages, oldest first; see `MessageLog.read`."""
        return await self._read(partial(sqlite_log.read, conversation_id=conversation_id, after=after, limit=limit))

    async def clear(self, conversation_id: str) -> None:
        """Forget a conversation; a turn that is running on it can write no more."""
        await self._write(partial(sqlite_heads.clear, conversation_id=conversation_id))

    def lock_turn(
        self,
        conversation_id: str,
        *,
        on_busy: BusyPolicy = "wait",
        timeout: float | None = None,
        supersede: Callable[[], None] | None = None,
    ) -> AbstractAsyncContextManager[Lease]:
        """Keep the turns of one conversation apart; see `TurnLocking.lock_turn`.

        In order within an event loop, by lease between event loops and processes.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            turns = self._turns.get(loop)
            if turns is None:
                turns = self._turns[loop] = LeasedTurns(self, seconds=self._lease_seconds)
        return turns.lock_turn(conversation_id, on_busy=on_busy, timeout=timeout, supersede=supersede)

    async def take_lease(self, conversation_id: str, seconds: float, *, steal: bool = False) -> Lease | None:
        """Take the conversation for `seconds`; None if somebody holds it, unless it is to be stolen."""
        return await self._write(
            partial(sqlite_heads.take_lease, conversation_id=conversation_id, seconds=seconds, steal=steal)
        )

    async def renew_lease(self, lease: Lease, seconds: float) -> bool:
        """Hold it for `seconds` from now; False if it is no longer ours."""
        return await self._write(partial(sqlite_heads.renew_lease, lease=lease, seconds=seconds))

    async def release_lease(self, lease: Lease) -> None:
        """Let go of it, if it is still ours."""
        await self._write(partial(sqlite_heads.release_lease, lease=lease))

    async def request_lease(self, conversation_id: str) -> int | None:
        """Ask who holds the conversation to give way; the fence of that lease, None if nobody holds it."""
        return await self._write(partial(sqlite_heads.request_lease, conversation_id=conversation_id))

    async def leases_to_give_up(self, leases: Sequence[Lease]) -> Collection[str]:
        """The conversations of those leases that are no longer held, or whose holder is asked to give way."""
        return await self._read(partial(sqlite_heads.leases_to_give_up, leases=leases))

    async def list_conversations(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        order: ListingOrder = "updated",
        prefix: str = "",
    ) -> ConversationPage:
        """A page of conversations, newest first; see `ConversationListing.list_conversations`."""
        check_limit(limit)
        start = read_cursor(after, order) if after is not None else None
        work = partial(sqlite_heads.page, order=order, start=start, prefix=prefix, limit=limit + 1)
        return make_page(await self._read(work), limit, order)

    async def conversation_info(self, conversation_id: str) -> ConversationInfo | None:
        """What is known of one conversation; None if it holds no messages."""
        return await self._read(partial(sqlite_log.info, conversation_id=conversation_id))

    async def delete_inactive(self, older_than: float) -> int:
        """Forget the conversations that have not changed for `older_than` seconds; see `ConversationListing`.

        It goes in small steps, between which others write.
        """
        deleted, before, more = 0, None, True
        while more:
            work = partial(sqlite_heads.forget_inactive, before=before, older_than=older_than)
            count, before, more = await self._write(work)
            deleted += count
        longest = max(self._lease_seconds, LEASE_SECONDS)
        while await self._write(partial(sqlite_heads.purge, longest_lease=longest)):
            pass
        return deleted

    async def fork(self, conversation_id: str, new_id: str, *, at: int | None = None) -> ConversationInfo:
        """Begin a conversation with messages of another; see `Branching.fork`."""
        return await self._write(partial(sqlite_log.fork, conversation_id=conversation_id, new_id=new_id, at=at))

    async def rollback(self, conversation_id: str, *, to: int) -> None:
        """Take back everything after `to`; see `Branching.rollback`."""
        await self._write(partial(sqlite_log.rollback, conversation_id=conversation_id, to=to))

    async def put_record(
        self,
        conversation_id: str,
        kind: str,
        key: str,
        body: str,
        *,
        seq: int | None = None,
        if_absent: bool = False,
        expires_in: float | None = None,
    ) -> bool:
        """Keep a record with a conversation; see `RecordKeeping.put_record`."""
        work = partial(
            sqlite_records.put,
            conversation_id=conversation_id,
            kind=kind,
            key=key,
            body=body,
            seq=seq,
            if_absent=if_absent,
            expires_in=expires_in,
        )
        return await self._write(work)

    async def get_record(self, conversation_id: str, kind: str, key: str) -> Record | None:
        """One record; None if there is none, or it has expired."""
        now = self._clock()
        return await self._read(
            partial(sqlite_records.get, conversation_id=conversation_id, kind=kind, key=key, now=now)
        )

    async def take_record(self, conversation_id: str, kind: str, key: str) -> Record | None:
        """Read a record and remove it in one step."""
        return await self._write(partial(sqlite_records.take, conversation_id=conversation_id, kind=kind, key=key))

    async def list_records(self, conversation_id: str, kind: str) -> Sequence[Record]:
        """All records of a kind, by `seq` (those without first), then by key."""
        now = self._clock()
        return await self._read(partial(sqlite_records.of_kind, conversation_id=conversation_id, kind=kind, now=now))

    async def _write(self, work: Callable[..., T]) -> T:
        job = Job(work)
        while not self._open().write(job):
            pass  # it was closed just now: opened again
        return await job.outcome()

    async def _read(self, work: Callable[..., T]) -> T:
        job = Job(work)
        while not self._open().read(job):
            pass
        return await job.outcome()

    def _open(self) -> SQLiteThreads:
        threads = self._threads
        if threads is None:
            with self._lock:
                threads = self._threads
                if threads is None:
                    threads = self._threads = SQLiteThreads(self._file, self._clock, self._ended)
                    self._ended = None
                    self._finalizer = weakref.finalize(self, _let_go, threads)
        if threads.process_id != os.getpid():
            raise StoreError(
                f"{self._file.path} was opened before this process was forked, and SQLite's locks do not survive that; "
                "close the memory before the fork, or make it after"
            )
        return threads


def _bodies(messages: Sequence[Message]) -> list[sqlite_log.Body]:
    check_storable(messages)
    return [(role_of(message), to_text(message)) for message in messages]


def _nothing(_: Any) -> None:
    return None


def _let_go(threads: SQLiteThreads) -> None:
    """For a memory that nobody closed: at its end, or that of the process."""
    if threads.process_id == os.getpid() and threads.end():
        threads.join()
