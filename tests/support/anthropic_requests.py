"""Requests to the Anthropic Messages API out of histories, and histories of every sort."""

import asyncio
import json
from typing import Any

import hypothesis.strategies as st

from agentcore.chat import ChatOptions, ChatRequest, ToolDefinition
from agentcore.codecs.anthropic_messages import AnthropicMessagesCodec
from agentcore.codecs.base import WireRequest
from agentcore.errors import InvalidInputError
from agentcore.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)

CODEC = AnthropicMessagesCodec()
ADD = ToolDefinition("add", "Add.", {"properties": {"a": {"type": "integer"}}})


def encode(
    *messages: Message, tools: tuple[ToolDefinition, ...] = (), stream: bool = False, **options: Any
) -> WireRequest:
    request = ChatRequest(messages, tools, ChatOptions(**{"model": "claude-test", **options}))
    return asyncio.run(CODEC.encode(request, stream=stream))


def body(*messages: Message, tools: tuple[ToolDefinition, ...] = (), stream: bool = False, **options: Any) -> Any:
    return json.loads(encode(*messages, tools=tools, stream=stream, **options).body)


def sendable(history: list[Message], **options: Any) -> Any:
    """The body of a history, or None where there is nothing new to send."""
    try:
        return body(*history, tools=(ADD,), **options)
    except InvalidInputError:
        return None


_texts = st.sampled_from(["", " ", "\n", "x", "words ", " y", "晴 22°C", "a\u0000b"])
_ids = st.sampled_from(["", "c1", "c2", "call.3", "x" * 70])
_names = st.sampled_from(["add", "math.add", "n" * 70, "wetter_ü"])
_calls = st.builds(ToolCall, _ids, _names, st.just({"a": [1, None]}), st.sampled_from([None, "{broken"]))
_signed = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
_server = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
_found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
_kept = st.lists(
    st.sampled_from(
        [
            _signed,
            {"type": "redacted_thinking", "data": "AAA="},
            {"type": "thinking", "thinking": "unsigned", "signature": ""},
            {"type": "text", "text": "x"},
            {"type": "text", "text": " "},
            {"type": "tool_use", "id": "c1"},
            _server,
            _found,
        ]
    ),
    max_size=4,
)
_replays = st.one_of(
    st.none(),
    st.builds(lambda blocks: {"format": "anthropic", "blocks": blocks}, _kept),
    st.just({"format": "openai-responses", "items": [{"type": "reasoning"}]}),
)
_parts = st.sampled_from(
    [
        TextPart("t"),
        TextPart(" "),
        ImagePart(url="https://x/y.png"),
        FilePart(data=b"%PDF-1.7", media_type="application/pdf"),
    ]
)
_contents = st.one_of(_texts, st.lists(_parts, max_size=3))
messages = st.one_of(
    st.builds(SystemMessage, _texts),
    st.builds(UserMessage, _contents),
    st.builds(AssistantMessage, st.one_of(st.none(), _texts), st.lists(_calls, max_size=3), replay=_replays),
    st.builds(ToolMessage, _ids, _names, _contents, st.booleans()),
)
histories = st.lists(messages, max_size=8)
