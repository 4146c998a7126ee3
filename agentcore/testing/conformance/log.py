"""Appends that are stored once, on conditions, and numbers that are never used twice."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from agentcore.errors import InvalidInputError, VersionConflictError
from agentcore.memory.base import StoredMessage
from agentcore.messages import Message, UserMessage
from agentcore.testing.conformance.setting import ANOTHER, CANCELLATIONS, TURN, Conformance, cancelled_at, needs, texts


class Log(Conformance):
    """Tests of `MessageLog`."""

    @needs("MessageLog")
    async def test_append_tells_the_version_and_read_tells_who_wrote_what(self, store: Any) -> None:
        assert await store.version("u1") == 0
        first = await store.append("u1", TURN[:2], turn_id="t1", position=0)
        last = await store.append("u1", TURN[2:], turn_id="t1", position=2)
        await store.append("u1", ANOTHER, turn_id="t2", position=0)
        assert (last - first, await store.version("u1")) == (2, last + 2)
        records: Sequence[StoredMessage] = await store.read("u1")
        assert [record.message for record in records] == [*TURN, *ANOTHER]
        assert [record.turn_id for record in records] == ["t1"] * 4 + ["t2"] * 2
        assert [record.position for record in records] == [0, 1, 2, 3, 0, 1]
        assert [record.seq for record in records] == list(range(last - 3, last + 3))
        times = [record.created_at for record in records]
        assert times == sorted(times)
        assert list(await store.get("u1")) == [*TURN, *ANOTHER]

    @needs("MessageLog")
    async def test_read_begins_after_a_number_and_ends_at_a_limit(self, store: Any) -> None:
        last = await store.append("u1", TURN, turn_id="t1", position=0)
        for after in (0, last - 4, last - 2, last - 1, last, last + 5):
            expected = [message for seq, message in enumerate(TURN, last - 3) if seq > after]
            for limit in (None, 0, 1, 3, 4, 9):
                found = await store.read("u1", after=after, limit=limit)
                assert [record.message for record in found] == expected[:limit]
        assert list(await store.read("unknown")) == []

    @needs("MessageLog")
    async def test_added_messages_are_in_the_log_too(self, store: Any) -> None:
        await store.add("u1", TURN[:2])
        await store.add("u1", TURN[2:])
        await store.append("u1", ANOTHER, turn_id="t1", position=0)
        records = await store.read("u1")
        assert [record.message for record in records] == [*TURN, *ANOTHER]
        assert records[-1].seq == await store.version("u1")
        places = [(record.turn_id, record.position) for record in records]
        assert len(set(places)) == len(places)

    @needs("MessageLog")
    @pytest.mark.parametrize("later", [0, 1, 10])
    async def test_same_append_sent_again_is_stored_once(self, store: Any, other: Any, later: int) -> None:
        await store.append("u1", TURN[:2], turn_id="t1", position=0)
        for number in range(later):
            await store.append("u1", [UserMessage(str(number))], turn_id=f"later{number}", position=0)
        before, version = list(await store.get("u1")), await store.version("u1")
        for handle in (store, other):
            # What has been stored needs no condition any more: it may be the answer that was lost.
            for condition in (None, version, 0):
                again = await handle.append("u1", TURN[:2], turn_id="t1", position=0, expected_version=condition)
                assert again == version
        assert list(await store.get("u1")) == before

    @needs("MessageLog")
    async def test_same_append_sent_at_once_is_stored_once_and_all_are_told_so(self, store: Any, other: Any) -> None:
        version = await store.append("u1", TURN[:2], turn_id="t1", position=0)
        told = await asyncio.gather(
            *(
                handle.append("u1", TURN[2:], turn_id="t1", position=2, expected_version=version)
                for handle in (store, other) * 4
            )
        )
        assert set(told) == {version + 2}
        assert list(await store.get("u1")) == TURN

    @needs("MessageLog")
    async def test_turns_of_other_conversations_are_others(self, store: Any) -> None:
        for name in ("u1", "u2"):
            await store.append(name, [UserMessage(name)], turn_id="t1", position=0)
        assert [texts(await store.get(name)) for name in ("u1", "u2")] == [["u1"], ["u2"]]

    @needs("MessageLog")
    @pytest.mark.parametrize(
        ("position", "messages"),
        [
            (0, [UserMessage("b"), TURN[1]]),
            (0, [TURN[0], UserMessage("b")]),
            (1, [UserMessage("b")]),
            (0, TURN[:3]),
            (1, TURN[1:3]),
        ],
        ids=["first differs", "second differs", "one of them", "more than there was", "overlapping"],
    )
    async def test_place_that_holds_something_else_is_refused(
        self, store: Any, position: int, messages: list[Message]
    ) -> None:
        version = await store.append("u1", TURN[:2], turn_id="t1", position=0)
        with pytest.raises(InvalidInputError, match="t1"):
            await store.append("u1", messages, turn_id="t1", position=position)
        assert list(await store.get("u1")) == TURN[:2]
        assert await store.version("u1") == version

    @needs("MessageLog")
    async def test_append_to_the_log_with_something_that_is_no_message_stores_nothing(self, store: Any) -> None:
        with pytest.raises(InvalidInputError, match="item 1"):
            await store.append("u1", [TURN[0], object()], turn_id="t1", position=0)
        assert list(await store.get("u1")) == []
        assert await store.version("u1") == 0

    @needs("MessageLog")
    async def test_append_of_nothing_changes_nothing(self, store: Any) -> None:
        assert await store.append("u1", [], turn_id="t1", position=0) == 0
        version = await store.append("u1", TURN, turn_id="t1", position=0)
        assert await store.append("u1", [], turn_id="t1", position=4) == version
        with pytest.raises(VersionConflictError):
            await store.append("u1", [], turn_id="t1", position=4, expected_version=version + 1)
        assert await store.version("u1") == version

    @needs("MessageLog")
    async def test_new_conversation_has_version_0_whatever_became_of_others(self, store: Any) -> None:
        await store.append("u1", TURN, turn_id="t1", position=0)
        await store.clear("u1")
        assert await store.version("new") == 0
        await store.append("new", TURN, turn_id="t1", position=0, expected_version=0)
        assert list(await store.get("new")) == TURN

    @needs("MessageLog")
    @pytest.mark.parametrize("begun", [False, True], ids=["new conversation", "old conversation"])
    async def test_of_two_writers_who_read_the_same_version_one_wins(self, store: Any, other: Any, begun: bool) -> None:
        version = await store.append("u1", TURN[:1], turn_id="t0", position=0) if begun else 0
        outcomes = await asyncio.gather(
            *(
                handle.append("u1", [UserMessage(name)], turn_id=name, position=0, expected_version=version)
                for handle, name in ((store, "t1"), (other, "t2"))
            ),
            return_exceptions=True,
        )
        [refused] = [one for one in outcomes if isinstance(one, VersionConflictError)]
        [won] = [one for one in outcomes if isinstance(one, int)]
        assert refused.version == won == await store.version("u1")
        assert len(await store.get("u1")) == 1 + begun

    @needs("MessageLog")
    @pytest.mark.parametrize("off", [-1, 1])
    async def test_writer_who_expects_another_version_is_told_the_right_one(self, store: Any, off: int) -> None:
        version = await store.append("u1", TURN, turn_id="t1", position=0)
        with pytest.raises(VersionConflictError) as caught:
            await store.append("u1", ANOTHER, turn_id="t2", position=0, expected_version=version + off)
        assert caught.value.version == version
        assert list(await store.get("u1")) == TURN
        assert await store.append("u1", ANOTHER, turn_id="t2", position=0, expected_version=caught.value.version)

    @needs("MessageLog")
    async def test_version_does_not_restart_after_clear(self, store: Any, other: Any) -> None:
        version = await store.append("u1", TURN, turn_id="t1", position=0)
        await other.clear("u1")
        assert await store.version("u1") == version
        assert list(await store.read("u1")) == []
        for stale in (0, version - 1):
            with pytest.raises(VersionConflictError):
                await store.append("u1", ANOTHER, turn_id="t2", position=0, expected_version=stale)
        assert await store.append("u1", TURN, turn_id="t1", position=0) == version + len(TURN)
        assert [record.seq > version for record in await store.read("u1")] == [True] * len(TURN)
        with pytest.raises(VersionConflictError):
            await store.append("u1", ANOTHER, turn_id="t3", position=0, expected_version=version)

    @needs("MessageLog")
    @pytest.mark.parametrize("when", CANCELLATIONS)
    async def test_cancelled_append_is_done_or_not_done_and_can_be_sent_again(self, store: Any, when: str) -> None:
        await store.add("u0", [UserMessage("zero")])
        step, reached = 1, True
        while reached:
            name = f"u{step}"
            append = store.append(name, TURN, turn_id="t1", position=0)
            reached = await cancelled_at(append, step, when)
            assert list(await store.get(name)) in ([], TURN)
            assert texts(await store.get("u0")) == ["zero"]
            await store.append(name, TURN, turn_id="t1", position=0)
            await store.append(name, ANOTHER, turn_id="t2", position=0)
            assert list(await store.get(name)) == [*TURN, *ANOTHER]
            step += 1
