"""The tables of PostgresChatMemory and PostgresRateLimiter, as numbered steps, and how they come into a database.

Bodies are `json`, not `jsonb`: that one refuses NUL characters and lone surrogates, which tools bring, and writes keys
in an order of its own, so that what is sent to a provider would change. Ids are compared as bytes (`collate "C"`), so
that all machines page and sort alike.
"""

from collections.abc import Sequence
from typing import Any

from agentcore.memory.schema_versions import SchemaStep, missing_steps

_LOCK = 0x6163_6D65_6D6F  # an advisory lock of our own: processes that open a database at once take turns

STEPS: tuple[SchemaStep, ...] = (
    SchemaStep(
        1,
        (
            # created_at is that of the first message: it is null where there are none, and so is nothing to list.
            """
            create table ac_conversation (
                conversation_id text collate "C" primary key,
                version bigint not null default 0,
                fence bigint not null default 0,
                lease_owner text,
                lease_until timestamptz,
                created_at timestamptz,
                updated_at timestamptz not null,
                parent_id text collate "C",
                parent_seq bigint
            )
            """,
            "create index ac_conversation_updated on ac_conversation (updated_at desc, conversation_id desc)",
            "create index ac_conversation_created on ac_conversation (created_at desc, conversation_id desc)",
            # The highest numbers of what is forgotten to the last trace: none of them is given twice.
            """
            create table ac_floor (
                one int primary key check (one = 1), version bigint not null, fence bigint not null
            )
            """,
            "insert into ac_floor (one, version, fence) values (1, 0, 0)",
            """
            create table ac_message (
                conversation_id text collate "C" not null,
                seq bigint not null,
                turn_id text collate "C" not null,
                position int not null,
                role text not null,
                body json not null,
                created_at timestamptz not null,
                primary key (conversation_id, seq),
                unique (conversation_id, turn_id, position)
            )
            """,
            "create index ac_message_system on ac_message (conversation_id, seq) where role = 'system'",
        ),
    ),
    SchemaStep(
        2,
        (
            """
            create table ac_record (
                conversation_id text collate "C" not null,
                kind text collate "C" not null,
                key text collate "C" not null,
                seq bigint,
                body text not null,
                created_at timestamptz not null,
                expires_at timestamptz,
                primary key (conversation_id, kind, key)
            )
            """,
            "create index ac_record_expiry on ac_record (expires_at) where expires_at is not null",
        ),
    ),
    # The fence of the lease whose holder is asked to give way.
    SchemaStep(3, ("alter table ac_conversation add column lease_request bigint",)),
    # Not logged: what it loses in a crash is who came in the last seconds. Times are seconds of the epoch. A refused
    # turn writes its row, which costs no entry in either index; those that are not are as rare as the limit says.
    SchemaStep(
        4,
        (
            """
            create unlogged table ac_rate_limit (
                bucket text collate "C" primary key,
                full_at double precision not null,
                taker text not null
            )
            """,
            "create index ac_rate_limit_full on ac_rate_limit (full_at)",
        ),
    ),
)


async def prepare_schema(
    connection: Any, where: str, *, verify_only: bool = False, steps: Sequence[SchemaStep] = STEPS
) -> None:
    """Bring a database to the newest schema; one that has it is only read.

    Each step is a transaction of its own.

    Raises:
        StoreError: the database's schema is newer, or older and is only to be verified.
    """
    while missing := missing_steps(steps, await _applied(connection), where, verify_only=verify_only):
        async with connection.transaction():
            await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
            if await _applied(connection) == missing[0].number - 1:
                await _apply(connection, missing[0])


async def _applied(connection: Any) -> int:
    # Not to_regclass: it may answer from what this connection remembers of the time before it waited for the lock.
    known = "select 1 from pg_tables where tablename = 'ac_schema' and schemaname = any(current_schemas(false))"
    if await connection.fetchval(known) is None:
        return 0
    return int(await connection.fetchval("select coalesce(max(version), 0) from ac_schema"))


async def _apply(connection: Any, step: SchemaStep) -> None:
    await connection.execute(
        "create table if not exists ac_schema (version int primary key, applied_at timestamptz not null)"
    )
    for statement in step.statements:
        await connection.execute(statement)
    await connection.execute("insert into ac_schema (version, applied_at) values ($1, clock_timestamp())", step.number)
