"""Neutral to Gemini `generateContent`: the request body.

The rules come from the Gemini API reference: instructions stand at the top level; `contents` alternate between user and
model and begin with the user; all results of a batch stand in one user content, in call order; what a function gave is
its `output` or its `error`.
"""

import logging
import mimetypes
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from agentcore.chat import ChatOptions, ChatRequest, ReasoningEffort
from agentcore.codecs.gemini_replay import SIGNATURE, SKIP_VALIDATION, generation, kept_parts
from agentcore.codecs.gemini_schema import declaration, fitting_schema
from agentcore.codecs.parts import cannot_carry, kind_of, places_of
from agentcore.codecs.shared import encode_json
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
    ToolMessage,
    UserMessage,
)
from agentcore.pairing import heal
from agentcore.structured import output_schema

logger = logging.getLogger("agentcore.codecs")

OPENING = "(The conversation continues.)"
"""Said in the user's place where a history begins with the model, which the service refuses."""

_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^;,]*)*?;base64,(.*)", re.DOTALL)
_BUDGETS: dict[ReasoningEffort, int] = {
    "none": 0,
    "minimal": 512,
    "low": 1024,
    "medium": 8192,
    "high": 24576,
    "xhigh": 24576,
    "max": 24576,  # the most that every model of the generation takes
}
_LEAST_PRO_BUDGET = 128  # 2.5 Pro cannot be kept from thinking
_MOST_STOPS = 5
# "Multimodal function responses": what a result may hold beside text, from Gemini 3 on, and only by its bytes.
_RESULT_TYPES = frozenset(("image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"))
LEGAL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
"""Names of functions: unlike elsewhere they begin with a letter or an underscore (`FunctionDeclaration.name`)."""


class _Text(Struct, gc=False):
    text: str


class _Call(Struct, gc=False, omit_defaults=True):
    name: str
    args: dict[str, Any]
    id: str | None = None


class _CallPart(Struct, gc=False, omit_defaults=True, rename="camel"):
    function_call: _Call
    thought_signature: str | None = None


class _Response(Struct, gc=False, omit_defaults=True):
    name: str
    response: Any
    id: str | None = None
    parts: list[Any] | None = None


class _Output(Struct, gc=False):
    output: str


class _Error(Struct, gc=False):
    error: str


class _ResponsePart(Struct, gc=False, rename="camel"):
    function_response: _Response


class Content(Struct, gc=False):
    """One entry of `contents`. Its parts only ever grow, so that the bytes before stay as they were."""

    role: str
    parts: list[Any]


def request_body(request: ChatRequest, provider: str, names: Mapping[str, str]) -> dict[str, Any]:
    """The whole body, keys in a fixed order.

    `extra` is merged last: objects key by key, `tools` behind ours, anything else in the place of ours.

    Raises:
        UnsupportedContentError: a part that this format cannot carry.
        InvalidInputError: there are no messages with content.
    """
    options = request.options
    system, contents = wire_contents(request.messages, provider, names, options.model)
    if not contents:
        raise InvalidInputError("there is nothing to send: the request has no messages with content")
    config: dict[str, Any] = {}
    _put_settings(config, options)
    if options.response_format is not None:
        instruction = _put_response_format(config, options, tools=bool(request.tools))
        if instruction is not None:
            system.append(instruction)
    body: dict[str, Any] = {}
    if system:
        body["systemInstruction"] = {"parts": [{"text": "\n\n".join(system)}]}
    body["contents"] = contents
    if request.tools:
        body["tools"] = [{"functionDeclarations": [declaration(one, names) for one in request.tools]}]
        if options.tool_choice is not None:
            body["toolConfig"] = {"functionCallingConfig": _calling(options.tool_choice, names)}
        if options.parallel_tool_calls is False:
            logger.warning("Gemini has no setting for parallel_tool_calls; it was left out")
    if config:
        body["generationConfig"] = config
    extra: Mapping[str, Any] = options.extra
    if isinstance(extra.get("tools"), list) and "tools" in body:  # the service's own (search, code) stand beside ours
        extra = {**extra, "tools": [*body["tools"], *extra["tools"]]}
    return _merged(body, extra)


def wire_contents(
    messages: Sequence[Message], provider: str, names: Mapping[str, str], model: str | None = None
) -> tuple[list[str], list[Content]]:
    """System texts, and the other messages in wire form."""
    system: list[str] = []
    wire: list[Content] = []
    known = generation(model)
    validates = known is not None and known >= (3, 0)
    batch: Mapping[str, _Call] = {}  # call id → call as it was sent, of the last batch
    healed = heal(messages)[0]
    place_of = places_of(healed, messages)
    for index, message in enumerate(healed):
        parts: list[Any]
        role = "user"
        if type(message) is UserMessage:
            content = message.content
            if isinstance(content, str):
                parts = [_Text(content)] if content else []
            else:
                place = place_of(content, index)
                parts = [_user_part(part, place, provider) for part in content]
        elif type(message) is AssistantMessage:
            role = "model"
            parts, batch = _model_parts(message, names, model, validates=validates)
        elif type(message) is ToolMessage:
            place = place_of(message.content, index)
            parts = [_result(message, batch[message.tool_call_id], place, provider, multimodal=validates)]
        else:
            text = cast("SystemMessage", message).content
            if text and not text.isspace():
                system.append(text)
            continue
        if not parts:
            continue
        if wire and wire[-1].role == role:
            wire[-1].parts.extend(parts)
        else:
            wire.append(Content(role, parts))
    if wire and wire[0].role == "model":
        wire.insert(0, Content("user", [_Text(OPENING)]))
    return system, wire


def unsupported_parts(messages: Sequence[Message], provider: str) -> list[UnsupportedContentError]:
    """What no model of the format could carry of a history, part by part."""
    problems: list[UnsupportedContentError] = []
    for index, message in enumerate(messages):
        if not isinstance(message, UserMessage | ToolMessage) or isinstance(message.content, str):
            continue
        carry = _user_part if isinstance(message, UserMessage) else _result_part
        for part in message.content:
            try:
                carry(part, index, provider)
            except UnsupportedContentError as error:
                problems.append(error)
    return problems


def _model_parts(
    message: AssistantMessage, names: Mapping[str, str], model: str | None, *, validates: bool
) -> tuple[list[Any], Mapping[str, _Call]]:
    """The parts of a reply, and its calls by their ids."""
    calls = message.tool_calls
    kept = kept_parts(message, model) if message.replay is not None else None
    parts: list[Any] = []
    batch: dict[str, _Call] = {}
    if kept is None:
        if message.content:
            parts.append(_Text(message.content))
        signature = SKIP_VALIDATION if validates else None
        for call in calls:
            sent = batch[call.id] = _Call(names.get(call.name, call.name), call.args)
            parts.append(_CallPart(sent, signature))
            signature = None
        return parts, batch
    signed = not validates
    for part in kept:
        if "call" not in part:
            if part.get("text") != "" or SIGNATURE in part:
                parts.append(part)
            continue
        number: int = part["call"]
        call = calls[number]
        sent = batch[call.id] = _Call(names.get(call.name, call.name), call.args, part.get("id"))
        signature = part.get(SIGNATURE) or (None if signed else SKIP_VALIDATION)
        signed = True
        parts.append(_CallPart(sent, signature))
    return parts, batch


def _result(message: ToolMessage, call: _Call, index: int, provider: str, *, multimodal: bool) -> _ResponsePart:
    """A result under the name and id of its call: the service pairs them by these, whatever the message says."""
    content = message.content
    parts: list[Any] | None = None
    if not isinstance(content, str):
        others = [part for part in content if not isinstance(part, TextPart)]
        if others and not multimodal:
            raise cannot_carry(provider, f"{kind_of(others[0])} in a tool result", index)
        parts = [_result_part(part, index, provider) for part in others] or None
        content = "\n".join([part.text for part in content if isinstance(part, TextPart)])
    said = _Error(content) if message.is_error else _Output(content)
    return _ResponsePart(_Response(call.name, said, call.id, parts))


def _result_part(part: Part, index: int, provider: str) -> dict[str, Any]:
    """A part of a result, as Gemini 3 and later take it there."""
    if isinstance(part, TextPart):
        return {"text": part.text}
    inline = _inline(part)
    if inline is None or inline["mimeType"].partition(";")[0].strip().lower() not in _RESULT_TYPES:
        raise cannot_carry(provider, f"{kind_of(part)} in a tool result", index)
    return {"inlineData": inline}


def _user_part(part: Part, index: int, provider: str) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"text": part.text}
    inline = _inline(part)
    if inline is not None:
        return {"inlineData": inline}
    url = part.url or ""
    if url.startswith("data:"):
        raise cannot_carry(provider, kind_of(part), index)
    file = {"fileUri": url}
    media_type = part.media_type or mimetypes.guess_type(url.partition("?")[0])[0] or _usual_type(part)
    if media_type is not None:
        file = {"mimeType": media_type, **file}
    return {"fileData": file}


def _inline(part: ImagePart | AudioPart | FilePart) -> dict[str, str] | None:
    """The bytes of a part, given as such or in a data URL; None if it is elsewhere."""
    if part.data is not None:
        return {"mimeType": part.media_type or "", "data": b64encode(part.data).decode()}
    found = _DATA_URL.fullmatch(part.url or "")
    return None if found is None else {"mimeType": found[1] or "text/plain", "data": found[2]}


def _usual_type(part: ImagePart | AudioPart | FilePart) -> str | None:
    """The type to assume for a file whose URL does not tell it; the service finds out itself for the rest."""
    if isinstance(part, ImagePart):
        return "image/jpeg"
    return "audio/mpeg" if isinstance(part, AudioPart) else None


def _calling(choice: str, names: Mapping[str, str]) -> dict[str, Any]:
    modes = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
    if choice in modes:
        return {"mode": modes[choice]}
    return {"mode": "ANY", "allowedFunctionNames": [names.get(choice, choice)]}


def _put_settings(config: dict[str, Any], options: ChatOptions) -> None:
    asked = {
        "temperature": options.temperature,
        "topP": options.top_p,
        "maxOutputTokens": options.max_tokens,
        "seed": options.seed,
    }
    config.update({name: value for name, value in asked.items() if value is not None})
    if options.stop:
        if len(options.stop) > _MOST_STOPS:
            logger.warning("Gemini takes %d stop texts; the others were left out", _MOST_STOPS)
        config["stopSequences"] = list(options.stop[:_MOST_STOPS])
    if options.reasoning_effort is not None:
        thinking = _thinking(options.reasoning_effort, options.model)
        if thinking is None:
            logger.warning("%s has no setting for reasoning_effort; it was left out", options.model)
        else:
            config["thinkingConfig"] = thinking
    if options.metadata:
        logger.warning("Gemini keeps no metadata; left out: %s", ", ".join(options.metadata))


def _thinking(effort: ReasoningEffort, model: str | None) -> dict[str, Any] | None:
    """From Gemini 3 on a level, with 2.5 a budget, before nothing. Sources: Gemini API documentation, "Thinking"."""
    known = generation(model)
    if known is not None and known < (2, 5):
        return None
    readable = {"includeThoughts": True} if effort != "none" else {}
    is_pro = "pro" in (model or "")
    if known is not None and known < (3, 0):
        budget = _BUDGETS[effort]
        return {"thinkingBudget": max(budget, _LEAST_PRO_BUDGET) if is_pro else budget, **readable}
    level = {"none": "minimal", "xhigh": "high", "max": "high"}.get(effort, effort)
    if is_pro and level == "minimal":
        level = "low"
    elif is_pro and level == "medium" and known == (3, 0):  # has low and high; 3.1 Pro has the middle too
        level = "high"
    return {"thinkingLevel": level, **readable}


def _put_response_format(config: dict[str, Any], options: ChatOptions, *, tools: bool) -> str | None:
    """Ask for JSON; the words to ask with where there is no setting."""
    wanted = options.response_format
    schema = None if wanted == "json" else fitting_schema(output_schema(wanted))
    known = generation(options.model)
    if tools and (known is None or known < (3, 0)):  # which takes either tools or a JSON answer
        if schema is None:
            return "Answer with one JSON value, and nothing else."
        told = encode_json(schema).decode()
        return f"Answer with one JSON value, and nothing else, that fits this JSON Schema: {told}"
    config["responseMimeType"] = "application/json"
    if schema is not None:
        config["responseJsonSchema"] = schema
    return None


def _merged(body: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in extra.items():
        present = body.get(key)
        if isinstance(present, dict) and isinstance(value, Mapping):
            body[key] = _merged(dict(cast("dict[str, Any]", present)), cast("Mapping[str, Any]", value))
        else:
            body[key] = value
    return body
