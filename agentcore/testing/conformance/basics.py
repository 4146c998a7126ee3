"""The three basic methods: an unknown conversation is empty, appends are atoms, what is handed out is a copy."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agentcore.errors import InvalidInputError
from agentcore.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage
from agentcore.testing.conformance.setting import ANOTHER, CANCELLATIONS, TURN, Conformance, cancelled_at, needs, texts


class Basics(Conformance):
    """Tests of `ChatMemory`, and of `TailReading`."""

    @needs()
    async def test_it_has_the_powers_that_it_must_have(self, store: Any) -> None:
        from agentcore.testing.conformance.setting import has_power

        assert [name for name in sorted(self.powers) if not has_power(store, name)] == []

    @needs()
    async def test_unknown_conversation_is_empty(self, store: Any) -> None:
        assert list(await store.get("u1")) == []
        await store.clear("u1")
        assert list(await store.get("u1")) == []

    @needs()
    async def test_appends_keep_order_and_conversations_are_apart(self, store: Any) -> None:
        await store.add("u1", TURN[:1])
        await store.add("u2", [UserMessage("other")])
        await store.add("u1", TURN[1:])
        await store.add("u1", ())
        assert list(await store.get("u1")) == TURN
        assert list(await store.get("u2")) == [UserMessage("other")]

    @needs()
    async def test_clearing_forgets_one_conversation(self, store: Any) -> None:
        await store.add("u1", TURN)
        await store.add("u2", ANOTHER)
        await store.clear("u1")
        await store.clear("u1")
        assert list(await store.get("u1")) == []
        assert list(await store.get("u2")) == ANOTHER
        await store.add("u1", ANOTHER)
        assert list(await store.get("u1")) == ANOTHER

    @needs()
    async def test_ids_are_taken_as_they_are(self, store: Any) -> None:
        names = ["a", "A", "a ", "ä", "a\u0308", "a%", "a_b", "a'b", 'a"b', "a{b}", "晴🌤", "x" * 200, "0", "00", "-"]
        for name in names:
            await store.add(name, [UserMessage(name)])
        assert [texts(await store.get(name)) for name in names] == [[name] for name in names]

    @needs()
    @pytest.mark.parametrize("place", [0, 2, 4])
    async def test_append_with_something_that_is_no_message_stores_nothing(self, store: Any, place: int) -> None:
        await store.add("u1", ANOTHER)
        stranger: list[Any] = [*TURN[:place], {"role": "user", "content": "x"}, *TURN[place:]]
        for name in ("u1", "u2"):
            with pytest.raises(InvalidInputError, match=f"item {place}"):
                await store.add(name, stranger)
        assert list(await store.get("u1")) == ANOTHER
        assert list(await store.get("u2")) == []

    @needs()
    async def test_list_that_was_given_is_not_kept(self, store: Any) -> None:
        given = list(TURN)
        await store.add("u1", given)
        given.clear()
        assert list(await store.get("u1")) == TURN

    @needs()
    async def test_what_a_message_refers_to_is_not_kept(self, store: Any) -> None:
        args, writes, replay = {"x": [1]}, {"slot": [1]}, {"format": "f", "blocks": [{"n": 1}]}
        given: list[Message] = [
            AssistantMessage(None, (ToolCall("c1", "f", args),), replay=replay),
            ToolMessage("c1", "f", "1", writes=writes),
        ]
        await store.add("u1", given)
        args["x"].append(2)
        writes["slot"].append(2)
        replay["blocks"].clear()  # type: ignore[attr-defined]
        _check_unharmed(await store.get("u1"))

    @needs()
    async def test_what_is_handed_out_cannot_change_what_is_held(self, store: Any) -> None:
        held: list[Message] = [
            AssistantMessage(None, (ToolCall("c1", "f", {"x": [1]}),), replay={"format": "f", "blocks": [{"n": 1}]}),
            ToolMessage("c1", "f", "1", writes={"slot": [1]}),
        ]
        await store.add("u1", held)
        for read in await self._ways_to_read(store):
            messages = await read()
            messages[0].tool_calls[0].args["x"].append(2)
            messages[0].replay["blocks"].clear()
            messages[1].writes["slot"].append(2)
            if isinstance(messages, list):
                messages.clear()
            _check_unharmed(await store.get("u1"))

    async def _ways_to_read(self, store: Any) -> list[Callable[[], Any]]:
        async def records() -> list[Message]:
            return [record.message for record in await store.read("u1")]

        ways: list[Callable[[], Any]] = [lambda: store.get("u1")]
        if hasattr(store, "get_tail"):
            ways.append(lambda: store.get_tail("u1", 2))
        if hasattr(store, "read"):
            ways.append(records)
        return ways

    @needs()
    async def test_what_was_read_stays_as_it_was(self, store: Any) -> None:
        await store.add("u1", TURN)
        read = await store.get("u1")
        await store.add("u1", ANOTHER)
        await store.clear("u1")
        assert list(read) == TURN

    @needs()
    async def test_readers_never_see_half_an_append(self, store: Any, other: Any) -> None:
        done = asyncio.Event()
        seen: set[int] = set()

        async def read(handle: Any) -> None:
            while not done.is_set():
                seen.add(len(await handle.get("u1")) % len(TURN))
                await asyncio.sleep(0)

        readers = [asyncio.ensure_future(read(handle)) for handle in (store, other)]
        for _ in range(20):
            await store.add("u1", TURN)
            await asyncio.sleep(0)
        done.set()
        await asyncio.gather(*readers)
        assert seen == {0}

    @needs()
    async def test_many_tasks_lose_nothing_and_tear_nothing_apart(self, store: Any, other: Any) -> None:
        async def write(number: int) -> None:
            handle = other if number % 2 else store
            await handle.add(f"u{number % 7}", [UserMessage(str(number)), AssistantMessage(str(number))])

        await asyncio.gather(*(write(number) for number in range(210)))
        for name in range(7):
            held = texts(await store.get(f"u{name}"))
            assert held[::2] == held[1::2]
            assert sorted(held[::2], key=int) == [str(number) for number in range(name, 210, 7)]

    @needs()
    async def test_appends_of_one_conversation_keep_call_order(self, store: Any) -> None:
        await asyncio.gather(*(store.add("u1", [UserMessage(str(number))]) for number in range(20)))
        assert texts(await store.get("u1")) == [str(number) for number in range(20)]

    @needs()
    async def test_second_handle_sees_what_the_first_has_stored(self, store: Any, other: Any) -> None:
        await store.add("u1", TURN)
        assert list(await other.get("u1")) == TURN
        await other.clear("u1")
        assert list(await store.get("u1")) == []

    @needs()
    @pytest.mark.parametrize("when", CANCELLATIONS)
    async def test_cancelled_read_leaves_the_next_one_its_own_answer(self, store: Any, when: str) -> None:
        await store.add("u1", [UserMessage("one")])
        await store.add("u2", [UserMessage("two")])
        step = 1
        while await cancelled_at(store.get("u1"), step, when):
            assert texts(await store.get("u2")) == ["two"]
            step += 1
        assert texts(await store.get("u1")) == ["one"]

    @needs()
    @pytest.mark.parametrize("when", CANCELLATIONS)
    async def test_cancelled_add_is_done_or_not_done(self, store: Any, when: str) -> None:
        await store.add("u0", [UserMessage("zero")])
        step, reached = 1, True
        while reached:
            name = f"u{step}"
            reached = await cancelled_at(store.add(name, TURN), step, when)
            first = list(await store.get(name))
            assert first in ([], TURN)
            assert texts(await store.get("u0")) == ["zero"]
            await store.add(name, ANOTHER)
            assert list(await store.get(name)) == [*first, *ANOTHER]  # nothing comes in behind
            step += 1

    @needs("TailReading")
    @pytest.mark.parametrize("count", [0, 1, 2, 3, 6, 8, 99])
    async def test_tail_is_the_end_after_the_system_messages_from_before(self, store: Any, count: int) -> None:
        history: list[Message] = [SystemMessage("s1"), UserMessage("a"), AssistantMessage("A"), SystemMessage("s2")]
        history += [UserMessage("b"), AssistantMessage("B"), UserMessage("c"), AssistantMessage("C")]
        await store.add("u1", history[:3])
        await store.add("u1", history[3:])
        start = max(0, len(history) - count)
        expected = [m for m in history[:start] if isinstance(m, SystemMessage)] + history[start:]
        assert list(await store.get_tail("u1", count)) == expected
        assert list(await store.get_tail("unknown", count)) == []


def _check_unharmed(messages: Sequence[Message]) -> None:
    call, result = messages
    assert isinstance(call, AssistantMessage)
    assert isinstance(result, ToolMessage)
    assert call.tool_calls[0].args == {"x": [1]}
    assert call.replay == {"format": "f", "blocks": [{"n": 1}]}
    assert result.writes == {"slot": [1]}
