"""The demo holds what it promises with a real model, and fails where the promise is broken."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.cli import demo as demo_module
from agentcore.cli.demo import demo
from agentcore.cli.sample_tools import calculate
from agentcore.filters.base import ChatCall
from agentcore.messages import UserMessage
from agentcore.providers.openai import OpenAIChatModel
from agentcore.tools.errors import ToolError
from tests.support.loopback import Loopback, Reply, chunk, json_reply, sse

pytestmark = pytest.mark.asyncio
DONE = b"data: [DONE]\n\n"


@pytest.mark.real
@pytest.mark.timeout(400)
async def test_demo_works_with_the_real_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert await demo() == 0
    output = capsys.readouterr().out
    for wire in ("OpenAI Chat Completions", "Anthropic Messages"):
        assert f"smollm2-135m over {wire}: " in output
    assert "talks nonsense at times" in output


def calling() -> Reply:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "roll_dice", "arguments": "{}"}}
    event = {"id": "r", "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    return sse(b"data: " + json.dumps(event).encode() + b"\n\n" + DONE)


def streamed(*pieces: str) -> Reply:
    return sse(*(chunk(piece) for piece in pieces), chunk(finish="stop") + DONE)


def whole(text: str) -> Reply:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json_reply({"id": "r", "choices": [choice]})


async def failing_demo(monkeypatch: pytest.MonkeyPatch, *replies: Reply) -> int:
    async with Loopback(*replies) as server:

        @asynccontextmanager
        async def serve() -> AsyncGenerator[Any, None]:
            yield SimpleNamespace(url=server.url, model="m")

        monkeypatch.setattr(demo_module, "serve_local_model", serve)
        return await demo()


async def test_demo_fails_when_no_tool_ran(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert await failing_demo(monkeypatch, streamed("a", "b")) == 1
    assert "no tool was run" in capsys.readouterr().err


async def test_demo_fails_when_text_does_not_stream(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await failing_demo(monkeypatch, calling(), whole("one"), whole("two")) == 1
    assert "did not come as a stream" in capsys.readouterr().err


async def test_demo_fails_when_memory_is_not_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Forgets(demo_module.Watch):
        """Sees, and lets the model see, the newest message only."""

        async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
            newest = request.messages[-1:]
            if isinstance(newest[0], UserMessage):
                request = replace(request, messages=newest)
            return await super().around_chat(request, call_next)

    monkeypatch.setattr(demo_module, "Watch", Forgets)
    assert await failing_demo(monkeypatch, calling(), streamed("a", "b"), streamed("c", "d")) == 1
    shown = capsys.readouterr()
    assert "did not hold" in shown.err
    assert "this time" not in shown.out  # no second chance for what is not the model's doing


async def test_model_that_does_not_play_along_gets_another_conversation(capsys: pytest.CaptureFixture[str]) -> None:
    idle = [streamed("a", "b")] * 2
    async with Loopback(*idle, calling(), streamed("c", "d"), streamed("e", "f")) as server:
        await demo_module._show_wire("wire", lambda: OpenAIChatModel("m", base_url=f"{server.url}/v1"))
    output = capsys.readouterr().out
    assert "[this time no tool was run]" in output
    assert "[m over wire: 3 model calls, 1 tool calls" in output


async def test_recorded_tool_keeps_its_face_and_counts_only_runs_that_returned() -> None:
    ran: list[str] = []
    recorded = demo_module._recorded(calculate, ran)
    assert (recorded.name, recorded.description) == (calculate.name, calculate.description)
    assert recorded.parameters == calculate.parameters
    with pytest.raises(ToolError):
        recorded("x")
    assert ran == []
    assert recorded("1 + 1") == 2
    assert ran == ["calculate"]
