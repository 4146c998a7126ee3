"""Which conversations there are: pages that are exact, and old ones that are let go."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from agentcore.errors import InvalidInputError
from agentcore.memory.base import ConversationInfo, ConversationPage
from agentcore.messages import UserMessage
from agentcore.testing.conformance.setting import ANOTHER, TURN, Conformance, needs


async def pages(store: Any, **settings: Any) -> AsyncGenerator[ConversationPage]:
    """Walk through all pages."""
    after: str | None = None
    while True:
        page: ConversationPage = await store.list_conversations(after=after, **settings)
        yield page
        after = page.after
        if after is None:
            return


def ids(page: ConversationPage) -> list[str]:
    """The conversations of a page."""
    return [info.conversation_id for info in page.conversations]


async def forget_all(store: Any) -> int:
    """Forget whatever is older than now; the store's clock has to move on first."""
    for _ in range(10_000):
        count = await store.delete_inactive(0)
        if count:
            return int(count)
    raise AssertionError("nothing was forgotten: the store's clock stands still")


class Listing(Conformance):
    """Tests of `ConversationListing`."""

    @needs("ConversationListing")
    @pytest.mark.parametrize("limit", [1, 2, 3, 9, 50])
    async def test_walk_by_beginning_is_exact_while_conversations_change(self, store: Any, limit: int) -> None:
        names = [f"u{number}" for number in range(9)]
        for name in names:
            await store.add(name, [UserMessage("x")])
        seen: list[str] = []
        async for page in pages(store, limit=limit, order="created"):
            assert len(page.conversations) <= limit
            seen += ids(page)
            await store.add("u0", [UserMessage("again")])
            await store.add(f"new{len(seen)}", [UserMessage("x")])
        assert seen == names[::-1]

    @needs("ConversationListing")
    @pytest.mark.parametrize("order", ["created", "updated"])
    async def test_pages_put_together_are_the_list(self, store: Any, order: str) -> None:
        for name in ("a", "b", "c", "d", "e", "b"):
            await store.add(name, [UserMessage("x")])
        expected = ["b", "e", "d", "c", "a"] if order == "updated" else ["e", "d", "c", "b", "a"]
        for limit in (1, 2, 4, 5, 6):
            walked = [ids(page) async for page in pages(store, limit=limit, order=order)]
            assert [name for page in walked for name in page] == expected
            assert all(len(page) == limit for page in walked[:-1])
            assert walked[-1] != []

    @needs("ConversationListing")
    async def test_store_that_is_empty_has_one_empty_page(self, store: Any) -> None:
        page = await store.list_conversations()
        assert (list(page.conversations), page.after) == ([], None)

    @needs("ConversationListing")
    async def test_listing_by_prefix_holds_what_begins_with_it(self, store: Any) -> None:
        for name in ("a", "ab", "abc", "b", "AB", "a%b", "a_b", "ä"):
            await store.add(name, [UserMessage("x")])
        for prefix in ("", "a", "ab", "a%", "a_", "A", "x", "ä"):
            found = sorted(ids(await store.list_conversations(prefix=prefix)))
            expected = sorted(n for n in ("a", "ab", "abc", "b", "AB", "a%b", "a_b", "ä") if n.startswith(prefix))
            assert found == expected, prefix
        walked = [name async for page in pages(store, limit=1, prefix="ab") for name in ids(page)]
        assert walked == ["abc", "ab"]

    @needs("ConversationListing")
    @pytest.mark.parametrize(
        "settings",
        [{"after": "nonsense"}, {"after": ""}, {"after": "W10="}, {"limit": 0}, {"limit": -1}],
        ids=["no cursor", "empty cursor", "another thing encoded", "no room", "less than no room"],
    )
    async def test_cursor_that_is_none_and_page_without_room_are_refused(
        self, store: Any, settings: dict[str, Any]
    ) -> None:
        await store.add("u1", TURN)
        with pytest.raises(InvalidInputError):
            await store.list_conversations(**settings)

    @needs("ConversationListing")
    async def test_info_tells_what_is_known(self, store: Any) -> None:
        assert await store.conversation_info("u1") is None
        await store.add("u1", TURN)
        first: ConversationInfo = await store.conversation_info("u1")
        assert (first.conversation_id, first.parent_id, first.parent_seq) == ("u1", None, None)
        await store.add("u1", ANOTHER)
        second: ConversationInfo = await store.conversation_info("u1")
        assert second.version > first.version
        assert second.created_at == first.created_at <= first.updated_at <= second.updated_at
        assert list((await store.list_conversations()).conversations) == [second]

    @needs("ConversationListing")
    async def test_conversation_that_was_cleared_is_not_listed_and_begins_anew(self, store: Any) -> None:
        await store.add("u1", TURN)
        await store.add("u2", TURN)
        await store.clear("u1")
        assert await store.conversation_info("u1") is None
        assert ids(await store.list_conversations()) == ["u2"]
        await store.add("u1", TURN)
        assert ids(await store.list_conversations(order="created")) == ["u1", "u2"]

    @needs("ConversationListing", "RecordKeeping")
    async def test_conversation_with_records_alone_is_not_listed(self, store: Any) -> None:
        await store.put_record("u1", "k", "a", "1")
        assert await store.conversation_info("u1") is None
        assert ids(await store.list_conversations()) == []

    @needs("ConversationListing", "TurnLocking")
    async def test_conversation_that_is_only_held_is_not_listed(self, store: Any) -> None:
        async with store.lock_turn("u1"):
            assert await store.conversation_info("u1") is None
            assert ids(await store.list_conversations()) == []

    @needs("ConversationListing")
    async def test_retention_spares_what_is_new(self, store: Any) -> None:
        await store.add("u1", TURN)
        await store.add("u2", TURN)
        assert await store.delete_inactive(3600) == 0
        assert len(await store.get("u1")) == len(TURN)
        assert await forget_all(store) in (1, 2)  # the younger one may be of this very moment
        await store.clear("u2")
        assert list(await store.get("u1")) == []

    @needs("ConversationListing", "TurnLocking")
    async def test_retention_spares_what_a_turn_holds(self, store: Any, other: Any) -> None:
        await store.add("u1", TURN)
        await store.add("u2", TURN)
        async with store.lock_turn("u1"):
            assert await forget_all(other) == 1
            assert await store.delete_inactive(0) == 0
        async with other.lock_turn("u1"):
            assert await store.delete_inactive(0) == 0
        assert list(await store.get("u1")) == TURN
        assert list(await store.get("u2")) == []
        assert await forget_all(store) == 1

    @needs("ConversationListing", "MessageLog")
    async def test_number_is_not_given_again_after_retention(self, store: Any) -> None:
        version = await store.append("u1", TURN, turn_id="t1", position=0)
        await forget_all(store)
        assert await store.append("u1", TURN, turn_id="t2", position=0) > version

    @needs("ConversationListing", "Branching")
    async def test_retention_counts_only_what_has_messages(self, store: Any) -> None:
        await store.add("u1", TURN)
        await store.add("u2", TURN)
        await store.rollback("u1", to=0)
        await store.clear("u2")
        await store.add("u3", TURN)
        assert await forget_all(store) == 1
        assert await store.delete_inactive(0) == 0
