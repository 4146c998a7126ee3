"""Every store of ours keeps what `agentcore.memory.base` promises."""

from pathlib import Path
from typing import Any

import pytest

from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.memory.postgres import PostgresChatMemory
from agentcore.memory.sqlite import SQLiteChatMemory
from agentcore.testing.store_conformance import ChatMemoryConformance, Make

ALL = {"MessageLog", "TailReading", "TurnLocking", "ConversationListing", "Branching", "RecordKeeping"}


class TestInMemory(ChatMemoryConformance):
    powers = ALL

    @pytest.fixture
    def make(self) -> Make:
        store = InMemoryChatMemory()
        return lambda: store


class TestSQLite(ChatMemoryConformance):
    powers = ALL

    @pytest.fixture
    def make(self, tmp_path: Path) -> Make:
        return lambda: SQLiteChatMemory(tmp_path / "a.db", synchronous="NORMAL")


class TestPostgres(ChatMemoryConformance):
    powers = ALL

    @pytest.fixture
    def make(self, postgres_dsn: str) -> Make:
        return lambda: PostgresChatMemory(postgres_dsn, pool_size=4)


class TestPostgresBehindAPooler(ChatMemoryConformance):
    powers = ALL

    @pytest.fixture
    def make(self, postgres_dsn: str) -> Make:
        return lambda: PostgresChatMemory(postgres_dsn, pool_size=4, pooler=True)


class Plain:
    """The least a store can be."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[Any, ...]] = {}

    async def get(self, conversation_id: str) -> Any:
        return self.held.get(conversation_id, ())

    async def add(self, conversation_id: str, messages: Any) -> None:
        from agentcore.memory.refusals import check_storable

        check_storable(messages)
        self.held[conversation_id] = (*self.held.get(conversation_id, ()), *messages)

    async def clear(self, conversation_id: str) -> None:
        self.held.pop(conversation_id, None)


class TestPlainStore(ChatMemoryConformance):
    @pytest.fixture
    def make(self) -> Make:
        store = Plain()
        return lambda: store
