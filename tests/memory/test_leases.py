"""Leases between processes: given back whatever happens, kept alive, and told when they are lost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import count

import pytest

from agentcore.errors import ConversationBusyError, StoreError
from agentcore.memory import leases
from agentcore.memory.base import Lease
from agentcore.memory.leases import LeasedTurns

pytestmark = pytest.mark.asyncio


async def at_once() -> None:
    return


class Place:
    """A store of one place, whose statements wait and fail as a test likes."""

    def __init__(self) -> None:
        self.fences = count(1)
        self.holder: int | None = None
        self.on_take: Callable[[], Awaitable[object]] = at_once
        self.on_renew: Callable[[], Awaitable[object]] = at_once
        self.on_release: Callable[[], Awaitable[object]] = at_once
        self.renewals = 0

    async def take_lease(self, conversation_id: str, seconds: float, *, steal: bool = False) -> Lease | None:
        if self.holder is not None and not steal:
            return None
        self.holder = next(self.fences)
        lease = Lease(conversation_id, self.holder, 0)
        await self.on_take()
        return lease

    async def renew_lease(self, lease: Lease, seconds: float) -> bool:
        self.renewals += 1
        await self.on_renew()
        return self.holder == lease.fence

    async def release_lease(self, lease: Lease) -> None:
        await self.on_release()
        if self.holder == lease.fence:
            self.holder = None


class Gate:
    """Something that waits until it is opened, and says when somebody has come."""

    def __init__(self) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self.open.wait()


async def hold(turns: LeasedTurns) -> None:
    async with turns.lock_turn("c"):
        pass


@pytest.mark.parametrize("statement", ["on_take", "on_release"])
@pytest.mark.parametrize("cancellations", [1, 2, 3])
async def test_turn_cancelled_while_it_comes_or_goes_gives_its_place_back(statement: str, cancellations: int) -> None:
    place, gate = Place(), Gate()
    setattr(place, statement, gate)
    task = asyncio.ensure_future(hold(LeasedTurns(place)))
    await gate.reached.wait()
    for _ in range(cancellations):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    gate.open.set()
    await asyncio.wait([task])
    assert task.cancelled()
    assert place.holder is None


async def test_place_that_is_lost_stops_the_turn(caplog: pytest.LogCaptureFixture) -> None:
    place, lost = Place(), asyncio.Event()
    async with LeasedTurns(place, seconds=0.03).lock_turn("c", supersede=lost.set):
        place.holder = 99
        await lost.wait()
    assert place.holder == 99  # not ours to give back
    assert "the turn lost its place and is stopped" in caplog.text


async def test_renewal_that_fails_once_is_no_loss() -> None:
    place, lost, renewed = Place(), asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        async def renew() -> None:
            renewed.set()

        place.on_renew = renew
        raise StoreError("away")

    place.on_renew = fail
    async with LeasedTurns(place, seconds=0.3).lock_turn("c", supersede=lost.set):
        await renewed.wait()
    assert not lost.is_set()


async def test_renewal_that_fails_until_the_lease_has_run_out_is_a_loss() -> None:
    place, lost = Place(), asyncio.Event()

    async def fail() -> None:
        raise StoreError("away")

    place.on_renew = fail
    async with LeasedTurns(place, seconds=0.03).lock_turn("c", supersede=lost.set):
        await lost.wait()
    assert place.renewals >= 2


@pytest.mark.parametrize("cancelled", [False, True], ids=["at its end", "cancelled"])
async def test_place_that_cannot_be_given_back_is_logged(cancelled: bool, caplog: pytest.LogCaptureFixture) -> None:
    place, gate = Place(), Gate()

    async def fail() -> None:
        await gate()
        raise StoreError("away")

    place.on_release = fail
    task = asyncio.ensure_future(hold(LeasedTurns(place)))
    await gate.reached.wait()
    if cancelled:
        task.cancel()
    gate.open.set()
    await asyncio.wait([task])
    assert task.cancelled() is cancelled
    assert "its lease runs out by itself: away" in caplog.text


async def test_wait_for_a_slow_store_at_the_end_is_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(leases, "RELEASE_SECONDS", 0.01)
    place = Place()
    place.on_release = Gate()
    await hold(LeasedTurns(place))
    assert "the store is slow" in caplog.text


async def test_wait_for_a_slow_store_of_a_cancelled_turn_is_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(leases, "RELEASE_SECONDS", 0.01)
    caplog.set_level(logging.WARNING)
    place, gate = Place(), Gate()
    place.on_take = gate
    task = asyncio.ensure_future(hold(LeasedTurns(place)))
    await gate.reached.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert "a lease could not be given back" in caplog.text


async def test_place_held_elsewhere_is_refused_waited_for_and_taken_over() -> None:
    place = Place()
    place.holder = 99
    turns = LeasedTurns(place)
    with pytest.raises(ConversationBusyError, match="another process"):
        async with turns.lock_turn("c", on_busy="reject"):
            raise AssertionError
    with pytest.raises(ConversationBusyError, match="still busy"):
        async with turns.lock_turn("c", timeout=0.02):
            raise AssertionError
    async with turns.lock_turn("c", on_busy="supersede") as lease:
        assert place.holder == lease.fence
    place.holder = 99
    waiting = asyncio.ensure_future(hold(turns))
    await asyncio.sleep(0)
    place.holder = None
    await waiting
