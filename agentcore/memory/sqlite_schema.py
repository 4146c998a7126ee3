"""The tables of SQLiteChatMemory, as numbered steps, and how they come into a file.

What is deleted is zeroed (`secure_delete`), but where SQLite had moved a row from page to page before, copies of it
stay in the unused parts of pages. It moves only the beginning of a row; what does not fit into that lies in pages of
its own, which are never moved, and are zeroed when they are freed. So the content comes last in a row, after a filler
that pushes it out of the part that moves. Small pages keep the filler small.
"""

import sqlite3
import time
from collections.abc import Sequence

from agentcore.memory.schema_versions import SchemaStep, missing_steps

STEPS: tuple[SchemaStep, ...] = (
    SchemaStep(
        1,
        (
            # created_at is that of the first message: it is null where there are none, and so is nothing to list.
            """
            CREATE TABLE ac_conversation (
                conversation_id TEXT NOT NULL PRIMARY KEY,
                version INTEGER NOT NULL,
                fence INTEGER NOT NULL,
                lease_until REAL,
                created_at REAL,
                updated_at REAL NOT NULL,
                parent_id TEXT,
                parent_seq INTEGER
            ) WITHOUT ROWID
            """,
            """
            CREATE INDEX ac_conversation_by_update ON ac_conversation (updated_at, conversation_id)
            WHERE created_at IS NOT NULL
            """,
            """
            CREATE INDEX ac_conversation_by_creation ON ac_conversation (created_at, conversation_id)
            WHERE created_at IS NOT NULL
            """,
            "CREATE INDEX ac_conversation_traces ON ac_conversation (updated_at) WHERE created_at IS NULL",
            # No number of a trace that was purged is given again, to whatever conversation.
            """
            CREATE TABLE ac_floor (
                one INTEGER PRIMARY KEY CHECK (one = 1),
                version INTEGER NOT NULL,
                fence INTEGER NOT NULL
            )
            """,
            "INSERT INTO ac_floor (one, version, fence) VALUES (1, 0, 0)",
            """
            CREATE TABLE ac_message (
                conversation_id TEXT NOT NULL REFERENCES ac_conversation ON DELETE CASCADE,
                seq INTEGER NOT NULL,
                turn_id TEXT NOT NULL,
                position INTEGER NOT NULL,
                role TEXT NOT NULL,
                created_at REAL NOT NULL,
                filler BLOB NOT NULL,
                body TEXT NOT NULL,
                PRIMARY KEY (conversation_id, seq),
                UNIQUE (conversation_id, turn_id, position)
            ) WITHOUT ROWID
            """,
            "CREATE INDEX ac_message_system ON ac_message (conversation_id, seq) WHERE role = 'system'",
        ),
    ),
    SchemaStep(
        2,
        (
            """
            CREATE TABLE ac_record (
                conversation_id TEXT NOT NULL REFERENCES ac_conversation ON DELETE CASCADE,
                kind TEXT NOT NULL,
                key TEXT NOT NULL,
                seq INTEGER,
                created_at REAL NOT NULL,
                expires_at REAL,
                filler BLOB NOT NULL,
                body TEXT NOT NULL,
                PRIMARY KEY (conversation_id, kind, key)
            ) WITHOUT ROWID
            """,
            "CREATE INDEX ac_record_expiry ON ac_record (expires_at) WHERE expires_at IS NOT NULL",
        ),
    ),
    # The fence of the lease whose holder is asked to give way.
    SchemaStep(3, ("ALTER TABLE ac_conversation ADD COLUMN lease_request INTEGER",)),
)


def prepare_schema(
    connection: sqlite3.Connection, where: str, *, verify_only: bool = False, steps: Sequence[SchemaStep] = STEPS
) -> None:
    """Bring a file to the newest schema; one that has it is only read.

    Each step is a transaction of its own, under the file's write lock: processes that open a file at once take turns.

    Raises:
        StoreError: the file's schema is newer, or older and is only to be verified.
        sqlite3.Error: SQLite refused.
    """
    while missing := missing_steps(steps, _applied(connection), where, verify_only=verify_only):
        connection.execute("BEGIN IMMEDIATE")
        try:
            if _applied(connection) == missing[0].number - 1:
                _apply(connection, missing[0])
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _applied(connection: sqlite3.Connection) -> int:
    known = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'ac_schema'").fetchone()
    if known is None:
        return 0
    (version,) = connection.execute("SELECT coalesce(max(version), 0) FROM ac_schema").fetchone()
    return int(version)


def _apply(connection: sqlite3.Connection, step: SchemaStep) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS ac_schema (version INTEGER PRIMARY KEY, applied_at REAL NOT NULL)")
    for statement in step.statements:
        connection.execute(statement)
    connection.execute("INSERT INTO ac_schema (version, applied_at) VALUES (?, ?)", (step.number, time.time()))
