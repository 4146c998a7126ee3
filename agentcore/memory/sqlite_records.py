"""Records that are kept with a conversation in SQLite."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from agentcore.memory.base import Record
from agentcore.memory.sqlite_threads import Transaction

_COLUMNS = "kind, key, body, seq, created_at"
_LIVE = "(expires_at IS NULL OR expires_at > ?)"
_ONE = f"conversation_id = ? AND kind = ? AND key = ? AND {_LIVE}"
_GET = f"SELECT {_COLUMNS} FROM ac_record WHERE {_ONE}"  # noqa: S608 - of constants
_TAKE = f"DELETE FROM ac_record WHERE {_ONE} RETURNING {_COLUMNS}"  # noqa: S608 - of constants
_LIST = f"""
    SELECT {_COLUMNS} FROM ac_record WHERE conversation_id = ? AND kind = ? AND {_LIVE} ORDER BY coalesce(seq, 0), key
"""  # noqa: S608 - of constants
_HEAD = """
    INSERT INTO ac_conversation (conversation_id, version, fence, updated_at)
    SELECT ?1, 0, fence, ?2 FROM ac_floor WHERE true
    ON CONFLICT (conversation_id) DO UPDATE SET updated_at = ?2 WHERE ac_conversation.created_at IS NULL
"""
_PUT = """
    INSERT OR REPLACE INTO ac_record (conversation_id, kind, key, seq, created_at, expires_at, filler, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""


def put(
    transaction: Transaction,
    conversation_id: str,
    kind: str,
    key: str,
    body: str,
    seq: int | None,
    if_absent: bool,
    expires_in: float | None,
) -> bool:
    """Keep a record; see `RecordKeeping.put_record`."""
    connection, now = transaction.connection, transaction.now
    if if_absent and get(connection, conversation_id, kind, key, now) is not None:
        return False
    connection.execute(_HEAD, (conversation_id, now))
    expires_at = None if expires_in is None else now + expires_in
    filler = transaction.filler(conversation_id, kind, key)
    connection.execute(_PUT, (conversation_id, kind, key, seq, now, expires_at, filler, body))
    return True


def get(connection: sqlite3.Connection, conversation_id: str, kind: str, key: str, now: float) -> Record | None:
    """A record that has not expired."""
    row = connection.execute(_GET, (conversation_id, kind, key, now)).fetchone()
    return None if row is None else _record(row)


def take(transaction: Transaction, conversation_id: str, kind: str, key: str) -> Record | None:
    """Read a record and remove it."""
    rows = transaction.connection.execute(_TAKE, (conversation_id, kind, key, transaction.now)).fetchall()
    transaction.forgets = transaction.forgets or bool(rows)
    return _record(rows[0]) if rows else None


def of_kind(connection: sqlite3.Connection, conversation_id: str, kind: str, now: float) -> Sequence[Record]:
    """All records of a kind that have not expired."""
    return [_record(row) for row in connection.execute(_LIST, (conversation_id, kind, now))]


def _record(row: Sequence[Any]) -> Record:
    kind, key, body, seq, created_at = row
    return Record(kind=kind, key=key, body=body, seq=seq, created_at=created_at)
