"""Neutral to Anthropic Messages: the request body.

The rules come from the Messages API reference and its "tool use" and "thinking" guides: system text stands at the top
level; roles alternate and a user comes first; all results of a batch stand in one user message right after the calls,
before any text; no text block is blank; an error result is not empty and holds text alone; an assistant message ends
neither with thinking nor, if it is the last, with white space.
"""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from agentcore.chat import ChatOptions, ChatRequest, ToolSchema
from agentcore.codecs.anthropic_replay import kept_blocks, without_last_thinking, without_open_server_tools
from agentcore.codecs.anthropic_settings import put_extra, put_prompt_cache, put_settings
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

OPENING = "(The conversation continues.)"
"""Said in the user's place where a history begins with the assistant, which the service refuses."""

SILENT_ERROR = "(The tool failed and gave no message.)"
"""Content of an error result that has none, which the service refuses."""

_IMAGE_TYPES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))
_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^;,]*)*?;base64,(.*)", re.DOTALL)


class _Text(Struct, tag="text", gc=False):
    text: str


class _Result(Struct, tag="tool_result", gc=False, omit_defaults=True):
    tool_use_id: str
    content: str | list[Any] = ""
    is_error: bool = False


class WireMessage(Struct, gc=False):
    """One entry of `messages`. Its content only ever grows, so that the bytes before stay as they were."""

    role: str
    content: list[Any]


def request_body(
    request: ChatRequest, provider: str, names: Mapping[str, str], default_max_tokens: int, *, stream: bool
) -> dict[str, Any]:
    """The whole body, keys in a fixed order.

    Raises:
        UnsupportedContentError: a part that this format cannot carry.
        InvalidInputError: nothing to send, or nothing new.
    """
    options = request.options
    system, messages = wire_messages(request.messages, provider, names, options.model)
    body: dict[str, Any] = {"model": options.model, "max_tokens": options.max_tokens or default_max_tokens}
    if system:
        body["system"] = "\n\n".join(system)
    body["messages"] = messages
    if request.tools:
        body["tools"] = [_wire_tool(one, names) for one in request.tools]
        choice = _tool_choice(options, names)
        if choice is not None:
            body["tool_choice"] = choice
    put_settings(body, options)
    if options.prompt_cache is not None:
        put_prompt_cache(body, options.prompt_cache)
    if stream:
        body["stream"] = True
    put_extra(body, options)
    return body


def wire_messages(
    messages: Sequence[Message], provider: str, names: Mapping[str, str], model: str | None = None
) -> tuple[list[str], list[WireMessage]]:
    """System texts, and the other messages in wire form.

    Content is always a list of blocks, so that a message that joins its neighbour leaves the earlier bytes as they
    were. For the same reason white space is taken off the end of every assistant text, not only of the last one, where
    the service refuses it.
    """
    system: list[str] = []
    wire: list[WireMessage] = []
    ids = LegalIds(r"[a-zA-Z0-9_-]+", 64)
    role = ""  # of the last wire message
    has_kept = False
    for message in heal(messages)[0]:
        kind = type(message)
        blocks: list[Any]
        if kind is AssistantMessage:
            message = cast("AssistantMessage", message)
            text, calls = message.content, message.tool_calls
            text = text.rstrip() if text else ""
            if message.replay is None and not calls:
                blocks = [_Text(text)] if text else []
            else:
                ids.open_batch(calls)
                kept = kept_blocks(message, model)
                has_kept = has_kept or bool(kept)
                blocks = _assistant_blocks(message, text, kept, ids, names)
            speaker = "assistant"
        elif kind is UserMessage:
            content = cast("UserMessage", message).content
            if type(content) is str:
                blocks = [_Text(content)] if content and not content.isspace() else []
            else:
                blocks = _part_blocks(cast("UserMessage", message), messages, provider)
            speaker = "user"
        elif kind is ToolMessage:
            blocks = [_result_block(cast("ToolMessage", message), ids, messages, provider)]
            speaker = "user"
        else:
            text = cast("SystemMessage", message).content
            if text and not text.isspace():
                system.append(text)
            continue
        if not blocks:
            continue
        if speaker == role:
            wire[-1].content.extend(blocks)
        else:
            wire.append(WireMessage(speaker, blocks))
            role = speaker
    _refuse_nothing_new(messages, wire, provider)
    if has_kept:
        wire = _settle_kept(wire)
    if wire and wire[0].role == "assistant":
        wire.insert(0, WireMessage("user", [_Text(OPENING)]))
    return system, wire


def losses(messages: Sequence[Message], provider: str) -> list[str]:
    """What this format could not carry: one line for each part."""
    lost: list[str] = []
    for index, message in enumerate(messages):
        if not isinstance(message, UserMessage | ToolMessage) or isinstance(message.content, str):
            continue
        for position, part in enumerate(message.content):
            try:
                _part_block(part)
            except _CannotCarryError as error:
                lost.append(_cannot_carry(provider, error, index, position))
    return lost


def _refuse_nothing_new(messages: Sequence[Message], wire: list[WireMessage], provider: str) -> None:
    """An empty message of the user's must not turn the answer before it into a text to be continued."""
    if not wire:
        raise InvalidInputError(f"there is nothing to send to {provider}: no message has content (all are empty)")
    last = messages[-1]
    if isinstance(last, UserMessage) and wire[-1].role == "assistant":
        raise InvalidInputError(f"message {len(messages) - 1}, the last one, is empty: {provider} refuses blank text")


def _settle_kept(wire: list[WireMessage]) -> list[WireMessage]:
    """What can only be told of replayed blocks when the neighbours are known."""
    settled: list[WireMessage] = []
    for position, message in enumerate(wire):
        content = message.content
        if message.role == "assistant" and position < len(wire) - 1:
            content = without_open_server_tools(content)
        if not content:
            continue
        if settled and settled[-1].role == message.role:
            settled[-1].content.extend(content)
        else:
            settled.append(WireMessage(message.role, content))
    if settled and settled[-1].role == "assistant":
        _strip_end(settled[-1])
    return settled


def _strip_end(message: WireMessage) -> None:
    last = message.content[-1]
    if isinstance(last, dict):  # a replayed block; other texts have been stripped
        block = cast("dict[str, Any]", last)
        if block.get("type") == "text" and isinstance(block.get("text"), str):
            message.content[-1] = {**block, "text": block["text"].rstrip()}


class _CannotCarryError(Exception):
    """What cannot be carried, and the cure."""

    def __init__(self, what: str, cure: str = "convert it or use a provider that can") -> None:
        super().__init__(what)
        self.what = what
        self.cure = cure


def _cannot_carry(provider: str, error: _CannotCarryError, index: int, position: int) -> str:
    return f"{provider} cannot carry {error.what} (message {index}, part {position}); {error.cure}"


def _part_blocks(message: UserMessage | ToolMessage, messages: Sequence[Message], provider: str) -> list[Any]:
    blocks: list[Any] = []
    for position, part in enumerate(cast("tuple[Part, ...]", message.content)):
        if isinstance(part, TextPart):
            if part.text.strip():
                blocks.append(_Text(part.text))
            continue
        try:
            blocks.append(_part_block(part))
        except _CannotCarryError as error:
            # Healing may have moved it: the caller knows the message by its own count.
            index = next((i for i, one in enumerate(messages) if one.content is message.content), -1)
            raise UnsupportedContentError(_cannot_carry(provider, error, index, position)) from None
    return blocks


def _part_block(part: Part) -> Any:
    match part:
        case TextPart():
            return _Text(part.text)
        case ImagePart():
            return {"type": "image", "source": _image_source(part)}
        case FilePart():
            block: dict[str, Any] = {"type": "document", "source": _document_source(part)}
            if part.name:
                block["title"] = part.name
            return block
        case AudioPart():
            raise _CannotCarryError("audio")


def _image_source(part: ImagePart) -> dict[str, Any]:
    if part.url is not None and not part.url.startswith("data:"):
        return {"type": "url", "url": part.url}
    media_type, data = _inline(part)
    if media_type == "image/jpg":
        media_type = "image/jpeg"
    if media_type not in _IMAGE_TYPES:
        raise _CannotCarryError(f"an image of type {media_type}", "convert it to PNG, JPEG, GIF or WebP")
    return {"type": "base64", "media_type": media_type, "data": data}


def _document_source(part: FilePart) -> dict[str, Any]:
    if part.url is not None and not part.url.startswith("data:"):
        if _bare(part.media_type) not in ("", "application/pdf"):
            raise _CannotCarryError(f"a file of type {part.media_type} by its URL", "fetch it and give its data")
        return {"type": "url", "url": part.url}
    media_type = _bare(part.media_type)
    if part.data is not None and media_type.startswith("text/"):
        try:
            text = part.data.decode()
        except UnicodeDecodeError:
            raise _CannotCarryError(f"a file ({part.media_type}) that is not UTF-8", "convert it to UTF-8") from None
        return {"type": "text", "media_type": "text/plain", "data": text}
    media_type, data = _inline(part)
    if media_type != "application/pdf":
        raise _CannotCarryError(f"a file of type {media_type}", "convert it to PDF or to text")
    return {"type": "base64", "media_type": media_type, "data": data}


def _inline(part: ImagePart | FilePart) -> tuple[str, str]:
    """Media type and base64 text of a part that carries its data, also inside a `data:` URL."""
    if part.data is not None:
        return _bare(part.media_type), b64encode(part.data).decode()
    found = _DATA_URL.fullmatch(part.url or "")
    if found is None:
        raise _CannotCarryError("a data: URL that is not base64", "give its data instead")
    return _bare(found[1] or part.media_type), found[2]


def _bare(media_type: str | None) -> str:
    """A media type without its parameters."""
    return (media_type or "").partition(";")[0].strip().lower()


def _result_block(message: ToolMessage, ids: LegalIds, messages: Sequence[Message], provider: str) -> _Result:
    content = message.content
    result: str | list[Any]
    if isinstance(content, str):
        result = content if content.strip() else ""
    else:
        result = _part_blocks(message, messages, provider) or ""
    if message.is_error and isinstance(result, list) and any(not isinstance(block, _Text) for block in result):
        # An error result holds text alone ("all content must be type text if is_error is true").
        return _Result(ids[message.tool_call_id], [_Text("The tool failed:"), *result])
    if message.is_error and not result:
        result = SILENT_ERROR  # "content cannot be empty if is_error is true"
    return _Result(ids[message.tool_call_id], result, message.is_error)


def _assistant_blocks(
    message: AssistantMessage, text: str, kept: list[dict[str, Any]], ids: LegalIds, names: Mapping[str, str]
) -> list[Any]:
    if not kept:
        blocks: list[Any] = [_Text(text)] if text else []
        blocks.extend([_call_block(call, ids, names) for call in message.tool_calls])
        return blocks
    return _replayed(kept, message, text, ids, names)


def _replayed(
    kept: list[dict[str, Any]], message: AssistantMessage, text: str, ids: LegalIds, names: Mapping[str, str]
) -> list[Any]:
    """The kept blocks byte for byte, text and calls where they stood; the neutral content wins where they disagree."""
    texts = [block.get("text") for block in kept if block.get("type") == "text"]
    agrees = bool(texts) and "".join(str(one) for one in texts) == (message.content or "")
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
                made = _call_block(call, ids, names)
                made.update({key: value for key, value in block.items() if key not in made})
                blocks.append(made)
        else:
            blocks.append(block)
    if text and not agrees:
        first_call = next((i for i, block in enumerate(blocks) if block.get("type") == "tool_use"), len(blocks))
        blocks.insert(first_call, _Text(text))
    blocks.extend([_call_block(call, ids, names) for call in open_calls.values()])
    return without_last_thinking(blocks)


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
