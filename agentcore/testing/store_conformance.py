"""What a store of conversations promises, as tests: subclass them, and pytest runs them over your store.

    import pytest
    from agentcore.testing.store_conformance import ChatMemoryConformance

    class TestMyStore(ChatMemoryConformance):
        powers = {"MessageLog", "TailReading"}       # what it has to have: these are never skipped

        @pytest.fixture
        def make(self):                              # a function that opens a store on the same, empty, data
            path = new_directory()
            return lambda: MyStore(path)

`make` is called again for a second handle; a store that is shared by handing it around returns the same object. Stores
that have `aclose` are closed. Tests of a power that the store lacks are skipped, and say which protocol of
`agentcore.memory.base` that is. Needs pytest and pytest-asyncio.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest

from agentcore.errors import (
    ConversationBusyError,
    InvalidInputError,
    LeaseLostError,
    VersionConflictError,
)
from agentcore.memory import base
from agentcore.memory.base import ChatMemory, ConversationInfo, StoredMessage
from agentcore.messages import (
    AssistantMessage,
    AudioPart,
    FilePart,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)

Make = Callable[[], Any]

TURN: list[Message] = [
    UserMessage("a"),
    AssistantMessage(None, (ToolCall("c1", "f", {"x": 1}),)),
    ToolMessage("c1", "f", "1"),
    AssistantMessage("A"),
]
STRANGE: list[Message] = [
    UserMessage(""),
    UserMessage("\u0000 \ud83d 晴 \U0001f324 \ud83d\ude00"),
    UserMessage("x" * 5_000_000),
    UserMessage([TextPart("t"), ImagePart(data=b"\x00\xff", media_type="image/png", detail="low")]),
    UserMessage([AudioPart(url="https://x/a.wav"), FilePart(data=b"%PDF", media_type="application/pdf", name="ü.pdf")]),
    AssistantMessage(
        "t",
        (
            ToolCall("c1", "f", {"b": 1, "a": [1.0, 1, 2**60, None, {"z": "\u0000", "y": True}]}),
            ToolCall("c2", "g", {}, "{oops"),
        ),
        "thoughts",
        "length",
        {"format": "anthropic", "blocks": [{"type": "thinking", "signature": "s=="}]},
    ),
    ToolMessage("c1", "f", [TextPart("1"), ImagePart(url="https://x/i.png")]),
    ToolMessage("c2", "g", "no", is_error=True, writes={"k": [1, 2]}),
    SystemMessage("now"),
]


def _texts(messages: Sequence[Message]) -> list[Any]:
    return [message.content for message in messages]


def _power(store: object, name: str) -> bool:
    return isinstance(store, getattr(base, name))


class ChatMemoryConformance:
    """The tests. See the module for how to use them.

    Attributes:
        powers: names of the protocols of `agentcore.memory.base` that the store has to have.
    """

    powers: ClassVar[set[str]] = set()

    @asynccontextmanager
    async def opened(self, make: Make, *needed: str) -> AsyncGenerator[Any]:
        """A store for the length of the block; skips the test if it lacks a power that the test is about."""
        store = make()
        try:
            for name in needed:
                if not _power(store, name):
                    assert name not in self.powers, f"{type(store).__name__} has to have {name}"
                    pytest.skip(f"{type(store).__name__} does not have {name} (agentcore.memory.base)")
            yield store
        finally:
            close = getattr(store, "aclose", None)
            if close is not None:
                await close()

    # The three basic methods

    @pytest.mark.asyncio
    async def test_unknown_conversation_is_empty(self, make: Make) -> None:
        async with self.opened(make) as store:
            assert list(await store.get("u1")) == []
            await store.clear("u1")
            assert list(await store.get("u1")) == []

    @pytest.mark.asyncio
    async def test_appends_keep_order_and_conversations_are_apart(self, make: Make) -> None:
        async with self.opened(make) as store:
            await store.add("u1", TURN[:1])
            await store.add("u2", [UserMessage("other")])
            await store.add("u1", TURN[1:])
            await store.add("u1", [])
            assert list(await store.get("u1")) == TURN
            assert list(await store.get("u2")) == [UserMessage("other")]
            await store.clear("u1")
            assert (list(await store.get("u1")), len(await store.get("u2"))) == ([], 1)

    @pytest.mark.asyncio
    async def test_append_is_all_or_nothing(self, make: Make) -> None:
        async with self.opened(make) as store:
            with pytest.raises(InvalidInputError, match="item 2"):
                await store.add("u1", [*TURN[:2], object()])
            assert list(await store.get("u1")) == []

    @pytest.mark.asyncio
    async def test_what_is_given_and_handed_out_cannot_change_what_is_held(self, make: Make) -> None:
        async with self.opened(make) as store:
            given = list(TURN)
            await store.add("u1", given)
            given.clear()
            read = await store.get("u1")
            if isinstance(read, list):
                read.clear()
            assert list(await store.get("u1")) == TURN

    @pytest.mark.asyncio
    async def test_every_message_reads_back_equal(self, make: Make) -> None:
        async with self.opened(make) as store:
            await store.add("u1", STRANGE)
            held = await store.get("u1")
            assert list(held) == STRANGE
            calls = held[5].tool_calls
            assert list(calls[0].args) == ["b", "a"]
            assert [type(value) for value in calls[0].args["a"][:2]] == [float, int]

    @pytest.mark.asyncio
    async def test_readers_never_see_half_an_append(self, make: Make) -> None:
        async with self.opened(make) as store:
            done = asyncio.Event()
            seen: set[int] = set()

            async def read() -> None:
                while not done.is_set():
                    seen.add(len(await store.get("u1")) % len(TURN))
                    await asyncio.sleep(0)

            reader = asyncio.ensure_future(read())
            for _ in range(20):
                await store.add("u1", TURN)
                await asyncio.sleep(0)
            done.set()
            await reader
            assert seen == {0}

    @pytest.mark.asyncio
    async def test_many_appends_at_once_lose_nothing(self, make: Make) -> None:
        async with self.opened(make) as store:
            await asyncio.gather(*(store.add(f"u{n % 7}", [UserMessage(str(n))]) for n in range(140)))
            for name in range(7):
                assert sorted(_texts(await store.get(f"u{name}"))) == sorted(str(n) for n in range(name, 140, 7))

    @pytest.mark.asyncio
    @pytest.mark.parametrize("steps", range(0, 12, 2))
    async def test_cancelled_call_leaves_the_next_one_its_own_answer(self, make: Make, steps: int) -> None:
        async with self.opened(make) as store:
            await store.add("u1", [UserMessage("one")])
            await store.add("u2", [UserMessage("two")])
            for call in (lambda: store.get("u1"), lambda: store.add("u1", [UserMessage("more")])):
                task = asyncio.ensure_future(call())
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                assert _texts(await store.get("u2")) == ["two"]
            assert _texts(await store.get("u1")) in (["one"], ["one", "more"])

    # MessageLog

    @pytest.mark.asyncio
    async def test_append_tells_the_version_and_read_tells_who_wrote_what(self, make: Make) -> None:
        async with self.opened(make, "MessageLog") as store:
            before = await store.version("u1")
            first = await store.append("u1", TURN[:2], turn_id="t1", position=0)
            last = await store.append("u1", TURN[2:], turn_id="t1", position=2)
            assert (last - first, await store.version("u1")) == (2, last)
            records: Sequence[StoredMessage] = await store.read("u1", after=before)
            assert [record.message for record in records] == TURN
            assert [record.position for record in records] == [0, 1, 2, 3]
            assert {record.turn_id for record in records} == {"t1"}
            assert [record.seq for record in records] == list(range(last - 3, last + 1))
            assert all(record.created_at >= 0 for record in records)
            assert [record.seq for record in await store.read("u1", after=last - 2, limit=1)] == [last - 1]
            assert list(await store.read("u1", limit=0)) == []
            assert list(await store.read("unknown")) == []

    @pytest.mark.asyncio
    async def test_same_append_sent_again_is_stored_once(self, make: Make) -> None:
        async with self.opened(make, "MessageLog") as store:
            await store.append("u1", TURN[:2], turn_id="t1", position=0)
            for n in range(10):
                await store.append("u1", [UserMessage(str(n))], turn_id=f"later{n}", position=0)
            version = await store.version("u1")
            assert await store.append("u1", TURN[:2], turn_id="t1", position=0) == version
            await asyncio.gather(
                *(store.append("u1", TURN[2:], turn_id="t1", position=2, expected_version=version) for _ in range(5))
            )
            assert len(await store.get("u1")) == 14
            await store.append("u2", TURN[:2], turn_id="t1", position=0)  # turns of other conversations are others
            assert len(await store.get("u2")) == 2

    @pytest.mark.asyncio
    async def test_place_that_holds_something_else_is_refused(self, make: Make) -> None:
        async with self.opened(make, "MessageLog") as store:
            await store.append("u1", TURN[:2], turn_id="t1", position=0)
            for position, messages in ((0, [UserMessage("b"), TURN[1]]), (1, [UserMessage("b")]), (0, TURN[:3])):
                with pytest.raises(InvalidInputError, match="t1"):
                    await store.append("u1", messages, turn_id="t1", position=position)
            assert list(await store.get("u1")) == TURN[:2]

    @pytest.mark.asyncio
    async def test_of_two_writers_who_read_the_same_version_one_wins(self, make: Make) -> None:
        async with self.opened(make, "MessageLog") as store:
            version = await store.append("u1", TURN[:1], turn_id="t0", position=0)
            outcomes = await asyncio.gather(
                *(
                    store.append("u1", [UserMessage(str(n))], turn_id=f"t{n}", position=0, expected_version=version)
                    for n in (1, 2)
                ),
                return_exceptions=True,
            )
            [refused] = [one for one in outcomes if isinstance(one, VersionConflictError)]
            [won] = [one for one in outcomes if isinstance(one, int)]
            assert refused.version == won == await store.version("u1")
            assert refused.retryable
            assert len(await store.get("u1")) == 2

    @pytest.mark.asyncio
    async def test_version_never_restarts(self, make: Make) -> None:
        async with self.opened(make, "MessageLog") as store:
            version = await store.append("u1", TURN, turn_id="t1", position=0)
            await store.clear("u1")
            assert await store.append("u1", TURN, turn_id="t2", position=0) > version
            with pytest.raises(VersionConflictError):
                await store.append("u1", TURN[:1], turn_id="t3", position=0, expected_version=version)

    # TailReading

    @pytest.mark.asyncio
    async def test_tail_is_the_end_after_the_system_messages(self, make: Make) -> None:
        async with self.opened(make, "TailReading") as store:
            history = [SystemMessage("s"), *(UserMessage(str(n)) for n in range(6)), SystemMessage("t")]
            await store.add("u1", history)
            await store.add("u1", [UserMessage("6"), UserMessage("7")])
            assert _texts(await store.get_tail("u1", 2)) == ["s", "t", "6", "7"]
            assert _texts(await store.get_tail("u1", 3)) == ["s", "t", "6", "7"]
            assert _texts(await store.get_tail("u1", 100)) == ["s", *"012345", "t", "6", "7"]
            assert _texts(await store.get_tail("unknown", 3)) == []

    # TurnLocking

    @pytest.mark.asyncio
    async def test_turns_of_one_conversation_come_one_after_another_in_order(self, make: Make) -> None:
        async with self.opened(make, "TurnLocking") as store:
            order: list[int] = []

            async def turn(number: int) -> None:
                async with store.lock_turn("u1"):
                    order.append(number)
                    await asyncio.sleep(0)
                    order.append(number)

            await asyncio.gather(*(turn(n) for n in range(4)))
            assert order == [0, 0, 1, 1, 2, 2, 3, 3]
            async with store.lock_turn("u1"), store.lock_turn("u2", timeout=5):
                pass

    @pytest.mark.asyncio
    async def test_busy_conversation_refuses_or_lets_wait_so_long(self, make: Make) -> None:
        async with self.opened(make, "TurnLocking") as store, self.opened(make) as other:
            async with store.lock_turn("u1"):
                for handle in (store, other):
                    with pytest.raises(ConversationBusyError):
                        async with handle.lock_turn("u1", on_busy="reject"):
                            pass
                    with pytest.raises(ConversationBusyError):
                        async with handle.lock_turn("u1", timeout=0.05):
                            pass
            async with other.lock_turn("u1", on_busy="reject"):
                pass

    @pytest.mark.asyncio
    async def test_superseded_turn_is_told_to_stop(self, make: Make) -> None:
        async with self.opened(make, "TurnLocking") as store:
            stopped, held = asyncio.Event(), asyncio.Event()

            async def first() -> None:
                async with store.lock_turn("u1", supersede=stopped.set):
                    held.set()
                    await stopped.wait()

            task = asyncio.ensure_future(first())
            await held.wait()
            async with store.lock_turn("u1", on_busy="supersede"):
                assert task.done() or stopped.is_set()
            await task

    @pytest.mark.asyncio
    async def test_who_lost_the_lease_can_write_no_more(self, make: Make) -> None:
        async with self.opened(make, "TurnLocking", "MessageLog") as store, self.opened(make) as other:
            async with store.lock_turn("u1", supersede=lambda: None) as lease:
                if lease is None:
                    pytest.skip(f"{type(store).__name__} locks without leases")
                await store.append("u1", TURN[:1], turn_id="t1", position=0, lease=lease)
                if other is not store:
                    async with other.lock_turn("u1", on_busy="supersede") as taken:
                        assert taken.fence > lease.fence
                        with pytest.raises(LeaseLostError):
                            await store.append("u1", TURN[1:2], turn_id="t1", position=1, lease=lease)
                        await other.append("u1", [UserMessage("b")], turn_id="t2", position=0, lease=taken)
                else:
                    await store.clear("u1")
                    with pytest.raises(LeaseLostError):
                        await store.append("u1", TURN[1:2], turn_id="t1", position=1, lease=lease)
            assert not any(isinstance(m, AssistantMessage) for m in await store.get("u1"))

    @pytest.mark.asyncio
    @pytest.mark.parametrize("end", ["clear", "rollback"])
    async def test_clearing_and_rolling_back_end_the_lease(self, make: Make, end: str) -> None:
        needed = ["TurnLocking", "MessageLog", *(["Branching"] if end == "rollback" else [])]
        async with self.opened(make, *needed) as store:
            async with store.lock_turn("u1") as lease:
                if lease is None:
                    pytest.skip(f"{type(store).__name__} locks without leases")
                await store.append("u1", TURN[:1], turn_id="t1", position=0, lease=lease)
                await (store.clear("u1") if end == "clear" else store.rollback("u1", to=0))
                with pytest.raises(LeaseLostError):
                    await store.append("u1", TURN[1:2], turn_id="t1", position=1, lease=lease)
            assert list(await store.get("u1")) == []
            async with store.lock_turn("u1", on_busy="reject") as lease:
                await store.append("u1", TURN[:1], turn_id="t2", position=0, lease=lease)

    @pytest.mark.asyncio
    async def test_lease_of_one_conversation_is_none_of_another(self, make: Make) -> None:
        async with (
            self.opened(make, "TurnLocking", "MessageLog") as store,
            store.lock_turn("u1") as lease,
            store.lock_turn("u2"),
        ):
            if lease is None:
                pytest.skip(f"{type(store).__name__} locks without leases")
            with pytest.raises(LeaseLostError):
                await store.append("u2", TURN[:1], turn_id="t1", position=0, lease=lease)

    # ConversationListing

    @pytest.mark.asyncio
    async def test_walk_by_beginning_is_exact_while_conversations_change(self, make: Make) -> None:
        async with self.opened(make, "ConversationListing") as store:
            for n in range(9):
                await store.add(f"u{n}", [UserMessage("x")])
            seen: list[str] = []
            after: str | None = None
            while True:
                page = await store.list_conversations(limit=2, after=after, order="created")
                assert len(page.conversations) <= 2
                seen += [info.conversation_id for info in page.conversations]
                await store.add("u0", [UserMessage("again")])
                await store.add(f"new{len(seen)}", [UserMessage("x")])
                after = page.after
                if after is None:
                    break
            assert seen == [f"u{n}" for n in reversed(range(9))]

    @pytest.mark.asyncio
    async def test_listing_by_change_has_the_newest_first(self, make: Make) -> None:
        async with self.opened(make, "ConversationListing") as store:
            for name in ("a1", "a2", "b1", "a1"):
                await store.add(name, [UserMessage("x")])
            page = await store.list_conversations()
            assert [info.conversation_id for info in page.conversations] == ["a1", "b1", "a2"]
            assert page.after is None
            page = await store.list_conversations(prefix="a")
            assert [info.conversation_id for info in page.conversations] == ["a1", "a2"]
            info: ConversationInfo = await store.conversation_info("a1")
            assert info.created_at <= info.updated_at
            assert info.parent_id is None
            assert await store.conversation_info("unknown") is None
            await store.clear("b1")
            assert await store.conversation_info("b1") is None
            assert len((await store.list_conversations()).conversations) == 2

    @pytest.mark.asyncio
    async def test_cursor_that_is_none_and_page_without_room_are_refused(self, make: Make) -> None:
        async with self.opened(make, "ConversationListing") as store:
            for settings in ({"after": "nonsense"}, {"limit": 0}):
                with pytest.raises(InvalidInputError):
                    await store.list_conversations(**settings)
            await store.add("u1", TURN)
            await store.add("u2", TURN)
            page = await store.list_conversations(limit=1, order="created")
            with pytest.raises(InvalidInputError, match="created"):
                await store.list_conversations(after=page.after, order="updated")

    @pytest.mark.asyncio
    async def test_retention_spares_what_is_new_and_what_a_turn_holds(self, make: Make) -> None:
        async with self.opened(make, "ConversationListing", "TurnLocking") as store:
            await store.add("u1", TURN)
            await store.add("u2", TURN)
            assert await store.delete_inactive(3600) == 0
            async with store.lock_turn("u1"):
                assert await store.delete_inactive(-1) == 1
            assert list(await store.get("u1")) == TURN
            assert list(await store.get("u2")) == []
            assert await store.delete_inactive(-1) == 1

    # Branching

    @pytest.mark.asyncio
    async def test_fork_begins_at_the_end_of_a_turn_and_both_go_on_apart(self, make: Make) -> None:
        async with self.opened(make, "Branching", "MessageLog") as store:
            first = await store.append("u1", TURN, turn_id="t1", position=0)
            last = await store.append("u1", [UserMessage("b"), AssistantMessage("B")], turn_id="t2", position=0)
            info: ConversationInfo = await store.fork("u1", "u2", at=first)
            assert (info.conversation_id, info.parent_id, info.parent_seq) == ("u2", "u1", first)
            assert list(await store.get("u2")) == TURN
            assert [record.turn_id for record in await store.read("u2")] == ["t1"] * 4
            assert await store.append("u2", [UserMessage("c")], turn_id="t3", position=0) > first
            assert len(await store.get("u1")) == 6
            whole: ConversationInfo = await store.fork("u1", "u3")
            assert (whole.parent_seq, len(await store.get("u3"))) == (last, 6)
            with pytest.raises(InvalidInputError, match="u2"):
                await store.fork("u1", "u2")
            with pytest.raises(InvalidInputError):
                await store.fork("unknown", "u4")

    @pytest.mark.asyncio
    async def test_middle_of_a_turn_is_no_place_to_fork_at_or_go_back_to(self, make: Make) -> None:
        async with self.opened(make, "Branching", "MessageLog") as store:
            last = await store.append("u1", TURN, turn_id="t1", position=0)
            for at in (last - 2, last + 5):
                with pytest.raises(InvalidInputError, match="end of a turn"):
                    await store.fork("u1", "u2", at=at)
                with pytest.raises(InvalidInputError, match="end of a turn"):
                    await store.rollback("u1", to=at)
            assert list(await store.get("u1")) == TURN

    @pytest.mark.asyncio
    async def test_rollback_takes_back_and_numbers_go_on(self, make: Make) -> None:
        async with self.opened(make, "Branching", "MessageLog") as store:
            first = await store.append("u1", TURN, turn_id="t1", position=0)
            last = await store.append("u1", [UserMessage("b"), AssistantMessage("B")], turn_id="t2", position=0)
            await store.rollback("u1", to=first)
            assert list(await store.get("u1")) == TURN
            assert await store.version("u1") == last
            assert await store.append("u1", [UserMessage("c")], turn_id="t3", position=0) == last + 1
            await store.rollback("u1", to=0)
            assert list(await store.get("u1")) == []
            await store.rollback("unknown", to=0)

    # RecordKeeping

    @pytest.mark.asyncio
    async def test_records_are_kept_replaced_listed_and_taken_once(self, make: Make) -> None:
        async with self.opened(make, "RecordKeeping") as store:
            assert await store.put_record("u1", "k", "b", '{"n":1}')
            assert await store.put_record("u1", "k", "b", '{"n":"\\u0000"}')
            assert not await store.put_record("u1", "k", "b", "[]", if_absent=True)
            assert await store.put_record("u1", "k", "a", "2", seq=7)
            assert await store.put_record("u1", "k", "c", "3", seq=5)
            assert await store.put_record("u1", "other", "b", "4")
            record = await store.get_record("u1", "k", "b")
            assert (record.kind, record.key, record.body, record.seq) == ("k", "b", '{"n":"\\u0000"}', None)
            assert [one.key for one in await store.list_records("u1", "k")] == ["b", "c", "a"]
            taken = await asyncio.gather(*(store.take_record("u1", "k", "b") for _ in range(5)))
            assert [one.body for one in taken if one is not None] == ['{"n":"\\u0000"}']
            assert await store.get_record("u1", "k", "b") is None
            assert await store.put_record("u1", "k", "b", "[]", if_absent=True)
            assert list(await store.list_records("unknown", "k")) == []
            await store.clear("u1")
            assert list(await store.list_records("u1", "k")) == []

    @pytest.mark.asyncio
    async def test_of_many_who_put_an_absent_record_one_does(self, make: Make) -> None:
        async with self.opened(make, "RecordKeeping") as store:
            made = await asyncio.gather(*(store.put_record("u1", "k", "a", str(n), if_absent=True) for n in range(8)))
            assert sorted(made) == [False] * 7 + [True]
            assert (await store.get_record("u1", "k", "a")).body == str(made.index(True))

    @pytest.mark.asyncio
    async def test_expired_record_is_gone(self, make: Make) -> None:
        async with self.opened(make, "RecordKeeping") as store:
            await store.put_record("u1", "k", "a", "1", expires_in=-1)
            await store.put_record("u1", "k", "b", "2", expires_in=3600)
            assert await store.get_record("u1", "k", "a") is None
            assert await store.take_record("u1", "k", "a") is None
            assert [one.key for one in await store.list_records("u1", "k")] == ["b"]
            assert await store.put_record("u1", "k", "a", "3", if_absent=True)

    @pytest.mark.asyncio
    async def test_records_go_with_their_messages_and_along_with_a_fork(self, make: Make) -> None:
        async with self.opened(make, "RecordKeeping", "Branching", "MessageLog") as store:
            first = await store.append("u1", TURN, turn_id="t1", position=0)
            last = await store.append("u1", [UserMessage("b"), AssistantMessage("B")], turn_id="t2", position=0)
            for key, seq in (("early", first), ("late", last), ("apart", None)):
                await store.put_record("u1", "k", key, "1", seq=seq)
            await store.fork("u1", "u2", at=first)
            assert [one.key for one in await store.list_records("u2", "k")] == ["early"]
            await store.rollback("u1", to=first)
            assert [one.key for one in await store.list_records("u1", "k")] == ["apart", "early"]

    @pytest.mark.asyncio
    async def test_pause_is_a_place_to_fork_at(self, make: Make) -> None:
        async with self.opened(make, "RecordKeeping", "Branching", "MessageLog") as store:
            seq = await store.append("u1", TURN[:2], turn_id="t1", position=0)
            with pytest.raises(InvalidInputError):
                await store.fork("u1", "u2", at=seq)
            await store.put_record("u1", "pause", "current", "{}", seq=seq)
            await store.fork("u1", "u2", at=seq)
            assert list(await store.get("u2")) == TURN[:2]

    # What is kept

    @pytest.mark.asyncio
    async def test_second_handle_sees_what_the_first_has_stored(self, make: Make) -> None:
        async with self.opened(make) as store, self.opened(make) as other:
            await store.add("u1", TURN)
            assert list(await other.get("u1")) == TURN
            await other.clear("u1")
            assert list(await store.get("u1")) == []

    def test_store_has_the_powers_it_claims(self, make: Make) -> None:
        store: ChatMemory = make()
        assert [name for name in sorted(self.powers) if not _power(store, name)] == []
