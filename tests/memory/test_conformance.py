"""Every store of ours keeps what `agentcore.memory.base` promises."""

import asyncio
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from agentcore.errors import InvalidInputError
from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.memory.postgres import PostgresChatMemory
from agentcore.memory.redis import RedisChatMemory
from agentcore.memory.refusals import check_storable
from agentcore.memory.sqlite import SQLiteChatMemory
from agentcore.messages import UserMessage
from agentcore.testing.conformance.setting import needs
from agentcore.testing.store_conformance import ChatMemoryConformance, Make
from tests.support.servers import PostgresServer

ALL = {"MessageLog", "TailReading", "TurnLocking", "ConversationListing", "Branching", "RecordKeeping"}
DURABLE = ALL | {"Leasing"}


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> Iterator[str]:
    """A database for all tests of this module: to make one takes longer than most of them."""
    asyncio.run(execute(postgres.dsn, "create database conformance"))
    yield postgres.dsn_of("conformance")
    asyncio.run(execute(postgres.dsn, "drop database conformance with (force)"))


@pytest.fixture
def empty_dsn(database: str) -> str:
    asyncio.run(execute(database, "drop schema public cascade; create schema public"))
    return database


async def execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(statement)
    await connection.close()


class OurStoreConformance(ChatMemoryConformance):
    """What our own stores do beyond it."""

    @needs("MessageLog")
    @pytest.mark.parametrize("position", [-1, 2**53, 2**70])
    async def test_position_that_is_none_stores_nothing(self, store: Any, position: int) -> None:
        await store.add("u1", [UserMessage("a")])
        with pytest.raises(InvalidInputError, match="position is the number"):
            await store.append("u1", [UserMessage("b")], turn_id="t", position=position)
        await store.add("u1", [UserMessage("c")])
        assert [one.message.content for one in await store.read("u1")] == ["a", "c"]


class TestInMemory(OurStoreConformance):
    powers = ALL

    @pytest.fixture
    def make(self) -> Make:
        store = InMemoryChatMemory()
        return lambda: store


class TestSQLite(OurStoreConformance):
    powers = DURABLE

    @pytest.fixture
    def make(self, tmp_path: Path) -> Make:
        return lambda: SQLiteChatMemory(tmp_path / "a.db", synchronous="NORMAL")


class TestPostgres(OurStoreConformance):
    powers = DURABLE

    @pytest.fixture
    def make(self, empty_dsn: str) -> Make:
        return lambda: PostgresChatMemory(empty_dsn, pool_size=4)


class TestPostgresBehindAPooler(OurStoreConformance):
    powers = DURABLE

    @pytest.fixture
    def make(self, empty_dsn: str) -> Make:
        return lambda: PostgresChatMemory(empty_dsn, pool_size=4, pooler=True)


class TestRedis(OurStoreConformance):
    powers = DURABLE

    @pytest.fixture
    def make(self, redis_url: str, namespace: str) -> Make:
        return lambda: RedisChatMemory(redis_url, namespace=namespace)


class Plain:
    """The least a store can be."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[Any, ...]] = {}

    async def get(self, conversation_id: str) -> Any:
        return deepcopy(self.held.get(conversation_id, ()))

    async def add(self, conversation_id: str, messages: Any) -> None:
        check_storable(messages)
        self.held[conversation_id] = (*self.held.get(conversation_id, ()), *deepcopy(tuple(messages)))

    async def clear(self, conversation_id: str) -> None:
        self.held.pop(conversation_id, None)


class TestPlainStore(ChatMemoryConformance):
    @pytest.fixture
    def make(self) -> Make:
        store = Plain()
        return lambda: store
