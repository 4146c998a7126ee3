"""What has to go back to the service as it came: encrypted reasoning, and the items of its own tools.

Sources: OpenAI API, "Reasoning models" (with `store: false` an item carries its reasoning encrypted, and stands before
what it led to), "Conversation state" and "Function calling". Reports of what the service refuses: a reasoning item
without encrypted content, which it would look up by its id and not find; readable `content` in one; one that nothing
follows; one sent to a model that does not reason; encrypted content that another organisation's service made.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from agentcore.codecs.shared import as_text
from agentcore.messages import AssistantMessage

FORMAT = "openai-responses"
"""Tag of this codec's replay payloads."""

# What the service did by itself; tools that wait for an output of ours could not be answered.
_OWN_TOOLS = frozenset(
    (
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "compaction",
    )
)


def replayable(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """An output item in the form in which it goes back; None if it cannot, or if the neutral message says it all."""
    kind = item.get("type")
    if kind == "reasoning":
        encrypted = as_text(item.get("encrypted_content"))
        if encrypted is None:
            return None
        item_id = as_text(item.get("id"))
        made: dict[str, Any] = {"type": "reasoning"} if item_id is None else {"type": "reasoning", "id": item_id}
        made["summary"] = [{"type": "summary_text", "text": text} for text in summary_texts(item)]
        made["encrypted_content"] = encrypted
        return made
    if isinstance(kind, str) and kind in _OWN_TOOLS and item.get("status") in (None, "completed", "failed"):
        return dict(item)
    return None


def summary_texts(item: Mapping[str, Any]) -> list[str]:
    """The texts of a reasoning item's summary; some servers send one text instead of a list of parts."""
    summary = item.get("summary")
    if isinstance(summary, str):
        return [summary] if summary else []
    if not isinstance(summary, list):
        return []
    texts: list[str] = []
    for part in cast("list[Any]", summary):
        text = as_text(cast("dict[str, Any]", part).get("text")) if isinstance(part, dict) else as_text(part)
        if text is not None:
            texts.append(text)
    return texts


def replay_payload(parts: Sequence[dict[str, Any]], provider: str, model: str | None) -> dict[str, Any] | None:
    """The replay payload of a reply; None if its neutral content says it all.

    Args:
        parts: the reply in its order: what goes back as it came, and a mark for each text (`message`) and each call
            (`function_call`).
        provider: whose reply it is.
        model: the model that was asked.
    """
    kept = [part for part in parts if not _is_plain(part)]
    if not kept:
        return None
    rest = [part["type"] for part in parts[len(kept) :]]
    # Text, then calls, is the order in which a neutral message is sent anyway.
    front = all(map(_is_plain, parts[len(kept) :])) and rest == sorted(rest, reverse=True) and rest.count("message") < 2
    payload: dict[str, Any] = {"format": FORMAT, "origin": origin_of(provider)}
    if model is not None:
        payload["model"] = model
    payload["items"] = kept if front else list(parts)
    return payload


def _is_plain(part: Mapping[str, Any]) -> bool:
    return part["type"] in ("message", "function_call") and "phase" not in part


def kept_items(message: AssistantMessage, provider: str, model: str | None) -> list[dict[str, Any]]:
    """What was kept of a reply, if this provider's `model` may be sent it; empty for payloads of other formats.

    It may unless the payload comes from elsewhere (its encryption is the other service's) or from another model (which
    may not reason at all).
    """
    replay = message.replay
    if replay is None or replay.get("format") != FORMAT or not isinstance(replay.get("items"), list):
        return []
    made_by = replay.get("model")
    if replay.get("origin") != origin_of(provider) or (model is not None and made_by not in (None, model)):
        return []
    return [
        cast("dict[str, Any]", item)
        for item in cast("list[Any]", replay["items"])
        if isinstance(item, dict) and isinstance(cast("dict[str, Any]", item).get("type"), str)
    ]


def origin_of(provider: str) -> str:
    """The service behind a provider's name: a preset `x-responses` is service `x` in this format."""
    return provider.removesuffix("-responses")


def without_last_reasoning(items: list[Any]) -> list[Any]:
    """The items without the reasoning they end with, which the service refuses: a reply that the limit cut."""
    while items and isinstance(items[-1], dict) and cast("dict[str, Any]", items[-1]).get("type") == "reasoning":
        items.pop()
    return items
