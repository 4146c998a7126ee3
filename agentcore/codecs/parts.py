"""Parts of a content as OpenAI's formats carry them: inline as data URLs, and named when they cannot be carried."""

from base64 import b64encode

from agentcore.errors import UnsupportedContentError
from agentcore.messages import AudioPart, FilePart, ImagePart, Part, TextPart


def cannot_carry(provider: str, what: str, index: int, position: int | None = None) -> UnsupportedContentError:
    """The error of a part that a format cannot carry: what, where, and the cure."""
    where = f"message {index}" if position is None else f"message {index}, part {position}"
    return UnsupportedContentError(f"{provider} cannot carry {what} ({where}); convert it or use a provider that can")


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


def data_url(media_type: str | None, data: bytes | None) -> str:
    """Bytes as a `data:` URL."""
    return f"data:{media_type};base64,{b64encode(data or b'').decode()}"
