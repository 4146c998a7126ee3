"""FallbackModel: the next model answers when one fails in a way that another could cure."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

from agentcore.chat import ChatModel, ChatRequest, ChatResponse, ChatStream
from agentcore.errors import AgentCoreError, ConfigurationError, ErrorKind, ProviderError, UnsupportedContentError
from agentcore.events import StreamEvent
from agentcore.messages import Message

logger = logging.getLogger("agentcore.providers")

CURABLE_KINDS: frozenset[ErrorKind] = frozenset(
    (
        "auth",
        "permission",
        "not_found",
        "context_length",
        "rate_limit",
        "quota",
        "overloaded",
        "server",
        "timeout",
        "network",
        "decode",
    )
)
"""Failures another provider may not share. A malformed request or a refused content fails everywhere."""


class FallbackModel:
    """Several models as one: each call goes to the first, and on to the next when that one fails.

    Only failures that another provider could cure count (`CURABLE_KINDS`, and a part the provider cannot carry); each
    model has made its own retries before. A stream that has delivered anything is never started again elsewhere. An
    option `model` would name a model of one provider only: give each model its own name instead.

    Args:
        models: in the order they are asked.

    Raises:
        ConfigurationError: no models.
    """

    def __init__(self, models: Sequence[ChatModel | str]) -> None:
        if not models:
            raise ConfigurationError("FallbackModel needs at least one model")
        self.models: tuple[ChatModel, ...] = tuple(_model(one) for one in models)

    def __repr__(self) -> str:
        return f"FallbackModel({list(self.models)!r})"

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """The first answer there is.

        Raises:
            AgentCoreError: of the last model, or the first that no other model could cure.
        """
        for model in self.models[:-1]:
            try:
                return await model.chat(request)
            except AgentCoreError as error:
                _pass_on(model, error)
        return await self.models[-1].chat(request)

    @asynccontextmanager
    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatStream, None]:
        """The stream of the first model that delivers something."""
        async with AsyncExitStack() as stack:
            for model in self.models[:-1]:
                attempt = AsyncExitStack()
                try:
                    opened = _OpenedStream(await attempt.enter_async_context(model.stream(request)))
                    await opened.read_first()
                except AgentCoreError as error:
                    await attempt.aclose()
                    _pass_on(model, error)
                    continue
                except BaseException:
                    await attempt.aclose()
                    raise
                await stack.enter_async_context(attempt)
                yield opened
                return
            yield await stack.enter_async_context(self.models[-1].stream(request))

    def check(self, history: Sequence[Message]) -> list[str]:
        """What none of the models could carry of a history; a model that cannot tell carries all."""
        reports = [_check(model, history) for model in self.models]
        return min(reports, key=len)

    async def aclose(self) -> None:
        """Close all models."""
        for model in self.models:
            close = getattr(model, "aclose", None)
            if close is not None:
                await close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


class _OpenedStream:
    """A stream of which the first event has been read."""

    def __init__(self, stream: ChatStream) -> None:
        self._stream = stream
        self._events = aiter(stream)
        self._first: StreamEvent | None = None

    @property
    def response(self) -> ChatResponse:
        return self._stream.response

    async def read_first(self) -> None:
        self._first = await anext(self._events, None)

    async def __aiter__(self) -> AsyncIterator[StreamEvent]:
        if self._first is not None:
            yield self._first
            async for event in self._events:
                yield event


def _model(one: ChatModel | str) -> ChatModel:
    if not isinstance(one, str):
        return one
    from agentcore.providers.presets import chat_model

    return chat_model(one)


def _pass_on(model: ChatModel, error: AgentCoreError) -> None:
    """Go on to the next model, or raise what no other model could cure."""
    curable = isinstance(error, ProviderError) and error.kind in CURABLE_KINDS
    if not curable and not isinstance(error, UnsupportedContentError):
        raise error
    logger.warning("%r failed, going on to the next model: %s", model, error)


def _check(model: ChatModel, history: Sequence[Message]) -> list[str]:
    check = getattr(model, "check", None)
    return check(history) if check is not None else []
