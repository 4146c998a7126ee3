"""What may be shown of a server's address: hosts and path. No password reaches a message, not even a mistyped one."""

import re

from agentcore.errors import ConfigurationError

_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\[\]:@]*)(?::[0-9]*)?\Z")


def shown_address(url: str, schemes: tuple[str, ...], example: str) -> str:
    """The address without user, password and options.

    The package that connects reads it again, and with a stray `/` or `@` in it would take a piece of the password for
    a host or a port and name it in its error. So such an address is refused here, in words that show none of it.

    Args:
        url: the address.
        schemes: those it may have.
        example: how one reads, for messages.

    Raises:
        ConfigurationError: it is no such address.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.lower() not in schemes:
        raise ConfigurationError(f"the address of this store reads {example}")
    place, _, options = rest.partition("?")
    authority, slash, path = place.partition("/")
    if authority.count("@") > 1 or "@" in path or "#" in rest:
        raise ConfigurationError(
            f"the address of this store has an '@', '/' or '#' in the wrong place; it reads {example}, and in user and "
            "password these are written %40, %2F and %23"
        )
    hosts = authority.rpartition("@")[2]
    if not all(_HOST.match(host) for host in hosts.split(",")) or not all("=" in one for one in _parts(options)):
        raise ConfigurationError(
            f"host and port in the address of this store cannot be told apart; it reads {example}, the port is a "
            "number, and in user and password ':', '/' and '?' are written %3A, %2F and %3F"
        )
    return f"{scheme.lower()}://{hosts}{slash}{path}"


def _parts(options: str) -> list[str]:
    return options.split("&") if options else []
