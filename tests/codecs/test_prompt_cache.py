"""Prompt caching: asked for where it has to be, in the words of each wire, and the earlier bytes stay as they are."""

import asyncio
import json
from typing import Any

import pytest

from agentcore.chat import ChatOptions, ChatRequest, PromptCache, ToolDefinition
from agentcore.codecs.anthropic_messages import AnthropicMessagesCodec
from agentcore.codecs.base import Codec
from agentcore.codecs.dialect import OPENAI, Dialect
from agentcore.codecs.openai_chat import OpenAIChatCodec
from agentcore.messages import AssistantMessage, Message, SystemMessage, UserMessage
from agentcore.providers.presets import PRESETS
from tests.support.package_types import request_validator

SYSTEM, HI = SystemMessage("Be kind."), UserMessage("hi")
TOOLS = (ToolDefinition("a"), ToolDefinition("b"))


def sent(codec: Codec, messages: list[Message], cache: PromptCache | None, *, tools: Any = ()) -> dict[str, Any]:
    request = ChatRequest(messages, tools, ChatOptions(model="m", prompt_cache=cache))
    return json.loads(asyncio.run(codec.encode(request, stream=False)).body)


@pytest.mark.parametrize(
    ("cache", "fields"),
    [
        (PromptCache(), {}),
        (PromptCache(key="tenant-1"), {"prompt_cache_key": "tenant-1"}),
        (PromptCache(ttl="24h"), {"prompt_cache_retention": "24h"}),
        (PromptCache(ttl="5m", key="k"), {"prompt_cache_key": "k"}),
    ],
    ids=str,
)
def test_openai_takes_key_and_retention(cache: PromptCache, fields: dict[str, Any]) -> None:
    pytest.importorskip("openai")
    from openai.types.chat.completion_create_params import CompletionCreateParams

    body = sent(OpenAIChatCodec(), [HI], cache)
    assert body == {**sent(OpenAIChatCodec(), [HI], None), **fields}
    request_validator(CompletionCreateParams).validate_python(body)


def test_services_that_know_nothing_of_it_are_not_told() -> None:
    cache = PromptCache(ttl="24h", key="k")
    assert OPENAI.prompt_cache == "openai"
    assert sent(OpenAIChatCodec("x", Dialect()), [HI], cache) == sent(OpenAIChatCodec("x", Dialect()), [HI], None)


def test_openrouter_takes_the_mark() -> None:
    codec = OpenAIChatCodec("openrouter", PRESETS["openrouter"].dialect)
    assert sent(codec, [HI], PromptCache(ttl="24h"))["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


@pytest.mark.parametrize(
    ("cache", "mark"),
    [
        (PromptCache(), {"type": "ephemeral"}),
        (PromptCache(ttl="5m"), {"type": "ephemeral", "ttl": "5m"}),
        (PromptCache(ttl="30m"), {"type": "ephemeral", "ttl": "1h"}),
        (PromptCache(ttl="24h", key="k"), {"type": "ephemeral", "ttl": "1h"}),
    ],
    ids=str,
)
def test_anthropic_marks_what_conversations_share_and_all_of_this_one(cache: PromptCache, mark: dict[str, str]) -> None:
    pytest.importorskip("anthropic")
    from anthropic.types.message_create_params import MessageCreateParamsNonStreaming

    codec = AnthropicMessagesCodec()
    body = sent(codec, [SYSTEM, HI], cache, tools=TOOLS)
    assert body["system"] == [{"type": "text", "text": "Be kind.", "cache_control": mark}]
    assert body["cache_control"] == mark
    assert all("cache_control" not in tool for tool in body["tools"])
    request_validator(MessageCreateParamsNonStreaming).validate_python(body)
    without_system = sent(codec, [HI], cache, tools=TOOLS)
    assert ["cache_control" in tool for tool in without_system["tools"]] == [False, True]
    assert "system" not in without_system
    assert "cache_control" not in json.dumps(sent(codec, [SYSTEM, HI], None, tools=TOOLS))


def test_messages_stay_as_they_were_when_the_conversation_goes_on() -> None:
    history: list[Message] = [SYSTEM, HI, AssistantMessage("Hello."), UserMessage("And now?")]
    before = sent(AnthropicMessagesCodec(), history[:2], PromptCache(), tools=TOOLS)
    after = sent(AnthropicMessagesCodec(), history, PromptCache(), tools=TOOLS)
    assert after["messages"][:1] == before["messages"]
    assert {**after, "messages": 0} == {**before, "messages": 0}


def test_options_merge_it_like_any_other() -> None:
    base = ChatOptions(prompt_cache=PromptCache(key="k"))
    assert ChatOptions(model="m").over(base).prompt_cache == PromptCache(key="k")
