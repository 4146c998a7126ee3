"""The events of a run as chunks of the UI message stream of the AI SDK.

Source: AI SDK documentation, "Stream Protocols", "UI Message Stream Protocol"; the chunk schemas of npm `ai` 7.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeAlias

from msgspec import to_builtins

from agentcore.events import (
    AgentEvent,
    ReasoningDelta,
    ReplyRestarted,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEvent,
)
from agentcore.exchange import InvokeResult
from agentcore.messages import AssistantMessage, Content, ToolCall, ToolMessage, text_of
from agentcore.web.answers import Refusal, server_sent
from agentcore.web.runs import Behind

Chunk: TypeAlias = dict[str, Any]

DONE = b"data: [DONE]\n\n"

_FINISH_REASONS = {"stop": "stop", "length": "length", "content_filter": "content-filter", "tool_calls": "tool-calls"}
_STATUSES = {"paused": "tool-calls", "blocked": "content-filter", "limit": "other", "stopped": "other"}


class VercelChunks:
    """Satisfies `translating.Translator`.

    Args:
        message_id: of the assistant message that the run is, or goes on with.
        earlier: events of the same message before this run, for a reader who comes again after a pause.
        known: ids of calls that the reader has been told of: those of the pause that the run goes on from.
        denied: of these, the ones that a person refused.
        settled: answers in the place of tools that were decided on and will not run.
        replied: of these, the ones whose results came from the reader.
    """

    def __init__(
        self,
        message_id: str,
        *,
        earlier: Sequence[TurnEvent] = (),
        known: Collection[str] = (),
        denied: Sequence[str] = (),
        settled: Sequence[ToolMessage] = (),
        replied: Collection[str] = (),
    ) -> None:
        self._message_id = message_id
        self._earlier = earlier
        self._denied = tuple(denied)
        self._settled = tuple(settled)
        self._goes_on = bool(known)  # the reader has the step with these calls
        self._calls = set(known)  # told of, in this step or before the pause
        self._available: set[str] = set(known)  # with all their arguments
        self._answered: set[str] = {*denied, *replied}
        self._streamed: dict[int, str] = {}  # the calls of the reply that is being written: index → id
        self._waiting: dict[int, str] = {}  # arguments of calls whose id or name is still to come
        self._in_step = False
        self._tools_ran = False
        self._shown: list[tuple[str, list[str]]] = []  # text and reasoning of this step
        self._text: str | None = None  # the open part
        self._reasoning: str | None = None
        self._parts = 0
        self._said = False  # text in this step

    def begin(self) -> bytes:
        """The start of the message, and what the reader has missed of it."""
        chunks: list[Chunk] = [{"type": "start", "messageId": self._message_id}]
        for event in self._earlier:
            chunks.extend(self._event(event))
        chunks.extend({"type": "tool-output-denied", "toolCallId": call_id} for call_id in self._denied)
        for message in self._settled:
            chunks.extend(self._result(message))
        return _sent(chunks)

    def event(self, event: TurnEvent | Behind) -> bytes:
        """An event as chunks."""
        return _sent(self._event(event))

    def finished(self, result: InvokeResult) -> bytes:
        """What was never streamed, what waits for a decision, and the end."""
        return _sent(self._finished(result)) + DONE

    def failed(self, refusal: Refusal) -> bytes:
        """The error, in words for a reader."""
        return _sent([*self._close(), {"type": "error", "errorText": refusal.detail}]) + DONE

    def _event(self, event: TurnEvent | Behind) -> Iterator[Chunk]:
        match event:
            case TextDelta(text):
                yield from self._step()
                if self._text is None:
                    yield from self._close()
                    self._text = self._new_part("text")
                    yield {"type": "text-start", "id": self._text}
                self._said = True
                self._shown[-1][1].append(text)
                yield {"type": "text-delta", "id": self._text, "delta": text}
            case ReasoningDelta(text):
                yield from self._step()
                if self._reasoning is None:
                    yield from self._close()
                    self._reasoning = self._new_part("reasoning")
                    yield {"type": "reasoning-start", "id": self._reasoning}
                self._shown[-1][1].append(text)
                yield {"type": "reasoning-delta", "id": self._reasoning, "delta": text}
            case ToolCallDelta():
                yield from self._step()
                yield from self._close()
                yield from self._call_delta(event)
            case ToolStarted(call):
                if call.id in self._answered:  # the same id again, of a reply that was not streamed
                    yield from self._step()
                self._tools_ran = True
                yield from self._close()
                yield from self._announce(call)
            case ToolFinished(message):
                self._tools_ran = True
                yield from self._result(message)
            case ToolProgress(call_id, data):
                told = {"call_id": call_id, "data": data}
                yield {"type": "data-tool-progress", "id": call_id, "data": told}
            case AgentEvent():
                yield {"type": "data-agent", "data": _without_tag(event), "transient": True}
            case ReplyRestarted():
                if self._in_step and not self._tools_ran:  # else nothing of the reply was delivered
                    self._forget_reply()
                    yield {"type": "reset-step"}
            case Behind(missed):
                yield {"type": "data-behind", "data": {"missed": missed}, "transient": True}

    def _step(self) -> Iterator[Chunk]:
        """A model call is one step; its tools belong to it."""
        if self._in_step and not self._tools_ran:
            return
        yield from self._close()
        if self._in_step:
            yield {"type": "finish-step"}
        yield {"type": "start-step"}
        self._in_step, self._tools_ran, self._said = True, False, False
        self._shown.clear()
        self._calls.clear()  # some servers count their calls anew in every reply
        self._available.clear()
        self._answered.clear()
        self._streamed.clear()
        self._waiting.clear()

    def _close(self) -> Iterator[Chunk]:
        if self._text is not None:
            yield {"type": "text-end", "id": self._text}
        if self._reasoning is not None:
            yield {"type": "reasoning-end", "id": self._reasoning}
        self._text = self._reasoning = None

    def _forget_reply(self) -> None:
        self._text = self._reasoning = None
        self._said = False
        self._shown.clear()
        self._calls.clear()
        self._available.clear()
        self._streamed.clear()
        self._waiting.clear()

    def _new_part(self, kind: str) -> str:
        self._parts += 1
        self._shown.append((kind, []))
        return str(self._parts)

    def _call_delta(self, event: ToolCallDelta) -> Iterator[Chunk]:
        call_id = self._streamed.get(event.index)
        arguments = event.arguments
        if call_id is None:
            arguments = self._waiting.pop(event.index, "") + arguments
            if not event.id or not event.name:
                self._waiting[event.index] = arguments
                return
            call_id = self._streamed[event.index] = event.id
            if call_id not in self._calls:
                self._calls.add(call_id)
                yield {"type": "tool-input-start", "toolCallId": call_id, "toolName": event.name}
        if arguments:
            yield {"type": "tool-input-delta", "toolCallId": call_id, "inputTextDelta": arguments}

    def _announce(self, call: ToolCall) -> Iterator[Chunk]:
        """The call with all its arguments, once."""
        if call.id in self._available:
            return
        if not self._in_step and not self._goes_on:
            yield {"type": "start-step"}
            self._in_step = self._tools_ran = True
        self._calls.add(call.id)
        self._available.add(call.id)
        given: Any = call.args if call.raw_arguments is None else call.raw_arguments
        yield {"type": "tool-input-available", "toolCallId": call.id, "toolName": call.name, "input": given}

    def _result(self, message: ToolMessage) -> Iterator[Chunk]:
        call_id = message.tool_call_id
        if call_id not in self._calls:  # its call went by before this reader came
            yield from self._announce(ToolCall(call_id, message.name))
        self._answered.add(call_id)
        if message.is_error:
            yield {"type": "tool-output-error", "toolCallId": call_id, "errorText": text_of(message.content)}
        else:
            yield {"type": "tool-output-available", "toolCallId": call_id, "output": _output(message.content)}

    def _finished(self, result: InvokeResult) -> Iterator[Chunk]:
        yield from self._close()
        yield from self._unstreamed(result)
        if result.status == "cancelled":
            yield {"type": "abort"}
            return
        waiting = result.pause.calls if result.pause is not None else ()
        if waiting and self._calls - self._answered - {one.call.id for one in waiting}:
            yield from self._only_what_waits()
        for one in waiting:
            yield from self._announce(one.call)
            if one.kind != "client_tool":
                asked = {"type": "tool-approval-request", "approvalId": one.digest, "toolCallId": one.call.id}
                yield {**asked, "reason": one.reason} if one.reason else asked
        if self._in_step:
            yield {"type": "finish-step"}
        reason = _STATUSES.get(result.status) or _FINISH_REASONS.get(result.finish_reason or "", "other")
        yield {"type": "finish", "finishReason": reason, "messageMetadata": _metadata(result)}

    def _only_what_waits(self) -> Iterator[Chunk]:
        """Tell the step anew, without calls that will run once the others are decided on.

        The SDK sends decisions and outputs by itself when no call of the step is without an end.
        """
        shown = list(self._shown)
        self._forget_reply()
        yield {"type": "reset-step"}
        for kind, pieces in shown:
            yield from self._event(TextDelta("".join(pieces)) if kind == "text" else ReasoningDelta("".join(pieces)))
            yield from self._close()

    def _unstreamed(self, result: InvokeResult) -> Iterator[Chunk]:
        """Results of calls that were never run, and an answer that no model has streamed."""
        last = max((i for i, one in enumerate(result.messages) if isinstance(one, AssistantMessage)), default=-1)
        waiting = {one.call.id for one in result.pause.calls} if result.pause is not None else set[str]()
        if last >= 0 and not waiting:
            reply = result.messages[last]
            assert isinstance(reply, AssistantMessage)
            answers = [one for one in result.messages[last + 1 :] if isinstance(one, ToolMessage)]
            for answer in answers:
                if answer.tool_call_id not in self._answered:
                    yield from [
                        c for call in reply.tool_calls if call.id == answer.tool_call_id for c in self._announce(call)
                    ]
                    yield from self._result(answer)
        if result.status in ("completed", "blocked") and result.text and (not self._said or result.direct_text):
            yield from self._event(TextDelta(result.text))
            yield from self._close()


def _output(content: Content) -> Any:
    return content if isinstance(content, str) else to_builtins(content)


def _without_tag(event: AgentEvent) -> Chunk:
    return {"agent": event.agent, "call_id": event.call_id, "event": event.event}


def _metadata(result: InvokeResult) -> Chunk:
    """How the turn ended, for a front end that shows it."""
    told = {
        "status": result.status,
        "usage": to_builtins(result.usage),
        "cost": result.cost,
        "limit": result.limit,
        "reason": result.reason,
    }
    return {name: value for name, value in told.items() if value is not None}


def _sent(chunks: "Iterator[Chunk] | list[Chunk]") -> bytes:
    return b"".join([server_sent(chunk) for chunk in chunks])
