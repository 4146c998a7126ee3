"""The events of a run as events of the AG-UI protocol 1.0, as its client verifies them.

Source: AG-UI specification 1.0 (docs.ag-ui.com, "Events", "Interrupts", "Subagents"); types of `ag-ui-protocol`.
"""

from base64 import b64encode
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from json import dumps
from typing import Any

from ag_ui.core import (
    AssistantMessage,
    AudioPart,
    BaseEvent,
    ContentPart,
    CustomEvent,
    DataSource,
    DocumentPart,
    FunctionCall,
    ImagePart,
    Interrupt,
    Message,
    MessagesSnapshotEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TextPart,
    TokenUsage,
    ToolCall,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
    UrlSource,
)
from ag_ui.encoder import EventEncoder
from msgspec import Struct, field, json, to_builtins

from agentcore import events, messages
from agentcore.exchange import InvokeResult
from agentcore.pause import Pause, PendingCall
from agentcore.usage import UNKNOWN_USAGE, Usage
from agentcore.web.answers import Refusal
from agentcore.web.runs import Behind

PROTOCOL_VERSION = "1.0"

_APPROVED: dict[str, Any] = {
    "approved": {"type": "boolean"},
    "reason": {"type": "string", "description": "Why not, for the model."},
}
_EDITED: dict[str, Any] = {
    "editedArgs": {"type": "object", "description": "Full replacement of the tool args. Not merged."}
}


class _Reply(Struct, eq=False):
    """A message of this run as the front end has it by now."""

    id: str
    agent: str | None
    text: list[str] = field(default_factory=lambda: list[str]())
    calls: dict[str, tuple[str, list[str]]] = field(default_factory=lambda: dict[str, tuple[str, list[str]]]())

    def message(self) -> AssistantMessage:
        calls = [
            ToolCall(id=call_id, function=FunctionCall(name=name, arguments="".join(arguments)))
            for call_id, (name, arguments) in self.calls.items()
        ]
        return AssistantMessage(
            id=self.id, content="".join(self.text) or None, tool_calls=calls or None, subagent_run_id=self.agent
        )


class _Voice:
    """Tells what one agent says and does: the turn's own model, or an agent inside one of its tool calls.

    Args:
        name: unique in the conversation; what its messages' ids begin with.
        agent: the invocation id of the agent; None for the turn's own model.
        made: the messages of the run so far, shared by all voices, in order.
        known: ids of calls that the front end has been told of.
    """

    def __init__(
        self, name: str, agent: str | None, made: "list[_Reply | ToolMessage]", known: Collection[str] = ()
    ) -> None:
        self._name = name
        self.agent = agent
        self._made = made
        self._told = set(known)  # calls of this reply, or of the pause
        self.answered: set[str] = set()
        self._replies = 0
        self._results = 0
        self._reply: _Reply | None = None
        self._drafts: list[_Reply] = []  # the messages of the reply that is being told
        self._tools_ran = False
        self._text: str | None = None
        self._reasoning: str | None = None
        self._streamed: dict[int, str] = {}
        self._waiting: dict[int, str] = {}
        self._open: dict[str, None] = {}
        self._agents: dict[str, _Voice] = {}
        self._invocations = 0
        self.said = False  # text in this reply

    def event(self, event: events.TurnEvent | Behind) -> Iterator[BaseEvent]:
        match event:
            case events.TextDelta(text):
                yield from self._end_round()
                reply = self._replying(again=self._text is None and self.said)
                if self._text is None:
                    yield from self._close()
                    self._text = reply.id
                    yield TextMessageStartEvent(message_id=reply.id, role="assistant", subagent_run_id=self.agent)
                self.said = True
                reply.text.append(text)
                yield TextMessageContentEvent(message_id=reply.id, delta=text, subagent_run_id=self.agent)
            case events.ReasoningDelta(text):
                yield from self._end_round()
                reply = self._replying()
                if self._reasoning is None:
                    yield from self._close()
                    self._results += 1
                    self._reasoning = f"{reply.id}-reasoning-{self._results}"
                    yield ReasoningStartEvent(message_id=self._reasoning, subagent_run_id=self.agent)
                    yield ReasoningMessageStartEvent(message_id=self._reasoning, subagent_run_id=self.agent)
                yield ReasoningMessageContentEvent(message_id=self._reasoning, delta=text, subagent_run_id=self.agent)
            case events.ToolCallDelta():
                yield from self._call_delta(event)
            case events.ToolStarted(call):
                if call.id in self.answered:  # the same id again, of a reply that was not streamed
                    yield from self._end_round()
                    self._replying()
                yield from self.announce(call)
                yield from self._end_calls(self._id_of(call.id))
                self._tools_ran = True
            case events.ToolFinished(message):
                yield from self._end_agent(message.tool_call_id, message)
                yield from self.result(message)
            case events.ToolProgress(call_id, data):
                told = {"toolCallId": self._id_of(call_id), "data": to_builtins(data, enc_hook=str)}
                yield CustomEvent(name="tool_progress", value=told)
            case events.AgentEvent():
                yield from self._agent_event(event)
            case events.ReplyRestarted():
                if self._reply is not None and not self._tools_ran:
                    yield from self.end()
                    for draft in self._drafts:
                        self._made.remove(draft)
                    self._reply = None
                    yield CustomEvent(name="reply_restarted", value=None)
            case Behind(missed):
                yield CustomEvent(name="behind", value={"missed": missed})

    def _agent_event(self, event: events.AgentEvent) -> Iterator[BaseEvent]:
        voice = self._agents.get(event.call_id)
        if voice is None:
            self._invocations += 1
            invocation = f"{self._name}-agent-{self._invocations}"
            voice = self._agents[event.call_id] = _Voice(invocation, invocation, self._made)
            yield SubagentStartedEvent(
                subagent_run_id=invocation,
                name=event.agent,
                parent_tool_call_id=self._id_of(event.call_id),
                parent_subagent_run_id=self.agent,
            )
        yield from voice.event(event.event)

    def announce(self, call: messages.ToolCall) -> Iterator[BaseEvent]:
        """The call as a whole, unless it was told already."""
        if call.id in self._told:
            return
        reply = self._reply or self._replying()  # calls of a batch may begin after others of it have ended
        self._told.add(call.id)
        arguments = call.raw_arguments if call.raw_arguments is not None else json.encode(call.args).decode()
        yield from self._close()
        yield self._start(reply, call.id, call.name)
        yield from self._arguments(reply, self._id_of(call.id), arguments)
        yield from self._end_calls(self._id_of(call.id))

    def result(self, message: messages.ToolMessage) -> Iterator[BaseEvent]:
        """What a tool answered."""
        if message.tool_call_id not in self._told:  # its call went by before this reader came
            yield from self.announce(messages.ToolCall(message.tool_call_id, message.name))
        yield from self._end_calls(self._id_of(message.tool_call_id))
        self._tools_ran = True
        self._results += 1
        self.answered.add(message.tool_call_id)
        made = ToolMessage(
            id=f"{self._name}-result-{self._results}",
            tool_call_id=self._id_of(message.tool_call_id),
            content=_content(message.content),
            error=messages.text_of(message.content) if message.is_error else None,
            subagent_run_id=self.agent,
        )
        self._made.append(made)
        yield ToolCallResultEvent(
            message_id=made.id,
            tool_call_id=made.tool_call_id,
            content=made.content,
            role="tool",
            metadata={"is_error": True} if message.is_error else None,
            subagent_run_id=self.agent,
        )

    def end(self, error: str | None = None) -> Iterator[BaseEvent]:
        """Close what is open."""
        for call_id in list(self._agents):
            yield from self._end_agent(call_id, None, error)
        yield from self._close()
        yield from self._end_calls(*self._open)

    def _end_agent(
        self, call_id: str, answer: messages.ToolMessage | None, error: str | None = None
    ) -> Iterator[BaseEvent]:
        voice = self._agents.pop(call_id, None)
        if voice is None or voice.agent is None:
            return
        yield from voice.end(error)
        if answer is not None and answer.is_error:
            error = messages.text_of(answer.content)
        if error is not None:
            yield SubagentErrorEvent(subagent_run_id=voice.agent, message=error)
        else:
            yield SubagentFinishedEvent(subagent_run_id=voice.agent)

    def _end_round(self) -> Iterator[BaseEvent]:
        """Once tools ran, what comes is of another reply: end what the last one left open."""
        if self._tools_ran:
            yield from self._close()
            yield from self._end_calls(*self._open)

    def _replying(self, *, again: bool = False) -> _Reply:
        """The reply that is being told; a new one after tools, and after text that was closed."""
        if self._reply is None or self._tools_ran:
            self._drafts.clear()
            self._told.clear()  # some servers count their calls anew in every reply
            self.answered.clear()
            self._streamed.clear()
            self._waiting.clear()
            self.said = False
        elif not again:
            return self._reply
        self._tools_ran = False
        self._replies += 1
        self._reply = _Reply(f"{self._name}-{self._replies}", self.agent)
        self._drafts.append(self._reply)
        self._made.append(self._reply)
        return self._reply

    def _call_delta(self, event: events.ToolCallDelta) -> Iterator[BaseEvent]:
        yield from self._end_round()
        reply = self._replying()
        yield from self._close()
        call_id = self._streamed.get(event.index)
        arguments = event.arguments
        if call_id is None:
            arguments = self._waiting.pop(event.index, "") + arguments
            if not event.id or not event.name:
                self._waiting[event.index] = arguments
                return
            call_id = self._streamed[event.index] = event.id
            if call_id not in self._told:
                self._told.add(call_id)
                yield self._start(reply, call_id, event.name)
        if self._id_of(call_id) in self._open:
            yield from self._arguments(reply, self._id_of(call_id), arguments)

    def _start(self, reply: _Reply, call_id: str, name: str) -> BaseEvent:
        wire_id = self._id_of(call_id)
        self._open[wire_id] = None
        reply.calls[wire_id] = (name, [])
        return ToolCallStartEvent(
            tool_call_id=wire_id, tool_call_name=name, parent_message_id=reply.id, subagent_run_id=self.agent
        )

    def _arguments(self, reply: _Reply, wire_id: str, arguments: str) -> Iterator[BaseEvent]:
        if arguments:
            if wire_id in reply.calls:
                reply.calls[wire_id][1].append(arguments)
            yield ToolCallArgsEvent(tool_call_id=wire_id, delta=arguments, subagent_run_id=self.agent)

    def _end_calls(self, *wire_ids: str) -> Iterator[BaseEvent]:
        for wire_id in wire_ids:
            if wire_id in self._open:
                del self._open[wire_id]
                yield ToolCallEndEvent(tool_call_id=wire_id, subagent_run_id=self.agent)

    def _close(self) -> Iterator[BaseEvent]:
        """End the text or the thoughts that are open."""
        if self._text is not None:
            yield TextMessageEndEvent(message_id=self._text, subagent_run_id=self.agent)
        if self._reasoning is not None:
            yield ReasoningMessageEndEvent(message_id=self._reasoning, subagent_run_id=self.agent)
            yield ReasoningEndEvent(message_id=self._reasoning, subagent_run_id=self.agent)
        self._text = self._reasoning = None

    def _id_of(self, call_id: str) -> str:
        """Calls of different agents may have the same id."""
        return call_id if self.agent is None else f"{self.agent}:{call_id}"


class AgUiEvents:
    """Satisfies `translating.Translator`.

    Args:
        given: what the front end sent.
        name: of the run, unique in the conversation.
        pause: what the run goes on from, if it does.
        known: ids of calls that the front end was told of before it.
        settled: answers in the place of tools that were decided on and will not run.
    """

    def __init__(
        self,
        given: RunAgentInput,
        name: str,
        *,
        pause: Pause | None = None,
        known: Collection[str] = (),
        settled: Sequence[messages.ToolMessage] = (),
    ) -> None:
        self._given = given
        self._made: list[_Reply | ToolMessage] = []
        self._voice = _Voice(name, None, self._made, known)
        self._settled = tuple(settled)
        self._before = pause.usage if pause is not None else UNKNOWN_USAGE
        self._encoder = EventEncoder()

    def begin(self) -> bytes:
        """RUN_STARTED."""
        given = self._given
        return self._sent(
            [RunStartedEvent(thread_id=given.thread_id, run_id=given.run_id, protocol_version=PROTOCOL_VERSION)]
        )

    def event(self, event: events.TurnEvent | Behind) -> bytes:
        """An event of the turn as events of the protocol."""
        told = [*self._settle(), *self._voice.event(event)]
        if _restarted(event):  # the snapshot is the one way to take messages back
            told.append(self._snapshot())
        return self._sent(told)

    def finished(self, result: InvokeResult) -> bytes:
        """What was never streamed, and RUN_FINISHED with its outcome."""
        return self._sent([*self._settle(), *self._unstreamed(result), *self._voice.end(), self._end(result)])

    def failed(self, refusal: Refusal) -> bytes:
        """RUN_ERROR."""
        return self._sent([*self._voice.end(refusal.detail), RunErrorEvent(message=refusal.detail, code=refusal.kind)])

    def _settle(self) -> Iterator[BaseEvent]:
        settled, self._settled = self._settled, ()
        for answer in settled:
            yield from self._voice.result(answer)

    def _unstreamed(self, result: InvokeResult) -> Iterator[BaseEvent]:
        voice = self._voice
        for one in result.pause.calls if result.pause is not None else ():
            yield from voice.announce(one.call)
        last = max((i for i, m in enumerate(result.messages) if isinstance(m, messages.AssistantMessage)), default=-1)
        if last >= 0 and result.pause is None:
            for answer in result.messages[last + 1 :]:
                if isinstance(answer, messages.ToolMessage) and answer.tool_call_id not in voice.answered:
                    yield from voice.result(answer)
        if result.status in ("completed", "blocked") and result.text and (not voice.said or result.direct_text):
            yield from voice.event(events.TextDelta(result.text))

    def _end(self, result: InvokeResult) -> BaseEvent:
        outcome: Any = RunFinishedSuccessOutcome()
        if result.status == "cancelled":
            outcome = RunFinishedCancelledOutcome()
        elif result.pause is not None:
            asked = [_interrupt(one, result.pause) for one in result.pause.calls if one.kind != "client_tool"]
            if asked:
                outcome = RunFinishedInterruptOutcome(interrupts=asked)
            else:
                outcome = RunFinishedSuccessOutcome(pending_tool_call_ids=[one.call.id for one in result.pause.calls])
        told = {
            "status": result.status,
            "finish_reason": result.finish_reason,
            "limit": result.limit,
            "reason": result.reason,
            "cost": result.cost,
        }
        usage = _usage(result.usage, self._before)
        return RunFinishedEvent(
            thread_id=self._given.thread_id,
            run_id=self._given.run_id,
            result={name: value for name, value in told.items() if value is not None},
            outcome=outcome,
            usage=None if usage is None else [usage],
        )

    def _snapshot(self) -> BaseEvent:
        made: list[Message] = [one.message() if isinstance(one, _Reply) else one for one in self._made]
        return MessagesSnapshotEvent(messages=[*self._given.messages, *made])

    def _sent(self, told: Sequence[BaseEvent]) -> bytes:
        return "".join([self._encoded(event) for event in told]).encode()

    def _encoded(self, event: BaseEvent) -> str:
        try:
            return self._encoder.encode(event)
        except ValueError:  # half a character, of a model or store that checks nothing: JSON can say it, UTF-8 not
            return f"data: {dumps(event.model_dump(mode='json', by_alias=True))}\n\n"


def _restarted(event: events.TurnEvent | Behind) -> bool:
    while isinstance(event, events.AgentEvent):
        event = event.event
    return isinstance(event, events.ReplyRestarted)


def _interrupt(waiting: PendingCall, pause: Pause) -> Interrupt:
    """A call that waits for a person. Its id is bound to the pause and the arguments that are shown."""
    approval = waiting.kind == "approval"
    properties = {**_APPROVED, **_EDITED} if approval else {"approved": _APPROVED["approved"]}
    expires = None if pause.expires_at is None else datetime.fromtimestamp(pause.expires_at, UTC).isoformat()
    return Interrupt(
        id=waiting.digest,
        reason="tool_call" if approval else "agentcore:environment",
        message=waiting.reason or f"Run {waiting.call.name}?",
        tool_call_id=waiting.call.id,
        response_schema={"type": "object", "properties": properties, "required": ["approved"]},
        expires_at=expires,
    )


def _usage(usage: Usage, before: Usage) -> TokenUsage | None:
    """The tokens of this run alone: a run that goes on from a pause does not count those before it again."""
    if usage == UNKNOWN_USAGE:
        return None
    sent, got = _minus(usage.input_tokens, before.input_tokens), _minus(usage.output_tokens, before.output_tokens)
    return TokenUsage(
        input_tokens=sent,
        output_tokens=got,
        total_tokens=sent + got if sent is not None and got is not None else None,
        reasoning_tokens=_minus(usage.reasoning_tokens, before.reasoning_tokens),
        cached_input_tokens=_minus(usage.cached_input_tokens, before.cached_input_tokens),
        cache_write_input_tokens=_minus(usage.cache_write_tokens, before.cache_write_tokens),
    )


def _minus(count: int | None, before: int | None) -> int | None:
    return None if count is None else count - (before or 0)


def _content(content: messages.Content) -> str | list[ContentPart]:
    if isinstance(content, str):
        return content
    parts: list[ContentPart] = []
    for part in content:
        match part:
            case messages.TextPart(text):
                parts.append(TextPart(text=text))
            case messages.ImagePart():
                parts.append(ImagePart(source=_source(part)))
            case messages.AudioPart():
                parts.append(AudioPart(source=_source(part)))
            case messages.FilePart():
                parts.append(DocumentPart(source=_source(part)))
    return parts


def _source(part: messages.ImagePart | messages.AudioPart | messages.FilePart) -> DataSource | UrlSource:
    if part.data is not None:
        return DataSource(value=b64encode(part.data).decode(), mime_type=part.media_type or "application/octet-stream")
    return UrlSource(value=part.url or "", mime_type=part.media_type)
