"""Leases between processes: given back whatever happens, kept alive, and told when they are lost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
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
        self.on_look: Callable[[], Awaitable[object]] = at_once
        self.renewals = 0
        self.looks = 0
        self.request: int | None = None

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

    async def request_lease(self, conversation_id: str) -> int | None:
        self.request = self.holder
        return self.holder

    async def leases_to_give_up(self, leases: Sequence[Lease]) -> Collection[str]:
        self.looks += 1
        await self.on_look()
        return [lease.conversation_id for lease in leases if self.holder != lease.fence or self.request == self.holder]


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


async def test_renewal_that_finds_the_place_lost_stops_the_turn(caplog: pytest.LogCaptureFixture) -> None:
    place, lost = Place(), asyncio.Event()

    async def steal() -> None:
        place.holder = 99

    place.on_renew = steal
    async with LeasedTurns(place, seconds=0.03).lock_turn("c", supersede=lost.set):
        await lost.wait()
    assert "the turn lost its place and is stopped" in caplog.text


async def test_turn_that_is_asked_to_give_way_is_stopped_and_keeps_its_place_until_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leases, "WATCH_SECONDS", 0.01)
    place, order, here = Place(), list[str](), Gate()
    started = asyncio.Event()

    async def first() -> None:
        asked = asyncio.Event()
        async with LeasedTurns(place).lock_turn("c", supersede=asked.set) as lease:
            started.set()
            await asked.wait()
            await here()
            assert place.holder == lease.fence
            order.append("stored")

    async def second() -> None:
        await started.wait()
        async with LeasedTurns(place).lock_turn("c", on_busy="supersede"):
            order.append("taken")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(first())
        tasks.create_task(second())
        await here.reached.wait()
        here.open.set()
    assert order == ["stored", "taken"]


@pytest.mark.parametrize("bound", ["its time", "the deadline"])
async def test_holder_that_does_not_answer_loses_its_place(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(leases, "GIVE_WAY_SECONDS", 0.03 if bound == "its time" else 60.0)
    place = Place()
    place.holder = 99
    turns = LeasedTurns(place)
    async with turns.lock_turn("c", on_busy="supersede", timeout=0.03 if bound == "the deadline" else None) as lease:
        assert place.holder == lease.fence != 99
        assert place.request == 99


async def test_one_look_serves_all_turns_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "WATCH_SECONDS", 0.01)
    place, gate, seen = Place(), Gate(), list[int]()
    place.on_look = gate
    turns = LeasedTurns(place)
    place_of = place.leases_to_give_up

    async def look(held: Sequence[Lease]) -> Collection[str]:
        seen.append(len(held))
        return await place_of(held)

    monkeypatch.setattr(place, "leases_to_give_up", look)
    async with turns.lock_turn("a"):
        place.holder = None
        async with turns.lock_turn("b"):
            await gate.reached.wait()
    assert seen[0] == 2


async def test_look_that_fails_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "WATCH_SECONDS", 0.01)
    place, lost, again = Place(), asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        if place.looks > 1:
            again.set()
        raise StoreError("away")

    place.on_look = fail
    async with LeasedTurns(place, seconds=60).lock_turn("c", supersede=lost.set):
        await again.wait()
    assert not lost.is_set()


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


async def test_place_held_elsewhere_is_refused_and_waited_for() -> None:
    place = Place()
    place.holder = 99
    turns = LeasedTurns(place)
    with pytest.raises(ConversationBusyError, match="another process"):
        async with turns.lock_turn("c", on_busy="reject"):
            raise AssertionError
    with pytest.raises(ConversationBusyError, match="still busy"):
        async with turns.lock_turn("c", timeout=0.02):
            raise AssertionError
    waiting = asyncio.ensure_future(hold(turns))
    await asyncio.sleep(0)
    place.holder = None
    await waiting
