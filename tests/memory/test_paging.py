"""Cursors that come back as they went, and prefixes whose end is the first text behind them."""

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from agentcore.errors import InvalidInputError
from agentcore.memory.base import ConversationInfo
from agentcore.memory.paging import ListingOrder, after_prefix, check_limit, cursor_of, make_page, page_key, read_cursor

characters = st.characters(exclude_categories=["Cs"]) | st.sampled_from("a\ud7ff\ue000\U0010ffff\U0010fffe\u0000")
texts = st.text(characters, max_size=5)
orders: st.SearchStrategy[ListingOrder] = st.sampled_from(["updated", "created"])


def info(conversation_id: str, updated_at: float = 2.0, created_at: float = 1.0) -> ConversationInfo:
    return ConversationInfo(conversation_id=conversation_id, version=1, created_at=created_at, updated_at=updated_at)


@given(texts, st.floats(0, 1e11), st.floats(0, 1e11), orders)
def test_cursor_is_read_back_to_the_last_digit(
    name: str, updated_at: float, created_at: float, order: ListingOrder
) -> None:
    one = info(name, updated_at, created_at)
    assert read_cursor(cursor_of(one, order), order) == page_key(one, order)


@given(st.text(max_size=40))
@example("W10=")
@example("bnVsbA==")
@example("é")
def test_anything_else_is_refused_without_being_repeated_at_length(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a cursor of a page"):
        read_cursor(text * 10, "updated")


def test_cursor_of_another_order_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'created'"):
        read_cursor(cursor_of(info("a"), "created"), "updated")


@given(texts, texts, texts)
def test_texts_with_a_prefix_are_those_between_it_and_what_comes_after(prefix: str, rest: str, other: str) -> None:
    end = after_prefix(prefix)
    for text in (prefix + rest, other):
        between = prefix <= text and (end is None or text < end)
        assert between == text.startswith(prefix)


@pytest.mark.parametrize("limit", [0, -1])
def test_page_without_room_is_refused(limit: int) -> None:
    with pytest.raises(InvalidInputError, match=f"at least 1, not {limit}"):
        check_limit(limit)


@pytest.mark.parametrize(("found", "more"), [(0, False), (2, False), (3, True)])
def test_page_has_a_cursor_if_there_is_more(found: int, more: bool) -> None:
    page = make_page([info(f"u{number}") for number in range(found)], 2, "updated")
    assert [one.conversation_id for one in page.conversations] == ["u0", "u1"][:found]
    assert (page.after is not None) == more
