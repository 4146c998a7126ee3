"""Neutral to Anthropic Messages: the request body.

The rules come from the Messages API reference and its "tool use" and "extended thinking" guides: system text stands at
the top level; roles alternate and a user comes first; all results of a batch stand in one user message right after the
calls, before any text; no text block is empty; the last assistant text does not end with white space.
"""

import logging
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from agentcore.chat import ChatOptions, ChatRequest, ToolSchema
from agentcore.codecs.shared import LegalIds
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

logger = logging.getLogger("agentcore.codecs")

FORMAT = "anthropic"
"""Tag of this codec's replay payloads."""

OPENING = "(The conversation continues.)"
"""Said in the user's place where a history begins with the assistant, which the service refuses."""

_REFUSES_SAMPLING = re.compile(r"(?:.*[/.])?claude-[a-z]+-(?:[5-9]|\d\d)")
_THINKS_BY_BUDGET = re.compile(r"(?:.*[/.])?claude-(?:3|[a-z]+-4(?!-[6-9]))")
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 32000, "max": 32000}


class _Text(Struct, tag="text"):
    text: str


class _WireMessage(Struct):
    role: str
    content: list[Any]


def request_body(
    request: ChatRequest, provider: str, names: Mapping[str, str], default_max_tokens: int, *, stream: bool
) -> dict[str, Any]:
    """The whole body, keys in a fixed order."""
    options = request.options
    system, messages = wire_messages(request.messages, provider, names)
    body: dict[str, Any] = {"model": options.model, "max_tokens": options.max_tokens or default_max_tokens}
    if system:
        body["system"] = "\n\n".join(system)
    body["messages"] = messages
    if request.tools:
        body["tools"] = [_wire_tool(one, names) for one in request.tools]
        choice = _tool_choice(options, names)
        if choice is not None:
            body["tool_choice"] = choice
    _put_settings(body, options)
    if stream:
        body["stream"] = True
    body.update(options.extra)
    return body


def wire_messages(
    messages: Sequence[Message], provider: str, names: Mapping[str, str]
) -> tuple[list[str], list[_WireMessage]]:
    """System texts, and the other messages in wire form.

    Content is always a list of blocks, so that a message that joins its neighbour leaves the earlier bytes as they were.
    """
    system: list[str] = []
    wire: list[_WireMessage] = []
    ids = LegalIds(r"[a-zA-Z0-9_-]+", 64)
    healed = heal(messages)[0]
    for index, message in enumerate(healed):
        if type(message) is UserMessage:
            blocks = _user_blocks(message, index, provider)
            if not blocks and index == len(healed) - 1:
                raise InvalidInputError(f"message {index}, the last one, is empty: {provider} refuses blank text")
            _put(wire, "user", blocks)
        elif type(message) is AssistantMessage:
            ids.open_batch(message.tool_calls)
            _put(wire, "assistant", _assistant_blocks(message, ids, names))
        elif type(message) is ToolMessage:
            _put(wire, "user", [_result_block(message, ids, index, provider)])
        elif type(message) is SystemMessage and message.content.strip():
            system.append(message.content)
    if wire and wire[0].role == "assistant":
        wire.insert(0, _WireMessage("user", [_Text(OPENING)]))
    if wire and wire[-1].role == "assistant":
        _strip_end(wire[-1])
    return system, wire


def _put(wire: list[_WireMessage], role: str, blocks: list[Any]) -> None:
    if not blocks:
        return
    if wire and wire[-1].role == role:
        wire[-1].content.extend(blocks)
    else:
        wire.append(_WireMessage(role, blocks))


def _strip_end(message: _WireMessage) -> None:
    last = message.content[-1]
    if isinstance(last, dict):  # a replayed block
        block = cast("dict[str, Any]", last)
        if block.get("type") == "text" and isinstance(block.get("text"), str):
            message.content[-1] = {**block, "text": block["text"].rstrip()}


def _user_blocks(message: UserMessage, index: int, provider: str) -> list[Any]:
    content = message.content
    if isinstance(content, str):
        return [_Text(content)] if content.strip() else []
    return [
        _part_block(part, index, provider) for part in content if not isinstance(part, TextPart) or part.text.strip()
    ]


def _part_block(part: Part, index: int, provider: str) -> Any:
    match part:
        case TextPart():
            return _Text(part.text)
        case ImagePart():
            return {"type": "image", "source": _source(part.url, part.media_type, part.data)}
        case FilePart() if part.data is not None and (part.media_type or "").startswith("text/"):
            source: dict[str, Any] = {
                "type": "text",
                "media_type": "text/plain",
                "data": part.data.decode("utf-8", "replace"),
            }
            return _document(source, part.name)
        case FilePart() if part.url is not None or part.media_type == "application/pdf":
            return _document(_source(part.url, part.media_type, part.data), part.name)
        case FilePart():
            what = f"file ({part.media_type})"
        case AudioPart():
            what = "audio"
    raise UnsupportedContentError(
        f"{provider} cannot carry {what} (message {index}); convert it or use a provider that can"
    )


def _source(url: str | None, media_type: str | None, data: bytes | None) -> dict[str, Any]:
    if url is not None:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": media_type, "data": b64encode(data or b"").decode()}


def _document(source: dict[str, Any], name: str | None) -> dict[str, Any]:
    return {"type": "document", "source": source, "title": name} if name else {"type": "document", "source": source}


def _result_block(message: ToolMessage, ids: LegalIds, index: int, provider: str) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": ids[message.tool_call_id]}
    content = message.content
    if isinstance(content, str):
        if content.strip():
            block["content"] = content
    else:
        parts = [_part_block(p, index, provider) for p in content if not isinstance(p, TextPart) or p.text.strip()]
        if parts:
            block["content"] = parts
    if message.is_error:
        block["is_error"] = True
    return block


def _assistant_blocks(message: AssistantMessage, ids: LegalIds, names: Mapping[str, str]) -> list[Any]:
    # White space at the end is taken off every assistant text, not only the last one, where the service refuses it:
    # so the bytes stay when the history goes on.
    text = (message.content or "").rstrip()
    replay = message.replay
    if replay is not None and replay.get("format") == FORMAT and isinstance(replay.get("blocks"), list):
        return _replayed(cast("list[dict[str, Any]]", replay["blocks"]), message, text, ids, names)
    blocks: list[Any] = [_Text(text)] if text else []
    blocks.extend([_call_block(call, ids, names) for call in message.tool_calls])
    return blocks


def _replayed(
    kept: list[dict[str, Any]], message: AssistantMessage, text: str, ids: LegalIds, names: Mapping[str, str]
) -> list[Any]:
    """The kept blocks byte for byte, text and calls where they stood; the neutral content wins where they disagree."""
    texts = [block.get("text") for block in kept if block.get("type") == "text"]
    agrees = "".join(str(one) for one in texts) == (message.content or "")
    open_calls = {call.id: call for call in message.tool_calls}
    blocks: list[Any] = []
    for block in kept:
        kind = block.get("type")
        if kind == "text":
            if agrees and str(block.get("text")).strip():
                blocks.append(block)
        elif kind == "tool_use":
            call = open_calls.pop(str(block.get("id")), None)
            if call is not None:
                blocks.append(_call_block(call, ids, names))
        else:
            blocks.append(block)
    if text and not (texts and agrees):
        first_call = next((i for i, b in enumerate(blocks) if b.get("type") == "tool_use"), len(blocks))
        blocks.insert(first_call, {"type": "text", "text": text})
    blocks.extend([_call_block(call, ids, names) for call in open_calls.values()])
    return blocks


def _call_block(call: ToolCall, ids: LegalIds, names: Mapping[str, str]) -> dict[str, Any]:
    return {"type": "tool_use", "id": ids[call.id], "name": names.get(call.name, call.name), "input": call.args}


def _wire_tool(one: ToolSchema, names: Mapping[str, str]) -> dict[str, Any]:
    made: dict[str, Any] = {"name": names.get(one.name, one.name)}
    if one.description:
        made["description"] = one.description
    made["input_schema"] = {"type": "object", **one.parameters}
    return made


def _tool_choice(options: ChatOptions, names: Mapping[str, str]) -> dict[str, Any] | None:
    choice = options.tool_choice
    serial = options.parallel_tool_calls is False
    if choice is None and not serial:
        return None
    made: dict[str, Any]
    match choice:
        case None | "auto":
            made = {"type": "auto"}
        case "none":
            return {"type": "none"}
        case "required":
            made = {"type": "any"}
        case name:
            made = {"type": "tool", "name": names.get(name, name)}
    if serial:
        made["disable_parallel_tool_use"] = True
    return made


def _put_settings(body: dict[str, Any], options: ChatOptions) -> None:
    model = options.model or ""
    for name, value in (("temperature", options.temperature), ("top_p", options.top_p)):
        if value is None:
            continue
        if _REFUSES_SAMPLING.match(model):
            logger.warning("%s takes no %s; it was left out", model, name)
        else:
            body[name] = value
    if options.stop:
        body["stop_sequences"] = list(options.stop)
    if options.seed is not None:
        logger.warning("Anthropic Messages has no setting for seed; it was left out")
    if options.metadata:
        if "user_id" in options.metadata:
            body["metadata"] = {"user_id": options.metadata["user_id"]}
        others = [key for key in options.metadata if key != "user_id"]
        if others:
            logger.warning("Anthropic Messages keeps only the metadata user_id; left out: %s", ", ".join(others))
    if options.reasoning_effort is not None:
        _put_effort(body, options, options.reasoning_effort)
    if options.response_format is not None:
        _put_response_format(body, options.response_format)


def _put_effort(body: dict[str, Any], options: ChatOptions, effort: str) -> None:
    if effort == "none":
        body["thinking"] = {"type": "disabled"}
    elif not _THINKS_BY_BUDGET.match(options.model or ""):
        body["output_config"] = {"effort": "low" if effort == "minimal" else effort}
    else:
        budget = _BUDGETS[effort]
        if options.max_tokens is None:
            body["max_tokens"] += budget  # the budget is part of max_tokens
        elif options.max_tokens <= 1024:  # noqa: PLR2004 - the least budget there is
            logger.warning("max_tokens=%d leaves no room for thinking; it was left out", options.max_tokens)
            return
        else:
            budget = min(budget, options.max_tokens - 1)
        body["thinking"] = {"type": "enabled", "budget_tokens": budget}


def _put_response_format(body: dict[str, Any], wanted: Any) -> None:
    if wanted == "json":
        instruction = "Answer with one JSON value and nothing else."
        body["system"] = f"{body['system']}\n\n{instruction}" if "system" in body else instruction
        return
    from agentcore.schema import schema_of, strict_schema

    schema = cast("dict[str, Any]", wanted) if isinstance(wanted, dict) else schema_of(wanted)
    config = cast("dict[str, Any]", body.setdefault("output_config", {}))
    config["format"] = {"type": "json_schema", "schema": strict_schema(schema) or schema}
