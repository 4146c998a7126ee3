"""OutputGuard: a reply that may not be given is neither delivered nor stored."""

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.errors import ConfigurationError
from agentcore.events import ReasoningDelta, TextDelta, TurnEvent
from agentcore.exchange import InvokeResult, TurnRequest
from agentcore.filters.base import ChatCall, Filter, MemorySide, TurnCall
from agentcore.filters.sink_layer import SinkLayer, layered
from agentcore.filters.verdict import Block, Judge, judged
from agentcore.messages import AssistantMessage
from agentcore.turn import EventSink


class OutputGuard(Filter):
    """Lets replies pass, or puts a replacement in their place and ends the turn with status `blocked`.

        async def polite(text: str) -> Block | None: ...

        client = ChatClient(model, memory=store, filters=[OutputGuard(polite)])

    A reply is judged as a whole; of a stream, text is held back until the guard has seen it: it is asked about all of
    the reply so far whenever `every` further characters are there, and at the end. A blocked stream is broken off: what
    had been delivered and the replacement are the reply, for the reader and for the record (`finish_reason`
    `content_filter`). Its tool calls do not run. Thoughts and arguments of tool calls are not judged.

    Args:
        judge: given a text, returns None or `Block(reason)`; sync or async. What it raises ends the turn.
        replacement: what the reader gets instead.
        every: characters that are held back at most.

    Raises:
        ConfigurationError: `every` is less than 1.
    """

    memory_side: ClassVar[MemorySide | None] = "inside"

    def __init__(self, judge: Judge[str], *, replacement: str = "[withheld]", every: int = 200) -> None:
        if every < 1:
            raise ConfigurationError(f"every={every} characters cannot be held back; give at least 1")
        self._judge = judge
        self._replacement = replacement
        self._every = every

    async def around_turn(self, request: TurnRequest, call_next: TurnCall) -> InvokeResult:
        """Say in the result that a reply was blocked."""
        result = await call_next(request)
        verdict: Block | None = request.turn.notes.get(self)
        return result if verdict is None else replace(result, status="blocked", reason=verdict.reason)

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        """Judge the reply, at once or as it comes."""
        turn = request.turn
        held = _HeldSink(turn.sink, self._judge, self._every) if turn is not None and turn.sink is not None else None
        if turn is None or held is None:
            response = await call_next(request)
            verdict = await judged(self._judge, response.text) if response.text else None
            if verdict is None:
                return response
            delivered = AssistantMessage(None)
        else:
            response = None
            try:
                with layered(turn, held):
                    response = await call_next(request)
                    await held.judge()
                return response
            except _BlockedError as blocked:
                verdict, delivered = blocked.verdict, held.delivered()
            await held.inner.send((TextDelta(self._replacement),))
        if turn is not None:
            turn.notes[self] = verdict
        message = replace(
            delivered, content=(delivered.content or "") + self._replacement, finish_reason="content_filter"
        )
        if response is None:
            return ChatResponse(message, "content_filter")
        return replace(response, message=message, finish_reason="content_filter", raw_finish_reason=None)


class _BlockedError(Exception):
    def __init__(self, verdict: Block) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


class _HeldSink(SinkLayer):
    """Holds events back until the text among them has been judged."""

    def __init__(self, inner: EventSink, judge: Judge[str], every: int) -> None:
        super().__init__(inner)
        self._judge, self._every = judge, every
        self.begin()

    def begin(self) -> None:
        self._text = ""
        self._unjudged = 0
        self._held: list[TurnEvent] = []
        self._delivered: list[TurnEvent] = []

    def begin_attempt(self) -> None:
        """Forget an attempt that was given up: what is held of it nobody will see."""
        self.begin()
        super().begin_attempt()

    async def send(self, events: Sequence[TurnEvent]) -> None:
        """Hold events; judge and deliver them when there are enough."""
        self._held.extend(events)
        said = "".join([event.text for event in events if isinstance(event, TextDelta)])
        self._text += said
        self._unjudged += len(said)
        if self._unjudged >= self._every:
            await self.judge()
        elif not self._unjudged:
            await self._release()

    async def judge(self) -> None:
        """Judge what has not been, and deliver it."""
        if self._unjudged:
            verdict = await judged(self._judge, self._text)
            if verdict is not None:
                raise _BlockedError(verdict)
            self._unjudged = 0
        await self._release()

    async def _release(self) -> None:
        held, self._held = self._held, []
        self._delivered += held
        await self.inner.send(held)

    def delivered(self) -> AssistantMessage:
        """What the reader got of this attempt."""
        text = "".join([event.text for event in self._delivered if isinstance(event, TextDelta)])
        reasoning = "".join([event.text for event in self._delivered if isinstance(event, ReasoningDelta)])
        return AssistantMessage(text, reasoning=reasoning or None)
