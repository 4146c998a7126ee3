"""The whole client over a real connection: both wire formats, faults, and that nothing is left open."""

import asyncio
import gc
import json
from collections.abc import Callable
from typing import Any

import pytest

from agentcore import (
    AnthropicChatModel,
    AssistantMessage,
    ChatClient,
    ConfigurationError,
    ImagePart,
    InMemoryChatMemory,
    OpenAIChatModel,
    ProviderError,
    TextDelta,
    ToolMessage,
    UnsupportedContentError,
    UserMessage,
    check_history,
    tool,
)
from agentcore.messages import AudioPart
from agentcore.providers.http_model import HTTPChatModel
from tests.support.loopback import HANG, RESET, Loopback, Reply, json_reply, reply, sse

pytestmark = pytest.mark.asyncio


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def openai_body(text: str | None = None, calls: list[tuple[str, str]] | None = None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": i, "type": "function", "function": {"name": "add", "arguments": a}} for i, a in calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return {"id": "r1", "model": "m", "choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}


def anthropic_body(text: str | None = None, calls: list[tuple[str, str]] | None = None) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    content += [{"type": "tool_use", "id": i, "name": "add", "input": json.loads(a)} for i, a in calls or ()]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "usage": {"input_tokens": 5, "output_tokens": 3},
    }


def openai_events(*pieces: str, end: bool = True) -> list[bytes]:
    chunks = [{"id": "r1", "choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
    events = [b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks]
    last = {"id": "r1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return [*events, b"data: %b\n\ndata: [DONE]\n\n" % json.dumps(last).encode()] if end else events


def anthropic_events(*pieces: str, end: bool = True) -> list[bytes]:
    made: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "msg_1", "content": [], "usage": {"input_tokens": 5}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ]
    made += [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}} for piece in pieces
    ]
    if end:
        made += [
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
            {"type": "message_stop"},
        ]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in made]


class Wire:
    """One wire format: how to make a model of it and what its server says."""

    def __init__(
        self,
        make: Callable[..., HTTPChatModel],
        suffix: str,
        body: Callable[..., dict[str, Any]],
        events: Callable[..., list[bytes]],
    ) -> None:
        self._make, self._suffix, self.body, self.events = make, suffix, body, events

    def model(self, server: Loopback, **settings: Any) -> HTTPChatModel:
        settings = {"max_retries": 0, "api_key": "sk-secret-key", **settings}
        return self._make("m", base_url=server.url + self._suffix, **settings)


OPENAI = Wire(OpenAIChatModel, "/v1", openai_body, openai_events)
ANTHROPIC = Wire(AnthropicChatModel, "", anthropic_body, anthropic_events)
both_wires = pytest.mark.parametrize("wire", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])


@both_wires
async def test_tool_round_over_the_wire(wire: Wire) -> None:
    memory = InMemoryChatMemory()
    replies = [wire.body(None, [("c1", '{"a":1,"b":2}'), ("c2", '{"a":3,"b":4}')]), wire.body("3 and 7")]
    async with Loopback(*map(json_reply, replies)) as server:
        async with ChatClient(wire.model(server), tools=[add], memory=memory) as client:
            result = await client.invoke("1+2? 3+4?", conversation_id="u1")
    assert result.text == "3 and 7"
    assert result.usage.input_tokens == 10
    assert [m.content for m in await memory.get("u1") if isinstance(m, ToolMessage)] == ["3", "7"]
    assert check_history(await memory.get("u1")) == []
    assert len(server.requests) == 2
    assert server.connections == 1


@both_wires
async def test_stream_over_the_wire_comes_in_pieces_and_keeps_its_connection(wire: Wire) -> None:
    memory = InMemoryChatMemory()
    async with Loopback(sse(*wire.events("晴 ", "22°", "C"))) as server:
        async with ChatClient(wire.model(server), memory=memory) as client:
            for _ in range(2):
                async with client.stream("?", conversation_id="u1") as turn:
                    assert [piece async for piece in turn.text] == ["晴 ", "22°", "C"]
    assert server.connections == 1
    assert (await memory.get("u1"))[-1] == AssistantMessage("晴 22°C")


@both_wires
async def test_broken_stream_keeps_what_was_delivered(wire: Wire) -> None:
    memory = InMemoryChatMemory()
    async with Loopback(sse(*wire.events("Hel", end=False), RESET)) as server:
        async with ChatClient(wire.model(server), memory=memory) as client:
            seen = ""
            with pytest.raises(ProviderError) as caught:
                async with client.stream("hi", conversation_id="u1") as turn:
                    async for event in turn:
                        assert isinstance(event, TextDelta)
                        seen += event.text
    assert (caught.value.kind, caught.value.partial_text, seen) == ("network", "Hel", "Hel")
    assert list(await memory.get("u1")) == [UserMessage("hi"), AssistantMessage("Hel", finish_reason="interrupted")]


@both_wires
async def test_reader_that_leaves_closes_the_connection(wire: Wire) -> None:
    memory = InMemoryChatMemory()
    async with Loopback(sse(*wire.events("Hel", end=False), HANG)) as server:
        async with ChatClient(wire.model(server), memory=memory) as client:
            async with client.stream("hi", conversation_id="u1") as turn:
                async for _ in turn:
                    break
            await asyncio.wait_for(server.all_closed.wait(), 5)
    assert [m.content for m in await memory.get("u1")] == ["hi", "Hel"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


@both_wires
async def test_cancelled_call_closes_the_connection_and_stores_nothing(wire: Wire) -> None:
    memory = InMemoryChatMemory()
    async with Loopback([HANG]) as server, ChatClient(wire.model(server), memory=memory) as client:
        task = asyncio.create_task(client.invoke("hi", conversation_id="u1"))
        await server.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.all_closed.wait(), 5)
    assert list(await memory.get("u1")) == []


FAULTS: list[tuple[str, Reply, str, str]] = [
    ("not-json", reply(b"x" * 500), "decode", "x" * 200),
    ("html", reply(b"<!DOCTYPE html><p>Sign in</p>", content_type="text/html"), "decode", "HTML"),
    (
        "html-error",
        reply(b"<html><title>502 Bad Gateway</title>", status=502, content_type="text/html"),
        "server",
        "502",
    ),
    ("empty", reply(b""), "decode", "empty"),
    ("401", json_reply({"error": {"message": "bad key sk-secret-key"}}, status=401), "auth", "bad key"),
    ("reset", [RESET], "network", "broke"),
]


@both_wires
@pytest.mark.parametrize("streamed", [False, True], ids=["invoke", "stream"])
@pytest.mark.parametrize(("fault", "kind", "words"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
async def test_fault_is_named_and_leaves_nothing(
    wire: Wire, streamed: bool, fault: Reply, kind: str, words: str
) -> None:
    memory = InMemoryChatMemory()
    async with Loopback(fault) as server, ChatClient(wire.model(server), memory=memory) as client:
        with pytest.raises(ProviderError) as caught:
            if streamed:
                async with client.stream("hi", conversation_id="u1") as turn:
                    async for _ in turn:
                        pass
            else:
                await client.invoke("hi", conversation_id="u1")
    assert caught.value.kind == kind
    assert words in str(caught.value)
    assert "sk-secret-key" not in str(caught.value) + repr(caught.value)
    assert len(str(caught.value)) < 500
    assert list(await memory.get("u1")) == []
    assert asyncio.all_tasks() == {asyncio.current_task()}
    gc.collect()  # a socket left open would warn, and warnings are errors


@both_wires
async def test_part_that_cannot_be_carried_is_refused_before_anything_is_sent(wire: Wire) -> None:
    memory = InMemoryChatMemory()
    said = UserMessage((AudioPart(url="https://example.org/a.ogg"),))
    async with Loopback(json_reply(wire.body("x"))) as server:
        model = wire.model(server)
        async with ChatClient(model, memory=memory) as client:
            with pytest.raises(UnsupportedContentError, match=r"cannot carry audio.*message 0"):
                await client.invoke(said, conversation_id="u1")
        assert server.requests == []
        assert model.check([UserMessage("a"), said])[0].count("message 1") == 1
    assert list(await memory.get("u1")) == []


async def test_image_reaches_both_wires() -> None:
    said = UserMessage((ImagePart(data=b"\x89PNG", media_type="image/png"),))
    for wire, where in ((OPENAI, "image_url"), (ANTHROPIC, "image")):
        async with Loopback(json_reply(wire.body("x"))) as server, ChatClient(wire.model(server)) as client:
            await client.invoke(said)
        assert server.requests[0].json["messages"][0]["content"][0]["type"] == where


async def test_conversation_continues_on_the_other_provider_and_back() -> None:
    memory = InMemoryChatMemory()
    for wire in (OPENAI, ANTHROPIC, OPENAI):
        replies = [wire.body("Let me see.", [("c1", '{"a":1,"b":2}')]), wire.body("3")]
        async with Loopback(*map(json_reply, replies)) as server:
            async with ChatClient(wire.model(server), tools=[add], memory=memory) as client:
                await client.invoke("1+2?", conversation_id="u1")
        sent = json.dumps(server.requests[-1].json)
    assert sent.count("Let me see.") == 3
    assert sent.count("1+2?") == 3
    calls = [call for m in server.requests[-1].json["messages"] for call in m.get("tool_calls", ())]
    assert len({call["id"] for call in calls}) == 3  # ids that repeat in the history differ on the wire
    assert check_history(await memory.get("u1")) == []


async def test_thousand_conversations_on_one_model() -> None:
    async with Loopback(json_reply(openai_body("ok"))) as server:
        async with ChatClient(OPENAI.model(server), memory=InMemoryChatMemory()) as client:
            calls = (client.invoke("hi", conversation_id=f"u{n}") for n in range(1000))
            assert {result.text for result in await asyncio.gather(*calls)} == {"ok"}


@pytest.mark.parametrize("make", [OpenAIChatModel, AnthropicChatModel])
async def test_base_url_without_scheme_is_named(make: Callable[..., HTTPChatModel]) -> None:
    with pytest.raises(ConfigurationError, match=r"api\.example\.com.*scheme"):
        make("m", api_key="k", base_url="api.example.com/v1")


@pytest.mark.parametrize(
    ("make", "variable"), [(OpenAIChatModel, "OPENAI_API_KEY"), (AnthropicChatModel, "ANTHROPIC_API_KEY")]
)
async def test_missing_key_names_its_variable(
    make: Callable[..., HTTPChatModel], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variable, raising=False)
    monkeypatch.delenv(variable.replace("API_KEY", "BASE_URL"), raising=False)
    with pytest.raises(ConfigurationError, match=variable):
        make("m")
