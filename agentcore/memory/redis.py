"""RedisChatMemory: conversations in Redis, quick and not quite sure. Needs the extra `redis`."""

import asyncio
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Literal, Self
from uuid import uuid4

import msgspec

from agentcore.errors import ConfigurationError
from agentcore.memory import redis_scripts as scripts
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
from agentcore.memory.paging import ListingOrder, check_limit, make_page, page_key, read_cursor
from agentcore.memory.redis_connections import RedisConnections
from agentcore.memory.refusals import (
    check_position,
    check_same,
    check_storable,
    id_in_use,
    lease_lost,
    nothing_to_fork,
    version_conflict,
)
from agentcore.memory.stored_form import from_text, from_texts, role_of, to_text
from agentcore.messages import Message

_READ_AT_ONCE = 1000
"""How many messages one command reads: the server does nothing else meanwhile."""

_LISTED_AT_ONCE = 200
_DELETED_AT_ONCE = 100

_piece = msgspec.msgpack.Decoder(tuple[str, str, str, bool, list[str]])
_tail = msgspec.msgpack.Decoder(tuple[list[str], list[str]])


class RedisChatMemory:
    """Conversations in Redis, shared by the processes of many machines.

    **It does not keep the promise that nothing acknowledged is lost.** With `appendfsync everysec`, Redis's default for
    its log, a crash of the server may take the last second; a failover to a replica may take the last writes, and a
    fence with them. With `appendfsync always` a crash of the server alone takes nothing. A server that evicts keys when
    its memory is full (any `maxmemory-policy` but `noeviction` and `volatile-…`) takes whole conversations. Where that
    is not enough, use PostgreSQL or SQLite. Redis 5 or newer.

    Each write is one script on the server. Connections are made at first use, in a pool of one event loop; one that a
    task was cancelled on is closed. A task that is cancelled during a write hears of it when the outcome is known, so
    that nothing comes in behind its back.

    What is forgotten (`clear`, `rollback`, `delete_inactive`) leaves memory at once, and the log of commands when that
    is rewritten; ids, times and numbers stay until `delete_inactive` removes them.

    Args:
        url: `redis://:password@host:port/0`, or `rediss://` with TLS; a password is not shown in errors.
        pool_size: connections at most.
        patience: seconds to wait for a free connection, to go on trying while the server is away, and for an answer.
        lease_seconds: how long a turn that is not heard of any more keeps its conversation.
        namespace: stands before every key, so that several applications may share a database. It is the keys' hash tag:
            what is in a namespace lies in one slot of a cluster.

    Raises:
        ConfigurationError: the address or another argument is of no use.
    """

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 50,
        patience: float = 15.0,
        lease_seconds: float = LEASE_SECONDS,
        namespace: str = "agentcore",
    ) -> None:
        if lease_seconds <= 0:
            raise ConfigurationError("lease_seconds has to be positive")
        if not namespace or "{" in namespace or "}" in namespace:
            raise ConfigurationError("a namespace is some text without braces")
        self._redis = RedisConnections(url, size=pool_size, patience=patience)
        self._lease_seconds = lease_seconds
        self._order = ConversationLocks()  # of the appends of this process
        self._prefix = f"{{{namespace}}}:"
        self._lists = [f"{self._prefix}{name}" for name in scripts.LISTS]
        self._turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LeasedTurns] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"RedisChatMemory({self._redis.where!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. Twice is harmless, and a later call opens new ones."""
        await self._redis.aclose()

    async def get(self, conversation_id: str) -> Sequence[Message]:
        """All messages of a conversation, oldest first."""
        texts, _ = await self._read(conversation_id, "bodies")
        return from_texts(texts)

    async def get_tail(self, conversation_id: str, count: int) -> Sequence[Message]:
        """The last `count` messages, preceded by the system messages from before them."""
        bodies, systems = _tail.decode(await self._script(scripts.TAIL, conversation_id, max(0, count)))
        leading = sorted(zip(map(int, systems[::2]), systems[1::2], strict=True))
        return from_texts([*(body for _, body in leading), *reversed(bodies)])

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
        if lease is not None and lease.conversation_id != conversation_id:
            raise lease_lost(conversation_id)
        arguments: list[Any] = [turn_id, position, "" if lease is None else lease.fence]
        arguments.append("" if expected_version is None else expected_version)
        for message, body in zip(messages, bodies, strict=True):
            arguments += (role_of(message), body)

        async def in_order() -> Any:
            async with self._order.lock_turn(conversation_id):  # each on a connection of its own, they would overtake
                return await self._script(scripts.APPEND, conversation_id, *arguments)

        outcome, *rest = await finish(in_order())
        if outcome == b"held":
            version, held = rest
            check_same(conversation_id, turn_id, position, [one.decode() for one in held], bodies)
            return int(version)
        if outcome == b"lost":
            raise lease_lost(conversation_id)
        if outcome == b"conflict":
            raise version_conflict(conversation_id, expected_version or 0, int(rest[0]))
        return int(rest[0])

    async def version(self, conversation_id: str) -> int:
        """The version of a conversation; see `MessageLog.version`."""
        head = self._keys(conversation_id)[0]
        return int(await self._redis.run(lambda client: client.hget(head, "version")) or 0)

    async def read(self, conversation_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[StoredMessage]:
        """Stored messages, oldest first; see `MessageLog.read`."""
        texts, _ = await self._read(conversation_id, "whole", after=after, limit=limit)
        return _stored(texts)

    async def clear(self, conversation_id: str) -> None:
        """Forget a conversation; a turn that is running on it can write no more."""
        await finish(self._script(scripts.CLEAR, conversation_id, ""))

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
        taken = await self._script(scripts.TAKE_LEASE, conversation_id, owner, seconds, int(steal))
        return None if taken is None else Lease(conversation_id, int(taken[0]), int(taken[1]))

    async def renew_lease(self, lease: Lease, seconds: float) -> bool:
        """Hold it for `seconds` from now; False if it is no longer ours."""
        return bool(await self._script(scripts.RENEW_LEASE, lease.conversation_id, lease.fence, seconds))

    async def release_lease(self, lease: Lease) -> None:
        """Let go of it, if it is still ours."""
        await self._script(scripts.RELEASE_LEASE, lease.conversation_id, lease.fence)

    async def request_lease(self, conversation_id: str) -> int | None:
        """Ask who holds the conversation to give way; the fence of that lease, None if nobody holds it."""
        fence = await self._script(scripts.REQUEST_LEASE, conversation_id)
        return None if fence is None else int(fence)

    async def leases_to_give_up(self, leases: Sequence[Lease]) -> Collection[str]:
        """The conversations of those leases that are no longer held, or whose holder is asked to give way."""

        async def work(client: Any) -> list[Any]:
            async with client.pipeline(transaction=False) as pipeline:
                for lease in leases:
                    pipeline.hmget(self._keys(lease.conversation_id)[0], "fence", "until", "request")
                return await pipeline.execute()

        heads = await self._redis.run(work) if leases else []
        return [
            lease.conversation_id
            for lease, (fence, until, request) in zip(leases, heads, strict=True)
            if fence is None or int(fence) != lease.fence or until is None or request == fence
        ]

    async def list_conversations(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        order: ListingOrder = "updated",
        prefix: str = "",
    ) -> ConversationPage:
        """A page of conversations, newest first; see `ConversationListing.list_conversations`.

        With a prefix it looks through the list until the page is full.
        """
        check_limit(limit)
        start = read_cursor(after, order) if after is not None else None
        key = self._lists[scripts.LISTS.index(order)]
        upper, seen, count = "+inf" if start is None else repr(start[0]), set[str](), _LISTED_AT_ONCE
        found: list[ConversationInfo] = []
        while len(found) <= limit:
            entries = await self._newest(key, upper, count)
            fresh = [one for one, _ in entries if one not in seen]
            seen.update(fresh)
            infos = await self._infos([one for one in fresh if one.startswith(prefix)])
            found += [info for info in infos if start is None or page_key(info, order) < start]
            if len(entries) < count:
                break
            # On from the last time, which others may share; more at once if nothing but those came.
            upper, count = repr(entries[-1][1]), _LISTED_AT_ONCE if fresh else 2 * count
        found.sort(key=lambda info: page_key(info, order), reverse=True)
        return make_page(found[: limit + 1], limit, order)

    async def conversation_info(self, conversation_id: str) -> ConversationInfo | None:
        """What is known of one conversation; None if it holds no messages."""
        infos = await self._infos([conversation_id])
        return infos[0] if infos else None

    async def delete_inactive(self, older_than: float) -> int:
        """Forget the conversations that have not changed for `older_than` seconds; see `ConversationListing`."""
        deleted = await self._forget_old("updated", older_than, scripts.CLEAR)
        await self._forget_old("traces", max(self._lease_seconds, LEASE_SECONDS), scripts.PURGE)
        return deleted

    async def fork(self, conversation_id: str, new_id: str, *, at: int | None = None) -> ConversationInfo:
        """Begin a conversation with messages of another; see `Branching.fork`."""
        head, log, _, _, records, *_ = self._keys(conversation_id)
        outcome = b"changed"
        while outcome == b"changed":
            guard = "" if at is None else await self._check_fork_point(conversation_id, at)
            arguments = (conversation_id, "" if at is None else at, guard)
            forking = self._script(scripts.FORK, new_id, *arguments, keys=(head, log, records), again=False)
            outcome = await finish(forking)
        if outcome == b"nothing":
            raise nothing_to_fork(conversation_id)
        if outcome == b"used":
            raise id_in_use(new_id)
        [info] = await self._infos([new_id])
        return info

    async def rollback(self, conversation_id: str, *, to: int) -> None:
        """Take back everything after `to`; see `Branching.rollback`."""
        done = False
        while not done:
            guard = await self._check_fork_point(conversation_id, to) if to else ""
            done = bool(await finish(self._script(scripts.ROLLBACK, conversation_id, to, guard)))

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
        arguments = (f"{kind}\0{key}", body, "" if seq is None else seq, "" if expires_in is None else expires_in)
        putting = self._script(scripts.PUT_RECORD, conversation_id, *arguments, int(if_absent), again=not if_absent)
        return bool(await finish(putting))

    async def get_record(self, conversation_id: str, kind: str, key: str) -> Record | None:
        """One record; None if there is none, or it has expired."""
        found = await self._script(scripts.RECORDS, conversation_id, f"{kind}\0{key}", "get")
        return _record(found[0], found[1]) if found else None

    async def take_record(self, conversation_id: str, kind: str, key: str) -> Record | None:
        """Read a record and remove it in one step."""
        taking = self._script(scripts.RECORDS, conversation_id, f"{kind}\0{key}", "take", again=False)
        found = await finish(taking)
        return _record(found[0], found[1]) if found else None

    async def list_records(self, conversation_id: str, kind: str) -> Sequence[Record]:
        """All records of a kind, by `seq` (those without first), then by key."""
        found = await self._script(scripts.RECORDS, conversation_id, f"{kind}\0", "list")
        made = [_record(name, value) for name, value in zip(found[::2], found[1::2], strict=True)]
        return sorted(made, key=lambda record: (record.seq or 0, record.key))

    async def _read(
        self, conversation_id: str, what: Literal["bodies", "whole"], *, after: int = 0, limit: int | None = None
    ) -> tuple[list[str], str]:
        """The texts of entries, and what the conversation's next change would make another.

        It is read piece by piece; should something be taken back meanwhile, from the beginning, so that what comes out
        is what the conversation was at one moment.
        """
        found: list[str] = []
        last, left, cuts_before = after, limit, None
        while True:
            count = _READ_AT_ONCE if left is None else max(0, min(left, _READ_AT_ONCE))
            packed = await self._script(scripts.READ, conversation_id, max(0, last), count, what)
            version, cuts, seq, more, texts = _piece.decode(packed)
            if cuts_before not in (None, cuts):
                found, last, left, cuts_before = [], after, limit, None
                continue
            found += texts
            cuts_before, last = cuts, int(seq)
            if left is not None:
                left -= len(texts) // (5 if what == "whole" else 1)
            if not more or left == 0:
                return found, f"{version}/{cuts}"

    async def _check_fork_point(self, conversation_id: str, at: int) -> str:
        texts, guard = await self._read(conversation_id, "whole")
        pauses = {record.seq for record in await self.list_records(conversation_id, PAUSE) if record.seq is not None}
        check_fork_point(conversation_id, _stored(texts), at, pauses)
        return guard

    async def _newest(self, key: str, upper: str, count: int) -> list[tuple[str, float]]:
        entries: Any = await self._redis.run(
            lambda client: client.zrevrangebyscore(key, upper, "-inf", start=0, num=count, withscores=True)
        )
        return [(one.decode(), float(at)) for one, at in entries]

    async def _forget_old(self, name: str, seconds: float, source: str) -> int:
        """Run a script for those on a list whose time is that long ago; how many conversations it took."""
        key, passed, taken = self._lists[scripts.LISTS.index(name)], 0, 0
        now: tuple[int, int] = await self._redis.run(lambda client: client.time())
        bound = f"({now[0] + now[1] / 1e6 - seconds:.6f}"
        while ids := await self._oldest(key, bound, passed):
            for one in ids:
                gone: int = await finish(self._script(source, one, seconds))
                passed += gone < 0  # it stays on the list
                taken += max(0, gone)
        return taken

    async def _oldest(self, key: str, bound: str, start: int) -> list[str]:
        ids: list[bytes] = await self._redis.run(
            lambda client: client.zrangebyscore(key, "-inf", bound, start=start, num=_DELETED_AT_ONCE)
        )
        return [one.decode() for one in ids]

    async def _infos(self, ids: Sequence[str]) -> list[ConversationInfo]:
        """What the heads say; those without messages are left out."""

        async def work(client: Any) -> list[Any]:
            async with client.pipeline(transaction=False) as pipeline:
                for conversation_id in ids:
                    pipeline.hgetall(self._keys(conversation_id)[0])
                return await pipeline.execute()

        heads = await self._redis.run(work) if ids else []
        return [_info(one, head) for one, head in zip(ids, heads, strict=True) if b"created" in head]

    def _keys(self, conversation_id: str) -> list[str]:
        return [*(f"{self._prefix}{part}:{conversation_id}" for part in scripts.KEYS), *self._lists]

    async def _script(
        self, source: str, conversation_id: str, *arguments: Any, keys: Sequence[str] = (), again: bool = True
    ) -> Any:
        all_keys = [*self._keys(conversation_id), *keys]
        return await self._redis.script(source, all_keys, [conversation_id, *arguments], again=again)


def _stored(texts: Sequence[str]) -> tuple[StoredMessage, ...]:
    rows = zip(texts[::5], texts[1::5], texts[2::5], texts[3::5], texts[4::5], strict=True)
    return tuple(
        [
            StoredMessage(int(seq), turn_id, int(position), from_text(body), float(at))
            for seq, turn_id, position, at, body in rows
        ]
    )


def _info(conversation_id: str, head: Mapping[bytes, bytes]) -> ConversationInfo:
    parent = head.get(b"parent")
    return ConversationInfo(
        conversation_id=conversation_id,
        version=int(head[b"version"]),
        created_at=float(head[b"created"]),
        updated_at=float(head[b"updated"]),
        parent_id=parent.decode() if parent is not None else None,
        parent_seq=int(head[b"parent_seq"]) if parent is not None else None,
    )


def _record(name: bytes, value: bytes) -> Record:
    kind, _, key = name.decode().partition("\0")
    _, at, seq, body = value.decode().split("|", 3)
    return Record(kind=kind, key=key, body=body, seq=int(seq) if seq else None, created_at=float(at))
