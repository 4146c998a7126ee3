"""OpenAIResponsesModel over a real connection: where it posts, with what, and a turn with reasoning in it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from agentcore import ChatClient, ConfigurationError, InMemoryChatMemory, ProviderError, TextDelta, check_history, tool
from agentcore.chat import ChatOptions, ChatRequest
from agentcore.messages import AudioPart, UserMessage
from agentcore.providers.openai_responses import OpenAIResponsesModel
from agentcore.providers.presets import chat_model
from tests.support.loopback import Loopback, json_reply, reply, sse
from tests.support.responses_wire import body, call, end, event, reasoning, stream_of, text

ASK = ChatRequest([UserMessage("hi")])
ROUND = body(reasoning("hm"), call('{"a": 1, "b": 2}'))


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def model_at(server: Loopback, **settings: Any) -> OpenAIResponsesModel:
    return OpenAIResponsesModel("gpt-5", base_url=f"{server.url}/v1", api_key="sk-right-key", **settings)


@pytest.mark.asyncio
@pytest.mark.parametrize("slash", ["", "/"])
async def test_request_goes_to_the_responses_path_with_its_key(slash: str) -> None:
    async with Loopback(json_reply(json.loads(body(text("Hello"))))) as server:
        settings: dict[str, Any] = {"organization": "org-1", "headers": {"x-tenant": "t1"}}
        model = OpenAIResponsesModel("gpt-5", base_url=f"{server.url}/v1{slash}", api_key="sk-right-key", **settings)
        async with model:
            response = await model.chat(ASK)
    assert (response.text, response.response_id, response.model) == ("Hello", "resp_1", "gpt-5-2025-08-07")
    sent = server.requests[0]
    assert (sent.method, sent.target) == ("POST", "/v1/responses")
    assert sent.headers["authorization"] == "Bearer sk-right-key"
    assert (sent.headers["openai-organization"], sent.headers["x-tenant"]) == ("org-1", "t1")
    assert sent.json["model"] == "gpt-5"
    assert "sk-right-key" not in repr(model)


@pytest.mark.asyncio
async def test_stream_is_the_reply_in_pieces() -> None:
    data = stream_of(text("Hello"), size=2)
    async with Loopback(sse(data[:300], data[300:])) as server, model_at(server) as model:
        async with model.stream(ASK) as stream:
            pieces = [one.text async for one in stream if isinstance(one, TextDelta)]
    assert pieces == ["He", "ll", "o"]
    assert stream.response.text == "Hello"
    assert stream.response.request_id == "req_1"
    assert server.requests[0].json["stream"] is True


@pytest.mark.asyncio
async def test_reasoning_goes_back_with_the_results_of_its_round() -> None:
    memory = InMemoryChatMemory()
    async with (
        Loopback(json_reply(json.loads(ROUND)), json_reply(json.loads(body(text("3"))))) as server,
        ChatClient(model_at(server), tools=[add], memory=memory) as client,
    ):
        result = await client.invoke("1 + 2?", conversation_id="u1")
    assert result.text == "3"
    items = server.requests[1].json["input"]
    kinds = [item.get("type", item.get("role")) for item in items]
    assert kinds == ["user", "reasoning", "function_call", "function_call_output"]
    assert (items[1]["encrypted_content"], items[3]["output"]) == ("gAAA", "3")
    assert check_history(await memory.get("u1")) == []


@pytest.mark.asyncio
async def test_error_status_is_an_error_of_its_kind() -> None:
    refusal = json.dumps({"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}).encode()
    async with Loopback(reply(refusal, status=401)) as server, model_at(server) as model:
        with pytest.raises(ProviderError) as caught:
            await model.chat(ASK)
    assert (caught.value.kind, caught.value.status) == ("auth", 401)


@pytest.mark.asyncio
async def test_failure_at_the_end_of_a_stream_keeps_what_was_delivered() -> None:
    failed = event("response.failed", response={"error": {"code": "server_error", "message": "Oops."}})
    begun = stream_of(text("Hello")).removesuffix(end(text("Hello")))
    async with Loopback(sse(begun, failed)) as server, model_at(server) as model:
        with pytest.raises(ProviderError, match="Oops") as caught:
            async with model.stream(ASK) as stream:
                async for _ in stream:
                    pass
    assert (caught.value.kind, caught.value.partial_text) == ("server", "Hello")


def test_what_could_not_be_carried_is_listed_without_a_request() -> None:
    model = OpenAIResponsesModel("gpt-5", api_key="sk-right-key")
    lost = model.check([UserMessage([AudioPart(data=b"x", media_type="audio/wav")])])
    assert [line.partition(";")[0] for line in lost] == ["openai cannot carry audio (audio/wav) (message 0, part 0)"]


@pytest.mark.parametrize("make", [OpenAIResponsesModel, lambda name: chat_model(f"openai-responses:{name}")])
def test_missing_key_is_named(make: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        make("gpt-5")


def test_preset_makes_the_model_with_its_settings() -> None:
    model = chat_model(
        "openai-responses:gpt-5", api_key="k", reasoning_summary="auto", options=ChatOptions(max_tokens=5)
    )
    assert isinstance(model, OpenAIResponsesModel)
    assert (model.name, model.options.max_tokens) == ("gpt-5", 5)
