"""The model's side: options, usage, and a model of one's own in ten lines."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from agentcore import (
    AssistantMessage,
    ChatClient,
    ChatOptions,
    ChatRequest,
    ChatResponse,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UserMessage,
)
from agentcore.chat import ChatStream, events_of, stream_whole


class Echo:
    async def chat(self, request: ChatRequest) -> ChatResponse:
        return ChatResponse(AssistantMessage(f"you said {request.messages[-1].content}"), "stop")

    @asynccontextmanager
    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatStream, None]:
        async with stream_whole(await self.chat(request)) as stream:
            yield stream


@pytest.mark.asyncio
async def test_model_of_ones_own_needs_no_base_class() -> None:
    client = ChatClient(Echo())
    assert (await client.invoke("hi")).text == "you said hi"
    async with client.stream("hi") as turn:
        assert [piece async for piece in turn.text] == ["you said hi"]
    assert turn.result.text == "you said hi"


@pytest.mark.asyncio
async def test_finished_response_is_a_stream_too() -> None:
    response = ChatResponse(AssistantMessage("x", reasoning="r"), "stop")
    async with stream_whole(response) as stream:
        streamed: ChatStream = stream
        assert [event async for event in streamed] == [ReasoningDelta("r"), TextDelta("x")]
        assert stream.response is response


def test_events_of_a_message_tell_all_of_it() -> None:
    message = AssistantMessage("x", (ToolCall("c1", "f", {"a": 1}), ToolCall("c2", "g", {}, "{broken")), "r")
    assert events_of(message) == [
        ReasoningDelta("r"),
        TextDelta("x"),
        ToolCallDelta(0, "c1", "f", '{"a":1}'),
        ToolCallDelta(1, "c2", "g", "{broken"),
    ]


def test_options_say_only_what_they_say() -> None:
    base = ChatOptions(model="m", temperature=0.5, stop=("x",), extra={"a": 1})
    assert ChatOptions().over(base) == base
    assert base.over(None) is base
    merged = ChatOptions(temperature=0.0, extra={"b": 2}).over(base)
    assert merged == ChatOptions(model="m", temperature=0.0, stop=("x",), extra={"a": 1, "b": 2})
    assert base.extra == {"a": 1}


def test_unknown_tokens_are_not_zero() -> None:
    assert Usage() + Usage() == Usage()
    assert Usage(input_tokens=1) + Usage(output_tokens=2) == Usage(input_tokens=1, output_tokens=2)
    assert Usage(input_tokens=1, cached_input_tokens=1) + Usage(input_tokens=2) == Usage(
        input_tokens=3, cached_input_tokens=1
    )


def test_text_of_a_response_is_never_none() -> None:
    assert ChatResponse(AssistantMessage(None), "stop").text == ""
    assert UserMessage("a").content == "a"
