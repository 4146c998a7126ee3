"""ag_ui_routes: the conversations of a client for front ends that speak AG-UI; needs the extra `ag-ui`.

Source: AG-UI specification 1.0 (docs.ag-ui.com, "Interrupts", "Tools").
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import ag_ui.core as ag
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from agentcore.chat import ToolDefinition
from agentcore.errors import InvalidInputError, PauseError
from agentcore.messages import AssistantMessage, Content, FilePart, Part, TextPart, ToolMessage, UserMessage
from agentcore.pause import Decision, Pause, PendingCall
from agentcore.tools.decisions import decided
from agentcore.web.ag_ui_events import AgUiEvents
from agentcore.web.answers import Refusal, as_refusal
from agentcore.web.bodies import read_json_text
from agentcore.web.front_end import callers_tools, media_part, unsaid
from agentcore.web.routes import ChatRoutes
from agentcore.web.runs import Run
from agentcore.web.translating import telling


class _AgUi:
    def __init__(self, chat: ChatRoutes) -> None:
        self._chat = chat
        self._client = chat.client

    async def run(self, request: Request) -> Response:
        body = await read_json_text(request, max_bytes=self._chat.max_body_bytes)
        try:
            given = ag.RunAgentInput.model_validate_json(body)
        except ValidationError as error:
            raise Refusal(422, "invalid_input", f"the body is no RunAgentInput: {_first(error)}") from error
        context = await self._chat.allowed(request, given.thread_id)
        try:
            run, events = await self._start(given, context)
        except (PauseError, InvalidInputError, Refusal) as error:  # the protocol's way: the run begins, and fails
            refused = as_refusal(error, details=self._chat.show_details)
            events = AgUiEvents(given, "refused")
            return Response(events.begin() + events.failed(refused), media_type="text/event-stream")
        return self._chat.streamed(run, telling(run, events, details=self._chat.show_details))

    async def _start(self, given: ag.RunAgentInput, allowed: Mapping[str, Any]) -> tuple[Run, AgUiEvents]:
        context = {"ag_ui": _surroundings(given), **allowed}
        tools = await callers_tools(self._client, [_definition(one) for one in given.tools or ()])
        pause = await self._client.open_pause(given.thread_id)
        decisions = _decisions(given, pause)
        said = [_user_message(one) for one in _said_last(given)]
        if decisions is not None and (pause is None or not said):
            known = await self._told(given.thread_id, pause)
            run = self._chat.runs.resume(given.thread_id, decisions, tool_context=context, tools=tools)
            return run, _resumed(given, run, pause, decisions, known)
        # Results and something new at once: the results are facts that stand before it.
        results = [_result(one, pause) for one in decisions or ()]
        if not said:
            raise Refusal(422, "invalid_input", "there is nothing new: the last message is neither said nor a result")
        if len(said) > 1:
            said = unsaid(said, await self._client.conversation(given.thread_id).history())
        run = self._chat.runs.start(
            [*results, *said], conversation_id=given.thread_id, tool_context=context, tools=tools
        )
        return run, AgUiEvents(given, run.id)

    async def _told(self, thread_id: str, pause: Pause | None) -> Sequence[str]:
        """The calls of the reply that the turn paused at: those that wait, and those that were told beside them."""
        waiting = {one.call.id for one in pause.calls} if pause is not None else set[str]()
        if not waiting:
            return ()
        for message in reversed(await self._client.conversation(thread_id).history()):
            if isinstance(message, AssistantMessage):
                return [call.id for call in message.tool_calls]
        return ()


def _surroundings(given: ag.RunAgentInput) -> dict[str, Any]:
    return {
        "state": given.state,
        "context": [{"description": one.description, "value": one.value} for one in given.context or ()],
        "forwarded_props": given.forwarded_props,
    }


def _definition(tool: ag.Tool) -> ToolDefinition:
    parameters: object = tool.parameters
    if parameters is not None and not isinstance(parameters, dict):
        raise Refusal(422, "invalid_input", f"the parameters of tool {tool.name!r} are no JSON Schema")
    schema = cast("dict[str, Any]", parameters) or {"type": "object", "properties": {}}
    return ToolDefinition(tool.name, tool.description, schema)


def _said_last(given: ag.RunAgentInput) -> list[ag.UserMessage]:
    """The user messages at the end. What else a front end sends is known here, or not its to say."""
    said: list[ag.UserMessage] = []
    for message in reversed(given.messages):
        if not isinstance(message, ag.UserMessage):
            break
        said.insert(0, message)
    return said


def _decisions(given: ag.RunAgentInput, pause: Pause | None) -> list[Decision] | None:
    """What the front end says of the calls that wait; None if it says nothing of them.

    Raises:
        PauseError: calls wait for a decision, and there is none; or it is on something else.
    """
    if pause is None:
        # The client says why there is none: nothing ever waited, it was resumed already, it has expired.
        answers = isinstance(given.messages[-1], ag.ToolMessage) if given.messages else False
        return [] if given.resume or answers else None
    waiting = {one.digest: one for one in pause.calls if one.kind != "client_tool"}
    if waiting and not given.resume:
        raise PauseError("the conversation waits for a decision: send `resume` with it", reason="incomplete")
    made: list[Decision] = []
    for entry in given.resume or ():
        one = waiting.get(entry.interrupt_id)
        if one is None:
            raise PauseError(f"nothing waits under the interrupt {entry.interrupt_id!r} now", reason="stale")
        made.append(_decision(one, entry))
    results = {one.tool_call_id: one for one in given.messages if isinstance(one, ag.ToolMessage)}
    for one in pause.calls:
        result = results.get(one.call.id)
        if one.kind == "client_tool" and result is not None:
            content = result.error if result.error is not None and not result.content else _content(result.content)
            made.append(one.reply(content, is_error=result.error is not None))
    return made or None


def _decision(waiting: PendingCall, entry: ag.ResumeEntry) -> Decision:
    payload: object = {"approved": False} if entry.status == "cancelled" else entry.payload
    if isinstance(payload, bool):
        payload = {"approved": payload}
    said = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
    approved, args, reason = said.get("approved"), said.get("editedArgs"), said.get("reason")
    if not isinstance(approved, bool) or not isinstance(args, dict | None):
        raise Refusal(422, "invalid_input", f"the answer to call {waiting.call.id!r} is not of its response schema")
    if waiting.kind == "environment":
        return waiting.retry() if approved else waiting.proceed()
    if approved:
        return waiting.approve(cast("dict[str, Any] | None", args))
    return waiting.reject(reason if isinstance(reason, str) else "")


def _result(decision: Decision, pause: Pause | None) -> ToolMessage:
    """The result of a client tool as a message; other decisions cannot be made in passing."""
    if pause is None or decision.action != "reply":
        raise Refusal(409, "pause_incomplete", "decide on what waits first, then say something new")
    name = next(one.call.name for one in pause.calls if one.call.id == decision.call_id)
    return ToolMessage(decision.call_id, name, decision.content or "", is_error=decision.is_error)


def _resumed(
    given: ag.RunAgentInput, run: Run, pause: Pause | None, decisions: Sequence[Decision], known: Sequence[str]
) -> AgUiEvents:
    made = {one.call_id: one for one in decisions}
    settled = [
        answer
        for one in (pause.calls if pause is not None else ())
        if (decision := made.get(one.call.id)) is not None and decision.action in ("reject", "proceed")
        if (answer := decided(one.call, decision, one.reason).answer) is not None
    ]
    return AgUiEvents(given, run.id, pause=pause, known=known, settled=settled)


def _user_message(said: ag.UserMessage) -> UserMessage:
    return UserMessage(_content(said.content))


def _content(given: "str | list[ag.ContentPart]") -> Content:
    if isinstance(given, str):
        return given
    return tuple(_part(part) for part in given)


def _part(part: ag.ContentPart) -> Part:
    if isinstance(part, ag.TextPart):
        return TextPart(part.text)
    source = part.source
    if isinstance(part, ag.VideoPart) or isinstance(source, ag.FileSource):
        what = "a video" if isinstance(part, ag.VideoPart) else "a file that lies with a provider"
        raise Refusal(422, "invalid_input", f"{what} cannot be sent here; send text, images, audio or documents")
    # The kind of the part decides, as the media type may be unknown.
    kind = "image/*" if isinstance(part, ag.ImagePart) else "audio/*" if isinstance(part, ag.AudioPart) else None
    made = media_part(
        source.mime_type or kind,
        url=source.value if isinstance(source, ag.UrlSource) else None,
        data=source.value if isinstance(source, ag.DataSource) else None,
    )
    if kind is not None and isinstance(made, FilePart):
        raise Refusal(422, "invalid_input", f"{source.mime_type!r} is no media type of {kind}")
    return made


def _first(error: ValidationError) -> str:
    """The first problem, without what was sent."""
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(str(step) for step in problem['loc']) or 'body'}: {problem['msg']}"


def ag_ui_routes(chat: ChatRoutes, *, path: str = "/") -> Router:
    """The conversations of a client for AG-UI front ends (npm `@ag-ui/client`, CopilotKit), as a route beside others.

        chat = chat_routes(client, authorize=who)
        app = Starlette(routes=[*ag_ui_routes(chat, path="/agent").routes], lifespan=chat.lifespan)

    `POST {path}` takes a RunAgentInput and answers with the events of the run. `threadId` is the conversation id. The
    store is the record: of the messages that are sent only what the user said last counts, and results of tools.

    * The front end's own tools (`tools`) are offered to the model for this turn. Their calls end the run, named in
      `outcome.pendingToolCallIds`; the run that brings their results goes on with the turn.
    * Calls that wait for a person end it with an interrupt outcome; `resume` goes on, with `{"approved": bool,
      "editedArgs": {…}, "reason": "…"}` or `cancelled`, which refuses.
    * Agents' events carry the `subagentRunId` of their invocation; a tool's progress comes as CUSTOM `tool_progress`.
    * `state`, `context` and `forwardedProps` are in the tool context under `ag_ui`.
    * How the turn ended is the `result` of RUN_FINISHED (`{"status": "limit", "limit": …}`); errors are RUN_ERROR.

    A front end stops a run by hanging up: give the chat routes `on_disconnect="cancel"` if that is to end the turn.

    Args:
        chat: the client, its runs, authoriser and limits.
        path: where.
    """
    return Router([Route(path, chat.endpoint(_AgUi(chat).run), methods=["POST"])], lifespan=chat.lifespan)
