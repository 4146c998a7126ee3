"""Keys: held so that no repr, log or traceback shows them, and taken out of texts that echo them."""

import os
from collections.abc import Iterable, Mapping
from typing import Self
from urllib.parse import quote

from agentcore.errors import ConfigurationError

_SHOWN = "[secret]"
_SHORTEST = 4  # a shorter text would tear words apart, and protects nothing
_PIECE = 8


class Secret:
    """A text that is never shown: `reveal` is the only way to it."""

    __slots__ = ("_reveal",)

    def __init__(self, value: str) -> None:
        self._reveal = lambda: value  # a closure, so that not even vars() or a debugger's repr shows it

    @classmethod
    def of(cls, value: "str | Secret | None") -> Self | None:
        """The value, hidden; None stays None."""
        return None if value is None else cls(value.reveal() if isinstance(value, Secret) else value)

    def reveal(self) -> str:
        """The text itself."""
        return self._reveal()

    def __repr__(self) -> str:
        return _SHOWN


def find_key(given: Secret | None, variable: str | None, *, needed: bool, what: str) -> Secret | None:
    """The key that was given, or the environment variable's; white space around it does not count.

    Raises:
        ConfigurationError: there is none, or an empty one, and the service needs one; or no header can carry it.
    """
    place = f"set {variable}, or give api_key=…" if variable else "give api_key=…"
    key = _stripped(given) if given is not None else _from_environment(variable)
    if key is None:
        if needed or given is not None:
            raise ConfigurationError(f"{'an empty' if given is not None else 'no'} key for {what}: {place}")
        return None
    if not _fits_header(key, spaces=False):
        raise ConfigurationError(
            f"the key for {what} holds spaces or characters that no HTTP header can carry: {place}"
        )
    return key


def bearer(key: Secret) -> Secret:
    """The key as a bearer token (RFC 6750, 2.1)."""
    return Secret(f"Bearer {key.reveal()}")


def hidden_headers(headers: Mapping[str, str] | None) -> dict[str, Secret]:
    """Headers as the caller gave them, names in lower case, values hidden: gateways want keys of their own in them."""
    return {name.lower(): Secret(value) for name, value in (headers or {}).items()}


def check_headers(headers: Mapping[str, Secret]) -> None:
    """Refuse what no header can carry; said here, because the HTTP library's own error would quote the value.

    Raises:
        ConfigurationError: names the header, and does not show its value.
    """
    for name, value in headers.items():
        if not name or not name.isascii() or not name.isprintable() or any(c in ' ():,;"' for c in name):
            raise ConfigurationError(f"{name!r} is not the name of a header")
        if not _fits_header(value, spaces=True):
            raise ConfigurationError(f"the value of header {name!r} holds characters that no HTTP header can carry")


def redact(text: str, secrets: Iterable[Secret]) -> str:
    """The text without the secrets in it: whole, URL-encoded, or a piece of eight characters or more."""
    for secret in secrets:
        value = secret.reveal()
        if len(value) < _SHORTEST:
            continue
        text = text.replace(value, _SHOWN)
        encoded = quote(value, safe="")
        if encoded != value:
            text = _without_pieces(text.replace(encoded, _SHOWN), encoded)
        text = _without_pieces(text, value)
    return text


def _without_pieces(text: str, value: str) -> str:
    """Services quote the beginning of a refused key, and long messages are cut in the middle of it."""
    pieces = {value[start : start + _PIECE] for start in range(len(value) - _PIECE + 1)}
    kept: list[str] = []
    start = position = 0
    while position <= len(text) - _PIECE:
        if text[position : position + _PIECE] not in pieces:
            position += 1
            continue
        end = position + _PIECE
        while end < len(text) and text[end - _PIECE + 1 : end + 1] in pieces:
            end += 1
        kept += (text[start:position], _SHOWN)
        start = position = end
    return "".join((*kept, text[start:])) if kept else text


def _stripped(secret: Secret) -> Secret | None:
    value = secret.reveal().strip()
    return Secret(value) if value else None


def _from_environment(variable: str | None) -> Secret | None:
    return _stripped(Secret(os.environ.get(variable, ""))) if variable else None


def _fits_header(secret: Secret, *, spaces: bool) -> bool:
    value = secret.reveal()
    return value.isascii() and value.isprintable() and (spaces or " " not in value)
