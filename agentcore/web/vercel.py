"""vercel_routes: the conversations of a client for the AI SDK's `useChat` and its `DefaultChatTransport`.

Source: AI SDK documentation, "Stream Protocols", "Transport", "Chatbot Resume Streams", "Chatbot Tool Usage"; npm `ai`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

from msgspec import Struct, field, json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from agentcore.chat import events_of
from agentcore.events import ToolFinished, TurnEvent
from agentcore.memory.base import Branching, MessageLog
from agentcore.messages import AssistantMessage, Message, Part, TextPart, ToolMessage, UserMessage
from agentcore.pause import Decision, Pause, PendingCall
from agentcore.tools.decisions import decided
from agentcore.web.answers import Refusal, RunStream
from agentcore.web.bodies import read_json
from agentcore.web.front_end import media_part, unsaid
from agentcore.web.routes import ChatRoutes
from agentcore.web.runs import Run
from agentcore.web.translating import telling
from agentcore.web.vercel_chunks import VercelChunks

_HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}


class _UIMessage(Struct):
    role: str
    id: str = ""
    parts: list[dict[str, Any]] = field(default_factory=lambda: list[dict[str, Any]]())


class _Sent(Struct, rename="camel"):
    """What the transport sends, or what a `prepareSendMessagesRequest` makes of it: only the last `message`."""

    id: str
    messages: list[_UIMessage] = field(default_factory=lambda: list[_UIMessage]())
    message: _UIMessage | None = None
    trigger: str = "submit-message"
    message_id: str | None = None


class _Continued(Struct, frozen=True):
    """A run that goes on from a pause: the message that it belongs to, and what was decided."""

    message_id: str
    pause: Pause | None
    decisions: Sequence[Decision] = ()

    def calls(self, action: str) -> list[str]:
        return [one.call_id for one in self.decisions if one.action == action]

    def settled(self) -> list[ToolMessage]:
        """The failures that the turn goes on with."""
        made = {one.call_id: one for one in self.decisions if one.action == "proceed"}
        waiting = self.pause.calls if self.pause is not None else ()
        answers = [decided(one.call, made[one.call.id], one.reason).answer for one in waiting if one.call.id in made]
        return [one for one in answers if one is not None]


class _Vercel:
    def __init__(self, chat: ChatRoutes) -> None:
        self._chat = chat
        self._client = chat.client
        self._continued: WeakKeyDictionary[Run, _Continued] = WeakKeyDictionary()

    async def send(self, request: Request) -> Response:
        sent = await read_json(request, _Sent, max_bytes=self._chat.max_body_bytes)
        context = await self._chat.allowed(request, sent.id)
        messages = [sent.message] if sent.message is not None else sent.messages
        if not messages:
            raise Refusal(422, "invalid_input", "there are no messages")
        last = messages[-1]
        if sent.trigger != "regenerate-message" and last.role == "assistant":
            run = await self._go_on(sent.id, last, context)
        elif last.role == "user":
            run = await self._begin(sent, messages, context)
        else:
            raise Refusal(422, "invalid_input", f"a conversation cannot go on from a message of role {last.role!r}")
        return await self._chat.begun(run, self._stream(run, self._chunks(run)))

    async def join(self, request: Request) -> Response:
        conversation_id = request.path_params["conversation_id"]
        await self._chat.allowed(request, conversation_id)
        run = self._chat.runs.running(conversation_id)
        if run is None:
            return Response(status_code=204)
        continued = self._continued.get(run)
        if continued is None or continued.pause is None:
            return self._stream(run, self._chunks(run))
        history = await self._client.conversation(conversation_id).history()
        return self._stream(run, self._chunks(run, _before_pause(history, continued.pause)))

    async def stop(self, request: Request) -> Response:
        conversation_id = request.path_params["conversation_id"]
        await self._chat.allowed(request, conversation_id)
        await self._chat.stop(conversation_id)
        return Response(status_code=204)

    def _stream(self, run: Run, chunks: VercelChunks) -> RunStream:
        return self._chat.streamed(run, telling(run, chunks, details=self._chat.show_details), headers=_HEADERS)

    def _chunks(self, run: Run, earlier: Sequence[TurnEvent] = ()) -> VercelChunks:
        continued = self._continued.get(run)
        if continued is None:
            return VercelChunks(f"msg-{run.id}")
        return VercelChunks(
            continued.message_id,
            earlier=earlier,
            known=[] if earlier or continued.pause is None else [one.call.id for one in continued.pause.calls],
            denied=continued.calls("reject"),
            settled=continued.settled(),
            replied=continued.calls("reply"),
        )

    async def _begin(self, sent: _Sent, messages: Sequence[_UIMessage], context: Mapping[str, Any]) -> Run:
        users = [_user_message(one) for one in messages if one.role == "user"]
        first = max((i for i, one in enumerate(messages) if one.role != "user"), default=-1) + 1
        said: Sequence[UserMessage] = [_user_message(one) for one in messages[first:]]
        edited = sent.message_id is not None and sent.message_id == messages[-1].id
        if sent.trigger == "regenerate-message" or edited:
            self._chat.runs.check(said, conversation_id=sent.id)  # before anything is taken back for it
            kept = await self._go_back(sent.id, users, unanswered=len(said), edited=edited)
            said = users[kept:]
        elif len(said) > 1:
            said = unsaid(said, await self._client.conversation(sent.id).history())
        results = await self._results(sent.id, messages[first - 1] if first else None)
        return self._chat.runs.start([*results, *said], conversation_id=sent.id, tool_context=context)

    async def _results(self, conversation_id: str, before: _UIMessage | None) -> list[ToolMessage]:
        """Results of client tools that were not sent by themselves, but with what the user says next."""
        if before is None or before.role != "assistant" or not any("toolCallId" in part for part in before.parts):
            return []
        pause = await self._client.open_pause(conversation_id)
        made = _decisions(pause, before) if pause is not None else []
        names = {one.call.id: one.call.name for one in pause.calls} if pause is not None else {}
        return [
            ToolMessage(one.call_id, names[one.call_id], one.content or "", is_error=one.is_error)
            for one in made
            if one.action == "reply"
        ]

    async def _go_on(self, conversation_id: str, last: _UIMessage, context: Mapping[str, Any]) -> Run:
        """Approvals and results of client tools: the front end sends its last message again, with them in it."""
        pause = await self._client.open_pause(conversation_id)
        # Without a pause the client says why there is none: nothing ever waited, it was resumed, it has expired.
        decisions = _decisions(pause, last) if pause is not None else []
        run = self._chat.runs.resume(conversation_id, decisions, tool_context=context)
        self._continued[run] = _Continued(last.id or f"msg-{run.id}", pause, decisions)
        return run

    async def _go_back(
        self, conversation_id: str, users: Sequence[UserMessage], *, unanswered: int, edited: bool
    ) -> int:
        """Take back everything from the last of these user messages on, if the record begins with the same ones.

        Returns how many of them are left; what a turn held beside the last one goes with it.

        Raises:
            Refusal: the store cannot go back (501), or the front end's history is not the record's (409).
        """
        store = self._client.memory
        if not isinstance(store, Branching) or not isinstance(store, MessageLog):
            raise Refusal(501, "not_supported", "this store cannot take back messages")
        await self._client.conversation(conversation_id).stop_turn()
        records = await store.read(conversation_id)
        said = [one for one in records if isinstance(one.message, UserMessage)]
        same = min(len(said), len(users) - 1 if edited else len(users))
        # Turns that failed were stored nowhere.
        missing = len(users) - len(said)
        if missing > unanswered or [one.message for one in said[:same]] != list(users[:same]):
            raise Refusal(409, "conflict", "the conversation has other messages than these; load it again")
        if missing > 0:
            return len(said)
        last = said[len(users) - 1]
        to = max((one.seq for one in records if one.turn_id != last.turn_id and one.seq < last.seq), default=0)
        await store.rollback(conversation_id, to=to)
        return sum(one.seq <= to for one in said)


def _user_message(sent: _UIMessage) -> UserMessage:
    """What the user said. Parts that are the front end's own (`data-…`) are not for the model."""
    parts: list[Part] = []
    for part in sent.parts:
        match part.get("type"):
            case "text":
                parts.append(TextPart(str(part.get("text", ""))))
            case "file":
                name = part.get("filename")
                url = str(part.get("url", ""))
                parts.append(media_part(str(part.get("mediaType", "")), url=url, name=str(name) if name else None))
            case _:
                pass
    if all(isinstance(part, TextPart) for part in parts):
        return UserMessage("\n".join([part.text for part in parts if isinstance(part, TextPart)]))
    return UserMessage(tuple(parts))


def _decisions(pause: Pause, sent: _UIMessage) -> list[Decision]:
    """What the parts of a message say of the calls that wait; a call of which they say nothing is left out."""
    parts = {str(part["toolCallId"]): part for part in sent.parts if "toolCallId" in part}
    made = [_decision(one, parts[one.call.id]) for one in pause.calls if one.call.id in parts]
    return [one for one in made if one is not None]


def _decision(waiting: PendingCall, part: Mapping[str, Any]) -> Decision | None:
    state = part.get("state")
    if waiting.kind == "client_tool":
        if state == "output-error":
            return waiting.reply(str(part.get("errorText", "")), is_error=True)
        return waiting.reply(_text(part.get("output"))) if state == "output-available" else None
    given: object = part.get("approval")
    if state != "approval-responded" or not isinstance(given, dict):
        return None
    said = cast("dict[str, Any]", given)  # of a JSON object
    if said.get("id") != waiting.digest:
        raise Refusal(409, "pause_stale", f"the approval of call {waiting.call.id!r} is for another pause")
    if waiting.kind == "environment":
        return waiting.retry() if said.get("approved") is True else waiting.proceed()
    reason = said.get("reason")
    return waiting.approve() if said.get("approved") is True else waiting.reject(str(reason) if reason else "")


def _text(output: Any) -> str:
    return output if isinstance(output, str) else json.encode(output).decode()


def _before_pause(history: Sequence[Message], pause: Pause) -> Sequence[TurnEvent]:
    """The events of a turn up to where it paused, as the record has them."""
    waiting = {one.call.id for one in pause.calls}
    asked = max(
        (i for i, one in enumerate(history) if isinstance(one, AssistantMessage) and _calls_of(one) & waiting),
        default=-1,
    )
    start = max((i for i in range(asked) if isinstance(history[i], UserMessage)), default=-1) + 1
    events: list[TurnEvent] = []
    for message in history[start : asked + 1]:
        if isinstance(message, AssistantMessage):
            events.extend(events_of(message))
        elif isinstance(message, ToolMessage):
            events.append(ToolFinished(message))
    return events


def _calls_of(message: AssistantMessage) -> set[str]:
    return {call.id for call in message.tool_calls}


def vercel_routes(chat: ChatRoutes, *, path: str = "/api/chat") -> Router:
    """The conversations of a client for front ends of the AI SDK (npm `ai` 7), as routes beside `chat_routes`.

        chat = chat_routes(client, authorize=who)
        app = Starlette(routes=[*vercel_routes(chat).routes, Mount("/chat", chat)], lifespan=chat.lifespan)

    * `POST {path}` runs a turn: what `useChat` sends. The chat's `id` is the conversation id. The store is the record:
      of the messages that are sent only what the user said last counts. A regenerated or edited message takes back what
      came after it, on stores that can.
    * `GET {path}/{id}/stream` joins the turn that runs, from the beginning of its message (`resume: true`); 204 if none
      does.
    * `POST {path}/{id}/stop` stops it. The front end's own `stop()` only hangs up, which ends the turn where the chat
      routes have `on_disconnect="cancel"`.

    Calls that wait for a person come as `tool-approval-request`, answered by `addToolApprovalResponse`; those of tools
    that run in the browser (given to the client as `ToolDefinition`) by `addToolOutput`. A tool's progress comes as
    `data-tool-progress`, an agent's events as transient `data-agent`, how the turn ended as metadata of the message.

    Args:
        chat: the client, its runs, authoriser and limits.
        path: where; the `api` of the front end's transport.
    """
    vercel = _Vercel(chat)
    path = path.rstrip("/")
    return Router(
        [
            Route(path or "/", chat.endpoint(vercel.send), methods=["POST"]),
            Route(f"{path}/{{conversation_id}}/stream", chat.endpoint(vercel.join)),
            Route(f"{path}/{{conversation_id}}/stop", chat.endpoint(vercel.stop), methods=["POST"]),
        ],
        lifespan=chat.lifespan,
    )
