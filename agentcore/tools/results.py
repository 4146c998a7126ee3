"""What a tool gives back, as content a model can read."""

import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from agentcore.messages import AudioPart, Content, FilePart, ImagePart, Part, TextPart
from agentcore.schema import json_default
from agentcore.usage import Usage

MAX_INLINE_BYTES = 64 * 1024
"""Longest binary result that is shown as base64."""

_PARTS = (TextPart, ImagePart, AudioPart, FilePart)


class ToolResult(Struct, frozen=True):
    """A tool's value together with what it writes to the tool context.

    Attributes:
        value: anything with a JSON form; what the model is told.
        writes: slots of the context and their new values, folded in at the end of the batch, in call order.
        usage: tokens that the tool itself took from models; they count as the turn's.
    """

    value: Any = None
    writes: Mapping[str, Any] | None = None
    usage: Usage | None = None


class UnpresentableResultError(Exception):
    """The tool ran, but what it returned has no form a model could read."""


def plain_writes(writes: Mapping[str, Any]) -> dict[str, Any]:
    """What a tool wrote, as the record can hold it: as JSON values; what has no JSON form by the name of its type."""
    made: dict[str, Any] = {}
    for key, value in writes.items():
        try:
            made[str(key)] = msgspec.json.decode(msgspec.json.encode(value, enc_hook=json_default))
        except (TypeError, ValueError, NotImplementedError, RecursionError):
            made[str(key)] = f"({type(value).__name__})"
    return made


def render(value: Any) -> Content:
    """A return value as content: text as it is, parts as parts, anything else as JSON.

    Raises:
        UnpresentableResultError: the value has no JSON form.
    """
    if isinstance(value, str):
        return readable(str.__str__(value))
    if isinstance(value, float):
        return _number(float(value))
    if isinstance(value, bytes | bytearray | memoryview):
        return _binary(bytes(cast("bytes", value)))
    if isinstance(value, _PARTS):
        return (_part(value),)
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        if any(isinstance(item, _PARTS) for item in items) and all(isinstance(item, (*_PARTS, str)) for item in items):
            return tuple([_part(cast("Part | str", item)) for item in items])
    encoded = _json(cast("object", value))
    text = encoded.decode()
    # A date, a decimal, a UUID, an enum of text: plain text reads better than a quoted string.
    return cast("str", msgspec.json.decode(encoded)) if text.startswith('"') else text


def _json(value: object) -> bytes:
    try:
        try:
            return msgspec.json.encode(value, enc_hook=json_default)
        except UnicodeEncodeError:
            return msgspec.json.encode(_readable_values(value), enc_hook=json_default)
    except Exception as error:  # properties and serializers of the value run here
        raise UnpresentableResultError(
            f"the tool ran, but its result of type {type(value).__name__} has no JSON form ({error})"
        ) from error


def _part(item: Part | str) -> Part:
    if isinstance(item, str):
        return TextPart(readable(str.__str__(item)))
    return TextPart(readable(item.text)) if isinstance(item, TextPart) else item


def readable(text: str) -> str:
    """The text with lone surrogates replaced, which no wire format can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def shorten(content: Content, max_chars: int | None) -> Content:
    """The content with text beyond `max_chars` cut out of its middle, and a mark that says so."""
    if max_chars is None:
        return content
    if isinstance(content, str):
        return _cut(content, max_chars)
    return tuple([TextPart(_cut(part.text, max_chars)) if isinstance(part, TextPart) else part for part in content])


def _cut(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    head = max_chars * 2 // 3
    tail = max_chars - head
    return f"{text[:head]}\n[… {len(text) - max_chars} of {len(text)} characters cut …]\n{text[len(text) - tail :]}"


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return msgspec.json.encode(value).decode()


def _binary(value: bytes) -> str:
    if len(value) > MAX_INLINE_BYTES:
        raise UnpresentableResultError(
            f"the tool ran, but its result is {len(value)} bytes of binary data, too much to show as text"
        )
    return f"[{len(value)} bytes of binary data, base64] {b64encode(value).decode()}"


def _readable_values(value: object) -> object:
    plain = msgspec.to_builtins(value, enc_hook=json_default)

    def clean(node: Any) -> Any:
        if isinstance(node, str):
            return readable(node)
        if isinstance(node, dict):
            return {clean(key): clean(item) for key, item in cast("dict[Any, Any]", node).items()}
        if isinstance(node, list | tuple):
            return [clean(item) for item in cast("list[Any]", node)]
        return node

    return clean(plain)
