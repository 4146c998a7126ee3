"""PostgresChatMemory: conversations in PostgreSQL, for many machines. Needs the extra `postgres`."""

import asyncio
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from agentcore.errors import ConfigurationError, StoreError
from agentcore.memory import postgres_statements as sql
from agentcore.memory.base import (
    BusyPolicy,
    ConversationInfo,
    ConversationPage,
    Lease,
    Record,
    StoredMessage,
)
from agentcore.memory.branching import PAUSE, check_fork_point
from agentcore.memory.finishing import finish
from agentcore.memory.leases import LEASE_SECONDS, LeasedTurns
from agentcore.memory.locks import ConversationLocks
from agentcore.memory.paging import ListingOrder, after_prefix, check_limit, make_page, read_cursor
from agentcore.memory.postgres_pool import PostgresPool
from agentcore.memory.refusals import (
    check_position,
    check_same,
    check_storable,
    id_in_use,
    lease_lost,
    nothing_to_fork,
    version_conflict,
)
from agentcore.memory.stored_form import from_text, role_of, to_text
from agentcore.messages import Message

_AT_ONCE = 100
"""How many conversations one transaction forgets: others wait for it."""

_ATTEMPTS = 5
"""How often an append is sent that was hindered by something that is gone when we look."""

_MAX = 2**63 - 1


class PostgresChatMemory:
    """Conversations in a PostgreSQL database, shared by the processes of many machines.

    What was acknowledged survives crashes of clients and of the server, as far as the server itself keeps it
    (`synchronous_commit`; a failover to an asynchronous standby may lose the last commits). Connections are made at
    first use, in a pool of one event loop; the schema is made and upgraded by the first who comes. A connection is held
    for a statement or two, never while a model is asked. When the server restarts, what was under way is sent again: an
    append that had been done is not done twice. A task that is cancelled during a write hears of it when the outcome is
    known, so that nothing comes in behind its back.

    What is forgotten (`clear`, `rollback`, `delete_inactive`) is deleted from the tables; ids, times and numbers stay
    until `delete_inactive` removes them. Dead rows stay in the files until a vacuum, and in WAL archives and backups as
    long as those are kept.

    Args:
        dsn: `postgresql://user:password@host/database`.
        pool_size: connections at most; a turn needs one for a moment only.
        patience: seconds to wait for a free connection, to go on trying while the server is away, and for an answer.
        pooler: there is a pooler in transaction mode (PgBouncer) between us and the server.
        lease_seconds: how long a turn that is not heard of any more keeps its conversation.
        verify_only: never change the schema: one that is missing or older is refused. For roles without DDL rights.

    Raises:
        ConfigurationError: the address or another argument is of no use.
    """

    def __init__(
        self,
        dsn: str,
        *,
        pool_size: int = 10,
        patience: float = 15.0,
        pooler: bool = False,
        lease_seconds: float = LEASE_SECONDS,
        verify_only: bool = False,
    ) -> None:
        if lease_seconds <= 0:
            raise ConfigurationError("lease_seconds has to be positive")
        self._pool = PostgresPool(dsn, size=pool_size, patience=patience, pooler=pooler, verify_only=verify_only)
        self._lease_seconds = lease_seconds
        self._order = ConversationLocks()  # of the appends of this process
        self._turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LeasedTurns] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"PostgresChatMemory({self._pool.where!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. Twice is harmless, and a later call opens new ones."""
        await self._pool.aclose()

    async def get(self, conversation_id: str) -> Sequence[Message]:
        """All messages of a conversation, oldest first."""
        rows = await self._fetch(sql.ALL, conversation_id)
        return tuple([from_text(row[0]) for row in rows])

    async def get_tail(self, conversation_id: str, count: int) -> Sequence[Message]:
        """The last `count` messages, preceded by the system messages from before them."""
        rows = await self._fetch(sql.TAIL, conversation_id, max(0, count))
        return tuple([from_text(row[0]) for row in rows])

    async def add(self, conversation_id: str, messages: Sequence[Message]) -> None:
        """Append messages to a conversation, all or none.

        Raises:
            InvalidInputError: something that is not a message, or cannot be stored; nothing was stored.
            StoreError: the server is away or refuses.
        """
        if messages:
            await self.append(conversation_id, messages, turn_id=f"add-{uuid4().hex}", position=0)

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
        check_storable(messages)
        check_position(position)
        bodies = [to_text(message) for message in messages]
        roles = [role_of(message) for message in messages]
        if lease is not None and lease.conversation_id != conversation_id:
            raise lease_lost(conversation_id)
        statement = sql.APPEND if lease is None else sql.APPEND_HELD
        conditions = (expected_version,) if lease is None else (lease.fence, expected_version)

        async def work(connection: Any) -> int:
            for _ in range(_ATTEMPTS):
                if bodies:
                    rows: Sequence[Any] = ()
                    with suppress(asyncpg.UniqueViolationError):  # this place of the turn is taken
                        rows = await connection.fetch(
                            statement, conversation_id, turn_id, position, roles, bodies, *conditions
                        )
                    if rows:
                        return int(rows[-1][0])
                version = await _why_not(
                    connection, conversation_id, bodies, turn_id, position, lease, expected_version
                )
                if version is not None:
                    return version
            raise StoreError(
                f"conversation {conversation_id!r} takes no message: what its tables hold does not fit together; "
                "were they changed from outside?"
            )

        async def in_order() -> int:
            async with self._order.lock_turn(conversation_id):  # each on a connection of its own, they would overtake
                return await self._pool.run(work)

        return await finish(in_order())

    async def version(self, conversation_id: str) -> int:
        """The version of a conversation; see `MessageLog.version`."""
        rows = await self._fetch(sql.HEAD, conversation_id)
        return int(rows[0][0]) if rows else 0

    async def read(self, conversation_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[StoredMessage]:
        """Stored messages, oldest first; see `MessageLog.read`."""
        rows = await self._fetch(sql.READ, conversation_id, after, _MAX if limit is None else max(0, limit))
        return tuple([_stored(row) for row in rows])

    async def clear(self, conversation_id: str) -> None:
        """Forget a conversation; a turn that is running on it can write no more."""

        async def work(connection: Any) -> None:
            async with connection.transaction():
                await _forget(connection, [conversation_id])

        await finish(self._pool.run(work))

    def lock_turn(
        self,
        conversation_id: str,
        *,
        on_busy: BusyPolicy = "wait",
        timeout: float | None = None,
        supersede: Callable[[], None] | None = None,
    ) -> AbstractAsyncContextManager[Lease]:
        """Keep the turns of one conversation apart; see `TurnLocking.lock_turn`.

        In order within an event loop, by lease between processes.
        """
        loop = asyncio.get_running_loop()
        turns = self._turns.get(loop)
        if turns is None:
            turns = self._turns[loop] = LeasedTurns(self, seconds=self._lease_seconds)
        return turns.lock_turn(conversation_id, on_busy=on_busy, timeout=timeout, supersede=supersede)

    async def take_lease(self, conversation_id: str, seconds: float, *, steal: bool = False) -> Lease | None:
        """Take the conversation for `seconds`; None if somebody holds it, unless it is to be stolen."""
        owner = uuid4().hex  # so that one who has to ask again is known to have it already
        rows = await self._fetch(sql.TAKE_LEASE, conversation_id, owner, seconds, steal)
        return Lease(conversation_id, rows[0][0], rows[0][1]) if rows else None

    async def renew_lease(self, lease: Lease, seconds: float) -> bool:
        """Hold it for `seconds` from now; False if it is no longer ours."""
        return bool(await self._fetch(sql.RENEW_LEASE, lease.conversation_id, lease.fence, seconds))

    async def release_lease(self, lease: Lease) -> None:
        """Let go of it, if it is still ours."""
        await self._fetch(sql.RELEASE_LEASE, lease.conversation_id, lease.fence)

    async def request_lease(self, conversation_id: str) -> int | None:
        """Ask who holds the conversation to give way; the fence of that lease, None if nobody holds it."""
        rows = await self._fetch(sql.REQUEST_LEASE, conversation_id)
        return int(rows[0][0]) if rows else None

    async def leases_to_give_up(self, leases: Sequence[Lease]) -> Collection[str]:
        """The conversations of those leases that are no longer held, or whose holder is asked to give way."""
        ids, fences = [lease.conversation_id for lease in leases], [lease.fence for lease in leases]
        return [row[0] for row in await self._fetch(sql.LEASES_TO_GIVE_UP, ids, fences)]

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
        start = read_cursor(after, order) if after is not None else ()
        end = after_prefix(prefix) if prefix else None
        bounds = [bound for bound in (prefix or None, end) if bound is not None]
        statement = sql.page(order, after=bool(start), prefix=bool(prefix), end=end is not None)
        rows = await self._fetch(statement, limit + 1, *start, *bounds)
        return make_page([_info(row) for row in rows], limit, order)

    async def conversation_info(self, conversation_id: str) -> ConversationInfo | None:
        """What is known of one conversation; None if it holds no messages."""
        rows = await self._fetch(sql.INFO, conversation_id)
        return _info(rows[0]) if rows else None

    async def delete_inactive(self, older_than: float) -> int:
        """Forget the conversations that have not changed for `older_than` seconds; see `ConversationListing`.

        It goes in small steps, between which others write.
        """
        [(before,)] = await self._fetch("select clock_timestamp() - make_interval(secs => $1)", older_than)

        async def forget(connection: Any) -> tuple[int, bool]:
            async with connection.transaction():
                rows = await connection.fetch(sql.INACTIVE, before, _AT_ONCE)
                await _forget(connection, [row[0] for row in rows])
                return sum(row[1] for row in rows), len(rows) == _AT_ONCE

        deleted, more = 0, True
        while more:
            count, more = await self._pool.run(forget)
            deleted += count
        await self._fetch(sql.EXPIRED_RECORDS)
        longest = max(self._lease_seconds, LEASE_SECONDS)
        while await self._execute(sql.PURGE, longest, _AT_ONCE) == f"DELETE {_AT_ONCE}":
            pass
        return deleted

    async def fork(self, conversation_id: str, new_id: str, *, at: int | None = None) -> ConversationInfo:
        """Begin a conversation with messages of another; see `Branching.fork`."""

        async def work(connection: Any) -> ConversationInfo:
            async with connection.transaction():
                await connection.fetch(sql.LOCK_HEAD, conversation_id)
                last = await connection.fetchval(sql.LAST_SEQ, conversation_id)
                if last is None:
                    raise nothing_to_fork(conversation_id)
                if at is not None:
                    await _check_fork_point(connection, conversation_id, at)
                place = last if at is None else at
                if not await connection.fetch(sql.FORK_HEAD, new_id, place, conversation_id):
                    raise id_in_use(new_id)
                await connection.execute(sql.FORK_MESSAGES, new_id, place, conversation_id)
                await connection.execute(sql.FORK_RECORDS, new_id, place, conversation_id)
                return _info(await connection.fetchrow(sql.INFO, new_id))

        return await finish(self._pool.run(work, again=False))

    async def rollback(self, conversation_id: str, *, to: int) -> None:
        """Take back everything after `to`; see `Branching.rollback`."""

        async def work(connection: Any) -> None:
            async with connection.transaction():
                await connection.fetch(sql.LOCK_HEAD, conversation_id)
                if to != 0:
                    await _check_fork_point(connection, conversation_id, to)
                for statement in (sql.ROLLBACK_HEAD, sql.ROLLBACK_MESSAGES, sql.ROLLBACK_RECORDS):
                    await connection.execute(statement, conversation_id, to)

        await finish(self._pool.run(work))

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
        arguments = (conversation_id, kind, key, body, seq, expires_in, if_absent)
        return bool(await finish(self._fetch(sql.PUT_RECORD, *arguments, again=not if_absent)))

    async def get_record(self, conversation_id: str, kind: str, key: str) -> Record | None:
        """One record; None if there is none, or it has expired."""
        rows = await self._fetch(sql.GET_RECORD, conversation_id, kind, key)
        return _record(rows[0]) if rows else None

    async def take_record(self, conversation_id: str, kind: str, key: str) -> Record | None:
        """Read a record and remove it in one step."""
        rows = await finish(self._fetch(sql.TAKE_RECORD, conversation_id, kind, key, again=False))
        return _record(rows[0]) if rows else None

    async def list_records(self, conversation_id: str, kind: str) -> Sequence[Record]:
        """All records of a kind, by `seq` (those without first), then by key."""
        return [_record(row) for row in await self._fetch(sql.LIST_RECORDS, conversation_id, kind)]

    async def _fetch(self, statement: str, *arguments: Any, again: bool = True) -> Sequence[Any]:
        async def work(connection: Any) -> Sequence[Any]:
            return await connection.fetch(statement, *arguments)

        return await self._pool.run(work, again=again)

    async def _execute(self, statement: str, *arguments: Any) -> str:
        async def work(connection: Any) -> str:
            return await connection.execute(statement, *arguments)

        return await self._pool.run(work)


async def _why_not(
    connection: Any,
    conversation_id: str,
    bodies: Sequence[str],
    turn_id: str,
    position: int,
    lease: Lease | None,
    expected_version: int | None,
) -> int | None:
    """What it means that an append changed nothing: the version if it was done before, None if nothing hinders it now.

    Raises:
        InvalidInputError: its places hold something else.
        LeaseLostError: the lease is no longer held.
        VersionConflictError: the conversation has another version.
    """
    held = await connection.fetch(sql.HELD, conversation_id, turn_id, position, position + len(bodies))
    head = await connection.fetchrow(sql.HEAD, conversation_id)
    version, fence, is_held = head if head is not None else (0, None, False)
    if held:
        check_same(conversation_id, turn_id, position, [row[0] for row in held], bodies)
        return int(version)
    if lease is not None and (not is_held or lease.fence != fence):
        raise lease_lost(conversation_id)
    if expected_version is not None and expected_version != version:
        raise version_conflict(conversation_id, expected_version, version)
    # Whoever hindered it may be gone already: cleared, or rolled back.
    return None if bodies else int(version)


async def _forget(connection: Any, conversation_ids: Sequence[str]) -> None:
    """Forget conversations, but for their numbers: a stale writer must not take another beginning for its own."""
    if conversation_ids:
        for statement in (sql.FORGET_HEAD, sql.FORGET_MESSAGES, sql.FORGET_RECORDS):
            await connection.execute(statement, conversation_ids)


async def _check_fork_point(connection: Any, conversation_id: str, at: int) -> None:
    pauses = {row[0] for row in await connection.fetch(sql.PAUSES, conversation_id, PAUSE)}
    rows = await connection.fetch(sql.READ, conversation_id, 0, _MAX)
    check_fork_point(conversation_id, [_stored(row) for row in rows], at, pauses)


def _stored(row: Any) -> StoredMessage:
    seq, turn_id, position, body, created_at = row
    return StoredMessage(seq, turn_id, position, from_text(body), created_at)


def _info(row: Any) -> ConversationInfo:
    conversation_id, version, created_at, updated_at, parent_id, parent_seq = row
    return ConversationInfo(
        conversation_id=conversation_id,
        version=version,
        created_at=created_at,
        updated_at=updated_at,
        parent_id=parent_id,
        parent_seq=parent_seq,
    )


def _record(row: Any) -> Record:
    kind, key, body, seq, created_at = row
    return Record(kind=kind, key=key, body=body, seq=seq, created_at=created_at)
