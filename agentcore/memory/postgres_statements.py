"""The statements of PostgresChatMemory. Time is the database's alone.

What may be conditional is decided inside one statement: the head row is locked by it, so that a writer who lost its
lease, or read an older version, changes nothing.
"""

NOW = "clock_timestamp()"
FREE = f"(lease_until is null or lease_until <= {NOW})"

TAKE_LEASE = f"""
insert into ac_conversation as c (conversation_id, version, fence, lease_owner, lease_until, updated_at)
select $1, 0, fence + 1, $2, {NOW} + make_interval(secs => $3), {NOW} from ac_floor
on conflict (conversation_id) do update
    set fence = c.fence + 1, lease_owner = $2, lease_until = {NOW} + make_interval(secs => $3)
    where c.lease_until is null or c.lease_until <= {NOW} or c.lease_owner = $2 or $4
returning fence, version
"""
RENEW_LEASE = f"""
update ac_conversation set lease_until = {NOW} + make_interval(secs => $3)
where conversation_id = $1 and fence = $2 and lease_until is not null returning 1
"""
RELEASE_LEASE = """
update ac_conversation set lease_owner = null, lease_until = null where conversation_id = $1 and fence = $2
"""
REQUEST_LEASE = f"""
update ac_conversation set lease_request = fence where conversation_id = $1 and lease_until > {NOW} returning fence
"""
LEASES_TO_GIVE_UP = """
select held.id from unnest($1::text[], $2::bigint[]) as held(id, fence)
left join ac_conversation c on c.conversation_id = held.id
where c.fence is distinct from held.fence or c.lease_until is null or c.lease_request = c.fence
"""

_INSERT = f"""
insert into ac_message (conversation_id, seq, turn_id, position, role, body, created_at)
select $1, h.version - cardinality($4::text[]) + u.place, $2, $3 + u.place - 1, u.role, u.body::json, {NOW}
from h, unnest($4::text[], $5::text[]) with ordinality as u(role, body, place)
returning seq
"""
# A conversation that never had a message may be one that was forgotten to the last trace: it begins on the floor.
_VERSION = "(case when c.version = 0 then (select version from ac_floor) else c.version end + cardinality($4::text[]))"

APPEND_HELD = f"""
with h as (
    update ac_conversation c
    set version = {_VERSION}, updated_at = {NOW}, created_at = coalesce(c.created_at, {NOW})
    where conversation_id = $1 and fence = $6 and lease_until is not null and ($7::bigint is null or version = $7)
    returning version
)
{_INSERT}
"""
APPEND = f"""
with h as (
    insert into ac_conversation as c (conversation_id, version, fence, created_at, updated_at)
    select $1, version + cardinality($4::text[]), fence, {NOW}, {NOW} from ac_floor
    where $6::bigint is null or $6 = 0 or exists (select 1 from ac_conversation where conversation_id = $1)
    on conflict (conversation_id) do update
        set version = {_VERSION}, updated_at = {NOW}, created_at = coalesce(c.created_at, {NOW})
        where $6::bigint is null or c.version = $6
    returning version
)
{_INSERT}
"""
HEAD = "select version, fence, lease_until is not null as held from ac_conversation where conversation_id = $1"
HELD = """
select body::text from ac_message
where conversation_id = $1 and turn_id = $2 and position >= $3 and position < $4 order by position
"""

ALL = "select body::text from ac_message where conversation_id = $1 order by seq"
TAIL = """
with tail as materialized (
    select seq, body from ac_message where conversation_id = $1 order by seq desc limit $2
)
select body::text, seq from tail
union all
select body::text, seq from ac_message
where conversation_id = $1 and role = 'system' and seq < coalesce((select min(seq) from tail), 9223372036854775807)
order by 2
"""
READ = """
select seq, turn_id, position, body::text, extract(epoch from created_at)::float8
from ac_message where conversation_id = $1 and seq > $2 order by seq limit $3
"""

_INFO = """
select conversation_id, version, extract(epoch from created_at)::float8, extract(epoch from updated_at)::float8,
    parent_id, parent_seq
from ac_conversation
"""
INFO = f"{_INFO} where conversation_id = $1 and created_at is not null"


def page(order: str, *, after: bool, prefix: bool, end: bool) -> str:
    """A page of conversations: $1 is its size; then the key it comes after, and the bounds of a prefix."""
    column = f"{order}_at"
    conditions, number = ["created_at is not null"], 2
    if after:
        conditions.append(f"({column}, conversation_id) < (to_timestamp(${number}), ${number + 1})")
        number += 2
    if prefix:
        conditions.append(f"conversation_id >= ${number}")
        number += 1
    if end:
        conditions.append(f"conversation_id < ${number}")
    return f"{_INFO} where {' and '.join(conditions)} order by {column} desc, conversation_id desc limit $1"


FORGET_HEAD = f"""
update ac_conversation set fence = fence + 1, lease_owner = null, lease_until = null, created_at = null,
    updated_at = {NOW}, parent_id = null, parent_seq = null
where conversation_id = any($1::text[])
"""
FORGET_MESSAGES = "delete from ac_message where conversation_id = any($1::text[])"
FORGET_RECORDS = "delete from ac_record where conversation_id = any($1::text[])"
INACTIVE = f"""
select conversation_id, created_at is not null from ac_conversation c
where updated_at < $1 and {FREE} and (created_at is not null or exists (
    select 1 from ac_record r where r.conversation_id = c.conversation_id))
order by updated_at limit $2 for update skip locked
"""
PURGE = f"""
with traces as (
    select conversation_id, version, fence from ac_conversation c
    where created_at is null and updated_at < {NOW} - make_interval(secs => $1) and {FREE}
        and not exists (select 1 from ac_record r where r.conversation_id = c.conversation_id)
    order by updated_at limit $2 for update skip locked
), floor as (
    update ac_floor set version = greatest(version, (select max(version) from traces)),
        fence = greatest(fence, (select max(fence) from traces))
    where exists (select 1 from traces)
)
delete from ac_conversation where conversation_id in (select conversation_id from traces)
"""

FORK_HEAD = f"""
insert into ac_conversation as c (conversation_id, version, fence, created_at, updated_at, parent_id, parent_seq)
select $1, greatest(version, $2), fence, {NOW}, {NOW}, $3, $2 from ac_floor
on conflict (conversation_id) do update set version = greatest(c.version, excluded.version),
    created_at = {NOW}, updated_at = {NOW}, parent_id = $3, parent_seq = $2
where c.created_at is null
returning 1
"""
FORK_MESSAGES = """
insert into ac_message (conversation_id, seq, turn_id, position, role, body, created_at)
select $1, seq, turn_id, position, role, body, created_at from ac_message where conversation_id = $3 and seq <= $2
"""
FORK_RECORDS = """
insert into ac_record (conversation_id, kind, key, seq, body, created_at, expires_at)
select $1, kind, key, seq, body, created_at, expires_at from ac_record where conversation_id = $3 and seq <= $2
on conflict (conversation_id, kind, key) do update set seq = excluded.seq, body = excluded.body,
    created_at = excluded.created_at, expires_at = excluded.expires_at
"""
LAST_SEQ = "select max(seq) from ac_message where conversation_id = $1"
PAUSES = "select seq from ac_record where conversation_id = $1 and kind = $2 and seq is not null"
LOCK_HEAD = "select 1 from ac_conversation where conversation_id = $1 for update"
# With the last message go the beginning and the origin: what comes after is another conversation.
ROLLBACK_HEAD = f"""
update ac_conversation set fence = fence + 1, lease_owner = null, lease_until = null, updated_at = {NOW},
    created_at = case when $2 > 0 then created_at end, parent_id = case when $2 > 0 then parent_id end,
    parent_seq = case when $2 > 0 then parent_seq end
where conversation_id = $1
"""
ROLLBACK_MESSAGES = "delete from ac_message where conversation_id = $1 and seq > $2"
ROLLBACK_RECORDS = "delete from ac_record where conversation_id = $1 and seq > $2"

_RECORD = "kind, key, body, seq, extract(epoch from created_at)::float8"
_LIVE = f"(expires_at is null or expires_at > {NOW})"
PUT_RECORD = f"""
with h as (
    insert into ac_conversation (conversation_id, version, fence, updated_at)
    select $1, 0, fence, {NOW} from ac_floor on conflict (conversation_id) do nothing
)
insert into ac_record as r (conversation_id, kind, key, body, seq, created_at, expires_at)
values ($1, $2, $3, $4, $5, {NOW}, {NOW} + make_interval(secs => $6))
on conflict (conversation_id, kind, key) do update set body = excluded.body, seq = excluded.seq,
    created_at = excluded.created_at, expires_at = excluded.expires_at
where not $7 or r.expires_at <= {NOW}
returning 1
"""
_ONE = f"conversation_id = $1 and kind = $2 and key = $3 and {_LIVE}"
GET_RECORD = f"select {_RECORD} from ac_record where {_ONE}"
TAKE_RECORD = f"delete from ac_record where {_ONE} returning {_RECORD}"
LIST_RECORDS = f"""
select {_RECORD} from ac_record where conversation_id = $1 and kind = $2 and {_LIVE} order by coalesce(seq, 0), key
"""
EXPIRED_RECORDS = f"delete from ac_record where expires_at <= {NOW}"
