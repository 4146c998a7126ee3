"""What has to go back to the service as it came: signed thinking, and the blocks of its own tools.

Sources: Claude platform documentation, "Thinking" (blocks are returned unchanged, a message does not end with one, they
belong to the model that made them) and "Server tools" (blocks are returned in their order).
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from agentcore.codecs.anthropic_settings import family_of
from agentcore.messages import AssistantMessage

FORMAT = "anthropic"
"""Tag of this codec's replay payloads."""

_CALL_FIELDS = frozenset(("type", "id", "name", "input"))


def replay_payload(blocks: Sequence[Mapping[str, Any]], model: str | None) -> dict[str, Any] | None:
    """The replay payload of a reply; None if its neutral content says it all.

    Blocks in front of text and calls are kept by themselves. Any other mixture is kept in its order: then text stands
    in it again, and each call as a mark of its place.
    """
    kept = [block for block in blocks if not _is_neutral(block)]
    if not kept:
        return None
    rest = [str(block.get("type")) for block in blocks[len(kept) :]]
    front = all(_is_neutral(block) for block in blocks[len(kept) :]) and rest == sorted(rest)  # text, then tool_use
    payload: dict[str, Any] = {"format": FORMAT}
    if model is not None:
        payload["model"] = model
    payload["blocks"] = kept if front else [_in_order(block) for block in blocks if not is_unsigned_thinking(block)]
    return payload


def _in_order(block: Mapping[str, Any]) -> Mapping[str, Any]:
    match block.get("type"):
        case "tool_use":  # name and input are the neutral call's
            return {key: value for key, value in block.items() if key not in ("name", "input")}
        case "text" if not block.get("citations"):
            return {"type": "text", "text": block.get("text")}
        case _:
            return block


def _is_neutral(block: Mapping[str, Any]) -> bool:
    """Nothing would be lost if only the neutral message were sent back."""
    match block.get("type"):
        case "text":
            return not block.get("citations")
        case "tool_use":
            return all(
                key in _CALL_FIELDS or value is None or (key == "caller" and _is_direct(value))
                for key, value in block.items()
            )
        case _:
            return is_unsigned_thinking(block)


def _is_direct(caller: object) -> bool:
    return isinstance(caller, dict) and cast("dict[str, object]", caller).get("type") == "direct"


def is_unsigned_thinking(block: Mapping[str, Any]) -> bool:
    """Thinking without a signature, which the service never takes back."""
    return block.get("type") == "thinking" and not block.get("signature")


def is_thinking(block: Mapping[str, Any]) -> bool:
    """Thinking, readable or not."""
    return block.get("type") in ("thinking", "redacted_thinking")


def kept_blocks(message: AssistantMessage, model: str | None) -> list[dict[str, Any]]:
    """The blocks kept for a message, as far as `model` may be sent them; empty for payloads of other formats."""
    replay = message.replay
    if replay is None or replay.get("format") != FORMAT or not isinstance(replay.get("blocks"), list):
        return []
    blocks = [
        cast("dict[str, Any]", block)
        for block in cast("list[Any]", replay["blocks"])
        if isinstance(block, dict) and not is_unsigned_thinking(cast("dict[str, Any]", block))
    ]
    if not _same_family(replay.get("model"), model):
        return [block for block in blocks if not is_thinking(block)]
    return blocks


def _same_family(made_by: object, model: str | None) -> bool:
    """Whether thinking may go back: it may unless both names are known and differ."""
    if not isinstance(made_by, str) or model is None:
        return True
    known, asked = family_of(made_by), family_of(model)
    return known is None or asked is None or known == asked


def without_open_server_tools(blocks: Sequence[Any]) -> list[Any]:
    """A finished assistant message without server tool calls that never got a result, which the service refuses.

    They are left when a paused reply is not continued. A message with calls of ours is left alone: theirs may wait for
    ours (code that calls tools).
    """
    kept = [cast("dict[str, Any]", block) for block in blocks if isinstance(block, dict)]
    if any(block.get("type") == "tool_use" for block in kept):
        return list(blocks)
    answered = {str(block.get("tool_use_id")) for block in kept}
    return without_last_thinking([block for block in blocks if not _is_open_server_tool(block, answered)])


def without_last_thinking(blocks: list[Any]) -> list[Any]:
    """The blocks without the thinking they end with, which the service refuses: a reply that the limit cut."""
    while blocks and isinstance(blocks[-1], dict) and is_thinking(cast("dict[str, Any]", blocks[-1])):
        blocks.pop()
    return blocks


def _is_open_server_tool(block: object, answered: set[str]) -> bool:
    if not isinstance(block, dict):
        return False
    known = cast("dict[str, Any]", block)
    return str(known.get("type")).endswith("_tool_use") and str(known.get("id")) not in answered
