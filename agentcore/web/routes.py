"""chat_routes: the conversations of a client over HTTP, as an ASGI app to mount."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from agentcore.client import ChatClient
from agentcore.errors import ConfigurationError
from agentcore.memory.base import ConversationListing, MessageLog, record_store
from agentcore.messages import Message
from agentcore.web.answers import (
    Batches,
    Refusal,
    RunStream,
    as_refusal,
    json_response,
    refusal_response,
    result_value,
    run_events,
)
from agentcore.web.authorize import Authorizer
from agentcore.web.bodies import Decisions, NewTurn, read_json, read_number
from agentcore.web.listing import own_page
from agentcore.web.runs import OnDisconnect, Run, Runs
from agentcore.web.signals import told_of_signals
from agentcore.web.titles import title_of

HEADERS_WITHIN = 1.0
"""Seconds that a stream waits for its first event before it is begun: so long an error can still be a status."""

_LONGEST_ID = 200
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # in an id: what stores cannot hold, or nobody can see
_KINDS = {401: "unauthorized", 403: "forbidden", 404: "not_found"}

Endpoint = Callable[[Request], Awaitable[Response]]


class ChatRoutes:
    """An ASGI app with the conversations of a client; see `chat_routes`.

    Attributes:
        client: whose conversations they are.
        runs: its running turns.
        authorize: who may use which conversation.
        max_body_bytes: the largest body that is read.
        show_details: whether what a provider or a store said of an error is shown.
        grace: seconds that running turns have when the server goes down.
        conversation_prefix: what the ids of a user's conversations begin with.
    """

    def __init__(
        self,
        client: ChatClient,
        *,
        authorize: Authorizer,
        runs: Runs,
        max_body_bytes: int,
        show_details: bool,
        grace: float,
        conversation_prefix: Callable[[Request], str] | None,
    ) -> None:
        self.client = client
        self.runs = runs
        self.authorize = authorize
        self.max_body_bytes = max_body_bytes
        self.show_details = show_details
        self.grace = grace
        self.conversation_prefix = conversation_prefix
        one = "/conversations/{conversation_id}"
        self._router = Router(
            [
                Route("/conversations", self.endpoint(self._list)),
                Route(one, self.endpoint(self._show)),
                Route(one, self.endpoint(self._forget), methods=["DELETE"]),
                Route(f"{one}/turns", self.endpoint(self._begin), methods=["POST"]),
                Route(f"{one}/resume", self.endpoint(self._resume), methods=["POST"]),
                Route(f"{one}/cancel", self.endpoint(self._cancel), methods=["POST"]),
                Route(f"{one}/events", self.endpoint(self._join)),
            ],
            lifespan=self.lifespan,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI 3)."""
        await self._router(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, app: ASGIApp) -> AsyncGenerator[None]:
        """Serve from here to the end of the block: to be given to the app that the routes are mounted in.

        On SIGTERM and SIGINT no new turns are begun (503); running ones get the grace time, then end as `cancelled`.
        The client's toolsets are opened, and it is closed at the end.
        """
        async with self.client, self.runs:
            with told_of_signals(self.runs.begin_shut_down):
                yield

    def endpoint(self, handle: Endpoint) -> Endpoint:
        """A handler whose errors are answered as the routes answer them."""

        async def answered(request: Request) -> Response:
            try:
                return await handle(request)
            except ClientDisconnect:
                return Response(status_code=499)  # nobody reads it
            except HTTPException as error:
                if isinstance(error, Refusal):
                    return refusal_response(error)
                if "starlette.exception_handlers" in request.scope:
                    raise  # the app answers it, as its other errors
                kind = _KINDS.get(error.status_code, "refused")
                return refusal_response(Refusal(error.status_code, kind, error.detail, error.headers))
            except Exception as error:  # noqa: BLE001 - answered and logged
                return refusal_response(as_refusal(error, details=self.show_details))

        return answered

    async def allowed(self, request: Request, conversation_id: str) -> Mapping[str, Any]:
        """The tool context of a user who may use a conversation.

        Raises:
            Refusal: 404, whether it is somebody else's or does not exist.
        """
        context = None
        if 0 < len(conversation_id) <= _LONGEST_ID and not _UNFIT.search(conversation_id):
            context = await self._asked(request, conversation_id)
        if context is None:
            raise Refusal(404, "not_found", "there is no such conversation")
        return context

    async def answer(self, request: Request, run: Run) -> Response:
        """A run as an answer: as server-sent events if the request asks for them, else its result as JSON."""
        if "text/event-stream" in request.headers.get("accept", ""):
            return await self.begun(run, self._stream(run))
        if self.runs.on_disconnect == "cancel":
            await ended_or_left(request, run)
        return json_response(result_value(run.id, await run.finished()))

    async def begun(self, run: Run, stream: RunStream) -> RunStream:
        """Wait a moment for the first event of a run, before its stream is begun.

        Raises:
            Exception: what ended the run: it is a status, as long as nothing was sent.
        """
        try:
            with anyio.move_on_after(HEADERS_WITHIN):
                await run.began()
            if run.is_finished and not run.last_number:
                _ = run.result
        except BaseException:
            stream.leave()
            raise
        return stream

    async def stop(self, conversation_id: str) -> None:
        """Stop the turn of a conversation, in whatever process it runs, and those of this process that wait for it."""
        runs = self.runs.of_conversation(conversation_id)
        here = [run for run in runs if run.has_place]
        for run in runs:
            run.cancel()
        if not here:  # it may run in another process
            await self.client.conversation(conversation_id).stop_turn()

    def streamed(
        self,
        run: Run,
        tell: Callable[[Batches], AsyncIterator[bytes]],
        *,
        after: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> RunStream:
        """The events of a run after a number, as server-sent events in the words of `tell`."""
        return RunStream(run, tell, after=after, headers=headers, grace=self.grace + 5)

    def _stream(self, run: Run, after: int = 0) -> RunStream:
        return self.streamed(run, lambda batches: run_events(run, batches, details=self.show_details), after=after)

    async def _asked(self, request: Request, conversation_id: str) -> Mapping[str, Any] | None:
        context = await self.authorize(request, conversation_id)
        given: object = cast("object", context)  # what an app without type checks may return
        if given is not None and not isinstance(given, Mapping):  # False, say, means no: it must not let in
            raise ConfigurationError(
                f"the authoriser returned a {type(given).__name__}; it returns a mapping to let a user in, else None"
            )
        return context

    async def _list(self, request: Request) -> Response:
        store = self.client.memory
        if not isinstance(store, ConversationListing):
            raise Refusal(501, "not_supported", "this store cannot list its conversations")
        query = request.query_params
        limit = read_number(query.get("limit", "50"))
        if limit is None or not 1 <= limit <= 100:
            raise Refusal(422, "invalid_input", "limit is a number from 1 to 100")

        async def is_own(conversation_id: str) -> bool:
            return await self._asked(request, conversation_id) is not None

        within = "" if self.conversation_prefix is None else self.conversation_prefix(request)
        prefix = query.get("prefix", within)
        if not prefix.startswith(within):
            raise Refusal(404, "not_found", "there are no such conversations")
        page = await own_page(store, is_own, limit=limit, after=query.get("after"), prefix=prefix)
        shown: list[Any] = page.conversations
        if query.get("titles"):
            shown = [
                {**msgspec.structs.asdict(one), "title": await title_of(store, one.conversation_id)} for one in shown
            ]
        return json_response({"conversations": shown, "after": page.after, "complete": page.complete})

    async def _show(self, request: Request) -> Response:
        conversation_id = request.path_params["conversation_id"]
        await self.allowed(request, conversation_id)
        running = self.runs.running(conversation_id)
        messages, own = await self._history(conversation_id, running)
        pause = await self.client.open_pause(conversation_id)
        return json_response(
            {
                "conversation_id": conversation_id,
                "messages": messages,
                "pause": pause,
                "running": None if running is None else running.id,
                "running_from": None if running is None else own,
                "running_said": [] if running is None else running.said,
            }
        )

    async def _history(self, conversation_id: str, running: Run | None) -> tuple[Sequence[Message], int]:
        """All messages, and where those of the running turn begin among them."""
        log = self.client.memory
        log = None if log is None else record_store(log)
        if running is None or not isinstance(log, MessageLog):
            messages = await self.client.conversation(conversation_id).history()
            return messages, len(messages) - (0 if running is None else running.stored)
        stored = await log.read(conversation_id)
        messages = [one.message for one in stored]
        return messages, next((place for place, one in enumerate(stored) if running.wrote(one)), len(stored))

    async def _forget(self, request: Request) -> Response:
        conversation_id = request.path_params["conversation_id"]
        await self.allowed(request, conversation_id)
        conversation = self.client.conversation(conversation_id)
        await conversation.stop_turn()
        await conversation.reset()
        return Response(status_code=204)

    async def _begin(self, request: Request) -> Response:
        conversation_id = request.path_params["conversation_id"]
        context = await self.allowed(request, conversation_id)
        body = await read_json(request, NewTurn, max_bytes=self.max_body_bytes)
        run = self.runs.start(body.messages(), conversation_id=conversation_id, tool_context=context, key=_key(request))
        return await self.answer(request, run)

    async def _resume(self, request: Request) -> Response:
        conversation_id = request.path_params["conversation_id"]
        context = await self.allowed(request, conversation_id)
        body = await read_json(request, Decisions, max_bytes=self.max_body_bytes)
        run = self.runs.resume(conversation_id, body.decisions, tool_context=context, key=_key(request))
        return await self.answer(request, run)

    async def _cancel(self, request: Request) -> Response:
        conversation_id = request.path_params["conversation_id"]
        await self.allowed(request, conversation_id)
        await self.stop(conversation_id)
        return Response(status_code=204)

    async def _join(self, request: Request) -> Response:
        conversation_id = request.path_params["conversation_id"]
        await self.allowed(request, conversation_id)
        seen = request.headers.get("last-event-id") or request.query_params.get("after", "")
        run_id, _, number = seen.partition(":")
        run = self.runs.find(run_id) if run_id else self.runs.running(conversation_id)
        if run is None or run.conversation_id != conversation_id:
            return Response(status_code=204)  # which tells an EventSource not to try again
        return self._stream(run, read_number(number) or 0)


def _key(request: Request) -> str | None:
    """The name that a client gave to its request, so that it may be sent again."""
    key = request.headers.get("idempotency-key", "")
    if len(key) > _LONGEST_ID:
        raise Refusal(422, "invalid_input", f"an Idempotency-Key has at most {_LONGEST_ID} characters")
    return key or None


async def ended_or_left(request: Request, run: Run) -> None:
    """Wait for the end of a run. It comes sooner when the client goes away and the run has nobody else.

    Raises:
        ClientDisconnect: the client has gone away.
    """
    with run.attended():
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                while (await request.receive())["type"] != "http.disconnect":
                    pass
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            await run.ended()
            tasks.cancel_scope.cancel()
    if not run.is_finished:
        raise ClientDisconnect


def chat_routes(
    client: ChatClient,
    *,
    authorize: Authorizer,
    on_disconnect: OnDisconnect = "continue",
    grace: float = 10.0,
    max_body_bytes: int = 1 << 20,
    max_kept_bytes: int = 1 << 20,
    show_details: bool = False,
    conversation_prefix: Callable[[Request], str] | None = None,
) -> ChatRoutes:
    """The conversations of a client over HTTP, as an ASGI app to mount in Starlette or FastAPI.

        chat = chat_routes(client, authorize=who)
        app = FastAPI(lifespan=chat.lifespan)
        app.mount("/chat", chat)

    * `POST /conversations/{id}/turns` with `{"message": "…"}` (or a list of parts) runs a turn. The answer is the
      result as JSON, or, with `Accept: text/event-stream`, the events as they come (`id: run:number`), then `result`
      or `error`. A request with an `Idempotency-Key` may be sent again: it is answered with the turn that it began, for
      a minute after that has ended; one that failed and left nothing is begun anew. The key of another request is 422.
    * `GET /conversations/{id}/events` joins the running turn, from `Last-Event-ID` on; 204 if there is none.
    * `POST /conversations/{id}/resume` with `{"decisions": […]}` goes on with a turn that paused.
    * `POST /conversations/{id}/cancel` stops the running turn, in whatever process it runs.
    * `GET /conversations/{id}` shows the messages, what waits for a decision, and what runs: the run, the place among
      the messages where its own begin, and what it was begun with, so that its events can be shown after those before.
    * `DELETE /conversations/{id}` forgets it; `GET /conversations` lists those that the user may see, with
      `?titles=1` by the words they began with.

    Errors are `{"error": {"kind", "message"}}`. CORS is the app's.

    Args:
        client: its memory holds the conversations.
        authorize: who may use a conversation; see `Authorizer`.
        on_disconnect: what becomes of a turn whose readers are all gone: it goes on and can be joined again, or is
            cancelled.
        grace: seconds that running turns get when the server goes down.
        max_body_bytes: the largest body that is read; a larger one is refused with 413.
        max_kept_bytes: events of a running turn that are kept for readers who join later, in bytes (roughly).
        show_details: put into errors what a provider or a store said; for your own eyes.
        conversation_prefix: what the ids of this user's conversations begin with (`kim:`), for an app that gives them
            such ids: the list then looks nowhere else. Without it the list looks through everybody's newest ones, and
            says `"complete": false` where it gave up.

    Raises:
        ConfigurationError: the client has no memory.
    """
    if client.memory is None:
        raise ConfigurationError("chat_routes needs a client with a memory: ChatClient(model, memory=…)")
    runs = Runs(client, on_disconnect=on_disconnect, max_kept_bytes=max_kept_bytes, grace=grace)
    return ChatRoutes(
        client,
        authorize=authorize,
        runs=runs,
        max_body_bytes=max_body_bytes,
        show_details=show_details,
        grace=grace,
        conversation_prefix=conversation_prefix,
    )
