"""AnthropicChatModel.count_tokens over a real connection."""

from typing import Any

import pytest
from msgspec.structs import replace

from agentcore import AnthropicChatModel, ChatOptions, ChatRequest, ProviderError, UserMessage
from tests.support.loopback import HANG, Loopback, json_reply

pytestmark = pytest.mark.asyncio

KEY = "sk-ant-0123456789abcdefXYZ"
REQUEST = ChatRequest([UserMessage("hi")])
COUNTED = json_reply({"input_tokens": 27})


async def no_wait(seconds: float) -> None:
    """A backoff that takes no time."""


def model_at(server: Loopback, **settings: Any) -> AnthropicChatModel:
    model = AnthropicChatModel("claude-sonnet-4-5", api_key=KEY, base_url=server.url, **settings)
    model.retries = replace(model.retries, sleep=no_wait)
    return model


async def test_service_counts_with_the_options_of_the_model() -> None:
    async with Loopback(COUNTED) as server, model_at(server) as model:
        assert await model.count_tokens(REQUEST) == 27
        other = ChatRequest(REQUEST.messages, options=ChatOptions(model="claude-haiku-4-5"))
        assert await model.count_tokens(other) == 27
    first, second = server.requests
    assert (first.target, first.json["model"]) == ("/v1/messages/count_tokens", "claude-sonnet-4-5")
    assert second.json["model"] == "claude-haiku-4-5"
    assert first.headers["x-api-key"] == KEY
    assert "anthropic-version" in first.headers


async def test_overloaded_service_is_asked_again() -> None:
    overloaded = json_reply({"type": "error", "error": {"type": "overloaded_error", "message": "x"}}, status=529)
    async with Loopback(overloaded, COUNTED) as server, model_at(server) as model:
        assert await model.count_tokens(REQUEST) == 27


async def test_silent_service_is_told() -> None:
    async with Loopback([HANG]) as server, model_at(server, timeout=0.05, max_retries=0) as model:
        with pytest.raises(ProviderError) as caught:
            await model.count_tokens(REQUEST)
    assert caught.value.kind == "timeout"


async def test_service_without_the_endpoint_is_told_with_its_request_id() -> None:
    missing = json_reply({"error": {"message": "no such path"}}, status=404, headers={"request-id": "req_4"})
    async with Loopback(missing) as server, model_at(server) as model:
        with pytest.raises(ProviderError, match="no such path") as caught:
            await model.count_tokens(REQUEST)
    assert (caught.value.kind, caught.value.request_id) == ("not_found", "req_4")
