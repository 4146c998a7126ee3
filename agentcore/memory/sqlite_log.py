"""The messages of a conversation in SQLite: appended once, read, taken back, forked."""

import sqlite3
from collections.abc import Sequence
from typing import Any, TypeAlias

from agentcore.memory.base import ConversationInfo, Lease, StoredMessage
from agentcore.memory.branching import PAUSE, check_fork_point, fork_points
from agentcore.memory.refusals import check_same, id_in_use, lease_lost, nothing_to_fork, version_conflict
from agentcore.memory.sqlite_threads import Transaction
from agentcore.memory.stored_form import from_text
from agentcore.messages import Message

Body: TypeAlias = tuple[str, str]
"""The role and the text of a message."""

_HEAD = "SELECT version, fence, lease_until FROM ac_conversation WHERE conversation_id = ?"
_HEAD_AND_HELD = """
    SELECT version, fence, lease_until, EXISTS (
        SELECT 1 FROM ac_message WHERE conversation_id = ?1 AND turn_id = ?2 AND position >= ?3 AND position < ?4
    ) FROM ac_conversation WHERE conversation_id = ?1
"""
_HELD = """
    SELECT body FROM ac_message WHERE conversation_id = ? AND turn_id = ? AND position >= ? AND position < ?
    ORDER BY position
"""
_FLOOR = "SELECT version FROM ac_floor"
_NEW_HEAD = """
    INSERT INTO ac_conversation (conversation_id, version, fence, created_at, updated_at)
    SELECT ?, ?, fence, ?, ? FROM ac_floor
"""
_MOVE_HEAD = """
    UPDATE ac_conversation SET version = ?, updated_at = ?, created_at = coalesce(created_at, ?)
    WHERE conversation_id = ?
"""
_INSERT = """
    INSERT INTO ac_message (conversation_id, seq, turn_id, position, role, created_at, filler, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
# The bodies come as bytes: what is decoded next needs no str.
_ALL = "SELECT CAST(body AS BLOB) FROM ac_message WHERE conversation_id = ? ORDER BY seq"
_TAIL = """
    WITH tail AS MATERIALIZED (
        SELECT seq, body FROM ac_message WHERE conversation_id = ?1 ORDER BY seq DESC LIMIT ?2
    )
    SELECT CAST(body AS BLOB), seq FROM tail
    UNION ALL
    SELECT CAST(body AS BLOB), seq FROM ac_message INDEXED BY ac_message_system
    WHERE conversation_id = ?1 AND role = 'system' AND seq < coalesce((SELECT min(seq) FROM tail), ?3)
    ORDER BY 2
"""
_COLUMNS = "seq, turn_id, position, CAST(body AS BLOB), created_at"
_READ = f"SELECT {_COLUMNS} FROM ac_message WHERE conversation_id = ? AND seq > ? ORDER BY seq LIMIT ?"  # noqa: S608
_BETWEEN = f"SELECT {_COLUMNS} FROM ac_message WHERE conversation_id = ? AND seq > ? AND seq <= ? ORDER BY seq"  # noqa: S608
_INFO = """
    SELECT conversation_id, version, created_at, updated_at, parent_id, parent_seq FROM ac_conversation
    WHERE conversation_id = ? AND created_at IS NOT NULL
"""
_MAX = 2**63 - 1


def append(
    transaction: Transaction,
    conversation_id: str,
    bodies: Sequence[Body],
    turn_id: str,
    position: int,
    lease: Lease | None,
    expected_version: int | None,
) -> int:
    """Append the messages of a turn, once; see `MessageLog.append`."""
    execute = transaction.connection.execute
    places = (conversation_id, turn_id, position, position + len(bodies))
    head = execute(_HEAD_AND_HELD, places).fetchone()
    version, fence, lease_until, sent_before = head if head is not None else (0, None, None, False)
    if sent_before:
        held = [body for (body,) in execute(_HELD, places)]
        check_same(conversation_id, turn_id, position, held, [body for _, body in bodies])
        return version
    if lease is not None and (lease_until is None or lease.fence != fence or lease.conversation_id != conversation_id):
        raise lease_lost(conversation_id)
    if expected_version is not None and expected_version != version:
        raise version_conflict(conversation_id, expected_version, version)
    if not bodies:
        return version
    return _extend(transaction, conversation_id, bodies, turn_id, position, None if head is None else version)


def add(transaction: Transaction, conversation_id: str, bodies: Sequence[Body]) -> None:
    """Append messages as a turn of their own."""
    head = transaction.connection.execute(_HEAD, (conversation_id,)).fetchone()
    _extend(transaction, conversation_id, bodies, None, 0, None if head is None else head[0])


def _extend(
    transaction: Transaction,
    conversation_id: str,
    bodies: Sequence[Body],
    turn_id: str | None,
    position: int,
    version: int | None,
) -> int:
    connection, now = transaction.connection, transaction.now
    # A conversation that never had a message may be one that was forgotten to the last trace.
    last = (version or connection.execute(_FLOOR).fetchone()[0]) + len(bodies)
    if version is None:
        connection.execute(_NEW_HEAD, (conversation_id, last, now, now))
    else:
        connection.execute(_MOVE_HEAD, (last, now, now, conversation_id))
    first = last - len(bodies) + 1
    turn_id = turn_id or f"add-{first}"
    filler = transaction.filler(conversation_id, turn_id)
    connection.executemany(
        _INSERT,
        [
            (conversation_id, first + place, turn_id, position + place, role, now, filler, body)
            for place, (role, body) in enumerate(bodies)
        ],
    )
    return last


def messages(connection: sqlite3.Connection, conversation_id: str) -> tuple[Message, ...]:
    """All messages of a conversation."""
    return tuple([from_text(body) for (body,) in connection.execute(_ALL, (conversation_id,))])


def tail(connection: sqlite3.Connection, conversation_id: str, count: int) -> tuple[Message, ...]:
    """The last messages, after the system messages from before them."""
    rows = connection.execute(_TAIL, (conversation_id, max(0, count), _MAX))
    return tuple([from_text(body) for body, _ in rows])


def version(connection: sqlite3.Connection, conversation_id: str) -> int:
    """The version of a conversation."""
    head = connection.execute(_HEAD, (conversation_id,)).fetchone()
    return 0 if head is None else head[0]


def read(
    connection: sqlite3.Connection, conversation_id: str, after: int, limit: int | None
) -> tuple[StoredMessage, ...]:
    """Stored messages, oldest first."""
    rows = connection.execute(_READ, (conversation_id, after, _MAX if limit is None else max(0, limit)))
    return tuple([_stored(row) for row in rows])


def info(connection: sqlite3.Connection, conversation_id: str) -> ConversationInfo | None:
    """What is known of a conversation that has messages."""
    row = connection.execute(_INFO, (conversation_id,)).fetchone()
    return None if row is None else info_of(row)


def info_of(row: Sequence[Any]) -> ConversationInfo:
    """The columns of `_INFO`, in their order."""
    conversation_id, version, created_at, updated_at, parent_id, parent_seq = row
    return ConversationInfo(
        conversation_id=conversation_id,
        version=version,
        created_at=created_at,
        updated_at=updated_at,
        parent_id=parent_id,
        parent_seq=parent_seq,
    )


def fork(transaction: Transaction, conversation_id: str, new_id: str, at: int | None) -> ConversationInfo:
    """Begin a conversation with messages of another; see `Branching.fork`."""
    connection, now = transaction.connection, transaction.now
    if info(connection, conversation_id) is None:
        raise nothing_to_fork(conversation_id)
    if info(connection, new_id) is not None:
        raise id_in_use(new_id)
    if at is None:
        (at,) = connection.execute(
            "SELECT max(seq) FROM ac_message WHERE conversation_id = ?", (conversation_id,)
        ).fetchone()
    else:
        _check_fork_point(connection, conversation_id, at)
    assert at is not None
    connection.execute(
        """
        INSERT INTO ac_conversation (conversation_id, version, fence, created_at, updated_at, parent_id, parent_seq)
        SELECT ?1, max(version, ?2), fence, ?3, ?3, ?4, ?2 FROM ac_floor WHERE true
        ON CONFLICT (conversation_id) DO UPDATE SET version = max(ac_conversation.version, excluded.version),
            created_at = ?3, updated_at = ?3, parent_id = ?4, parent_seq = ?2
        """,
        (new_id, at, now, conversation_id),
    )
    # The filler depends on the length of the ids: it is made for each row.
    connection.execute(
        """
        INSERT INTO ac_message (conversation_id, seq, turn_id, position, role, created_at, filler, body)
        SELECT ?1, seq, turn_id, position, role, created_at, zeroblob(max(0, ?4 - length(turn_id))), body
        FROM ac_message WHERE conversation_id = ?2 AND seq <= ?3
        """,
        (new_id, conversation_id, at, len(transaction.filler(new_id))),
    )
    connection.execute(
        """
        INSERT OR REPLACE INTO ac_record (conversation_id, kind, key, seq, created_at, expires_at, filler, body)
        SELECT ?1, kind, key, seq, created_at, expires_at, zeroblob(max(0, ?4 - length(kind) - length(key))), body
        FROM ac_record WHERE conversation_id = ?2 AND seq <= ?3
        """,
        (new_id, conversation_id, at, len(transaction.filler(new_id))),
    )
    made = info(connection, new_id)
    assert made is not None
    return made


def rollback(transaction: Transaction, conversation_id: str, to: int) -> None:
    """Take back everything after a message; see `Branching.rollback`."""
    connection = transaction.connection
    if to != 0:
        _check_fork_point(connection, conversation_id, to)
    # With the last message go the beginning and the origin: what comes after is another conversation.
    connection.execute(
        """
        UPDATE ac_conversation SET fence = fence + 1, lease_until = NULL, updated_at = ?2,
            created_at = iif(?3, created_at, NULL), parent_id = iif(?3, parent_id, NULL),
            parent_seq = iif(?3, parent_seq, NULL)
        WHERE conversation_id = ?1
        """,
        (conversation_id, transaction.now, to != 0),
    )
    for table in ("ac_message", "ac_record"):
        transaction.delete(f"DELETE FROM {table} WHERE conversation_id = ? AND seq > ?", (conversation_id, to))  # noqa: S608


def _check_fork_point(connection: sqlite3.Connection, conversation_id: str, at: int) -> None:
    """Look at the turn of that message; only for a refusal, which names the nearest places, at all of them."""
    pauses = {
        seq
        for (seq,) in connection.execute(
            "SELECT seq FROM ac_record WHERE conversation_id = ? AND kind = ? AND seq IS NOT NULL",
            (conversation_id, PAUSE),
        )
    }
    turn = connection.execute(
        "SELECT turn_id FROM ac_message WHERE conversation_id = ? AND seq = ?", (conversation_id, at)
    ).fetchone()
    if turn is not None:
        # Back to the reply before that turn: calls may have been left open, and only the next reply ends that.
        (before,) = connection.execute(
            "SELECT coalesce(max(seq), 0) FROM ac_message WHERE conversation_id = ? AND seq < ? AND turn_id <> ?",
            (conversation_id, at, *turn),
        ).fetchone()
        (before,) = connection.execute(
            "SELECT coalesce(max(seq), 1) - 1 FROM ac_message WHERE conversation_id = ? AND seq <= ? "
            "AND role = 'assistant'",
            (conversation_id, before),
        ).fetchone()
        (following,) = connection.execute(
            "SELECT coalesce(min(seq), ?2) FROM ac_message WHERE conversation_id = ?1 AND seq > ?2",
            (conversation_id, at),
        ).fetchone()
        near = connection.execute(_BETWEEN, (conversation_id, before, following))
        if at in fork_points([_stored(row) for row in near], pauses):
            return
    check_fork_point(conversation_id, read(connection, conversation_id, 0, None), at, pauses)


def _stored(row: Sequence[Any]) -> StoredMessage:
    seq, turn_id, position, body, created_at = row
    return StoredMessage(seq, turn_id, position, from_text(body), created_at)
