"""What the routes are sent: bodies of a bounded size, as the types they have to be."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request

from agentcore.messages import Part, TextPart, UserMessage
from agentcore.pause import Decision
from agentcore.web.answers import Refusal

T = TypeVar("T")

_LONGEST_NUMBER = 18  # digits; Python makes no numbers of thousands of them


class NewTurn(Struct, forbid_unknown_fields=True):
    """The body of a new turn: what the user says, as text or parts. Nobody can send what the model, a tool or the app
    would have said.
    """

    message: str | list[Part]

    def messages(self) -> Sequence[UserMessage]:
        """What the user says.

        Raises:
            Refusal: 422: a URL that a provider could not fetch, or that means something on its machine.
        """
        for part in () if isinstance(self.message, str) else self.message:
            if not isinstance(part, TextPart) and part.url is not None and not is_web_address(part.url):
                raise Refusal(422, "invalid_input", "a file's url has to begin with https:// or http://")
        return (UserMessage(self.message if isinstance(self.message, str) else tuple(self.message)),)


class Decisions(Struct, forbid_unknown_fields=True):
    """The body of a resumption."""

    decisions: list[Decision]


def is_web_address(url: str) -> bool:
    """Whether a provider can be told to fetch a URL."""
    return url.startswith(("https://", "http://"))


async def read_json(request: Request, type_: type[T], *, max_bytes: int) -> T:
    """The body as a value of a type.

    Raises:
        Refusal: it is not JSON by its content type (415: which also keeps other sites' forms out), too large (413), or
            not of the type (422).
    """
    body = await read_json_text(request, max_bytes=max_bytes)
    try:
        return msgspec.json.decode(body, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # the last: nested too deeply
        raise Refusal(422, "invalid_input", f"the body is not what it should be: {error}") from error


def read_number(text: str) -> int | None:
    """A number of ordinary size that is sent as text; None if it is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER else None


async def read_json_text(request: Request, *, max_bytes: int) -> bytes:
    """The body as it came, said to be JSON.

    Raises:
        Refusal: its content type is another (415: which also keeps other sites' forms out), or it is too large (413).
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "media_type", "send the body as application/json")
    return await read_body(request, max_bytes=max_bytes)


async def read_body(request: Request, *, max_bytes: int) -> bytes:
    """The body, unless it is larger than it may be.

    Raises:
        Refusal: 413.
    """
    too_large = Refusal(413, "too_large", f"the body is larger than {max_bytes:,} bytes")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > _LONGEST_NUMBER or int(declared) > max_bytes):
        raise too_large
    parts = bytearray()
    async for chunk in request.stream():
        parts += chunk
        if len(parts) > max_bytes:
            raise too_large
    return bytes(parts)
