"""GeminiChatModel on a real connection: addresses, keys, and a whole tool round whose signatures come back."""

from typing import Any

import pytest

from agentcore import (
    AssistantMessage,
    ChatClient,
    ChatRequest,
    ConfigurationError,
    GeminiChatModel,
    InMemoryChatMemory,
    ToolCall,
    ToolMessage,
    UserMessage,
    tool,
)
from agentcore.providers.http import request_url
from tests.support.gemini_wire import call, chunk, event, stream_of, text
from tests.support.loopback import HANG, Loopback, json_reply, reply
from tests.support.loopback import sse as open_stream

pytestmark = pytest.mark.asyncio

KEY = "AIza-test-0123456789"
USAGE = {"promptTokenCount": 1, "candidatesTokenCount": 1}


@tool
async def add(a: int) -> int:
    """Add."""
    return a + 1


def model_at(server: Loopback, **settings: Any) -> GeminiChatModel:
    return GeminiChatModel("gemini-3-pro", api_key=KEY, base_url=server.url + "/v1beta/", max_retries=0, **settings)


def sse(data: bytes) -> Any:
    return reply(data, content_type="text/event-stream")


@pytest.mark.parametrize("streamed", [False, True], ids=["invoke", "stream"])
async def test_signatures_come_back_in_the_next_request(streamed: bool) -> None:
    first, second = (call({"a": 1}, signature="s1"), call({"a": 2})), (text("five", "s2"),)
    if streamed:
        replies = [
            sse(stream_of(*first, usage=USAGE)),
            sse(stream_of(*second, usage=USAGE)),
            sse(stream_of(text("!"), usage=USAGE)),
        ]
    else:
        replies = [json_reply(chunk(*parts, finish="STOP", usage=USAGE)) for parts in (first, second, (text("!"),))]
    async with Loopback(*replies) as server, model_at(server) as model:
        client = ChatClient(model, tools=[add], memory=InMemoryChatMemory())
        for words in ("1+1 and 2+1?", "sure?"):
            if streamed:
                async with client.stream(words, conversation_id="u1") as turn:
                    async for _ in turn:
                        pass
                result = turn.result
            else:
                result = await client.invoke(words, conversation_id="u1")
    assert (result.text, result.usage.input_tokens) == ("!", 1)
    action = "streamGenerateContent?alt=sse" if streamed else "generateContent"
    assert [one.target for one in server.requests] == [f"/v1beta/models/gemini-3-pro:{action}"] * 3
    assert all(one.headers["x-goog-api-key"] == KEY for one in server.requests)
    contents = server.requests[2].json["contents"]
    assert [part.get("thoughtSignature") for part in contents[1]["parts"]] == ["s1", None]
    assert [part["functionResponse"]["response"] for part in contents[2]["parts"]] == [{"output": "2"}, {"output": "3"}]
    assert contents[3]["parts"] == [text("five", "s2")]


async def test_stream_that_stays_open_after_its_end_does_not_hang() -> None:
    pieces = event(chunk(text("h"), usage=USAGE)) + event(chunk(text("i"), finish="STOP", usage=USAGE))
    async with Loopback(open_stream(pieces, HANG)) as server:
        async with model_at(server) as model, model.stream(ChatRequest([UserMessage("x")])) as stream:
            async for _ in stream:
                pass
            assert stream.response.text == "hi"


async def test_reply_of_one_event_is_whole_even_where_the_connection_stays_open() -> None:
    only = event(chunk(text("hi"), finish="STOP", usage=USAGE))  # more may come: some services end every event so
    async with Loopback(open_stream(only, HANG)) as server:
        async with model_at(server, timeout=0.05) as model, model.stream(ChatRequest([UserMessage("x")])) as stream:
            async for _ in stream:
                pass
            assert (stream.response.text, stream.response.finish_reason) == ("hi", "stop")


async def test_conversation_of_another_provider_goes_on_with_the_stand_in() -> None:
    memory = InMemoryChatMemory()
    call_there = ToolCall("toolu_1", "add", {"a": 1})
    history = [UserMessage("1+1?"), AssistantMessage(None, (call_there,)), ToolMessage("toolu_1", "add", "2")]
    await memory.add("u1", [*history, AssistantMessage("two")])
    replies = [json_reply(chunk(*parts, finish="STOP")) for parts in ((call({"a": 2}, signature="s1"),), (text("ok"),))]
    async with Loopback(*replies) as server, model_at(server) as model:
        await ChatClient(model, tools=[add], memory=memory).invoke("2+1?", conversation_id="u1")
    parts = [part for content in server.requests[1].json["contents"] for part in content["parts"]]
    signatures = [part.get("thoughtSignature") for part in parts if "functionCall" in part]
    assert signatures == ["skip_thought_signature_validator", "s1"]
    assert not any("id" in part["functionCall"] for part in parts if "functionCall" in part)


async def test_refusal_waits_as_long_as_the_service_asks() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}]
    error = {"error": {"code": 429, "message": f"slow down {KEY}", "status": "RESOURCE_EXHAUSTED", "details": details}}
    async with Loopback(json_reply(error, status=429)) as server, model_at(server) as model:
        with pytest.raises(Exception, match="slow down") as caught:
            await model.chat(ChatRequest([UserMessage("x")]))
    assert caught.value.retry_after == 7.0
    assert KEY not in str(caught.value)


async def test_key_comes_from_either_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GEMINI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match="set GEMINI_API_KEY"):
        GeminiChatModel("m")
    monkeypatch.setenv("GOOGLE_API_KEY", KEY)
    assert GeminiChatModel("m").endpoint._headers({})["x-goog-api-key"] == KEY
    monkeypatch.setenv("GEMINI_API_KEY", "other-0123456789")
    assert GeminiChatModel("m").endpoint._headers({})["x-goog-api-key"] == "other-0123456789"
    monkeypatch.setenv("GEMINI_BASE_URL", "http://127.0.0.1:1/v1")
    assert GeminiChatModel("m").endpoint.base_url == "http://127.0.0.1:1/v1"


async def test_query_of_path_and_base_url_stand_together() -> None:
    url = request_url("https://host/v1?key=1", "/models/m:streamGenerateContent?alt=sse")
    assert str(url) == "https://host/v1/models/m:streamGenerateContent?alt=sse&key=1"
