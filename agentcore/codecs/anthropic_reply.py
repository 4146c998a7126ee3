"""The content blocks of an Anthropic reply as a neutral response. Body and stream both end here."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from agentcore.chat import ChatResponse
from agentcore.codecs.anthropic_replay import replay_payload
from agentcore.codecs.shared import (
    as_int,
    as_text,
    encode_json,
    excerpt,
    mend_surrogates,
    parse_arguments,
    with_distinct_ids,
)
from agentcore.errors import DecodeError
from agentcore.messages import AssistantMessage, FinishReason, ToolCall
from agentcore.usage import Usage

_FINISH: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "stop": "stop",
    "max_tokens": "length",
    "length": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "content_filter": "content_filter",
}


def blocks_of(content: object) -> list[dict[str, Any]]:
    """The content of a reply as blocks; a text alone is a block of text, and so is one that does not say what it is.

    Raises:
        DecodeError: it is neither.
    """
    if content is None:
        return []
    if not isinstance(content, str | list):
        raise DecodeError(f"content is not a list of blocks: {excerpt(encode_json(content))}")
    blocks: list[dict[str, Any]] = []
    for one in cast("list[Any]", content if isinstance(content, list) else [content]):
        if isinstance(one, str) and one:
            blocks.append({"type": "text", "text": one})
        elif isinstance(one, dict):
            block = cast("dict[str, Any]", one)
            is_text = block.get("type") is None and isinstance(block.get("text"), str)
            blocks.append({**block, "type": "text"} if is_text else block)
    return blocks


def response_of(
    blocks: Sequence[dict[str, Any]],
    *,
    raw_inputs: Mapping[int, str],
    stop_reason: object,
    usage: object,
    model: object,
    response_id: object,
    names: Mapping[str, str],
) -> ChatResponse:
    """The reply. The blocks decide what it is, the stop reason only whether it was cut.

    Args:
        blocks: in their order.
        raw_inputs: position of a block → JSON text of its input, where it came as text.
        stop_reason: as it came, of whatever type.
        usage: as it came, of whatever type.
        model: as it came, of whatever type.
        response_id: as it came, of whatever type.
        names: wire name → neutral name of tools.

    Raises:
        DecodeError: a tool call without a name.
    """
    raw = as_text(stop_reason)
    finish: FinishReason = "stop" if raw is None else _FINISH.get(raw, "other")
    text: list[str] = []
    reasoning: list[str] = []
    calls: list[ToolCall] = []
    for position, block in enumerate(blocks):
        match block.get("type"):
            case "text":
                text.append(as_text(block.get("text")) or "")
            case "thinking":
                reasoning.append(as_text(block.get("thinking")) or "")
            case "tool_use":
                cut = finish == "length" and position == len(blocks) - 1
                calls.append(_call(block, raw_inputs.get(position, block.get("input")), names, cut=cut))
            case _:
                pass  # the service's own tools, and what is not known yet: carried in the replay payload
    made = with_distinct_ids(calls, as_text(response_id))
    if made and finish != "length":
        finish = "tool_calls"
    content = mend_surrogates("".join(text))
    message = AssistantMessage(
        content or None if made else content,
        made,
        mend_surrogates("".join(reasoning)) or None,
        finish if finish not in ("stop", "tool_calls") else None,
        replay_payload(blocks, as_text(model)),
    )
    return ChatResponse(message, finish, raw, _usage(usage), as_text(model), as_text(response_id))


def _call(block: dict[str, Any], raw: object, names: Mapping[str, str], *, cut: bool) -> ToolCall:
    name = as_text(block.get("name"))
    if name is None:
        raise DecodeError(f"a tool call came without a name: {excerpt(encode_json(block))}")
    args, raw_arguments = parse_arguments(raw)
    if cut and raw_arguments is None:  # the limit fell into this block: whatever it holds is not the whole
        args, raw_arguments = {}, raw if isinstance(raw, str) else encode_json(args).decode()
    return ToolCall(as_text(block.get("id")) or "", names.get(name, name), args, raw_arguments)


def _usage(value: object) -> Usage:
    usage = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    fresh = as_int(usage.get("input_tokens"))
    read, written = as_int(usage.get("cache_read_input_tokens")), as_int(usage.get("cache_creation_input_tokens"))
    details = usage.get("output_tokens_details")
    return Usage(
        # This wire counts the cached parts apart; the neutral number is the whole prompt.
        input_tokens=None if fresh is None else fresh + (read or 0) + (written or 0),
        output_tokens=as_int(usage.get("output_tokens")),
        cached_input_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=as_int(cast("dict[str, Any]", details).get("thinking_tokens"))
        if isinstance(details, dict)
        else None,
    )
