"""Neutral to OpenAI Responses: the request body.

Stateless: the whole history is sent, nothing is stored, and no item is named by the id it once had, which the service
would look up. System messages stay in `input` where they stand; in `instructions` a later one would change the
beginning, on which the prompt cache works.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from agentcore.chat import ChatOptions, ChatRequest, ToolSchema
from agentcore.codecs.dialect import Dialect
from agentcore.codecs.openai_responses_replay import kept_items, without_last_reasoning
from agentcore.codecs.openai_settings import (
    effort_word,
    is_reasoning_model,
    named_schema,
    prompt_cache_fields,
    refuses_sampling,
    tool_parameters,
)
from agentcore.codecs.parts import cannot_carry, data_url, kind_of
from agentcore.codecs.shared import LegalIds, encode_json, make_call_id
from agentcore.errors import InvalidInputError, UnsupportedContentError
from agentcore.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    Part,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentcore.pairing import heal
from agentcore.structured import output_schema

logger = logging.getLogger("agentcore.codecs")


class _Answer(Struct, gc=False, tag_field="type", tag="message"):
    # llama.cpp takes an assistant's text only with the type, and none of the forms without an id but this one.
    content: str
    role: str = "assistant"


class _Call(Struct, gc=False, tag_field="type", tag="function_call"):
    call_id: str
    name: str
    arguments: str


class _Output(Struct, gc=False, tag_field="type", tag="function_call_output"):
    call_id: str
    output: Any


def request_body(
    request: ChatRequest,
    provider: str,
    dialect: Dialect,
    names: Mapping[str, str],
    *,
    summary: str | None,
    stream: bool,
) -> dict[str, Any]:
    """The whole body, keys in a fixed order.

    Raises:
        UnsupportedContentError: a part this endpoint cannot carry.
        InvalidInputError: there are no messages with content.
    """
    options = request.options
    items = wire_input(request.messages, provider, dialect, names, options.model)
    if not items:
        raise InvalidInputError("there is nothing to send: the request has no messages with content")
    body: dict[str, Any] = {} if options.model is None else {"model": options.model}
    body["input"] = items
    body["store"] = False
    if request.tools:
        body["tools"] = [_wire_tool(one, dialect, names) for one in request.tools]
        if options.tool_choice is not None:
            body["tool_choice"] = _tool_choice(options.tool_choice, names)
        if options.parallel_tool_calls is not None and dialect.parallel_flag:
            body["parallel_tool_calls"] = options.parallel_tool_calls
    _put_settings(body, options, dialect, summary)
    if options.response_format is not None:
        _put_response_format(body, options.response_format, dialect)
    if options.prompt_cache is not None:
        body.update(prompt_cache_fields(options.prompt_cache, dialect))
    if stream:
        body["stream"] = True
    body.update(options.extra)
    return body


def wire_input(
    messages: Sequence[Message], provider: str, dialect: Dialect, names: Mapping[str, str], model: str | None = None
) -> list[Any]:
    """The history as items. Messages whose stored form is the wire form are passed through as they are."""
    ids = LegalIds(dialect.call_id, dialect.call_id_length)
    items: list[Any] = []
    put = items.append
    name_of = names.get
    plain = dialect.replay_reasoning is None
    for message in heal(messages)[0]:
        if type(message) is UserMessage:
            content = message.content
            if type(content) is tuple:
                put({"role": "user", "content": _content(content, messages, provider, dialect)})
            else:
                put(message)
        elif type(message) is AssistantMessage:
            if message.replay is None and (plain or not message.reasoning):
                if message.content:
                    put(_Answer(message.content))
                if message.tool_calls:
                    items.extend(_wire_calls(message.tool_calls, ids, name_of))
            else:
                items.extend(_replayed(message, provider, dialect, ids, name_of, model))
        elif type(message) is ToolMessage:
            content = message.content
            if type(content) is tuple:
                content = _content(content, messages, provider, dialect)
            call_id = message.tool_call_id
            put(_Output(ids.current.get(call_id, call_id), content))
        elif dialect.system_role == "system":
            put(message)
        else:
            put({"role": dialect.system_role, "content": message.content})
    return items


def unsupported_parts(messages: Sequence[Message], provider: str, dialect: Dialect) -> list[UnsupportedContentError]:
    """What the endpoint could not carry of a history, part by part."""
    problems: list[UnsupportedContentError] = []
    for index, message in enumerate(messages):
        if not isinstance(message, UserMessage | ToolMessage) or isinstance(message.content, str):
            continue
        for position, part in enumerate(message.content):
            if _part(part, dialect) is None:
                problems.append(cannot_carry(provider, kind_of(part), index, position))
    return problems


def _wire_calls(calls: Sequence[ToolCall], ids: LegalIds, name_of: Callable[[str, str], str]) -> list[Any]:
    return [
        _Call(call_id, name_of(call.name, call.name), encode_json(call.args).decode())
        for call_id, call in zip(ids.open_batch(calls), calls, strict=True)
    ]


def _replayed(
    message: AssistantMessage,
    provider: str,
    dialect: Dialect,
    ids: LegalIds,
    name_of: Callable[[str, str], str],
    model: str | None,
) -> list[Any]:
    """A reply with what was kept of it; where they disagree the neutral content wins."""
    kept = kept_items(message, provider, model)
    text = message.content or ""
    calls = dict(
        zip([call.id for call in message.tool_calls], _wire_calls(message.tool_calls, ids, name_of), strict=True)
    )
    texts = [item for item in kept if item["type"] == "message"]
    agrees = bool(texts) and "".join([str(item.get("text")) for item in texts]) == text
    items: list[Any] = []
    if not kept and dialect.replay_reasoning is not None and calls and message.reasoning:
        items.append(_readable_reasoning(message.reasoning))
    for item in kept:
        kind = item["type"]
        if kind == "message":
            if agrees and item.get("text"):
                items.append(_message(item))
        elif kind == "function_call":
            call = calls.pop(str(item.get("call_id")), None)
            if call is not None:
                items.append(call)
        else:
            items.append(item)
    if text and not agrees:
        first_call = next((i for i, item in enumerate(items) if type(item) is _Call), len(items))
        items.insert(first_call, _Answer(text))
    items.extend(calls.values())
    return without_last_reasoning(items)


def _message(item: dict[str, Any]) -> Any:
    if item.get("phase") is None:
        return _Answer(item["text"])
    return {"type": "message", "content": item["text"], "role": "assistant", "phase": item["phase"]}


def _readable_reasoning(reasoning: str) -> dict[str, Any]:
    """For servers of open models, whose thoughts are text and go back as such."""
    return {
        "type": "reasoning",
        "id": make_call_id(reasoning).replace("call_", "rs_"),  # their schema wants one
        "summary": [],
        "content": [{"type": "reasoning_text", "text": reasoning}],
    }


def _content(content: tuple[Part, ...], messages: Sequence[Message], provider: str, dialect: Dialect) -> Any:
    parts: list[dict[str, Any]] = []
    for position, part in enumerate(content):
        made = _part(part, dialect)
        if made is None:
            # Healing may have moved it: the caller knows the message by its own count.
            index = next((i for i, one in enumerate(messages) if one.content is content), -1)
            raise cannot_carry(provider, kind_of(part), index, position)
        parts.append(made)
    if all(part["type"] == "input_text" for part in parts) and (len(parts) < 2 or not dialect.images):
        return "\n".join([part["text"] for part in parts])  # which every server reads, lists not
    return parts


def _part(part: Part, dialect: Dialect) -> dict[str, Any] | None:
    """A part in wire form; None if this endpoint cannot carry it. The format has no audio."""
    match part:
        case TextPart():
            return {"type": "input_text", "text": part.text}
        case ImagePart() if dialect.images:
            url = part.url or data_url(part.media_type, part.data)
            return {"type": "input_image", "image_url": url, "detail": part.detail or "auto"}
        case FilePart() if dialect.files and part.data is not None:
            file = data_url(part.media_type, part.data)
            return {"type": "input_file", "filename": part.name or "file", "file_data": file}
        case FilePart() if dialect.files:
            return {"type": "input_file", "file_url": part.url}
        case _:
            return None


def _wire_tool(one: ToolSchema, dialect: Dialect, names: Mapping[str, str]) -> dict[str, Any]:
    tool: dict[str, Any] = {"type": "function", "name": names.get(one.name, one.name)}
    if one.description:
        tool["description"] = one.description
    tool["parameters"], strict = tool_parameters(one, dialect)
    # Not said, it is true here, and the service would require of the model what the schema leaves open.
    tool["strict"] = strict
    return tool


def _tool_choice(choice: str, names: Mapping[str, str]) -> Any:
    if choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "name": names.get(choice, choice)}


def _put_settings(body: dict[str, Any], options: ChatOptions, dialect: Dialect, summary: str | None) -> None:
    model, effort = options.model or "", options.reasoning_effort
    if options.max_tokens is not None:
        body["max_output_tokens"] = options.max_tokens
    refuses = refuses_sampling(model, effort)
    for name, value in (("temperature", options.temperature), ("top_p", options.top_p)):
        if value is None:
            continue
        if refuses:
            logger.warning("%s takes no %s; it was left out (send it with extra if you know better)", model, name)
        else:
            body[name] = value
    for name, value in (("stop", options.stop), ("seed", options.seed)):
        if value is not None and value != ():
            logger.warning("the Responses format has no %s; it was left out (send it with extra if it is known)", name)
    if options.metadata:
        body["metadata"] = options.metadata
    reasoning: dict[str, Any] = {}
    if effort is not None:
        if dialect.effort == "none":
            logger.warning("%s has no setting for reasoning_effort; it was left out", model)
        else:
            reasoning["effort"] = effort_word(effort)
    if summary is not None:
        reasoning["summary"] = summary
    if reasoning:
        body["reasoning"] = reasoning
    if is_reasoning_model(model) or effort not in (None, "none"):  # other models refuse it
        body["include"] = ["reasoning.encrypted_content"]


def _put_response_format(body: dict[str, Any], wanted: Any, dialect: Dialect) -> None:
    schema = None if wanted == "json" else output_schema(wanted)
    if dialect.response_format == "json_schema" and schema is not None:
        body["text"] = {"format": {"type": "json_schema", **named_schema(schema)}}
        return
    if dialect.response_format != "none":
        body["text"] = {"format": {"type": "json_object"}}
    if dialect.response_format == "none" or schema is not None:
        body["instructions"] = "Answer with one JSON value, and nothing else" + (
            "." if schema is None else f", that fits this JSON Schema: {encode_json(schema).decode()}"
        )
