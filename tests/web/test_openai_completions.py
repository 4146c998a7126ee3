"""Runs as chunks of a chat completion, where a reader comes late."""

import json
from typing import Any

from agentcore import InvokeResult
from agentcore.events import TextDelta, ToolCallDelta, ToolFinished, ToolStarted
from agentcore.messages import AssistantMessage, ToolCall, ToolMessage
from agentcore.web.openai_completions import DONE, OpenAIChunks
from agentcore.web.runs import Behind


def told(*happened: Any, **end: Any) -> list[Any]:
    chunks = OpenAIChunks("chatcmpl-1", "helpdesk", include_usage=False, whole_text=False)
    said = [chunks.begin(), *[chunks.event(one) for one in happened]]
    said.append(chunks.finished(InvokeResult(**{"status": "completed", "turn_id": "x", **end})))
    lines = b"".join(said).removesuffix(DONE).decode().split("\n\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line]


def texts(sent: list[Any]) -> list[str]:
    return [one["choices"][0]["delta"]["content"] for one in sent if one["choices"][0]["delta"].get("content")]


def test_answer_whose_beginning_was_lost_is_an_error() -> None:
    *before, error = told(TextDelta("a"), Behind(3), TextDelta("d"))
    assert texts(before) == ["a"]
    assert error["error"]["code"] == "overloaded"


def test_answer_that_was_never_streamed_is_sent() -> None:
    assert texts(told(message=AssistantMessage("cached"))) == ["cached"]


def test_answer_after_tools_that_was_never_streamed_is_sent_apart() -> None:
    call = ToolCall("c1", "look")
    happened = [TextDelta("I look."), ToolStarted(call), ToolFinished(ToolMessage("c1", "look", "seen"))]
    assert texts(told(*happened, message=AssistantMessage("cached"))) == ["I look.", "\n\ncached"]


def test_text_beside_calls_is_sent_once() -> None:
    call = ToolCall("c1", "look")
    reply = AssistantMessage("I look.", (call,))
    happened = [TextDelta("I look."), ToolCallDelta(0, "c1", "look", "{}"), ToolStarted(call)]
    assert texts(told(*happened, status="limit", limit="seconds", message=reply)) == ["I look."]
    assert texts(told(*happened[:2], status="paused", message=reply)) == ["I look."]
