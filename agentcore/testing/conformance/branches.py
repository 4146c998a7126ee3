"""Conversations that go back, and that go on in two ways."""

from typing import Any

import pytest

from agentcore.errors import InvalidInputError, VersionConflictError
from agentcore.memory.base import ConversationInfo
from agentcore.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from agentcore.testing.conformance.setting import ANOTHER, TURN, Conformance, needs


async def two_turns(store: Any, name: str = "u1") -> tuple[int, int]:
    """A conversation of two turns; the numbers at their ends."""
    first = await store.append(name, TURN[:2], turn_id="t1", position=0)
    first = await store.append(name, TURN[2:], turn_id="t1", position=2)
    return first, await store.append(name, ANOTHER, turn_id="t2", position=0)


class Branches(Conformance):
    """Tests of `Branching`."""

    @needs("Branching", "MessageLog")
    async def test_fork_takes_the_messages_with_their_numbers(self, store: Any, other: Any) -> None:
        first, _ = await two_turns(store)
        info: ConversationInfo = await store.fork("u1", "u2", at=first)
        assert (info.conversation_id, info.parent_id, info.parent_seq) == ("u2", "u1", first)
        taken, source = await other.read("u2"), await other.read("u1")
        assert [(r.seq, r.turn_id, r.position, r.message) for r in taken] == [
            (r.seq, r.turn_id, r.position, r.message) for r in source[: len(TURN)]
        ]
        assert await store.version("u2") == first

    @needs("Branching", "MessageLog")
    async def test_both_go_on_apart(self, store: Any) -> None:
        first, last = await two_turns(store)
        await store.fork("u1", "u2", at=first)
        assert await store.append("u2", ANOTHER, turn_id="t3", position=0) == first + 2
        assert await store.append("u1", [UserMessage("c")], turn_id="t3", position=0) == last + 1
        assert list(await store.get("u2")) == [*TURN, *ANOTHER]
        assert list(await store.get("u1")) == [*TURN, *ANOTHER, UserMessage("c")]
        await store.clear("u1")
        assert list(await store.get("u2")) == [*TURN, *ANOTHER]

    @needs("Branching", "MessageLog")
    async def test_fork_without_a_place_takes_all(self, store: Any) -> None:
        _, last = await two_turns(store)
        await store.append("u1", [AssistantMessage(None, (ToolCall("c9", "f"),))], turn_id="t3", position=0)
        info: ConversationInfo = await store.fork("u1", "u2")
        assert info.parent_seq == last + 1
        assert list(await store.get("u2")) == list(await store.get("u1"))

    @needs("Branching", "MessageLog", "ConversationListing")
    async def test_lineage_is_on_record(self, store: Any, other: Any) -> None:
        first, _ = await two_turns(store)
        info = await store.fork("u1", "u2", at=first)
        assert await other.conversation_info("u2") == info
        again = await store.fork("u2", "u3")
        assert (again.parent_id, again.parent_seq) == ("u2", first)
        found = {one.conversation_id: one.parent_id for one in (await store.list_conversations()).conversations}
        assert found == {"u1": None, "u2": "u1", "u3": "u2"}
        await store.clear("u2")
        await store.add("u2", TURN)
        fresh = await store.conversation_info("u2")
        assert (fresh.parent_id, fresh.parent_seq) == (None, None)

    @needs("Branching", "MessageLog")
    async def test_fork_of_nothing_and_into_something_are_refused(self, store: Any) -> None:
        await two_turns(store)
        await store.add("u2", ANOTHER)
        for arguments in (("unknown", "u3"), ("u1", "u2"), ("u1", "u1")):
            with pytest.raises(InvalidInputError):
                await store.fork(*arguments)
        assert list(await store.get("u2")) == ANOTHER
        assert list(await store.get("u3")) == []

    @needs("Branching", "MessageLog")
    async def test_version_does_not_restart_in_the_conversation_forked_into(self, store: Any) -> None:
        version = 0
        for number in range(3):
            version = await store.append("u2", TURN, turn_id=f"t{number}", position=0)
        await store.clear("u2")
        await store.append("u1", ANOTHER, turn_id="t1", position=0)
        await store.fork("u1", "u2")
        assert await store.version("u2") == version
        with pytest.raises(VersionConflictError):
            await store.append("u2", ANOTHER, turn_id="t9", position=0, expected_version=2)
        assert await store.append("u2", ANOTHER, turn_id="t9", position=0) > version
        assert list(await store.get("u2")) == ANOTHER * 2

    @needs("Branching", "MessageLog")
    @pytest.mark.parametrize("offset", [-3, -2, -1, 1, 2, 9])
    async def test_middle_of_a_turn_is_no_place(self, store: Any, offset: int) -> None:
        first, last = await two_turns(store)
        at = first + offset
        if at == last:
            return
        nearest = f"{first}" if at < last else f"{last}"
        with pytest.raises(InvalidInputError, match=nearest):
            await store.fork("u1", "u2", at=at)
        with pytest.raises(InvalidInputError, match=nearest):
            await store.rollback("u1", to=at)
        assert list(await store.get("u1")) == [*TURN, *ANOTHER]
        assert list(await store.get("u2")) == []

    @needs("Branching", "MessageLog")
    async def test_turn_with_open_calls_is_no_place_until_they_are_answered(self, store: Any) -> None:
        at = await store.append("u1", TURN[:2], turn_id="t1", position=0)
        with pytest.raises(InvalidInputError):
            await store.fork("u1", "u2", at=at)
        answered = await store.append("u1", [ToolMessage("c1", "f", "1")], turn_id="t2", position=0)
        await store.append("u1", ANOTHER, turn_id="t3", position=0)
        with pytest.raises(InvalidInputError):
            await store.fork("u1", "u2", at=at)
        await store.fork("u1", "u2", at=answered)
        assert list(await store.get("u2")) == TURN[:3]

    @needs("Branching", "MessageLog", "RecordKeeping")
    async def test_pause_is_a_place_to_fork_at_and_to_go_back_to(self, store: Any) -> None:
        seq = await store.append("u1", TURN[:2], turn_id="t1", position=0)
        await store.put_record("u1", "pause", "current", "{}", seq=seq)
        await store.append("u1", TURN[2:], turn_id="t1", position=2)
        await store.fork("u1", "u2", at=seq)
        assert list(await store.get("u2")) == TURN[:2]
        await store.rollback("u1", to=seq)
        assert list(await store.get("u1")) == TURN[:2]

    @needs("Branching", "MessageLog")
    async def test_rollback_takes_back_and_numbers_go_on(self, store: Any, other: Any) -> None:
        first, last = await two_turns(store)
        await other.rollback("u1", to=first)
        assert list(await store.get("u1")) == TURN
        assert await store.version("u1") == last
        for stale in (first, last - 1):
            with pytest.raises(VersionConflictError):
                await store.append("u1", ANOTHER, turn_id="t3", position=0, expected_version=stale)
        assert await store.append("u1", ANOTHER, turn_id="t3", position=0, expected_version=last) == last + 2
        assert [record.seq for record in await store.read("u1", after=first)] == [last + 1, last + 2]
        assert list(await store.get("u1")) == [*TURN, *ANOTHER]

    @needs("Branching", "MessageLog")
    async def test_turn_that_was_taken_back_may_be_stored_anew(self, store: Any) -> None:
        first, last = await two_turns(store)
        await store.rollback("u1", to=first)
        assert await store.append("u1", ANOTHER, turn_id="t2", position=0) == last + 2
        assert list(await store.get("u1")) == [*TURN, *ANOTHER]

    @needs("Branching", "MessageLog")
    async def test_rollback_to_the_last_message_takes_back_nothing(self, store: Any) -> None:
        _, last = await two_turns(store)
        await store.rollback("u1", to=last)
        assert list(await store.get("u1")) == [*TURN, *ANOTHER]

    @needs("Branching", "MessageLog", "ConversationListing")
    async def test_rollback_to_0_takes_back_all(self, store: Any) -> None:
        _, last = await two_turns(store)
        await store.rollback("u1", to=0)
        await store.rollback("unknown", to=0)
        assert list(await store.get("u1")) == []
        assert await store.conversation_info("u1") is None
        assert list((await store.list_conversations()).conversations) == []
        assert await store.version("u1") == last
        assert await store.append("u1", ANOTHER, turn_id="t3", position=0) == last + 2

    @needs("Branching", "MessageLog", "TailReading")
    async def test_tail_follows_a_rollback(self, store: Any) -> None:
        first, _ = await two_turns(store)
        await store.rollback("u1", to=first)
        assert list(await store.get_tail("u1", 2)) == TURN[-2:]

    @needs("Branching", "MessageLog", "RecordKeeping")
    async def test_records_go_with_their_messages_and_along_with_a_fork(self, store: Any) -> None:
        first, last = await two_turns(store)
        for key, seq in (("early", first), ("late", last), ("apart", None)):
            await store.put_record("u1", "k", key, f'"{key}"', seq=seq)
        await store.fork("u1", "u2", at=first)
        [taken] = await store.list_records("u2", "k")
        assert (taken.key, taken.body, taken.seq) == ("early", '"early"', first)
        await store.put_record("u2", "k", "early", "[]", seq=first)
        assert (await store.get_record("u1", "k", "early")).body == '"early"'
        await store.rollback("u1", to=first)
        assert [one.key for one in await store.list_records("u1", "k")] == ["apart", "early"]
        await store.rollback("u1", to=0)
        assert [one.key for one in await store.list_records("u1", "k")] == ["apart"]
