"""A page of the conversations that a user may see, out of a store that holds everybody's."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from agentcore.memory.base import ConversationInfo, ConversationListing
from agentcore.memory.paging import cursor_of

LOOKED_THROUGH = 2_000
"""How many conversations are looked through for one page at most."""

_AT_ONCE = 100


class OwnPage(NamedTuple):
    """Some of a user's conversations, newest first.

    Attributes:
        conversations: those of this page.
        after: what continues after them; None at the end. It names none but the user's own conversations.
        complete: whether all were looked through that are newer than the last one; if not, there may be more that can
            only be found by a prefix.
    """

    conversations: list[ConversationInfo]
    after: str | None
    complete: bool = True


async def own_page(
    store: ConversationListing,
    is_own: Callable[[str], Awaitable[bool]],
    *,
    limit: int,
    after: str | None,
    prefix: str,
) -> OwnPage:
    """Look through a store for a user's conversations, as far as one request may.

    Args:
        store: everybody's conversations.
        is_own: whether the user may see one.
        limit: how many at most.
        after: where the last page ended.
        prefix: what their ids begin with; the store looks only there.

    Raises:
        InvalidInputError: `after` is no cursor of this listing.
    """
    own: list[ConversationInfo] = []
    for _ in range(0, LOOKED_THROUGH, _AT_ONCE):
        page = await store.list_conversations(limit=_AT_ONCE, after=after, prefix=prefix)
        for info in page.conversations:
            if await is_own(info.conversation_id):
                own.append(info)
                if len(own) > limit:
                    return OwnPage(own[:limit], cursor_of(own[limit - 1], "updated"))
        after = page.after
        if after is None:
            return OwnPage(own, None)
    return OwnPage(own, cursor_of(own[-1], "updated") if own else None, complete=False)
