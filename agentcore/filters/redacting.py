"""RedactingFilter: patterns that are taken out of what is delivered, across the borders of a stream's pieces."""

import re
from collections.abc import AsyncIterator, Callable, Iterable
from typing import ClassVar, TypeAlias

from msgspec.structs import replace

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.errors import ConfigurationError
from agentcore.events import AgentEvent, ReasoningDelta, TextDelta, TurnEvent
from agentcore.exchange import InvokeResult, TurnRequest
from agentcore.filters.base import ChatCall, Filter, MemorySide, TurnCall
from agentcore.messages import AssistantMessage

Replacement: TypeAlias = "str | Callable[[re.Match[str]], str]"


class RedactingFilter(Filter):
    r"""Takes what matches a pattern out of what is delivered: of the events' text and thoughts, and of `result.text`.

        client = ChatClient(model, memory=store, filters=[RedactingFilter([r"[\w.]+@[\w.]+", r"\b\d{16}\b"])])

    The record, and `result.messages`, which is what was stored, keep the words as the model said them, and the model
    sees them so. In a stream `longest` characters and a quarter are held back for each pattern, so that a match which
    comes in pieces is found: what is delivered is what the pattern would make of the whole text, as long as a match,
    and what it looks at around it, is no longer than that. Of a longer match the part in reach is taken out.

    Args:
        patterns: regular expressions; each is applied to what the one before it left.
        replacement: put in their place: a text, or a function of the match.
        longest: the length of the longest match.

    Raises:
        ConfigurationError: `longest` is less than 1, or a pattern is no regular expression, or matches an empty
            text.
    """

    memory_side: ClassVar[MemorySide | None] = "outside"

    def __init__(
        self, patterns: Iterable[str | re.Pattern[str]], *, replacement: Replacement = "[redacted]", longest: int = 64
    ) -> None:
        if longest < 1:
            raise ConfigurationError(f"longest={longest}: no match is that short; give at least 1")
        try:
            self._patterns = [re.compile(pattern) for pattern in patterns]
        except re.error as error:
            raise ConfigurationError(f"{error.pattern!r} is no regular expression: {error}") from error
        for pattern in self._patterns:
            if pattern.match(""):
                raise ConfigurationError(f"the pattern {pattern.pattern!r} matches nothing at all, and so everywhere")
        self._replace = _replacing(replacement)
        self._longest = longest

    async def around_turn(self, request: TurnRequest, call_next: TurnCall) -> InvokeResult:
        """Redact the answer as it is delivered."""
        result = await call_next(request)
        if result.message is not None:
            result = replace(result, message=self._shown(result.message))
        return result if result.direct_text is None else replace(result, direct_text=self._whole(result.direct_text))

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        """Redact the reply of a model call that belongs to no turn, as it is delivered."""
        response = await call_next(request)
        if request.turn is not None and request.turn.model_calls:
            return response
        return replace(response, message=self._shown(response.message))

    async def transform_stream(self, events: AsyncIterator[TurnEvent]) -> AsyncIterator[TurnEvent]:
        """Redact text and thoughts, each for itself, also those of agents inside tools."""
        held: dict[tuple[str, type], _Held] = {}
        try:
            async for event in events:
                call_id, inner = (event.call_id, event.event) if isinstance(event, AgentEvent) else ("", event)
                if isinstance(inner, TextDelta | ReasoningDelta):
                    one = held.get((call_id, type(inner)))
                    if one is None:
                        one = held[call_id, type(inner)] = _Held(event, self)
                    text = one.feed(inner.text)
                    if text:
                        yield _with_text(event, text)
                    continue
                for key in [key for key in held if key[0] == call_id]:
                    for rest in held.pop(key).flush():
                        yield rest
                yield event
        except Exception:  # the reader is given what was sent before it: that is what the record holds
            for one in held.values():
                for rest in one.flush():
                    yield rest
            raise
        for one in held.values():
            for rest in one.flush():
                yield rest

    def _shown(self, message: AssistantMessage) -> AssistantMessage:
        if not message.content and not message.reasoning:
            return message
        return replace(message, content=self._whole(message.content), reasoning=self._whole(message.reasoning))

    def _whole(self, text: str | None) -> str | None:
        for pattern in self._patterns if text else ():
            text = pattern.sub(self._replace, text or "")
        return text

    def stages(self) -> "list[_Stage]":
        """A stage for each pattern, for one text."""
        return [_Stage(pattern, self._replace, self._longest) for pattern in self._patterns]


def _replacing(replacement: Replacement) -> Callable[[re.Match[str]], str]:
    """A function, so that a text with a backslash in it stands as it is; nothing in place of nothing."""
    if callable(replacement):
        return lambda match: replacement(match) if match[0] else ""
    return lambda match: replacement if match[0] else ""


class _Held:
    """One text of a stream on its way through the patterns."""

    def __init__(self, event: TurnEvent, redacting: RedactingFilter) -> None:
        self._event = event
        self._stages = redacting.stages()

    def feed(self, text: str) -> str:
        for stage in self._stages:
            text = stage.feed(text)
        return text

    def flush(self) -> list[TurnEvent]:
        text = ""
        for stage in self._stages:
            text = stage.feed(text) + stage.flush()
        return [_with_text(self._event, text)] if text else []


def _with_text(event: TurnEvent, text: str) -> TurnEvent:
    if isinstance(event, AgentEvent):
        return replace(event, event=_with_text(event.event, text))
    return ReasoningDelta(text) if isinstance(event, ReasoningDelta) else TextDelta(text)


class _Stage:
    """One pattern on one text that comes in pieces."""

    def __init__(self, pattern: re.Pattern[str], replace_match: Callable[[re.Match[str]], str], longest: int) -> None:
        self._pattern, self._replace, self._longest = pattern, replace_match, longest
        self._step = max(1, longest // 4)  # looking at each letter that comes would cost four times as much
        self._buffer = ""
        self._done = 0  # up to here it was given out; what lies before is kept for patterns that look back

    def feed(self, text: str) -> str:
        self._buffer += text
        # A match that begins here has ended by the end of the buffer, and what follows it is known.
        limit = len(self._buffer) - self._longest
        return self._give_out(limit) if limit - self._done >= self._step else ""

    def flush(self) -> str:
        return self._give_out(len(self._buffer) + 1)

    def _give_out(self, limit: int) -> str:
        if limit <= self._done:
            return ""
        pieces: list[str] = []
        for match in self._pattern.finditer(self._buffer, self._done):
            if match.start() >= limit:
                break
            pieces += (self._buffer[self._done : match.start()], self._replace(match))
            self._done = match.end()
        until = min(limit, len(self._buffer))
        if self._done < until:
            pieces.append(self._buffer[self._done : until])
            self._done = until
        forgotten = max(0, self._done - self._longest)
        self._buffer, self._done = self._buffer[forgotten:], self._done - forgotten
        return "".join(pieces)
