"""Replies of a Chat Completions service, for servers that play one."""

import json
from typing import Any

from tests.support.loopback import DONE, Reply, chunk, sse


def calls(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The body of a reply that calls one tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    return {"id": "r1", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}


def says(text: str) -> dict[str, Any]:
    """The body of a reply in words."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 3}
    return {"id": "r2", "model": "m", "choices": [choice], "usage": usage}


def streams_call(name: str, arguments: dict[str, Any]) -> Reply:
    """A stream of one tool call."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    delta = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]}
    event = {"id": "r1", "choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls"}]}
    return sse(b"data: " + json.dumps(event).encode() + b"\n\n" + DONE)


def streams_text(*pieces: str) -> Reply:
    """A stream of text, in its pieces."""
    *first, last = pieces
    return sse(*(chunk(piece) for piece in first), chunk(last, finish="stop") + DONE)
