"""Thought signatures: kept with the reply, put back where they were, and only there."""

import asyncio
import itertools
import json
from typing import Any

import pytest

from agentcore.chat import ChatOptions, ChatRequest
from agentcore.codecs.anthropic_messages import AnthropicMessagesCodec
from agentcore.codecs.base import Codec
from agentcore.codecs.gemini import GeminiCodec
from agentcore.codecs.gemini_replay import SKIP_VALIDATION
from agentcore.codecs.openai_chat import OpenAIChatCodec
from agentcore.codecs.openai_responses import OpenAIResponsesCodec
from agentcore.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage, check_history
from tests.support.gemini_wire import body, call, decode, encode, play, stream_of, text

HI = UserMessage("hi")
CODE = {"executableCode": {"language": "PYTHON", "code": "1+1"}}
PICTURE = {"inlineData": {"mimeType": "image/png", "data": "YWI="}, "thought": True}
SEARCH = {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "t1", "args": {}}, "thoughtSignature": "s0"}
FOUND = {"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "id": "t1", "response": {}}, "thoughtSignature": "s9"}


def sent_back(message: AssistantMessage, **options: Any) -> list[Any]:
    results = [ToolMessage(one.id, one.name, "3") for one in message.tool_calls]
    return encode(HI, message, *results, UserMessage("go on"), **options)["contents"][1]["parts"]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([text("Hello")], [text("Hello")]),
        ([call(signature="s1")], [call(signature="s1")]),
        ([call({"a": 1}, signature="s1"), call({"a": 2})], [call({"a": 1}, signature="s1"), call({"a": 2})]),
        ([text("hm", thought=True), call(signature="s1")], [call(signature="s1")]),
        ([text("Hello"), text("", "s2")], [text("Hello"), text("", "s2")]),
        ([text("Hello", "s2")], [text("Hello", "s2")]),
        ([text("a"), call(signature="s1"), text("b")], [text("a"), call(signature="s1"), text("b")]),
        ([CODE, text("two", "s")], [CODE, text("two", "s")]),
        ([call(id="fc1", signature="s1")], [call(id="fc1", signature="s1")]),
        ([call()], [call(signature=SKIP_VALIDATION)]),
        ([text("a"), text("b", "s", thought=True), text("c")], [text("a"), text("b", "s", thought=True), text("c")]),
        ([{**PICTURE, "thoughtSignature": "s"}, text("ok")], [{**PICTURE, "thoughtSignature": "s"}, text("ok")]),
        ([SEARCH, FOUND, call(signature="s1")], [SEARCH, FOUND, call(signature="s1")]),
        ([text("a", "s1"), text("b", "s2")], [text("a", "s1"), text("b", "s2")]),
    ],
    ids=[
        "plain",
        "call",
        "parallel",
        "thought",
        "empty-text",
        "text",
        "between",
        "own-tool",
        "id",
        "unsigned",
        "signed-thought",
        "picture-thought",
        "tool-context",
        "two-signed-texts",
    ],
)
def test_parts_go_back_as_they_came(parts: list[Any], expected: list[Any]) -> None:
    whole = decode(body(*parts)).message
    assert play(stream_of(*parts))[1].message == whole
    back = sent_back(whole)
    for part in back:
        if "functionCall" in part:
            assert part["functionCall"].pop("id", None) in (None, "fc1")
    wanted = json.loads(json.dumps(expected))
    for part in wanted:
        if "functionCall" in part:
            part["functionCall"].pop("id", None)
    assert back == wanted


def test_id_the_service_gave_goes_back_with_call_and_result() -> None:
    message = decode(body(call(id="fc1", signature="s1"))).message
    contents = encode(HI, message, ToolMessage("fc1", "add", "3"))["contents"]
    assert contents[1]["parts"][0]["functionCall"]["id"] == "fc1"
    assert contents[2]["parts"][0]["functionResponse"]["id"] == "fc1"


def test_id_that_was_made_here_is_kept_from_the_service() -> None:
    message = decode(body(call(signature="s1"))).message
    contents = encode(HI, message, ToolMessage(message.tool_calls[0].id, "add", "3"))["contents"]
    assert "id" not in contents[1]["parts"][0]["functionCall"]
    assert "id" not in contents[2]["parts"][0]["functionResponse"]


def test_signatures_go_back_only_to_their_generation() -> None:
    message = decode(body(call(signature="s1"))).message
    assert sent_back(message, model="gemini-3.5-flash")[0]["thoughtSignature"] == "s1"
    assert "thoughtSignature" not in sent_back(message, model="gemini-2.5-pro")[0]
    assert sent_back(message, model="gemini-4-pro")[0]["thoughtSignature"] == SKIP_VALIDATION


def test_message_that_was_changed_goes_back_without_what_no_longer_fits() -> None:
    message = decode(body(text("Hello", "s2"))).message
    changed = AssistantMessage("Other words", replay=message.replay)
    assert sent_back(changed) == [{"text": "Other words"}]


@pytest.mark.parametrize(
    "replay",
    [
        {"format": "anthropic", "blocks": [{"type": "thinking", "thinking": "t", "signature": "s"}]},
        {"format": "gemini"},
        {"format": "gemini", "parts": 5},
        {"format": "gemini", "parts": [5, {"call": 7}]},
        {},
    ],
    ids=str,
)
def test_payload_that_is_not_ours_or_broken_is_ignored(replay: Any) -> None:
    assert sent_back(AssistantMessage("Hello", replay=replay)) == [{"text": "Hello"}]


CODECS: list[tuple[str, Codec]] = [
    ("gemini-3-pro", GeminiCodec()),
    ("gpt-5", OpenAIChatCodec()),
    ("gpt-5", OpenAIResponsesCodec()),
    ("claude-opus-4-6", AnthropicMessagesCodec()),
]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4), 2)), ids=str)
def test_conversation_moves_between_all_formats_at_any_message(order: tuple[int, ...]) -> None:
    gemini = decode(
        body(text("hm", thought=True), text("Look"), call({"a": 1}, signature="s1"), call({"a": 2}))
    ).message
    other = AssistantMessage(
        "Again",
        (ToolCall("toolu_1", "add", {"a": 3}),),
        replay={"format": "anthropic", "blocks": [{"type": "thinking", "thinking": "t", "signature": "s"}]},
    )
    history: list[Message] = [HI]
    for message in (gemini, other, gemini):
        history += [message, *(ToolMessage(one.id, one.name, "3") for one in message.tool_calls)]
    history.append(UserMessage("and?"))
    assert check_history(history) == []
    for cut in (4, 6, len(history)):
        for which in order:
            model, codec = CODECS[which]
            request = ChatRequest(history[:cut], (), ChatOptions(model=model))
            sent = asyncio.run(codec.encode(request, stream=False)).body
            assert (b'"s1"' in sent) == (which == 0)
            assert sent.count(b'"add"') >= 2
