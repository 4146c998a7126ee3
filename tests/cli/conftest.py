"""The commands keep conversations where the test says, never in the data directory of whoever runs it."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def kept_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of the store that commands use."""
    url = f"sqlite:///{tmp_path / 'data' / 'conversations.db'}"
    monkeypatch.setenv("AGENTCORE_MEMORY", url)
    return url
