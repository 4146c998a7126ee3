"""One turn at a time: places that are waited for, refused or taken over, and leases that end."""

import asyncio
from typing import Any

import pytest

from agentcore.errors import ConversationBusyError, LeaseLostError
from agentcore.messages import UserMessage
from agentcore.testing.conformance.setting import (
    ANOTHER,
    CANCELLATIONS,
    TURN,
    Conformance,
    cancelled_at,
    lease_of,
    needs,
    texts,
)


class Turns(Conformance):
    """Tests of `TurnLocking`, and of the leases that appends carry."""

    @needs("TurnLocking")
    async def test_turns_of_one_handle_are_served_in_order(self, store: Any) -> None:
        order: list[int] = []

        async def turn(number: int) -> None:
            async with store.lock_turn("u1"):
                order.append(number)
                await asyncio.sleep(0)
                order.append(number)

        await asyncio.gather(*(turn(number) for number in range(6)))
        assert order == [number for number in range(6) for _ in range(2)]

    @needs("TurnLocking")
    async def test_turns_of_two_handles_never_overlap(self, store: Any, other: Any) -> None:
        order: list[int] = []

        async def turn(number: int) -> None:
            async with (other if number % 2 else store).lock_turn("u1"):
                order.append(number)
                await store.get("u1")
                order.append(number)

        await asyncio.gather(*(turn(number) for number in range(6)))
        assert order[::2] == order[1::2]
        assert sorted(order[::2]) == list(range(6))

    @needs("TurnLocking")
    async def test_conversations_never_wait_for_each_other(self, store: Any, other: Any) -> None:
        async with (
            store.lock_turn("u1"),
            store.lock_turn("u2", on_busy="reject"),
            other.lock_turn("u3", on_busy="reject"),
        ):
            pass

    @needs("TurnLocking")
    async def test_busy_conversation_refuses_who_does_not_wait(self, store: Any, other: Any) -> None:
        async with store.lock_turn("u1"):
            for handle in (store, other):
                with pytest.raises(ConversationBusyError, match="u1"):
                    async with handle.lock_turn("u1", on_busy="reject"):
                        raise AssertionError
        async with other.lock_turn("u1", on_busy="reject"):
            pass

    @needs("TurnLocking")
    async def test_wait_is_bounded(self, store: Any, other: Any) -> None:
        async with store.lock_turn("u1"):
            for handle in (store, other):
                with pytest.raises(ConversationBusyError, match="u1"):
                    async with handle.lock_turn("u1", timeout=0.03):
                        raise AssertionError
        async with store.lock_turn("u1", timeout=0.03), other.lock_turn("u2", timeout=0.03):
            pass

    @needs("TurnLocking")
    async def test_bound_is_on_the_wait_and_not_on_the_turn(self, store: Any) -> None:
        async with store.lock_turn("u1", timeout=0.01):
            with pytest.raises(ConversationBusyError):
                async with store.lock_turn("u1", timeout=0.03):  # longer than the first one's bound
                    raise AssertionError
            await store.get("u1")

    @needs("TurnLocking")
    async def test_turn_that_fails_gives_its_place_back(self, store: Any, other: Any) -> None:
        with pytest.raises(ZeroDivisionError):
            async with store.lock_turn("u1"):
                raise ZeroDivisionError
        for handle in (store, other):
            async with handle.lock_turn("u1", on_busy="reject"):
                pass

    @needs("TurnLocking")
    @pytest.mark.parametrize("when", CANCELLATIONS)
    async def test_turn_cancelled_on_its_way_in_or_out_gives_its_place_back(
        self, store: Any, other: Any, when: str
    ) -> None:
        async def turn() -> None:
            async with store.lock_turn("u1"):
                await asyncio.sleep(0)

        step, reached = 1, True
        while reached:
            reached = await cancelled_at(turn(), step, when)
            for handle in (store, other):
                async with handle.lock_turn("u1", on_busy="reject"):
                    pass
            step += 1

    @needs("TurnLocking")
    async def test_cancelled_waiter_leaves_the_place_to_the_next(self, store: Any) -> None:
        async def wait() -> None:
            async with store.lock_turn("u1"):
                pass

        async with store.lock_turn("u1"):
            first, second = (asyncio.ensure_future(wait()) for _ in range(2))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait([first])
            assert first.cancelled()
            assert not second.done()
        await second

    @needs("TurnLocking")
    async def test_superseded_turn_is_told_to_stop_and_waited_for(self, store: Any) -> None:
        stop, held = asyncio.Event(), asyncio.Event()
        order: list[str] = []

        async def first() -> None:
            async with store.lock_turn("u1", supersede=stop.set):
                held.set()
                await stop.wait()
                order.append("first ends")

        task = asyncio.ensure_future(first())
        await held.wait()
        async with store.lock_turn("u1", on_busy="supersede"):
            order.append("second begins")
        await task
        assert order == ["first ends", "second begins"]

    @needs("TurnLocking")
    async def test_turns_that_wait_are_superseded_too(self, store: Any) -> None:
        told: list[str] = []

        async def wait(name: str) -> None:
            async with store.lock_turn("u1", supersede=lambda: told.append(name)):
                pass

        async with store.lock_turn("u1", supersede=lambda: told.append("holder")):
            waiting = asyncio.ensure_future(wait("waiter"))
            await asyncio.sleep(0)
            last = asyncio.ensure_future(wait_to_supersede(store))
            await asyncio.sleep(0)
            assert told == ["holder", "waiter"]
        await asyncio.gather(waiting, last)

    @needs("TurnLocking", "MessageLog")
    async def test_lease_knows_the_version_and_fences_grow(self, store: Any, other: Any) -> None:
        fences: list[int] = []
        for number, handle in enumerate((store, other, store)):
            async with handle.lock_turn("u1") as lease:
                lease = lease_of(store, lease)  # noqa: PLW2901
                assert (lease.conversation_id, lease.version) == ("u1", await store.version("u1"))
                fences.append(lease.fence)
                await handle.append("u1", TURN, turn_id=f"t{number}", position=0, lease=lease)
        assert fences == sorted(set(fences))
        assert len(await store.get("u1")) == 3 * len(TURN)

    @needs("TurnLocking", "MessageLog")
    async def test_turn_that_is_over_can_write_no_more(self, store: Any, other: Any) -> None:
        async with store.lock_turn("u1") as lease:
            lease = lease_of(store, lease)  # noqa: PLW2901
            await store.append("u1", TURN[:2], turn_id="t1", position=0, lease=lease)
        for handle in (store, other):
            with pytest.raises(LeaseLostError):
                await handle.append("u1", TURN[2:], turn_id="t1", position=2, lease=lease)
        async with other.lock_turn("u1"):
            with pytest.raises(LeaseLostError):
                await store.append("u1", TURN[2:], turn_id="t1", position=2, lease=lease)
        # What it had stored is stored, whoever asks.
        await store.append("u1", TURN[:2], turn_id="t1", position=0, lease=lease)
        assert list(await store.get("u1")) == TURN[:2]

    @needs("TurnLocking", "MessageLog")
    async def test_lease_of_one_conversation_is_none_of_another(self, store: Any) -> None:
        async with store.lock_turn("u1") as lease, store.lock_turn("u2"):
            with pytest.raises(LeaseLostError):
                await store.append("u2", TURN, turn_id="t1", position=0, lease=lease_of(store, lease))
        assert list(await store.get("u2")) == []

    @needs("TurnLocking", "MessageLog")
    async def test_turn_whose_place_was_taken_over_can_write_no_more(self, store: Any, other: Any) -> None:
        if other is store:
            pytest.skip(f"{type(store).__name__} is shared by handing it around: nobody takes a place from outside")
        async with store.lock_turn("u1") as lease:
            lease = lease_of(store, lease)  # noqa: PLW2901
            await store.append("u1", TURN[:1], turn_id="t1", position=0, lease=lease)
            async with other.lock_turn("u1", on_busy="supersede") as taken:
                assert taken.fence > lease.fence
                with pytest.raises(LeaseLostError):
                    await store.append("u1", TURN[1:], turn_id="t1", position=1, lease=lease)
                await other.append("u1", ANOTHER, turn_id="t2", position=0, lease=taken)
        assert list(await store.get("u1")) == [TURN[0], *ANOTHER]

    @needs("TurnLocking", "MessageLog")
    async def test_clearing_ends_the_lease(self, store: Any, other: Any) -> None:
        async with store.lock_turn("u1") as lease:
            lease = lease_of(store, lease)  # noqa: PLW2901
            await store.append("u1", TURN[:1], turn_id="t1", position=0, lease=lease)
            await other.clear("u1")
            with pytest.raises(LeaseLostError):
                await store.append("u1", TURN[1:], turn_id="t1", position=1, lease=lease)
        assert list(await store.get("u1")) == []
        async with store.lock_turn("u1", on_busy="reject") as lease:
            await store.append("u1", TURN, turn_id="t2", position=0, lease=lease)

    @needs("TurnLocking", "MessageLog")
    async def test_clearing_ends_the_lease_of_a_conversation_without_messages(self, store: Any) -> None:
        async with store.lock_turn("u1") as lease:
            lease = lease_of(store, lease)  # noqa: PLW2901
            await store.clear("u1")
            with pytest.raises(LeaseLostError):
                await store.append("u1", TURN, turn_id="t1", position=0, lease=lease)
        assert list(await store.get("u1")) == []

    @needs("TurnLocking", "MessageLog", "Branching")
    async def test_rolling_back_ends_the_lease(self, store: Any, other: Any) -> None:
        seq = await store.append("u1", TURN, turn_id="t1", position=0)
        async with store.lock_turn("u1") as lease:
            lease = lease_of(store, lease)  # noqa: PLW2901
            await store.append("u1", ANOTHER[:1], turn_id="t2", position=0, lease=lease)
            await other.rollback("u1", to=seq)
            with pytest.raises(LeaseLostError):
                await store.append("u1", ANOTHER[1:], turn_id="t2", position=1, lease=lease)
        assert list(await store.get("u1")) == TURN

    @needs("TurnLocking", "MessageLog")
    async def test_clear_that_races_with_appends_leaves_none_from_before(self, store: Any, other: Any) -> None:
        for number in range(10):
            name = f"u{number}"
            async with store.lock_turn(name) as lease:
                lease = lease_of(store, lease)  # noqa: PLW2901
                appends = [
                    store.append(name, [UserMessage(str(n))], turn_id="t1", position=n, lease=lease) for n in range(4)
                ]
                outcomes = await asyncio.gather(*appends[:2], other.clear(name), *appends[2:], return_exceptions=True)
                assert {type(one) for one in outcomes} <= {int, type(None), LeaseLostError}
                assert list(await store.get(name)) == []

    @needs("Leasing")
    async def test_one_gets_a_lease_and_the_others_when_it_is_released(self, store: Any, other: Any) -> None:
        taken = await asyncio.gather(*(handle.take_lease("u1", 60) for handle in (store, other) * 3))
        [lease] = [one for one in taken if one is not None]
        await store.release_lease(lease)
        following = await other.take_lease("u1", 60)
        assert following.fence > lease.fence

    @needs("Leasing", "MessageLog")
    @pytest.mark.parametrize("loss", ["ran out", "stolen"])
    async def test_holder_who_lost_its_lease_changes_nothing(self, store: Any, other: Any, loss: str) -> None:
        stale = await store.take_lease("u1", 0 if loss == "ran out" else 60)
        held = await other.take_lease("u1", 60, steal=loss == "stolen")
        assert held.fence > stale.fence
        assert not await store.renew_lease(stale, 60)
        await store.release_lease(stale)
        assert await store.take_lease("u1", 60) is None  # its release let nobody in
        with pytest.raises(LeaseLostError):
            await store.append("u1", TURN, turn_id="t1", position=0, lease=stale)
        assert await other.renew_lease(held, 60)
        await other.append("u1", ANOTHER, turn_id="t2", position=0, lease=held)
        assert texts(await store.get("u1")) == texts(ANOTHER)

    @needs("Leasing", "MessageLog")
    @pytest.mark.parametrize("end", ["released", "cleared"])
    async def test_lease_that_has_ended_is_not_renewed(self, store: Any, other: Any, end: str) -> None:
        lease = await store.take_lease("u1", 60)
        await (store.release_lease(lease) if end == "released" else other.clear("u1"))
        assert not await store.renew_lease(lease, 60)
        assert await other.take_lease("u1", 60) is not None

    @needs("Leasing")
    async def test_holder_that_is_asked_to_give_way_learns_of_it(self, store: Any, other: Any) -> None:
        assert await other.request_lease("u1") is None  # nobody to ask
        asked, kept, lost = [await store.take_lease(name, 60) for name in ("u1", "u2", "u3")]
        assert list(await store.leases_to_give_up([asked, kept, lost])) == []
        assert await other.request_lease("u1") == asked.fence
        await other.take_lease("u3", 60, steal=True)
        assert set(await store.leases_to_give_up([asked, kept, lost])) == {"u1", "u3"}
        assert await store.renew_lease(asked, 60)  # it is still its own, to store what it has delivered
        assert await other.take_lease("u1", 60) is None
        await store.release_lease(asked)
        following = await other.take_lease("u1", 60)
        assert list(await other.leases_to_give_up([following])) == []  # it was somebody else who was asked

    @needs("Leasing")
    async def test_turn_in_another_process_is_superseded_after_it_has_stored(self, store: Any, other: Any) -> None:
        order, started, asked = list[str](), asyncio.Event(), asyncio.Event()

        async def first() -> None:
            async with store.lock_turn("u1", supersede=asked.set) as lease:
                started.set()
                await asked.wait()
                await store.append("u1", TURN, turn_id="t1", position=0, lease=lease)
                order.append("stored")

        async def second() -> None:
            await started.wait()
            async with other.lock_turn("u1", on_busy="supersede"):
                order.append("taken")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(first())
            tasks.create_task(second())
        assert order == ["stored", "taken"]
        assert texts(await other.get("u1")) == texts(TURN)


async def wait_to_supersede(store: Any) -> None:
    """A turn that wants the place at once."""
    async with store.lock_turn("u1", on_busy="supersede"):
        pass
