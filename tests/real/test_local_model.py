"""The library against a real server with a real model: shapes, never meanings."""

import asyncio
import sys

import pytest

from agentcore import (
    AnthropicChatModel,
    ChatClient,
    ChatOptions,
    ChatRequest,
    InMemoryChatMemory,
    OpenAIChatModel,
    ProviderError,
    TextDelta,
    ToolFinished,
    ToolMessage,
    ToolStarted,
    UserMessage,
    check_history,
    tool,
)
from agentcore.cli.local_model import serve_local_model
from agentcore.providers.http_model import HTTPChatModel

pytestmark = [pytest.mark.real, pytest.mark.asyncio, pytest.mark.timeout(400)]

NAME = "smollm2-135m"
SHORT = ChatOptions(max_tokens=24)
WIRES = ["openai", "anthropic"]


def model_at(wire: str, url: str, key: str | None = None) -> HTTPChatModel:
    if wire == "openai":
        return OpenAIChatModel(NAME, base_url=f"{url}/v1", api_key=key)
    return AnthropicChatModel(NAME, base_url=url, api_key=key)


def asking(text: str, options: ChatOptions = SHORT) -> ChatRequest:
    return ChatRequest([UserMessage(text)], options=options)


@tool
async def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"sunny in {city}"


@tool
async def get_time(city: str) -> str:
    """Tell the time in a city."""
    return f"noon in {city}"


@pytest.mark.parametrize("wire", WIRES)
async def test_text_comes_with_usage_and_a_reason(wire: str, server: str) -> None:
    async with model_at(wire, server) as model:
        response = await model.chat(asking("Say hello."))
    assert response.text
    assert response.finish_reason in ("stop", "length")
    assert (response.usage.input_tokens or 0) > 0
    assert (response.usage.output_tokens or 0) > 0
    assert response.model == NAME


@pytest.mark.parametrize("wire", WIRES)
async def test_stream_gives_the_same_reply_in_pieces(wire: str, server: str) -> None:
    async with model_at(wire, server) as model:
        whole = await model.chat(asking("Count to five."))
        async with model.stream(asking("Count to five.")) as stream:
            pieces = [event.text async for event in stream if isinstance(event, TextDelta)]
    assert len(pieces) > 1
    assert "".join(pieces) == stream.response.text == whole.text
    assert stream.response.finish_reason == whole.finish_reason
    assert stream.response.usage.output_tokens == whole.usage.output_tokens


@pytest.mark.parametrize("wire", WIRES)
async def test_output_limit_is_told(wire: str, server: str) -> None:
    async with model_at(wire, server) as model:
        response = await model.chat(asking("Tell a long story.", ChatOptions(max_tokens=5)))
    assert response.finish_reason == "length"
    assert response.message.finish_reason == "length"


@pytest.mark.parametrize("wire", WIRES)
async def test_tool_runs_and_the_second_turn_remembers(wire: str, server: str) -> None:
    memory = InMemoryChatMemory()
    async with ChatClient(model_at(wire, server), tools=[get_weather], memory=memory, options=SHORT) as client:
        first = await client.invoke("What is the weather in Paris?", conversation_id="u1")
        async with client.stream("Thank you. In Rome?", conversation_id="u1") as turn:
            events = [event async for event in turn]
    assert first.tool_calls >= 1
    assert any(isinstance(m, ToolMessage) for m in first.messages)
    assert [type(event) for event in events if isinstance(event, ToolStarted | ToolFinished)]
    assert turn.result.status == "completed"
    history = await memory.get("u1")
    assert list(history) == [*first.messages, *turn.result.messages]
    assert check_history(history) == []


@pytest.mark.parametrize("wire", WIRES)
async def test_parallel_calls_are_answered_in_order(wire: str, server: str) -> None:
    async with ChatClient(
        model_at(wire, server), tools=[get_weather, get_time], options=ChatOptions(max_tokens=64)
    ) as client:
        async with client.stream("The weather in Paris and the time in Rome, please.") as turn:
            async for _ in turn:
                pass
    assert turn.result.tool_calls >= 2
    assert check_history(turn.result.messages) == []


async def test_conversation_moves_between_wires(server: str) -> None:
    memory = InMemoryChatMemory()
    for wire in ("openai", "anthropic", "openai"):
        async with ChatClient(model_at(wire, server), tools=[get_weather], memory=memory, options=SHORT) as client:
            result = await client.invoke("And the weather in Oslo?", conversation_id="u1")
            assert result.status == "completed"
    assert check_history(await memory.get("u1")) == []


@pytest.mark.parametrize("wire", WIRES)
async def test_prompt_too_long_is_a_context_length_error(wire: str, server: str) -> None:
    async with model_at(wire, server) as model:
        with pytest.raises(ProviderError) as caught:
            await model.chat(asking("word " * 6000))
    assert caught.value.kind == "context_length"
    assert not caught.value.retryable


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("streamed", [False, True], ids=["chat", "stream"])
async def test_wrong_key_is_an_auth_error_and_is_not_shown(wire: str, streamed: bool, locked_server: str) -> None:
    async with model_at(wire, locked_server, key="sk-wrong-key") as model:
        with pytest.raises(ProviderError) as caught:
            if streamed:
                async with model.stream(asking("hi")) as stream:
                    async for _ in stream:
                        pass
            else:
                await model.chat(asking("hi"))
    assert (caught.value.kind, caught.value.status) == ("auth", 401)
    assert "sk-wrong-key" not in str(caught.value) + repr(caught.value)


@pytest.mark.parametrize("wire", WIRES)
async def test_right_key_opens(wire: str, locked_server: str) -> None:
    async with model_at(wire, locked_server, key="sk-right-key\n") as model:
        assert (await model.chat(asking("hi", ChatOptions(max_tokens=3)))).text


async def test_wrong_path_is_not_found(server: str) -> None:
    async with OpenAIChatModel(NAME, base_url=f"{server}/v2", max_retries=0) as model:
        with pytest.raises(ProviderError) as caught:
            await model.chat(asking("hi"))
    assert caught.value.kind == "not_found"


async def test_extra_reaches_the_server_and_the_raw_body_comes_back(server: str) -> None:
    async with OpenAIChatModel(NAME, base_url=f"{server}/v1", keep_raw=True) as model:
        response = await model.chat(asking("hi", ChatOptions(max_tokens=2, extra={"logprobs": True})))
    assert response.raw is not None
    assert b"logprobs" in response.raw


@pytest.mark.skipif(sys.platform == "win32", reason="a killed server looks different there")
@pytest.mark.parametrize("wire", WIRES)
async def test_server_that_goes_away_in_mid_stream_keeps_what_came(wire: str) -> None:
    memory = InMemoryChatMemory()
    seen = ""
    with pytest.raises(ProviderError) as caught:
        async with serve_local_model() as server:
            client = ChatClient(model_at(wire, server.url), memory=memory, options=ChatOptions(max_tokens=2000))
            async with client.stream("Tell a very long story about a fjord.", conversation_id="u1") as turn:
                async for event in turn:
                    assert isinstance(event, TextDelta)
                    if not seen:
                        server.process.kill()
                    seen += event.text
    assert caught.value.kind == "network"
    assert caught.value.partial_text == seen
    stored = await memory.get("u1")
    assert (stored[-1].content, getattr(stored[-1], "finish_reason", None)) == (seen, "interrupted")
    await client.aclose()


async def test_two_conversations_at_once_do_not_mix(server: str) -> None:
    memory = InMemoryChatMemory()
    async with ChatClient(model_at("openai", server), memory=memory, options=ChatOptions(max_tokens=8)) as client:
        await asyncio.gather(*(client.invoke(f"Say {n}.", conversation_id=str(n)) for n in range(4)))
    for n in range(4):
        history = await memory.get(str(n))
        assert [m.content for m in history if isinstance(m, UserMessage)] == [f"Say {n}."]
