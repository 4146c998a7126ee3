"""Histories in OpenAI's format become neutral ones: as they are, and then they can be healed."""

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given

from agentcore import ChatOptions, ChatRequest, check_history, heal
from agentcore.codecs.openai_chat import OpenAIChatCodec
from agentcore.codecs.openai_chat_history import messages_from_openai
from agentcore.errors import InvalidInputError
from agentcore.messages import (
    AssistantMessage,
    AudioPart,
    FilePart,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from tests.strategies import whole_histories

PNG = b64encode(b"\x89PNG").decode()


def called(name: str, arguments: str, call_id: str = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("items", "messages"),
    [
        ([{"role": "developer", "content": "s"}], [SystemMessage("s")]),
        ([{"role": "system", "content": [{"type": "text", "text": "s"}]}], [SystemMessage("s")]),
        ([{"role": "user", "content": "hi", "name": "ada"}], [UserMessage("hi")]),
        (
            [
                {"role": "assistant", "content": None, "tool_calls": [called("f", '{"a": 1}')]},
                {"role": "tool", "tool_call_id": "c1", "content": "1"},
            ],
            [AssistantMessage(None, (ToolCall("c1", "f", {"a": 1}),)), ToolMessage("c1", "f", "1")],
        ),
        (
            [{"role": "assistant", "content": "x", "tool_calls": [called("f", "{broken")]}],
            [AssistantMessage("x", (ToolCall("c1", "f", {}, "{broken"),))],
        ),
        (
            [{"role": "assistant", "content": None, "refusal": "I cannot."}],
            [AssistantMessage("I cannot.", finish_reason="content_filter")],
        ),
        (
            [{"role": "assistant", "content": "x", "reasoning_content": "hm", "tool_calls": None}],
            [AssistantMessage("x", reasoning="hm")],
        ),
        (
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "see"},
                        {"type": "image_url", "image_url": {"url": "https://x/a.png", "detail": "low"}},
                        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                        {"type": "input_audio", "input_audio": {"data": PNG, "format": "mp3"}},
                        {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PNG}", "filename": "a"}},
                    ],
                }
            ],
            [
                UserMessage(
                    [
                        TextPart("see"),
                        ImagePart(url="https://x/a.png", detail="low"),
                        ImagePart(data=b"\x89PNG", media_type="image/png"),
                        AudioPart(data=b"\x89PNG", media_type="audio/mpeg"),
                        FilePart(data=b"\x89PNG", media_type="application/pdf", name="a"),
                    ]
                )
            ],
        ),
        (
            [{"role": "user", "content": ["a", {"type": "refusal", "refusal": "b"}]}],
            [UserMessage([TextPart("a"), TextPart("b")])],
        ),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": "https://x/a.png"}]}],
            [UserMessage([ImagePart(url="https://x/a.png")])],
        ),
        (
            [{"role": "user", "content": [{"type": "file", "file": {"file_data": PNG}}]}],
            [UserMessage([FilePart(data=b"\x89PNG", media_type="application/pdf")])],
        ),
        ([{"role": "tool", "tool_call_id": "c9", "content": None}], [ToolMessage("c9", "", "")]),
    ],
    ids=[
        "developer",
        "system-parts",
        "user",
        "call-and-result",
        "arguments-that-do-not-parse",
        "refusal",
        "reasoning",
        "parts",
        "texts",
        "image-as-text",
        "file-without-its-type",
        "orphan",
    ],
)
def test_item_becomes_the_message_that_it_means(items: list[dict[str, Any]], messages: list[Message]) -> None:
    assert messages_from_openai(items) == messages


def test_old_function_calls_are_paired_with_their_results() -> None:
    items = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "2"},
    ]
    messages = messages_from_openai(items)
    assert check_history(messages) == []
    assert messages == messages_from_openai(items)


def test_broken_history_is_taken_as_it_is_and_healing_makes_it_whole() -> None:
    messages = messages_from_openai(
        [
            {"role": "tool", "tool_call_id": "c0", "content": "stray"},
            {"role": "assistant", "content": None, "tool_calls": [called("f", "{}"), called("g", "{}", "c2")]},
            {"role": "user", "content": "well?"},
        ]
    )
    assert len(messages) == 3
    assert check_history(heal(messages)[0]) == []


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ({"role": "critic", "content": "x"}, "item 1: role 'critic'"),
        ({"content": "x"}, "item 1: role None"),
        ({"role": "user", "content": 7}, "item 1: content is neither"),
        ({"role": "user", "content": [7]}, "part 0 is no object"),
        ({"role": "user", "content": [{"type": "video_url"}]}, "part 0 has the type 'video_url'"),
        ({"role": "user", "content": [{"type": "image_url"}]}, r"part 0 \(image_url\) cannot be read"),
        ({"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}, "type 'file', which has no"),
        ({"role": "assistant", "tool_calls": {"id": "c"}}, "tool_calls is no list"),
        ({"role": "assistant", "tool_calls": [{"id": "c"}]}, "tool call 0 is no object"),
    ],
    ids=["role", "no-role", "content", "part", "kind", "empty-part", "file-id", "calls", "call"],
)
def test_item_without_a_neutral_form_is_refused_by_its_place(item: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        messages_from_openai([{"role": "user", "content": "secret"}, item])


@pytest.mark.asyncio
@given(history=whole_histories())
async def test_what_our_own_codec_sends_is_read_back_as_a_whole_history(history: list[Message]) -> None:
    sent = await OpenAIChatCodec().encode(ChatRequest(history, options=ChatOptions(model="m")), stream=False)
    read = messages_from_openai(json.loads(sent.body)["messages"])
    assert check_history(read) == []
    assert [type(message) for message in read if isinstance(message, UserMessage | ToolMessage)] == [
        type(message) for message in history if isinstance(message, UserMessage | ToolMessage)
    ]
