"""Runs as OpenAI chat completions: whole, and in chunks.

Source: OpenAI API reference, "The chat completion object", "The chat completion chunk object"; `reasoning_content` is
the word of DeepSeek's API, which most clients and servers of this format use.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from msgspec import json

from agentcore.events import (
    ReasoningDelta,
    ReplyRestarted,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
    TurnEvent,
)
from agentcore.exchange import InvokeResult
from agentcore.messages import AssistantMessage, ToolCall
from agentcore.usage import UNKNOWN_USAGE, Usage
from agentcore.web.answers import Refusal, server_sent
from agentcore.web.runs import Behind

Object: TypeAlias = dict[str, Any]

DONE = b"data: [DONE]\n\n"

_BETWEEN = "\n\n"  # two replies of one turn, with the server's own tools between them
_WORDS = {"stop": "stop", "length": "length", "content_filter": "content_filter"}
_STATUSES = {"paused": "tool_calls", "blocked": "content_filter", "limit": "length"}
_ANSWERED = ("completed", "blocked", "paused")
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class OpenAIRefusal(Refusal):
    """A refusal that names the parameter it is about."""

    def __init__(self, status: int, kind: str, message: str, *, param: str | None = None) -> None:
        super().__init__(status, kind, message)
        self.param = param


def error_object(status: int, kind: str, message: str, param: str | None = None) -> Object:
    """An error in OpenAI's form."""
    of_kind = _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": of_kind, "param": param, "code": kind}}


class OpenAIChunks:
    """A run as chunks. Satisfies `translating.Translator`.

    Args:
        completion_id: of the completion.
        model: the name that the caller knows the model by.
        include_usage: end with a chunk that has the tokens, if they are known.
        whole_text: send the text when all of it is there, and only that of the last reply: for answers that have to be
            of a form, which text of earlier replies or a reply that was given up would break.
    """

    def __init__(self, completion_id: str, model: str, *, include_usage: bool, whole_text: bool) -> None:
        self._head: Object = {
            "id": completion_id,
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": None,
        }
        self._include_usage = include_usage
        self._whole_text = whole_text
        self._said = False
        self._apart = False  # the next text is of another reply
        self._replied = False  # text of the last reply was sent
        self._lost = False

    def begin(self) -> bytes:
        """The chunk with the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def event(self, event: TurnEvent | Behind) -> bytes:
        """Text and thoughts; calls come whole at the end, when it is known that they are the caller's to run."""
        match event:
            case TextDelta(text) if not self._whole_text and not self._lost:
                between = _BETWEEN if self._said and self._apart else ""
                self._said, self._replied, self._apart = True, True, False
                return self._chunk({"content": between + text})
            case ReasoningDelta(text) if not self._lost:
                return self._chunk({"reasoning_content": text})
            case ToolCallDelta():
                self._apart = True
            case ToolStarted() | ToolFinished() | ReplyRestarted():
                self._apart, self._replied = True, False
            case Behind():
                self._lost = True
            case _:
                pass
        return b""

    def finished(self, result: InvokeResult) -> bytes:
        """The calls, the reason of the end, the tokens."""
        if self._lost or result.status == "cancelled":
            return self.failed(not_whole(result))
        told = [self._chunk(delta) for delta in self._rest(result)]
        told.append(self._chunk({}, finish_reason(result)))
        if self._include_usage and result.usage != UNKNOWN_USAGE:
            told.append(server_sent({**self._head, "choices": [], "usage": usage_object(result.usage)}))
        return b"".join([*told, DONE])

    def failed(self, refusal: Refusal) -> bytes:
        """The error, which ends the stream: without [DONE], as nothing is done."""
        return server_sent(error_object(refusal.status_code, refusal.kind, refusal.detail))

    def _rest(self, result: InvokeResult) -> Iterator[Object]:
        text = result.text
        unsent = result.direct_text is not None or (not self._replied and result.status in _ANSWERED)
        if text and (self._whole_text or unsent):
            yield {"content": (_BETWEEN if self._said else "") + text}
        elif not text and not self._said and (refused := _refused(result)) is not None:
            yield {"refusal": refused}
        calls = callers_calls(result)
        if calls:
            yield {"tool_calls": [{"index": index, **_call(call)} for index, call in enumerate(calls)]}

    def _chunk(self, delta: Object, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        chunk: Object = {**self._head, "choices": [choice]}
        return server_sent({**chunk, "usage": None} if self._include_usage else chunk)


def completion(completion_id: str, model: str, result: InvokeResult, *, said: int, whole_text: bool) -> Object:
    """A turn that ended as a chat completion.

    Args:
        completion_id: its id.
        model: the name that the caller knows the model by.
        result: how the turn ended.
        said: how many messages the caller sent: the first ones of the result.
        whole_text: the text of the last reply alone, see `OpenAIChunks`.

    Raises:
        Refusal: the turn was stopped.
    """
    if result.status == "cancelled":
        raise not_whole(result)
    replies = [one for one in result.messages[said:] if isinstance(one, AssistantMessage)]
    texts = [one.content for one in replies if one.content and one.finish_reason != "interrupted"]
    text = result.text if whole_text or not texts else _BETWEEN.join(texts)
    if not whole_text and result.direct_text is not None and texts:
        text = _BETWEEN.join([*texts, result.direct_text])
    message: Object = {"role": "assistant", "content": text or None, "refusal": None if text else _refused(result)}
    reasoning = "".join([one.reasoning for one in replies if one.reasoning])
    if reasoning:
        message["reasoning_content"] = reasoning
    calls = callers_calls(result)
    if calls:
        message["tool_calls"] = [_call(call) for call in calls]
    elif message["content"] is None and message["refusal"] is None:
        message["content"] = ""
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(result)}
    return {
        "id": completion_id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": None if result.usage == UNKNOWN_USAGE else usage_object(result.usage),
        "system_fingerprint": None,
    }


def callers_calls(result: InvokeResult) -> Sequence[ToolCall]:
    """The calls of the tools that the caller brought along. None of the server's own that stood beside them has run."""
    return [one.call for one in result.pause.calls if one.kind == "client_tool"] if result.pause is not None else []


def finish_reason(result: InvokeResult) -> str:
    """Why it ended, in OpenAI's words."""
    return _STATUSES.get(result.status) or _WORDS.get(result.finish_reason or "", "stop")


def usage_object(usage: Usage) -> Object:
    """Tokens in OpenAI's words."""
    sent, got = usage.input_tokens or 0, usage.output_tokens or 0
    return {
        "prompt_tokens": sent,
        "completion_tokens": got,
        "total_tokens": sent + got,
        "prompt_tokens_details": {"cached_tokens": usage.cached_input_tokens or 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
    }


def not_whole(result: InvokeResult) -> Refusal:
    """What a caller is told of a turn that was stopped, or whose beginning was lost."""
    if result.status == "cancelled":
        return Refusal(503, "shutting_down", "the answer was stopped before its end; ask again")
    return Refusal(503, "overloaded", "the answer was read too late, and its beginning is lost; ask again")


def _refused(result: InvokeResult) -> str | None:
    return (result.reason or "This cannot be answered.") if result.status == "blocked" else None


def _call(call: ToolCall) -> Object:
    arguments = call.raw_arguments if call.raw_arguments is not None else json.encode(call.args).decode()
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
