"""Stores by URL: `sqlite:///chats.db`, `postgresql://…`, `redis://…`, `memory:`."""

import os
import re
from importlib import import_module
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from agentcore.errors import ConfigurationError
from agentcore.memory.base import ChatMemory

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:")
_KNOWN = "sqlite:///path, postgresql://…, redis://… or memory:"
_EXTRAS = {"postgres": ("postgres", "PostgresChatMemory"), "redis": ("redis", "RedisChatMemory")}


def chat_memory(url: str) -> ChatMemory:
    """The store that a URL names; it is opened at its first use, and closed with `aclose`.

    Args:
        url: `sqlite:///relative/path.db` or `sqlite:////absolute/path.db` (`~` is the home directory);
            `postgresql://user:password@host/database`; `redis://host:port/0` (`rediss://` with TLS); or `memory:`,
            which keeps nothing beyond the process.

    Raises:
        ConfigurationError: no such kind of store, no path, or the package it needs is not installed.
    """
    found = _SCHEME.match(url.strip().lower())
    if found is None:  # nothing of it is shown: settings of another form ("host=… password=…") hold passwords
        raise ConfigurationError(f"what is no URL is no kind of store; write {_KNOWN}")
    scheme = found[0][:-1]
    match scheme:
        case "memory":
            from agentcore.memory.in_memory import InMemoryChatMemory

            return InMemoryChatMemory()
        case "sqlite":
            from agentcore.memory.sqlite import SQLiteChatMemory

            return SQLiteChatMemory(_path(url))
        case "postgresql" | "postgres":
            return _with_extra("postgres", url)
        case "redis" | "rediss":
            return _with_extra("redis", url)
        case _:
            raise ConfigurationError(f"{scheme!r} is no kind of store; write {_KNOWN}")


def _path(url: str) -> str:
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/") or len(path) < 2:
        raise ConfigurationError(
            "a SQLite URL has three slashes and a path: sqlite:///chats.db, or sqlite:////home/me/chats.db"
        )
    return os.path.expanduser(path[1:])


def _with_extra(module: str, url: str) -> ChatMemory:
    extra, name = _EXTRAS[module]
    try:
        made: Any = getattr(import_module(f"agentcore.memory.{module}"), name)
    except ImportError as error:
        raise ConfigurationError(
            f"this store needs a package: pip install 'agentcore-async[{extra}]' ({error.name} is missing)"
        ) from error
    return cast("ChatMemory", made(url))
