"""Who may use a conversation: the app says it, for every request."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from starlette.requests import Request

Authorizer: TypeAlias = Callable[[Request, str], Awaitable[Mapping[str, Any] | None]]
"""Asked with the request and the conversation id, before anything of the conversation is touched.

Returns the `tool_context` of the turn (the user's id, say), which may be empty; or None: the conversation is not this
user's, and the answer is 404, as for one that does not exist. For the list of conversations it is asked for each.
An app whose users are not known at all raises `starlette.exceptions.HTTPException(401)`.
"""


async def allow_everyone(request: Request, conversation_id: str) -> Mapping[str, Any]:
    """Everybody may do everything: for a page on your own machine, or behind something that has already decided."""
    return {}
