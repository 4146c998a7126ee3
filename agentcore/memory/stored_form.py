"""The JSON text that SQL stores hold for a message: it reads back equal, and operators can read it too."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from agentcore.errors import InvalidInputError, StoreError
from agentcore.messages import Message

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Message).decode

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(?:(ud[89ab][0-9a-f]{2})\\u(D[C-F][0-9A-F]{2})|.)")


def to_text(message: Message) -> str:
    r"""The JSON text of a message.

    It is valid JSON in UTF-8 whatever the message's strings hold. A lone surrogate, which UTF-8 cannot carry, is
    written as its escape (`\ud800`); two that stand next to each other and yet are no pair, with the second in capitals
    (`\ud83d\uDE00`), since in JSON their escapes would be one character. Numbers that JSON lacks become `null`.

    Raises:
        InvalidInputError: something in it has no JSON form; its type is named, its value is not.
    """
    try:
        return _encode(message).decode()
    except UnicodeEncodeError:
        return _with_surrogates(message)
    except (TypeError, ValueError, RecursionError) as error:
        raise _no_form(message, error) from error


def from_text(text: str | bytes) -> Message:
    """The message that a text of `to_text` stands for.

    Raises:
        StoreError: it is no text of a message; its content is not shown.
    """
    try:
        if (b"\\uD" in text) if isinstance(text, bytes) else ("\\uD" in text):
            return _from_escapes(text)
        return _decode(text)
    except msgspec.ValidationError as error:
        raise _unreadable(error) from error
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _from_escapes(text)


def to_texts(messages: Iterable[Message]) -> list[str]:
    """The texts of messages; see `to_text`."""
    return [to_text(message) for message in messages]


def from_texts(texts: Iterable[str | bytes]) -> tuple[Message, ...]:
    """The messages of texts; see `from_text`."""
    return tuple([from_text(text) for text in texts])


def role_of(message: Message) -> str:
    """The role of a message, which stores keep beside its text to look for."""
    return cast("str", type(message).__struct_config__.tag)


def _with_surrogates(message: Message) -> str:
    try:
        plain = _finite(msgspec.to_builtins(message, str_keys=True))
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise _no_form(message, error) from error
    return _SURROGATE.sub(_escaped, text)


def _escaped(found: "re.Match[str]") -> str:
    code = ord(found[0])
    splits = found.start() > 0 and code >= 0xDC00 and "\ud800" <= found.string[found.start() - 1] <= "\udbff"
    return f"\\u{code:04X}" if splits else f"\\u{code:04x}"


def _from_escapes(text: str | bytes) -> Message:
    """What msgspec does not read, or reads as one character where there were two (only those have capitals)."""
    try:
        text = text.decode() if isinstance(text, bytes) else text
        return msgspec.convert(json.loads(_ESCAPE.sub(_split, text)), Message)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise _unreadable(error) from error


def _split(found: "re.Match[str]") -> str:
    high, low = found[1], found[2]
    return found[0] if high is None else f"\\{high}{chr(int(low, 16))}"


def _finite(value: Any) -> Any:
    """What msgspec makes of numbers that JSON lacks, for the other encoder."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in cast("Sequence[Any]", value)]
    return value


def _no_form(message: Message, error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"a {type(message).__name__} cannot be stored, since something in it has no JSON form ({error}); use text, "
        "numbers, booleans, None, lists and dicts; nothing was stored"
    )


def _unreadable(error: Exception) -> StoreError:
    return StoreError(
        f"a stored message cannot be read ({type(error).__name__}): it was damaged, changed from outside, or written "
        "by a newer agentcore; restore it, or clear the conversation"
    )
