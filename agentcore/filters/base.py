"""The onion: what a filter is, and how a list of filters becomes one call."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.events import TurnEvent
from agentcore.exchange import InvokeResult, TurnRequest
from agentcore.messages import ToolMessage
from agentcore.tools.request import ToolRequest

ChatCall: TypeAlias = Callable[[ChatRequest], Awaitable[ChatResponse]]
ToolRun: TypeAlias = Callable[[ToolRequest], Awaitable[ToolMessage]]
TurnCall: TypeAlias = Callable[[TurnRequest], Awaitable[InvokeResult]]
StreamTransform: TypeAlias = Callable[[AsyncIterator[TurnEvent]], AsyncIterator[TurnEvent]]
MemorySide: TypeAlias = Literal["outside", "inside"]

_Request = TypeVar("_Request")
_Reply = TypeVar("_Reply")


class Filter:
    """Something around a call. Override the grains you need; what is not overridden costs nothing.

    `call_next(request)` runs what lies further inside, and only that: it may be called with another request, not at
    all, or again, without running the outer neighbours twice. A filter instance serves many turns at once, so it keeps
    what belongs to one turn in local variables.

    Attributes:
        memory_side: on which side of the memory filter it belongs, if the other one is wrong: `outside` sees only what
            is new and comes before anything is stored; `inside` sees all that the model sees, and what it changes
            there is not stored.
        inside_of: class names of filters that are wrong inside this one: they have to come before it.
    """

    memory_side: ClassVar[MemorySide | None] = None
    inside_of: ClassVar[tuple[str, ...]] = ()

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        """Around each model call. Outside the memory filter the request holds the delta, inside it the whole."""
        return await call_next(request)

    async def around_tool(self, request: ToolRequest, call_next: ToolRun) -> ToolMessage:
        """Around each tool call, inside the batch."""
        return await call_next(request)

    async def around_turn(self, request: TurnRequest, call_next: TurnCall) -> InvokeResult:
        """Around the whole turn: all model calls and tools between the user's words and the answer."""
        return await call_next(request)

    async def transform_stream(self, events: AsyncIterator[TurnEvent]) -> AsyncIterator[TurnEvent]:
        """Transform what a streamed turn delivers: an async generator, one event to none or many, flush at the end.

        It changes the delivery, never the stored answer.
        """
        async for event in events:
            yield event


def overridden(filters: Sequence[Filter], grain: str) -> list[Any]:
    """The bound methods of those filters that have something of their own at this grain, in order."""
    inherited = getattr(Filter, grain)
    return [
        getattr(one, grain)
        for one in filters
        if getattr(type(one), grain, inherited) is not inherited or grain in getattr(one, "__dict__", ())
    ]


def compose(
    arounds: Sequence[Callable[[_Request, Callable[[_Request], Awaitable[_Reply]]], Awaitable[_Reply]]],
    innermost: Callable[[_Request], Awaitable[_Reply]],
) -> Callable[[_Request], Awaitable[_Reply]]:
    """One call out of many layers; the first is outermost."""
    call = innermost
    for around in reversed(arounds):
        call = _layer(around, call)
    return call


def _layer(
    around: Callable[[_Request, Callable[[_Request], Awaitable[_Reply]]], Awaitable[_Reply]],
    call_next: Callable[[_Request], Awaitable[_Reply]],
) -> Callable[[_Request], Awaitable[_Reply]]:
    def call(request: _Request) -> Awaitable[_Reply]:
        return around(request, call_next)

    return call
