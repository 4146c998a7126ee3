"""OpenAI Responses against a real server with a real model: shapes, never meanings."""

import sys

import pytest

from agentcore import (
    ChatClient,
    ChatOptions,
    ChatRequest,
    InMemoryChatMemory,
    OpenAIChatModel,
    ProviderError,
    SystemMessage,
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
from agentcore.providers.openai_responses import OpenAIResponsesModel

pytestmark = [pytest.mark.real, pytest.mark.asyncio, pytest.mark.timeout(400)]

NAME = "smollm2-135m"
SHORT = ChatOptions(max_tokens=24)


def model_at(url: str, key: str | None = None) -> OpenAIResponsesModel:
    return OpenAIResponsesModel(NAME, base_url=f"{url}/v1", api_key=key)


def asking(text: str, options: ChatOptions = SHORT) -> ChatRequest:
    return ChatRequest([SystemMessage("Be brief."), UserMessage(text)], options=options)


@tool
async def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"sunny in {city}"


@tool
async def get_time(city: str) -> str:
    """Tell the time in a city."""
    return f"noon in {city}"


async def test_text_comes_with_usage_and_a_reason(server: str) -> None:
    async with model_at(server) as model:
        response = await model.chat(asking("Say hello."))
    assert response.text
    assert response.finish_reason in ("stop", "length")
    assert (response.usage.input_tokens or 0) > 0
    assert (response.usage.output_tokens or 0) > 0
    assert response.model == NAME
    assert response.message.replay is None


async def test_stream_gives_the_same_reply_in_pieces(server: str) -> None:
    async with model_at(server) as model:
        whole = await model.chat(asking("Count to five."))
        async with model.stream(asking("Count to five.")) as stream:
            pieces = [event.text async for event in stream if isinstance(event, TextDelta)]
    assert len(pieces) > 1
    assert "".join(pieces) == stream.response.text == whole.text
    assert stream.response.finish_reason == whole.finish_reason
    assert stream.response.usage.output_tokens == whole.usage.output_tokens


async def test_output_limit_is_told(server: str) -> None:
    options = ChatOptions(max_tokens=5)
    async with model_at(server) as model:
        response = await model.chat(asking("Tell a long story.", options))
        async with model.stream(asking("Tell a long story.", options)) as stream:
            async for _ in stream:
                pass
    assert response.finish_reason == response.message.finish_reason == "length"
    assert stream.response.finish_reason == "length"


async def test_tool_runs_and_the_second_turn_remembers(server: str) -> None:
    memory = InMemoryChatMemory()
    async with ChatClient(model_at(server), tools=[get_weather], memory=memory, options=SHORT) as client:
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


async def test_parallel_calls_are_answered_in_order(server: str) -> None:
    client = ChatClient(model_at(server), tools=[get_weather, get_time], options=ChatOptions(max_tokens=64))
    async with client, client.stream("The weather in Paris and the time in Rome, please.") as turn:
        async for _ in turn:
            pass
    assert turn.result.tool_calls >= 2
    assert check_history(turn.result.messages) == []


async def test_conversation_moves_between_formats(server: str) -> None:
    memory = InMemoryChatMemory()
    models: list[HTTPChatModel] = [model_at(server), OpenAIChatModel(NAME, base_url=f"{server}/v1"), model_at(server)]
    for model in models:
        async with ChatClient(model, tools=[get_weather], memory=memory, options=SHORT) as client:
            result = await client.invoke("And the weather in Oslo?", conversation_id="u1")
            assert result.status == "completed"
    assert check_history(await memory.get("u1")) == []


async def test_prompt_too_long_is_a_context_length_error(server: str) -> None:
    async with model_at(server) as model:
        with pytest.raises(ProviderError) as caught:
            await model.chat(asking("word " * 6000))
    assert caught.value.kind == "context_length"
    assert not caught.value.retryable


@pytest.mark.parametrize("streamed", [False, True], ids=["chat", "stream"])
async def test_wrong_key_is_an_auth_error_and_is_not_shown(streamed: bool, locked_server: str) -> None:
    async with model_at(locked_server, key="sk-wrong-key") as model:
        with pytest.raises(ProviderError) as caught:
            if streamed:
                async with model.stream(asking("hi")) as stream:
                    async for _ in stream:
                        pass
            else:
                await model.chat(asking("hi"))
    assert (caught.value.kind, caught.value.status) == ("auth", 401)
    assert "sk-wrong-key" not in str(caught.value) + repr(caught.value)


@pytest.mark.skipif(sys.platform == "win32", reason="a killed server looks different there")
async def test_server_that_goes_away_in_mid_stream_keeps_what_came() -> None:
    memory = InMemoryChatMemory()
    seen = ""
    with pytest.raises(ProviderError) as caught:
        async with serve_local_model() as server:
            client = ChatClient(model_at(server.url), memory=memory, options=ChatOptions(max_tokens=2000))
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
