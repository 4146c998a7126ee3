"""Keys: held so that no repr, log or traceback shows them, and taken out of texts that echo them."""

import os
from collections.abc import Iterable

from agentcore.errors import ConfigurationError

_SHOWN = "[secret]"


class Secret:
    """A text that is never shown: `reveal` is the only way to it."""

    __slots__ = ("_reveal",)

    def __init__(self, value: str) -> None:
        self._reveal = lambda: value  # a closure, so that not even vars() or a debugger's repr shows it

    def reveal(self) -> str:
        """The text itself."""
        return self._reveal()

    def __repr__(self) -> str:
        return _SHOWN


def find_key(given: str | None, variable: str | None, *, needed: bool, what: str) -> Secret | None:
    """The key that was given, or the environment variable's; white space around it does not count.

    Raises:
        ConfigurationError: there is none, or an empty one, and the service needs one.
    """
    key = given if given is not None else os.environ.get(variable, "") if variable else ""
    key = key.strip()
    if key:
        if not key.isascii() or any(character.isspace() for character in key):
            raise ConfigurationError(f"the key for {what} holds characters that no HTTP header can carry")
        return Secret(key)
    if needed or given is not None:
        place = f"set {variable}, or give api_key=…" if variable else "give api_key=…"
        raise ConfigurationError(f"{'an empty' if given is not None else 'no'} key for {what}: {place}")
    return None


def redact(text: str, secrets: Iterable[Secret]) -> str:
    """The text without the secrets in it."""
    for secret in secrets:
        value = secret.reveal()
        if len(value) >= 4:  # noqa: PLR2004 - a shorter one would tear words apart, and protects nothing
            text = text.replace(value, _SHOWN)
    return text
