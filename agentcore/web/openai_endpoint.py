"""openai_routes: a client, its tools included, as a model for whatever speaks OpenAI's Chat Completions.

Source: OpenAI API reference, "Create chat completion", "List models", and its guide to error codes.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast
from uuid import uuid4

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router

from agentcore.chat import ChatOptions, ReasoningEffort, ToolDefinition
from agentcore.codecs.openai_chat_history import messages_from_openai
from agentcore.errors import InvalidInputError, ProviderError
from agentcore.messages import Message, TextPart, ToolMessage, UserMessage
from agentcore.pairing import heal
from agentcore.web.answers import Refusal, as_refusal, json_response
from agentcore.web.bodies import is_web_address, read_json
from agentcore.web.front_end import callers_tools
from agentcore.web.openai_completions import OpenAIChunks, OpenAIRefusal, completion, error_object
from agentcore.web.routes import ChatRoutes, ended_or_left
from agentcore.web.runs import Run
from agentcore.web.translating import telling

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

_CALLERS_FAULTS = {
    "context_length": ("context_length_exceeded", "the messages are longer than the model can take"),
    "content_filter": ("content_filter", "the model's provider does not answer this"),
    "invalid_request": ("invalid_request", "the model does not take this request"),
}
_PLACE = re.compile(r"at `\$\.([A-Za-z_]+)")


class _Function(Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Tool(Struct):
    type: str = "function"
    function: _Function | None = None


class _JSONSchema(Struct):
    schema: dict[str, Any]


class _ResponseFormat(Struct):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _JSONSchema | None = None


class _StreamOptions(Struct):
    include_usage: bool | None = None


class _Asked(Struct):
    """The body of a request. Fields that are not named here are settings without a neutral name: they are ignored."""

    model: str
    messages: list[dict[str, Any]]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    reasoning_effort: ReasoningEffort | None = None
    response_format: _ResponseFormat | None = None
    user: str | None = None
    n: int | None = None
    logprobs: bool | None = None
    functions: list[Any] | None = None
    modalities: list[str] | None = None


class _OpenAI:
    def __init__(self, chat: ChatRoutes, model_name: str) -> None:
        self._chat = chat
        self._model_name = model_name

    async def complete(self, request: Request) -> Response:
        asked = await self._read(request)
        completion_id = f"chatcmpl-{uuid4().hex}"
        context = await self._allowed(request, asked.user or completion_id)
        self._check(asked)
        messages = _history(asked.messages)
        tools = await self._tools(asked)
        run = self._chat.runs.start(
            messages,
            conversation_id=None,
            tool_context=context,
            on_disconnect="cancel",  # nobody could come back to it
            options=_options(asked, tools),
            tools=tools,
        )
        whole_text = asked.response_format is not None and asked.response_format.type != "text"
        if asked.stream:
            return await self._stream(run, asked, completion_id, whole_text=whole_text)
        await ended_or_left(request, run)
        made = completion(completion_id, self._model_name, run.result, said=len(messages), whole_text=whole_text)
        return json_response(made)

    async def models(self, request: Request) -> Response:
        await self._allowed(request, f"models-{uuid4().hex}")
        return json_response({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        await self._allowed(request, f"models-{uuid4().hex}")
        self._check_model(request.path_params["model"])
        return json_response(self._model())

    def answered(self, handle: Endpoint) -> Endpoint:
        """A handler whose errors are answered in OpenAI's form."""

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except ClientDisconnect:
                return Response(status_code=499)  # nobody reads it
            except Exception as error:  # noqa: BLE001 - answered and logged
                return _error_response(self._refusal(error))

        return answer

    async def _stream(self, run: Run, asked: _Asked, completion_id: str, *, whole_text: bool) -> Response:
        wanted = asked.stream_options is not None and bool(asked.stream_options.include_usage)
        chunks = OpenAIChunks(completion_id, self._model_name, include_usage=wanted, whole_text=whole_text)
        return await self._chat.begun(
            run, self._chat.streamed(run, telling(run, chunks, details=self._chat.show_details))
        )

    async def _read(self, request: Request) -> _Asked:
        try:
            return await read_json(request, _Asked, max_bytes=self._chat.max_body_bytes)
        except Refusal as refusal:
            place = _PLACE.search(refusal.detail)
            if refusal.status_code != 422 or place is None:
                raise
            raise OpenAIRefusal(400, refusal.kind, refusal.detail, param=place[1]) from refusal

    async def _allowed(self, request: Request, name: str) -> Mapping[str, Any]:
        try:
            return await self._chat.allowed(request, name)
        except Refusal as refusal:  # it does not matter here whether there is such a conversation
            raise OpenAIRefusal(403, "permission_denied", "you may not use this model as this user") from refusal

    def _refusal(self, error: Exception) -> HTTPException:
        if isinstance(error, HTTPException):
            return error
        if isinstance(error, ProviderError) and not self._chat.show_details and error.kind in _CALLERS_FAULTS:
            as_refusal(error, details=False)  # which logs it
            return Refusal(400, *_CALLERS_FAULTS[error.kind])
        return as_refusal(error, details=self._chat.show_details)

    def _check(self, asked: _Asked) -> None:
        self._check_model(asked.model)
        if asked.n not in (None, 1):
            raise _unsupported("n", "one choice is made per request: leave n out, or ask several times")
        if asked.logprobs:
            raise _unsupported("logprobs", "log probabilities are not to be had here")
        if asked.functions:
            raise _unsupported("functions", "functions are sent as `tools`")
        if asked.modalities is not None and asked.modalities != ["text"]:
            raise _unsupported("modalities", "answers are text")

    def _check_model(self, name: str) -> None:
        if name != self._model_name:
            raise OpenAIRefusal(
                404, "model_not_found", f"there is no model {name!r} here; there is {self._model_name!r}", param="model"
            )

    async def _tools(self, asked: _Asked) -> Sequence[ToolDefinition]:
        definitions: list[ToolDefinition] = []
        for place, one in enumerate(asked.tools or ()):
            function = one.function
            if one.type != "function" or function is None:
                raise _unsupported("tools", f"tool {place} is of type {one.type!r}; only functions are taken")
            parameters = function.parameters or {"type": "object", "properties": {}}
            definitions.append(ToolDefinition(function.name, function.description or "", parameters, function.strict))
        try:
            return await callers_tools(self._chat.client, definitions)
        except Refusal as refusal:
            raise OpenAIRefusal(400, refusal.kind, refusal.detail, param="tools") from refusal

    def _model(self) -> dict[str, Any]:
        return {"id": self._model_name, "object": "model", "created": 0, "owned_by": "agentcore"}


def _history(items: Sequence[Mapping[str, Any]]) -> Sequence[Message]:
    """The messages that were sent, whole, and with nothing in them that a provider could not fetch."""
    try:
        messages = messages_from_openai(items)
    except InvalidInputError as error:
        raise OpenAIRefusal(400, "invalid_input", f"messages: {error}", param="messages") from error
    if not messages:
        raise OpenAIRefusal(400, "invalid_input", "messages: there are none", param="messages")
    for index, message in enumerate(messages):
        if not isinstance(message, UserMessage | ToolMessage) or isinstance(message.content, str):
            continue
        for part in message.content:
            url = None if isinstance(part, TextPart) else part.url
            if url is not None and not is_web_address(url):
                raise OpenAIRefusal(
                    400,
                    "invalid_input",
                    f"messages: item {index}: a url has to begin with https:// or http://, or to be a base64 data URL",
                    param="messages",
                )
    return heal(messages)[0]


def _options(asked: _Asked, tools: Sequence[ToolDefinition]) -> ChatOptions:
    """What the caller asks of the model. It cannot choose the model, nor send fields that are not known here."""
    return ChatOptions(
        max_tokens=asked.max_completion_tokens if asked.max_completion_tokens is not None else asked.max_tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        seed=asked.seed,
        stop=(asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop) if asked.stop else None,
        tool_choice=_tool_choice(asked.tool_choice, tools),
        parallel_tool_calls=asked.parallel_tool_calls if tools else None,
        reasoning_effort=asked.reasoning_effort,
        response_format=_format(asked.response_format),
    )


def _tool_choice(given: str | dict[str, Any] | None, tools: Sequence[ToolDefinition]) -> str | None:
    if given is None or (isinstance(given, str) and given in ("auto", "none")):
        return given
    if not tools:
        raise _refused_choice("there are no tools to choose from")
    if isinstance(given, str):
        if given != "required":
            raise _refused_choice("it is none of auto, none, required, or a function")
        return given
    function: object = given.get("function") if given.get("type") == "function" else None
    name = cast("dict[str, Any]", function).get("name") if isinstance(function, dict) else None
    if name not in {one.name for one in tools}:
        raise _refused_choice("it is no function that is among tools")
    return str(name)


def _refused_choice(why: str) -> OpenAIRefusal:
    return OpenAIRefusal(400, "invalid_input", f"tool_choice: {why}", param="tool_choice")


def _format(given: _ResponseFormat | None) -> Any:
    if given is None or given.type == "text":
        return None
    if given.type == "json_object":
        return "json"
    if given.json_schema is None:
        raise OpenAIRefusal(400, "invalid_input", "response_format: json_schema is missing", param="response_format")
    return given.json_schema.schema


def _unsupported(param: str, why: str) -> OpenAIRefusal:
    return OpenAIRefusal(400, "unsupported_value", f"{param}: {why}", param=param)


def _error_response(error: HTTPException) -> Response:
    kind = error.kind if isinstance(error, Refusal) else {401: "invalid_api_key"}.get(error.status_code, "refused")
    status = 400 if error.status_code == 422 else error.status_code  # their word for what cannot be read
    param = error.param if isinstance(error, OpenAIRefusal) else None
    return json_response(error_object(status, kind, error.detail, param), status, error.headers)


def openai_routes(chat: ChatRoutes, *, model_name: str, path: str = "/v1") -> Router:
    """A client as a model: `POST {path}/chat/completions` and `GET {path}/models`, for any OpenAI client.

        chat = chat_routes(client, authorize=who)
        app = Starlette(routes=[*openai_routes(chat, model_name="helpdesk").routes], lifespan=chat.lifespan)

        OpenAI(base_url="http://localhost:8000/v1", api_key="…").chat.completions.create(model="helpdesk", messages=[…])

    Nothing is remembered: the whole history comes with each request, and is made whole where calls lack results.

    * The client's own tools run inside the turn and are not shown; with text of several replies, a blank line stands
      between them.
    * The caller's `tools` are offered beside them. Their calls come back as `tool_calls`, whole, and end the request;
      of the client's own calls in the same reply none runs, and the model may ask for them again. A tool that needs a
      person's consent is refused to the model: nobody could give it.
    * `response_format` holds for the last reply: its text is sent when all of it is there, streamed or not.
    * `n` above 1, `logprobs`, `functions` and answers in sound are refused; settings without a neutral name
      (`frequency_penalty`, `logit_bias`, …) are ignored, `metadata` and `store` as well.
    * Limits end an answer with `length`, guards with `content_filter`. Errors have OpenAI's form.
    * A turn whose caller hangs up is stopped.
    * Images come in the body: `chat_routes(…, max_body_bytes=…)` has to be large enough for them.

    The authoriser is asked with the request, which holds the bearer token, and with the `user` of the body as the
    conversation id, or with a fresh one. Where it says no, the answer is 403; for a bad token it raises
    `HTTPException(401)`.

    Args:
        chat: the client, its runs, authoriser and limits.
        model_name: what callers call it; any other name is answered with 404.
        path: where; the `base_url` of the clients.
    """
    api = _OpenAI(chat, model_name)
    path = path.rstrip("/")
    return Router(
        [
            Route(f"{path}/chat/completions", api.answered(api.complete), methods=["POST"]),
            Route(f"{path}/models", api.answered(api.models)),
            Route(f"{path}/models/{{model:path}}", api.answered(api.model)),
        ],
        lifespan=chat.lifespan,
    )
