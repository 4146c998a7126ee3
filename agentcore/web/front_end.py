"""What front ends that keep a history of their own send with each request: what of it is new, and its media."""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Sequence

from agentcore.chat import ToolDefinition
from agentcore.client import ChatClient
from agentcore.messages import AudioPart, FilePart, ImagePart, Message, Part, UserMessage
from agentcore.web.answers import Refusal
from agentcore.web.bodies import is_web_address


def unsaid(said: Sequence[UserMessage], stored: Sequence[Message]) -> Sequence[UserMessage]:
    """Of the user messages at the end of a front end's history: those that the record does not hold yet.

    There are several where earlier turns failed or were stopped before an answer came; the failed ones are stored
    nowhere, the stopped ones are. The last one is always new: a user may say the same thing twice.
    """
    known = [message for message in stored if isinstance(message, UserMessage)]
    for count in range(min(len(said) - 1, len(known)), 0, -1):
        if list(said[:count]) == known[-count:]:
            return said[count:]
    return said


def media_part(
    media_type: str | None, *, url: str | None = None, data: str | None = None, name: str | None = None
) -> Part:
    """An image, a sound or a document as a part: by what it is said to be, from a URL, a data URL or base64 text.

    Raises:
        Refusal: 422: it cannot be read, or the URL is none that a provider could fetch.
    """
    if url is not None and url.startswith("data:"):
        head, comma, data = url.partition(",")
        if not comma or not head.endswith(";base64"):
            raise Refusal(422, "invalid_input", "a data URL has to be data:<media type>;base64,<data>")
        media_type, url = head[5:-7].split(";")[0] or media_type, None
    if url is not None and not is_web_address(url):
        raise Refusal(422, "invalid_input", "a file's url has to begin with https://, http:// or data:")
    content = None if data is None else _decoded(data)
    kind, _, subtype = (media_type or "").partition("/")
    if subtype in ("", "*"):  # all that is known of a URL may be that it leads to an image
        media_type = None
    if content is not None and media_type is None:
        raise Refusal(422, "invalid_input", "a file that is sent as data needs its media type")
    match kind:
        case "image":
            return ImagePart(url=url, data=content, media_type=media_type)
        case "audio":
            return AudioPart(url=url, data=content, media_type=media_type)
        case _:
            return FilePart(url=url, data=content, media_type=media_type, name=name)


def _decoded(data: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except (Base64Error, ValueError) as error:
        raise Refusal(422, "invalid_input", "the data of a file is not base64") from error


async def callers_tools(client: ChatClient, definitions: Iterable[ToolDefinition]) -> Sequence[ToolDefinition]:
    """The tools that a request brings along, none of which takes the place of one of the client's.

    Raises:
        Refusal: 422: a name that the client uses itself, or two of one name.
    """
    brought = list(definitions)
    if not brought:
        return brought
    taken = {one.name for one in await client.tools()}
    for one in brought:
        if not one.name or one.name in taken:
            raise Refusal(
                422, "invalid_input", f"the tool name {one.name!r} is empty, given twice, or used here already"
            )
        taken.add(one.name)
    return brought
