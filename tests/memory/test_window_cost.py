"""What a windowed turn costs does not grow with its conversation: messages read are counted, not the time."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentcore import ChatClient, tool
from agentcore.memory.urls import chat_memory
from agentcore.memory.windowed import WindowedChatMemory
from agentcore.messages import AssistantMessage, Message, SystemMessage, ToolCall, UserMessage
from agentcore.testing import ScriptedModel

WINDOW = 20

WINDOWS: dict[str, dict[str, int]] = {
    "messages": {"max_messages": WINDOW},
    "turns": {"max_turns": WINDOW // 2},
    "tokens": {"max_tokens": 200},
}


class _Counting:
    """Put before a store's class: counts the messages that it hands out."""

    handed_out = 0

    async def get(self, conversation_id: str) -> Sequence[Message]:
        return self._count(await super().get(conversation_id))  # type: ignore[misc]

    async def get_tail(self, conversation_id: str, count: int) -> Sequence[Message]:
        return self._count(await super().get_tail(conversation_id, count))  # type: ignore[misc]

    async def read(self, conversation_id: str, **bounds: Any) -> Sequence[Any]:
        return self._count(await super().read(conversation_id, **bounds))  # type: ignore[misc]

    def _count(self, found: Sequence[Any]) -> Sequence[Any]:
        self.handed_out += len(found)
        return found


@tool
async def work() -> str:
    """Work."""
    return "done"


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "sqlite":
            return f"sqlite:///{tmp_path}/a.db"
        case "postgres":
            return str(request.getfixturevalue("postgres_dsn"))
        case "redis":
            return str(request.getfixturevalue("redis_url"))
        case _:
            return "memory:"


@pytest.mark.asyncio
@pytest.mark.parametrize("window", WINDOWS.values(), ids=list(WINDOWS))
async def test_windowed_turn_reads_no_more_of_a_long_conversation(
    url: str, window: dict[str, int], tmp_path: Path
) -> None:
    store: Any = chat_memory(url)
    store.__class__ = type("Counting", (_Counting, type(store)), {})
    name: Callable[[int], str] = lambda size: f"{tmp_path}-{size}"  # noqa: E731 - Redis is shared with other tests
    read: dict[int, int] = {}
    try:
        for size in (100, 4000):
            turns = [UserMessage("a question of some words"), AssistantMessage("an answer of some words")] * (size // 2)
            await store.add(name(size), [SystemMessage("Be brief."), *turns])
            model = ScriptedModel([[ToolCall("c1", "work"), ToolCall("c2", "work")], "an answer"])
            client = ChatClient(model, tools=[work], memory=WindowedChatMemory(store, **window))
            store.handed_out = 0
            result = await client.invoke("and now?", conversation_id=name(size))
            assert result.text == "an answer"
            assert model.requests[0].messages[0] == SystemMessage("Be brief.")
            assert len(model.requests[0].messages) < 2 * WINDOW
            read[size] = store.handed_out
            await store.clear(name(size))
    finally:
        if hasattr(store, "aclose"):
            await store.aclose()
    assert 0 < read[4000] <= read[100]


def test_table_of_windows_can_be_made() -> None:
    command = [sys.executable, "-m", "benchmarks.windows", "--quick"]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=100, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    for word in ("in memory", "SQLite"):
        assert word in done.stdout
