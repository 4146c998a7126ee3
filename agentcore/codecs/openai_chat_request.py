"""Neutral to OpenAI Chat Completions: the request body."""

import logging
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from agentcore.chat import ChatOptions, ChatRequest, ToolSchema
from agentcore.codecs.dialect import Dialect
from agentcore.codecs.openai_settings import (
    effort_word,
    is_reasoning_model,
    named_schema,
    prompt_cache_fields,
    refuses_sampling,
    tool_parameters,
)
from agentcore.codecs.parts import bare_type, cannot_carry, data_url, kind_of, places_of
from agentcore.codecs.shared import LegalIds, encode_json
from agentcore.errors import InvalidInputError, UnsupportedContentError
from agentcore.messages import (
    AssistantMessage,
    AudioPart,
    FilePart,
    ImagePart,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentcore.pairing import heal
from agentcore.structured import output_schema

logger = logging.getLogger("agentcore.codecs")

_AUDIO_FORMATS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/vnd.wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}

FORMAT = "openai-chat"
"""Tag of this codec's replay payloads."""


class _Function(Struct, gc=False):
    name: str
    arguments: str


class _Call(Struct, gc=False):
    id: str
    function: _Function
    type: str = "function"


class _Assistant(Struct, gc=False, tag_field="role", tag="assistant"):
    content: str | None
    tool_calls: list[_Call]


class _Result(Struct, gc=False, tag_field="role", tag="tool"):
    tool_call_id: str
    content: Any


def request_body(
    request: ChatRequest, provider: str, dialect: Dialect, names: Mapping[str, str], *, stream: bool
) -> dict[str, Any]:
    """The whole body, keys in a fixed order.

    Raises:
        UnsupportedContentError: a part this endpoint cannot carry.
        InvalidInputError: there are no messages with content.
    """
    options = request.options
    messages = wire_messages(request.messages, provider, dialect, names)
    if not messages:
        raise InvalidInputError("there is nothing to send: the request has no messages with content")
    body: dict[str, Any] = {} if options.model is None else {"model": options.model}
    body["messages"] = messages
    if request.tools:
        body["tools"] = [_wire_tool(one, dialect, names) for one in request.tools]
        if options.tool_choice is not None:
            body["tool_choice"] = _tool_choice(options.tool_choice, names)
        if options.parallel_tool_calls is not None and dialect.parallel_flag:
            body["parallel_tool_calls"] = options.parallel_tool_calls
    _put_settings(body, options, dialect)
    if options.response_format is not None:
        _put_response_format(body, options.response_format, dialect)
    if options.prompt_cache is not None:
        body.update(prompt_cache_fields(options.prompt_cache, dialect))
    if stream:
        body["stream"] = True
        if dialect.stream_usage:
            body["stream_options"] = {"include_usage": True}
    body.update(options.extra)
    return body


def wire_messages(messages: Sequence[Message], provider: str, dialect: Dialect, names: Mapping[str, str]) -> list[Any]:
    """The messages in wire form. Those whose stored form is the wire form are passed through as they are."""
    ids = LegalIds(dialect.call_id, dialect.call_id_length)
    wire: list[Any] = []
    put = wire.append
    name_of = names.get
    # Every model call comes through here with its whole history: a message costs as few steps as may be.
    plain_calls = dialect.empty_content != "absent" and dialect.replay_reasoning is None and not dialect.replay_details
    empty = None if dialect.empty_content == "null" else ""
    healed = heal(messages)[0]
    place_of = places_of(healed, messages)
    for index, message in enumerate(healed):
        if type(message) is UserMessage:
            content = message.content
            if type(content) is tuple:
                put({"role": "user", "content": _user_content(content, place_of(content, index), provider, dialect)})
            else:
                put(message)
        elif type(message) is AssistantMessage:
            calls, content = message.tool_calls, message.content
            if calls and plain_calls:
                put(_Assistant(content or empty, _wire_calls(calls, ids, name_of)))
            elif (
                not calls
                and content
                and message.reasoning is None
                and message.replay is None
                and message.finish_reason is None
            ):
                put(message)
            else:
                _put_assistant(wire, message, ids, dialect, names)
        elif type(message) is ToolMessage:
            content = message.content
            if type(content) is tuple:
                content = _tool_content(content, place_of(content, index), provider, dialect)
            call_id = message.tool_call_id
            put(_Result(ids.current.get(call_id, call_id), content))
        elif dialect.system_role == "system":
            put(message)
        else:
            put({"role": dialect.system_role, "content": message.content})
    return wire


def _wire_calls(calls: Sequence[ToolCall], ids: LegalIds, name_of: Callable[[str, str], str]) -> list[_Call]:
    return [
        _Call(call_id, _Function(name_of(call.name, call.name), encode_json(call.args).decode()))
        for call_id, call in zip(ids.open_batch(calls), calls, strict=True)
    ]


def unsupported_parts(messages: Sequence[Message], provider: str, dialect: Dialect) -> list[UnsupportedContentError]:
    """What the endpoint could not carry of a history, part by part."""
    problems: list[UnsupportedContentError] = []
    for index, message in enumerate(messages):
        if not isinstance(message, UserMessage | ToolMessage) or isinstance(message.content, str):
            continue
        convert = _user_part if isinstance(message, UserMessage) else _tool_part
        for part in message.content:
            try:
                convert(part, index, provider, dialect)
            except UnsupportedContentError as error:
                problems.append(error)
    return problems


def _put_assistant(
    wire: list[Any], message: AssistantMessage, ids: LegalIds, dialect: Dialect, names: Mapping[str, str]
) -> None:
    calls = message.tool_calls
    if not calls and not message.content:
        return  # an empty reply says nothing, and several services refuse it
    made: dict[str, Any] = {"role": "assistant"}
    if message.content:
        made["content"] = message.content
    elif dialect.empty_content != "absent":
        made["content"] = None if dialect.empty_content == "null" else ""
    if dialect.replay_reasoning is not None and calls and message.reasoning:
        made[dialect.replay_reasoning] = message.reasoning
    if dialect.replay_details and message.replay is not None and message.replay.get("format") == FORMAT:
        made["reasoning_details"] = message.replay.get("reasoning_details")
    if calls:
        made["tool_calls"] = _wire_calls(calls, ids, names.get)
    wire.append(made)


def _tool_content(content: tuple[Part, ...], index: int, provider: str, dialect: Dialect) -> Any:
    parts = [_tool_part(part, index, provider, dialect) for part in content]
    return parts if parts and dialect.tool_content_parts else "\n".join([part["text"] for part in parts])


def _tool_part(part: Part, index: int, provider: str, dialect: Dialect) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    raise cannot_carry(provider, f"{kind_of(part)} in a tool result", index)


def _user_content(content: tuple[Part, ...], index: int, provider: str, dialect: Dialect) -> Any:
    parts = [_user_part(part, index, provider, dialect) for part in content]
    if all(part["type"] == "text" for part in parts) and (len(parts) < 2 or not dialect.images):
        return "\n".join([part["text"] for part in parts])  # which every server reads, lists not
    return parts


def _user_part(part: Part, index: int, provider: str, dialect: Dialect) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart() if dialect.images:
            image: dict[str, Any] = {"url": part.url or data_url(part.media_type, part.data)}
            if part.detail is not None:
                image["detail"] = part.detail
            return {"type": "image_url", "image_url": image}
        case AudioPart() if dialect.audio and part.data is not None and bare_type(part.media_type) in _AUDIO_FORMATS:
            audio = {"data": b64encode(part.data).decode(), "format": _AUDIO_FORMATS[bare_type(part.media_type)]}
            return {"type": "input_audio", "input_audio": audio}
        case FilePart() if dialect.files and part.data is not None:
            file = {"filename": part.name or "file", "file_data": data_url(part.media_type, part.data)}
            return {"type": "file", "file": file}
        case _:
            raise cannot_carry(provider, kind_of(part), index)


def _wire_tool(one: ToolSchema, dialect: Dialect, names: Mapping[str, str]) -> dict[str, Any]:
    function: dict[str, Any] = {"name": names.get(one.name, one.name)}
    if one.description:
        function["description"] = one.description
    parameters, strict = tool_parameters(one, dialect)
    if strict:
        function["strict"] = True
    function["parameters"] = parameters
    return {"type": "function", "function": function}


def _tool_choice(choice: str, names: Mapping[str, str]) -> Any:
    if choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": names.get(choice, choice)}}


def _put_settings(body: dict[str, Any], options: ChatOptions, dialect: Dialect) -> None:
    model = options.model or ""
    if options.max_tokens is not None:
        field = dialect.max_tokens_field
        if field == "auto":
            field = "max_completion_tokens" if is_reasoning_model(model) else "max_tokens"
        body[field] = options.max_tokens
    refuses = refuses_sampling(model, options.reasoning_effort)
    for name, value in (
        ("temperature", options.temperature),
        ("top_p", options.top_p),
        ("stop", list(options.stop) if options.stop else None),
    ):
        if value is None:
            continue
        if refuses:
            logger.warning("%s takes no %s; it was left out (send it with extra if you know better)", model, name)
        else:
            body[name] = value
    if options.seed is not None:
        body["seed"] = options.seed
    if options.metadata:
        body["metadata"] = options.metadata
    if options.reasoning_effort is not None:
        effort = effort_word(options.reasoning_effort)
        if dialect.effort == "reasoning_effort":
            body["reasoning_effort"] = effort
        elif dialect.effort == "reasoning":
            body["reasoning"] = {"effort": effort}
        else:
            logger.warning("%s has no setting for reasoning_effort; it was left out", model)


def _put_response_format(body: dict[str, Any], wanted: Any, dialect: Dialect) -> None:
    if wanted == "json":
        if dialect.response_format == "none":
            _instruct(body, "Answer with one JSON value, and nothing else.", dialect)
        else:
            body["response_format"] = {"type": "json_object"}
        return
    schema = output_schema(wanted)
    if dialect.response_format == "json_schema":
        body["response_format"] = {"type": "json_schema", "json_schema": named_schema(schema)}
        return
    told = encode_json(schema).decode()
    _instruct(body, f"Answer with one JSON value, and nothing else, that fits this JSON Schema: {told}", dialect)
    if dialect.response_format == "json_object":
        body["response_format"] = {"type": "json_object"}


def _instruct(body: dict[str, Any], instruction: str, dialect: Dialect) -> None:
    """Put an instruction at the beginning: into the system message that is there, since some take only one."""
    messages = cast("list[Any]", body["messages"])
    first = messages[0]
    if isinstance(first, SystemMessage):
        messages[0] = SystemMessage(f"{first.content}\n\n{instruction}")
    elif isinstance(first, dict) and cast("dict[str, Any]", first)["role"] == dialect.system_role:
        messages[0] = {**first, "content": f"{first['content']}\n\n{instruction}"}
    else:
        messages.insert(0, {"role": dialect.system_role, "content": instruction})
