"""One turn at a time per conversation, inside one process."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from agentcore.errors import ConversationBusyError
from agentcore.memory.base import BusyPolicy, Lease


class _Place:
    """The one place of a conversation: who holds it, and how many hold or wait for it."""

    __slots__ = ("lock", "supersede", "users")  # supersede: of the holder and of those who wait, in order

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.supersede: list[Callable[[], None]] = []


class ConversationLocks:
    """Fair locks by conversation id; a conversation nobody uses costs nothing."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}

    def __len__(self) -> int:
        return len(self._places)

    @asynccontextmanager
    async def lock_turn(
        self,
        conversation_id: str,
        *,
        on_busy: BusyPolicy = "wait",
        timeout: float | None = None,  # noqa: ASYNC109 - a bound on the wait alone, not on the block
        supersede: Callable[[], None] | None = None,
    ) -> AsyncGenerator[Lease | None]:
        """See `TurnLocking.lock_turn`."""
        place = self._places.get(conversation_id)
        if place is None:
            place = self._places[conversation_id] = _Place()
        elif on_busy == "reject":
            raise ConversationBusyError(
                f"conversation {conversation_id!r} has a running turn; wait for it, or call with on_busy='wait'"
            )
        elif on_busy == "supersede":
            for stop in tuple(place.supersede):
                stop()
        place.users += 1
        if supersede is not None:
            place.supersede.append(supersede)
        try:
            await _acquire(place, conversation_id, timeout)
            try:
                yield None
            finally:
                place.lock.release()
        finally:
            place.users -= 1
            if supersede is not None:
                place.supersede.remove(supersede)
            if not place.users:
                del self._places[conversation_id]


async def _acquire(place: _Place, conversation_id: str, seconds: float | None) -> None:
    if seconds is None or not place.lock.locked():
        await place.lock.acquire()
        return
    try:
        async with asyncio.timeout(seconds):
            await place.lock.acquire()
    except TimeoutError as error:
        raise ConversationBusyError(
            f"conversation {conversation_id!r} was still busy after {seconds:g} s; raise the timeout or try again later"
        ) from error
