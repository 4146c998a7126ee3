"""Pages of conversations, and the cursors between them: keyset paging, so that a page never moves another."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from agentcore.errors import InvalidInputError
from agentcore.memory.base import ConversationInfo, ConversationPage

ListingOrder: TypeAlias = Literal["updated", "created"]

_Cursor = tuple[ListingOrder, float, str]


def page_key(info: ConversationInfo, order: ListingOrder) -> tuple[float, str]:
    """What conversations are ordered by: the newest first, and by id where the time is the same."""
    return (info.updated_at if order == "updated" else info.created_at, info.conversation_id)


def cursor_of(info: ConversationInfo, order: ListingOrder) -> str:
    """The cursor that continues after a conversation."""
    # With escapes: an id in memory may hold half a character, which UTF-8 cannot.
    return urlsafe_b64encode(json.dumps((order, *page_key(info, order))).encode()).decode()


def read_cursor(cursor: str, order: ListingOrder) -> tuple[float, str]:
    """The key that a cursor stands for: the next page holds what is older than it.

    Raises:
        InvalidInputError: it is no cursor of this listing.
    """
    try:
        of_order, at, conversation_id = msgspec.convert(json.loads(urlsafe_b64decode(cursor)), _Cursor)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise InvalidInputError(f"after={cursor[:40]!r} is not a cursor of a page; give page.after back") from error
    if of_order != order:
        raise InvalidInputError(f"after=… came from a listing by {of_order!r}; go on with order={of_order!r}")
    return at, conversation_id


def check_limit(limit: int) -> None:
    """Refuse pages without room.

    Raises:
        InvalidInputError: the limit is not positive.
    """
    if limit < 1:
        raise InvalidInputError(f"limit is at least 1, not {limit}")


def make_page(found: Sequence[ConversationInfo], limit: int, order: ListingOrder) -> ConversationPage:
    """A page out of up to `limit + 1` conversations in order: the one too many tells that there are more."""
    shown = found[:limit]
    return ConversationPage(tuple(shown), cursor_of(shown[-1], order) if len(found) > limit else None)


def after_prefix(prefix: str) -> str | None:
    """The first text, in the order of code points, after all that begin with a prefix; None if there is none."""
    shortened = prefix.rstrip("\U0010ffff")
    if not shortened:
        return None
    following = ord(shortened[-1]) + 1
    return shortened[:-1] + chr(0xE000 if following == 0xD800 else following)
