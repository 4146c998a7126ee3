"""Histories kept in the format of OpenAI Chat Completions, read into neutral messages.

Source: OpenAI API reference, "Create chat completion", `messages`; with the older `function_call` and role `function`.
"""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any, cast

from agentcore.codecs.shared import as_text, make_call_id, parse_arguments
from agentcore.errors import InvalidInputError
from agentcore.messages import (
    AssistantMessage,
    AudioPart,
    Content,
    FilePart,
    ImagePart,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    text_of,
)

_AUDIO = {"wav": "audio/wav", "mp3": "audio/mpeg"}


def messages_from_openai(items: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Neutral messages out of the `messages` list of a Chat Completions request.

    Nothing is mended: calls without results and results without calls stay (`heal` is for them). Arguments that are not
    a JSON object are kept as `raw_arguments`. A tool message gets its tool's name from the call that it answers.

    Args:
        items: mappings, as they were sent to or received from an endpoint.

    Raises:
        InvalidInputError: an item or a part of one that has no neutral form; it is named by its place, its content is
            not shown.
    """
    messages: list[Message] = []
    names: dict[str, str] = {}  # of the tools called so far, by call id
    latest = ""  # the call that a result without an id answers
    for index, item in enumerate(items):
        role = item.get("role")
        if role in ("system", "developer"):
            messages.append(SystemMessage(text_of(_content(item.get("content"), index))))
        elif role == "user":
            messages.append(UserMessage(_content(item.get("content"), index)))
        elif role == "assistant":
            calls = _calls(item, index)
            names |= {call.id: call.name for call in calls}
            latest = calls[-1].id if calls else latest
            refusal = as_text(item.get("refusal"))
            text = text_of(_content(item.get("content"), index)) or refusal
            reasoning = as_text(item.get("reasoning_content")) or as_text(item.get("reasoning"))
            messages.append(AssistantMessage(text, calls, reasoning, "content_filter" if refusal else None))
        elif role in ("tool", "function"):
            call_id = as_text(item.get("tool_call_id")) or (latest if role == "function" else "")
            name = as_text(item.get("name")) or names.get(call_id, "")
            messages.append(ToolMessage(call_id, name, _content(item.get("content"), index)))
        else:
            raise InvalidInputError(
                f"item {index}: role {role!r} is none of Chat Completions (system, developer, user, assistant, tool, "
                "function)"
            )
    return messages


def _calls(item: Mapping[str, Any], index: int) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    given: object = item.get("tool_calls") or ()
    if not isinstance(given, list | tuple):
        raise _unreadable(index, "tool_calls is no list")
    for place, one in enumerate(cast("Sequence[object]", given)):
        called = _object(one, index, f"tool call {place}")
        # A custom tool has a text for input, which is no object of arguments.
        function = _object(called.get("function") or called.get("custom"), index, f"tool call {place}")
        calls.append(_call(as_text(called.get("id")), function, index, place))
    legacy: object = item.get("function_call")
    if not calls and legacy:
        calls.append(_call(None, _object(legacy, index, "function_call"), index, 0))
    return tuple(calls)


def _call(call_id: str | None, function: Mapping[str, Any], index: int, place: int) -> ToolCall:
    args, raw = parse_arguments(function.get("arguments", function.get("input")))
    return ToolCall(call_id or make_call_id(index, place), as_text(function.get("name")) or "", args, raw)


def _content(content: object, index: int) -> Content:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise _unreadable(index, "content is neither a text nor a list of parts")
    parts = [_part(part, index, place) for place, part in enumerate(cast("Sequence[object]", content))]
    return parts[0].text if len(parts) == 1 and isinstance(parts[0], TextPart) else tuple(parts)


def _part(given: object, index: int, place: int) -> Part:
    if isinstance(given, str):
        return TextPart(given)
    part = _object(given, index, f"part {place}")
    kind = part.get("type")
    try:
        match kind:
            case "text":
                return TextPart(cast("str", part["text"]))
            case "refusal":
                return TextPart(cast("str", part["refusal"]))
            case "image_url":
                image: Any = part["image_url"]
                image = {"url": image} if isinstance(image, str) else image
                media_type, data = _from_data_url(image["url"])
                if data is not None:
                    return ImagePart(data=data, media_type=media_type, detail=image.get("detail"))
                return ImagePart(url=image["url"], detail=image.get("detail"))
            case "input_audio":
                audio: Any = part["input_audio"]
                return AudioPart(data=b64decode(audio["data"]), media_type=_AUDIO[audio["format"]])
            case "file" if part["file"].get("file_data"):
                file: Any = part["file"]
                media_type, data = _from_data_url(file["file_data"])
                if data is None:
                    media_type, data = "application/pdf", b64decode(file["file_data"])
                return FilePart(data=data, media_type=media_type, name=as_text(file.get("filename")))
            case _:
                pass
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(index, f"part {place} ({kind}) cannot be read") from error
    raise _unreadable(index, f"part {place} has the type {kind!r}, which has no neutral form")


def _from_data_url(url: str) -> tuple[str | None, bytes | None]:
    head, comma, data = url.partition(",")
    if not head.startswith("data:") or not comma or not head.endswith(";base64"):
        return None, None
    return head[5:-7].split(";")[0] or "application/octet-stream", b64decode(data)


def _object(value: object, index: int, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _unreadable(index, f"{what} is no object")
    return cast("Mapping[str, Any]", value)


def _unreadable(index: int, why: str) -> InvalidInputError:
    return InvalidInputError(f"item {index}: {why}; leave it out or give it as neutral messages")
