"""InputGuard: what may not be said ends the turn before anything is stored or sent."""

from collections.abc import Sequence
from typing import ClassVar

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.exchange import InvokeResult, TurnRequest, turn_result
from agentcore.filters.base import ChatCall, Filter, MemorySide, TurnCall
from agentcore.filters.verdict import Judge, judged
from agentcore.messages import AssistantMessage, Message


class InputGuard(Filter):
    """Lets the new messages of a turn pass, or ends it with status `blocked`: nothing stored, no model called.

        def no_secrets(messages: Sequence[Message]) -> Block | None:
            return Block("a key was pasted") if any("sk-" in text_of(m.content) for m in messages) else None

        client = ChatClient(model, memory=store, filters=[InputGuard(no_secrets)])
        result = await client.invoke("my key is sk-…", conversation_id="u1")
        result.status, result.reason                                     # "blocked", "a key was pasted"

    It is asked once a turn, before the turn takes its place in the conversation. Results of tools that the model is
    told later in the turn do not pass here. `invoke_chat`, which has no status, gives a reply with `finish_reason`
    `content_filter` and the reason as its text.

    Args:
        judge: given the new messages, returns None or `Block(reason)`; sync or async. What it raises ends the turn.
    """

    memory_side: ClassVar[MemorySide | None] = "outside"

    def __init__(self, judge: Judge[Sequence[Message]]) -> None:
        self._judge = judge

    async def around_turn(self, request: TurnRequest, call_next: TurnCall) -> InvokeResult:
        """Judge what is new."""
        if request.messages:  # a turn that is resumed brings none
            verdict = await judged(self._judge, request.messages)
            if verdict is not None:
                return turn_result(request.turn, "blocked", reason=verdict.reason)
        return await call_next(request)

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        """Judge what is new in a model call that belongs to no turn of ours."""
        if request.turn is None or request.turn.model_calls == 0:
            verdict = await judged(self._judge, request.messages)
            if verdict is not None:
                return ChatResponse(AssistantMessage(verdict.reason, finish_reason="content_filter"), "content_filter")
        return await call_next(request)
