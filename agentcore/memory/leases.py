"""One turn at a time per conversation, over every process that shares the store: leases by the store's clock."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Protocol, runtime_checkable

from agentcore.errors import ConversationBusyError, StoreError
from agentcore.memory.base import BusyPolicy, Lease
from agentcore.memory.finishing import finish
from agentcore.memory.locks import ConversationLocks

logger = logging.getLogger("agentcore.memory")

LEASE_SECONDS = 30.0
"""How long a place stays taken after its holder was last heard of."""

RELEASE_SECONDS = 5.0

WATCH_SECONDS = 1.0
"""How often the holders of a process look whether somebody asks them to give way: one statement for all of them."""

GIVE_WAY_SECONDS = 5.0
"""How long a holder that was asked to give way may take to store what its turn has delivered, before it loses its place
to who asked."""

_FIRST_WAIT = 0.02
_LONGEST_WAIT = 1.0
_LONGEST_WAIT_WHEN_ASKED = 0.2


@runtime_checkable
class Leasing(Protocol):
    """The statements that a store needs for leases; each is atomic and goes by the store's clock."""

    async def take_lease(self, conversation_id: str, seconds: float, *, steal: bool = False) -> Lease | None:
        """Take the conversation for `seconds`; None if somebody holds it, unless it is to be stolen."""
        ...

    async def renew_lease(self, lease: Lease, seconds: float) -> bool:
        """Hold it for `seconds` from now; False if it is no longer ours."""
        ...

    async def release_lease(self, lease: Lease) -> None:
        """Let go of it, if it is still ours."""
        ...

    async def request_lease(self, conversation_id: str) -> int | None:
        """Ask who holds the conversation to give way; the fence of that lease, None if nobody holds it."""
        ...

    async def leases_to_give_up(self, leases: Sequence[Lease]) -> Collection[str]:
        """The conversations of those leases that are no longer held, or whose holder is asked to give way."""
        ...


class LeasedTurns:
    """Turn locks for a store with leases: in order within the process, by lease between processes.

    A turn that supersedes one of another process asks it to give way, so that it can store what it has delivered, and
    takes its place by force only if it does not answer.

    Args:
        store: where the leases are.
        seconds: how long a lease lasts; it is renewed three times in that time.
    """

    def __init__(self, store: Leasing, *, seconds: float = LEASE_SECONDS) -> None:
        self._store = store
        self._seconds = seconds
        self._local = ConversationLocks()
        self._held: dict[str, _Holder] = {}
        self._watched = -inf  # when one of the holders last looked for all of them

    @asynccontextmanager
    async def lock_turn(
        self,
        conversation_id: str,
        *,
        on_busy: BusyPolicy = "wait",
        timeout: float | None = None,  # noqa: ASYNC109 - a bound on the wait alone, not on the block
        supersede: Callable[[], None] | None = None,
    ) -> AsyncGenerator[Lease]:
        """See `TurnLocking.lock_turn`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        local = self._local.lock_turn(conversation_id, on_busy=on_busy, timeout=timeout, supersede=supersede)
        async with local:
            lease = await self._take(conversation_id, on_busy, deadline)
            holder = self._held[conversation_id] = _Holder(lease, supersede)
            keeper = asyncio.ensure_future(self._keep(holder, time.monotonic()))
            try:
                yield lease
            finally:
                del self._held[conversation_id]
                keeper.cancel()
                # A cancellation on the way out must not leave the place taken until the lease runs out.
                await finish(self._release(lease, keeper), RELEASE_SECONDS)

    async def _take(self, conversation_id: str, on_busy: BusyPolicy, deadline: float | None) -> Lease:
        asked, steal_at, wait = None, inf, _FIRST_WAIT
        longest = _LONGEST_WAIT_WHEN_ASKED if on_busy == "supersede" else _LONGEST_WAIT
        while True:
            lease = await self._take_surely(conversation_id, time.monotonic() >= steal_at)
            if lease is not None:
                return lease
            if on_busy == "reject":
                raise ConversationBusyError(
                    f"conversation {conversation_id!r} has a running turn in another process; wait for it, or call "
                    "with on_busy='wait'"
                )
            pause = random.uniform(wait / 2, wait)  # noqa: S311 - spreads the waiting, keeps no secret
            if on_busy == "supersede":
                holder = await self._store.request_lease(conversation_id)
                if holder != asked:  # each gets its time
                    asked, steal_at = holder, time.monotonic() + min(GIVE_WAY_SECONDS, self._seconds)
                    steal_at = steal_at if deadline is None else min(steal_at, deadline)
            elif deadline is not None and time.monotonic() + pause > deadline:
                raise ConversationBusyError(
                    f"conversation {conversation_id!r} was still busy in another process when the time to wait was "
                    "over; raise the timeout or try again later"
                )
            await asyncio.sleep(pause)
            wait = min(wait * 2, longest)

    async def _take_surely(self, conversation_id: str, steal: bool) -> Lease | None:
        """Take it, or give it back if we are cancelled while it is being taken: else nobody could have it for long."""
        task = asyncio.ensure_future(self._store.take_lease(conversation_id, self._seconds, steal=steal))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await finish(self._give_back(conversation_id, task), RELEASE_SECONDS)
            raise

    async def _give_back(self, conversation_id: str, taking: "asyncio.Future[Lease | None]") -> None:
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                lease = await taking
                if lease is not None:
                    await self._store.release_lease(lease)
        except (StoreError, TimeoutError) as error:
            logger.warning("conversation %r: a lease could not be given back: %s", conversation_id, error)

    async def _keep(self, holder: "_Holder", taken: float) -> None:
        """Renew until cancelled; tell the turn when it has lost its place, or is asked to give way."""
        lease, sure_until, renew_at = holder.lease, taken + self._seconds, taken + self._seconds / 3
        while True:
            await asyncio.sleep(max(0.0, min(WATCH_SECONDS, renew_at - time.monotonic())))
            if not holder.stopped:
                await self._watch()
            asked = time.monotonic()
            if asked < renew_at:
                continue
            renew_at = asked + self._seconds / 3
            try:
                held = await self._store.renew_lease(lease, self._seconds)
                sure_until = asked + self._seconds if held else sure_until
            except StoreError as error:
                held = asked < sure_until
                logger.warning("conversation %r: its lease was not renewed: %s", lease.conversation_id, error)
            if not held:
                logger.warning("conversation %r: the turn lost its place and is stopped", lease.conversation_id)
                holder.stop()
                return

    async def _watch(self) -> None:
        """Stop the turns that are asked to give way; whoever comes first looks for all."""
        now = time.monotonic()
        if now < self._watched + WATCH_SECONDS / 2:
            return
        self._watched = now
        holders = {id_: holder for id_, holder in self._held.items() if not holder.stopped}
        try:
            wanted = await self._store.leases_to_give_up([holder.lease for holder in holders.values()])
        except StoreError as error:
            logger.info("whether turns are asked to give way is not known at the moment: %s", error)
            return
        for conversation_id in wanted:
            holder = holders[conversation_id]
            if self._held.get(conversation_id) is holder and not holder.stopped:
                logger.info("conversation %r: the turn gives way to another process", conversation_id)
                holder.stop()

    async def _release(self, lease: Lease, keeper: "asyncio.Task[None]") -> None:
        """Let go of the place, with a bound, in a task of its own."""
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await asyncio.wait([keeper])
                await self._store.release_lease(lease)
        except StoreError as error:
            logger.warning("conversation %r: its lease runs out by itself: %s", lease.conversation_id, error)
        except TimeoutError:
            logger.warning("conversation %r: its lease runs out by itself: the store is slow", lease.conversation_id)
        if not keeper.cancelled() and keeper.exception() is not None:
            raise keeper.exception() or AssertionError  # pragma: no cover


class _Holder:
    """A turn that holds its conversation's place."""

    __slots__ = ("_supersede", "lease", "stopped")

    def __init__(self, lease: Lease, supersede: Callable[[], None] | None) -> None:
        self.lease = lease
        self.stopped = False
        self._supersede = supersede

    def stop(self) -> None:
        self.stopped = True
        if self._supersede is not None:
            self._supersede()
