"""What SQLite holds of a conversation besides its messages: leases, lists of conversations, and forgetting."""

import sqlite3
from collections.abc import Sequence
from typing import Literal

from agentcore.memory.base import ConversationInfo, Lease
from agentcore.memory.paging import after_prefix
from agentcore.memory.sqlite_log import info_of
from agentcore.memory.sqlite_threads import Transaction

_TAKE = """
    INSERT INTO ac_conversation (conversation_id, version, fence, lease_until, updated_at)
    SELECT ?1, 0, fence + 1, ?2, ?3 FROM ac_floor WHERE true
    ON CONFLICT (conversation_id) DO UPDATE SET fence = ac_conversation.fence + 1, lease_until = ?2
    WHERE ac_conversation.lease_until IS NULL OR ac_conversation.lease_until <= ?3 OR ?4
    RETURNING fence, version
"""
_RENEW = """
    UPDATE ac_conversation SET lease_until = ? WHERE conversation_id = ? AND fence = ? AND lease_until IS NOT NULL
"""
_RELEASE = "UPDATE ac_conversation SET lease_until = NULL WHERE conversation_id = ? AND fence = ?"
_REQUEST = """
    UPDATE ac_conversation SET lease_request = fence WHERE conversation_id = ?1 AND lease_until > ?2 RETURNING fence
"""
_UNDISPUTED = "SELECT 1 FROM ac_conversation WHERE conversation_id = ?1 AND fence = ?2 AND lease_request IS NOT fence"
_FORGET = """
    UPDATE ac_conversation SET fence = fence + 1, lease_until = NULL, created_at = NULL, updated_at = ?,
        parent_id = NULL, parent_seq = NULL
    WHERE conversation_id = ?
"""
_FREE = "(lease_until IS NULL OR lease_until <= ?2)"
_INACTIVE = f"""
    SELECT conversation_id FROM ac_conversation WHERE created_at IS NOT NULL AND updated_at < ?1 AND {_FREE}
    ORDER BY updated_at LIMIT ?3
"""  # noqa: S608 - of constants
_RECORDS_ONLY = f"""
    SELECT conversation_id FROM ac_conversation WHERE created_at IS NULL AND updated_at < ?1 AND {_FREE}
        AND EXISTS (SELECT 1 FROM ac_record WHERE ac_record.conversation_id = ac_conversation.conversation_id)
    ORDER BY updated_at LIMIT ?3
"""  # noqa: S608 - of constants
_TRACES = f"""
    SELECT conversation_id, version, fence FROM ac_conversation WHERE created_at IS NULL AND updated_at < ?1 AND {_FREE}
        AND NOT EXISTS (SELECT 1 FROM ac_record WHERE ac_record.conversation_id = ac_conversation.conversation_id)
    ORDER BY updated_at LIMIT ?3
"""  # noqa: S608 - of constants

_AT_ONCE = 20
"""How many conversations one transaction forgets: others wait for it."""

_TRACES_AT_ONCE = 500


def take_lease(transaction: Transaction, conversation_id: str, seconds: float, steal: bool) -> Lease | None:
    """Take the conversation; see `leases.Leasing`."""
    now = transaction.now
    taken = transaction.connection.execute(_TAKE, (conversation_id, now + seconds, now, steal)).fetchall()
    return Lease(conversation_id, *taken[0]) if taken else None


def renew_lease(transaction: Transaction, lease: Lease, seconds: float) -> bool:
    """Hold it longer; False if it is no longer ours."""
    until = transaction.now + seconds
    return transaction.connection.execute(_RENEW, (until, lease.conversation_id, lease.fence)).rowcount > 0


def release_lease(transaction: Transaction, lease: Lease) -> None:
    """Let go of it, if it is still ours."""
    transaction.connection.execute(_RELEASE, (lease.conversation_id, lease.fence))


def request_lease(transaction: Transaction, conversation_id: str) -> int | None:
    """Ask its holder to give way; see `leases.Leasing`."""
    asked = transaction.connection.execute(_REQUEST, (conversation_id, transaction.now)).fetchall()
    return int(asked[0][0]) if asked else None


def leases_to_give_up(connection: sqlite3.Connection, leases: Sequence[Lease]) -> list[str]:
    """The conversations that are lost or asked for; see `leases.Leasing`."""
    execute = connection.execute
    return [
        lease.conversation_id
        for lease in leases
        if execute(_UNDISPUTED, (lease.conversation_id, lease.fence)).fetchone() is None
    ]


def clear(transaction: Transaction, conversation_id: str) -> None:
    """Forget a conversation, but for its numbers: a stale writer must not take another beginning for its own."""
    transaction.connection.execute(_FORGET, (transaction.now, conversation_id))
    for table in ("ac_message", "ac_record"):
        transaction.delete(f"DELETE FROM {table} WHERE conversation_id = ?", (conversation_id,))  # noqa: S608


def forget_inactive(transaction: Transaction, before: float | None, older_than: float) -> tuple[int, float, bool]:
    """Forget some of the conversations that have not changed since `before`.

    Returns:
        How many that had messages, the time that was gone by (for the next call), and whether there are more.
    """
    now = transaction.now
    before = now - older_than if before is None else before
    execute = transaction.connection.execute
    inactive = execute(_INACTIVE, (before, now, _AT_ONCE)).fetchall()
    others = execute(_RECORDS_ONLY, (before, now, _AT_ONCE)).fetchall()
    for (conversation_id,) in (*inactive, *others):
        clear(transaction, conversation_id)
    return len(inactive), before, len(inactive) == _AT_ONCE or len(others) == _AT_ONCE


def purge(transaction: Transaction, longest_lease: float) -> bool:
    """Remove traces that no lease can be left over from, and expired records; whether there may be more of them.

    Their numbers go into the floor that new conversations begin on, so that none is given twice even so.
    """
    now, execute = transaction.now, transaction.connection.execute
    transaction.delete("DELETE FROM ac_record WHERE expires_at <= ?", (now,))
    traces = execute(_TRACES, (now - longest_lease, now, _TRACES_AT_ONCE)).fetchall()
    if traces:
        execute(
            "UPDATE ac_floor SET version = max(version, ?), fence = max(fence, ?)",
            (max(version for _, version, _ in traces), max(fence for _, _, fence in traces)),
        )
        transaction.connection.executemany(
            "DELETE FROM ac_conversation WHERE conversation_id = ?", [(trace[0],) for trace in traces]
        )
    return len(traces) == _TRACES_AT_ONCE


def page(
    connection: sqlite3.Connection,
    order: Literal["updated", "created"],
    start: tuple[float, str] | None,
    prefix: str,
    limit: int,
) -> list[ConversationInfo]:
    """Up to `limit` conversations with messages, newest first, from behind the key `start` on."""
    column = "updated_at" if order == "updated" else "created_at"
    conditions, values = ["created_at IS NOT NULL"], list[object]()
    if start is not None:
        conditions.append(f"({column}, conversation_id) < (?, ?)")
        values += start
    if prefix:
        # A prefix is often a tenant's: its conversations are fewer than all, so they are what is looked through.
        column = f"+{column}"
        conditions.append("conversation_id >= ?")
        values.append(prefix)
        end = after_prefix(prefix)
        if end is not None:
            conditions.append("conversation_id < ?")
            values.append(end)
    rows = connection.execute(
        "SELECT conversation_id, version, created_at, updated_at, parent_id, parent_seq FROM ac_conversation "  # noqa: S608 - of constants
        f"WHERE {' AND '.join(conditions)} ORDER BY {column} DESC, conversation_id DESC LIMIT ?",
        (*values, limit),
    )
    return [info_of(row) for row in rows]
