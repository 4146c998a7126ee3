"""A turn that is stopped, or superseded, from another process: what its reader was given is stored."""

import asyncio
from pathlib import Path

import pytest

from agentcore import ChatClient, SQLiteChatMemory, TextDelta
from agentcore.memory import leases
from agentcore.testing import Reply, ScriptedModel

pytestmark = pytest.mark.asyncio


async def never() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("how", ["stopped", "superseded"])
async def test_turn_keeps_what_was_delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(leases, "WATCH_SECONDS", 0.02)
    path = tmp_path / "chats.db"
    async with (
        SQLiteChatMemory(path) as one,
        SQLiteChatMemory(path) as two,  # as another process would have it
        ChatClient(ScriptedModel([Reply(text=["Once ", "upon"], wait_between=never)]), memory=one) as client,
        ChatClient(ScriptedModel(["Well."]), memory=two, on_busy="supersede") as elsewhere,
    ):
        async with client.stream("A tale", conversation_id="u1") as turn:
            async for event in turn:
                assert event == TextDelta("Once ")
                if how == "stopped":
                    await elsewhere.conversation("u1").stop_turn()
                else:
                    assert (await elsewhere.invoke("Well?", conversation_id="u1")).text == "Well."
        assert turn.result.status == "cancelled"
        kept = [message.content for message in await two.get("u1")]
    assert kept == ["A tale", "Once ", *([] if how == "stopped" else ["Well?", "Well."])]
