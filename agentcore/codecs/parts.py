"""Parts of a content as OpenAI's formats carry them: inline as data URLs, and named when they cannot be carried."""

from base64 import b64encode
from collections.abc import Callable, Sequence

from agentcore.errors import UnsupportedContentError
from agentcore.messages import AudioPart, FilePart, ImagePart, Message, Part, TextPart


def cannot_carry(provider: str, what: str, index: int, position: int | None = None) -> UnsupportedContentError:
    """The error of a part that a format cannot carry: what, where, and the cure."""
    where = f"message {index}" if position is None else f"message {index}, part {position}"
    return UnsupportedContentError(f"{provider} cannot carry {what} ({where}); convert it or use a provider that can")


def places_of(healed: Sequence[Message], messages: Sequence[Message]) -> Callable[[object, int], int]:
    """Where a content stands in the caller's own count, by its place in a history that healing may have changed."""
    if healed is messages:
        return lambda content, index: index
    places = {id(message.content): index for index, message in enumerate(messages)}
    return lambda content, index: places.get(id(content), index)


def kind_of(part: Part) -> str:
    """What a part is, for a message: `image (image/png)`, `file (by URL)`."""
    match part:
        case TextPart():
            return "text"
        case ImagePart():
            kind = "image"
        case AudioPart():
            kind = "audio"
        case FilePart():
            kind = "file"
    return f"{kind} ({'by URL' if part.url is not None else part.media_type})"


def bare_type(media_type: str | None) -> str:
    """A media type without its parameters, in lower case: `Audio/WAV; rate=16000` is `audio/wav`."""
    return (media_type or "").partition(";")[0].strip().lower()


def data_url(media_type: str | None, data: bytes | None) -> str:
    """Bytes as a `data:` URL."""
    return f"data:{media_type};base64,{b64encode(data or b'').decode()}"
