"""The store that the commands share: by URL, in the user's data directory if nothing else is said."""

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from agentcore.memory.base import ChatMemory
from agentcore.memory.urls import chat_memory

VARIABLE = "AGENTCORE_MEMORY"
"""Environment variable with the URL of the store."""


def default_url() -> str:
    """The URL of the store: from the environment, else a SQLite file in the user's data directory."""
    return os.environ.get(VARIABLE) or f"sqlite:///{data_directory() / 'conversations.db'}"


def data_directory() -> Path:
    """Where the commands keep what is the user's; it need not be there yet."""
    if sys.platform == "win32":
        home = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return home / "agentcore"


@asynccontextmanager
async def opened_store(url: str) -> AsyncGenerator[ChatMemory]:
    """The store for the length of the block; a SQLite file's directory is made if it is not there."""
    _make_directory(url)
    store = chat_memory(url)
    try:
        yield store
    finally:
        close = getattr(store, "aclose", None)
        if close is not None:
            await close()


def _make_directory(url: str) -> None:
    if url.startswith("sqlite:///"):
        Path(url.removeprefix("sqlite:///")).expanduser().parent.mkdir(parents=True, exist_ok=True)
