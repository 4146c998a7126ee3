"""ScriptedModel: a chat model that says what a test told it to say."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import anyio
from msgspec import Struct

from agentcore.chat import ChatRequest, ChatResponse, ChatStream, events_of
from agentcore.events import ReasoningDelta, StreamEvent, TextDelta
from agentcore.messages import AssistantMessage, FinishReason, ToolCall
from agentcore.usage import UNKNOWN_USAGE, Usage


class Reply(Struct, frozen=True, kw_only=True):
    """One scripted reply.

    Attributes:
        text: the answer; as a list, the pieces in which a stream delivers it.
        tool_calls: the calls it makes.
        reasoning: readable thoughts.
        finish_reason: None for what the shape says (`stop` or `tool_calls`).
        error: raised instead of an answer; in a stream, after the text pieces were delivered.
        delay: seconds before the first byte.
        wait_for: awaited before the first byte: a gate for tests that must not sleep.
        wait_between: awaited before every further text piece of a stream.
        usage: what the call cost.
    """

    text: str | Sequence[str] | None = None
    tool_calls: Sequence[ToolCall] = ()
    reasoning: str | None = None
    finish_reason: FinishReason | None = None
    error: Exception | None = None
    delay: float = 0.0
    wait_for: Callable[[], Awaitable[object]] | None = None
    wait_between: Callable[[], Awaitable[object]] | None = None
    usage: Usage = UNKNOWN_USAGE

    def pieces(self) -> list[str]:
        """The text as a stream delivers it."""
        if self.text is None:
            return []
        return [self.text] if isinstance(self.text, str) else list(self.text)


ScriptItem: TypeAlias = str | Reply | ToolCall | Sequence[ToolCall] | Exception | Callable[[ChatRequest], Any]
"""A text, a whole reply, one or more tool calls, an error, or a function of the request that gives one of these."""


class ScriptExhaustedError(AssertionError):
    """The model was called more often than the script has replies."""


class ScriptedModel:
    """Answers each call with the next item of a script; keeps the requests it was given in `requests`.

    Args:
        script: one item a model call, see `ScriptItem`.
        repeat_last: go on with the last item for ever instead of failing when the script is at its end.
    """

    def __init__(self, script: Sequence[ScriptItem], *, repeat_last: bool = False, name: str = "scripted") -> None:
        self.name = name
        self.requests: list[ChatRequest] = []
        self._script = list(script)
        self._repeat_last = repeat_last

    @property
    def calls(self) -> int:
        """How often the model was called."""
        return len(self.requests)

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """The next reply at once."""
        reply = await self._next(request)
        if reply.error is not None:
            raise reply.error
        return self.response_to(reply)

    @asynccontextmanager
    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatStream]:
        """The next reply in its pieces."""
        yield _ScriptedStream(await self._next(request), self)

    async def _next(self, request: ChatRequest) -> Reply:
        index = len(self.requests)
        self.requests.append(request)
        if index >= len(self._script):
            if not self._repeat_last or not self._script:
                raise ScriptExhaustedError(f"model call {index + 1}, but the script has {len(self._script)} replies")
            index = len(self._script) - 1
        item = self._script[index]
        if callable(item):
            item = item(request)
        reply = _as_reply(item)
        if reply.delay:
            await anyio.sleep(reply.delay)
        if reply.wait_for is not None:
            await reply.wait_for()
        return reply

    def response_to(self, reply: Reply) -> ChatResponse:
        """The response that a scripted reply stands for."""
        shape: FinishReason = "tool_calls" if reply.tool_calls else "stop"
        message = AssistantMessage(
            "".join(reply.pieces()) if reply.text is not None else None,
            tuple(reply.tool_calls),
            reply.reasoning,
            reply.finish_reason if reply.finish_reason not in (None, shape) else None,
        )
        return ChatResponse(message, reply.finish_reason or shape, usage=reply.usage, model=self.name)


class _ScriptedStream:
    def __init__(self, reply: Reply, model: ScriptedModel) -> None:
        self._reply = reply
        self._model = model
        self._response: ChatResponse | None = None

    @property
    def response(self) -> ChatResponse:
        if self._response is None:
            raise RuntimeError("the stream has not been read to its end")
        return self._response

    async def __aiter__(self) -> AsyncIterator[StreamEvent]:
        reply = self._reply
        if reply.reasoning:
            yield ReasoningDelta(reply.reasoning)
        for position, piece in enumerate(reply.pieces()):
            if position and reply.wait_between is not None:
                await reply.wait_between()
            yield TextDelta(piece)
        if reply.error is not None:
            raise reply.error
        for event in events_of(AssistantMessage(None, tuple(reply.tool_calls))):
            yield event
        self._response = self._model.response_to(reply)


def _as_reply(item: Any) -> Reply:
    if isinstance(item, Reply):
        return item
    if isinstance(item, str):
        return Reply(text=item)
    if isinstance(item, ToolCall):
        return Reply(tool_calls=(item,))
    if isinstance(item, Exception):
        return Reply(error=item)
    return Reply(tool_calls=tuple(item))
