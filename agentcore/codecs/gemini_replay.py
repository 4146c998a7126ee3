"""What has to go back to Gemini as it came: thought signatures, on their parts, and the parts of its own tools.

Source: Gemini API documentation, "Thought signatures": a signature goes back on exactly its part, parts are not merged
with others; of parallel calls only the first has one; Gemini 3 and later refuse calls without any, except for history
from elsewhere, whose first call of a message takes a fixed text instead.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from agentcore.messages import AssistantMessage

FORMAT = "gemini"
"""Tag of this codec's replay payloads."""

SKIP_VALIDATION = "skip_thought_signature_validator"
"""The documented stand-in for the signature of a call that Gemini did not make."""

SIGNATURE = "thoughtSignature"
_GENERATION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")
_LATEST = re.compile(r"gemini-[a-z-]+-latest")
_NEWEST = (3, 1)  # what the names of the latest models lead to, or to a later one


def generation(model: str | None) -> tuple[int, int] | None:
    """The generation of a Gemini model by its name: `models/gemini-2.5-flash` is (2, 5); None if it tells none."""
    found = _GENERATION.search(model or "")
    if found is None:
        return _NEWEST if _LATEST.search(model or "") else None
    return int(found[1]), int(found[2] or 0)


def replay_payload(parts: Sequence[Mapping[str, Any]], model: str | None) -> dict[str, Any] | None:
    """The replay payload of a reply; None if its neutral content says it all.

    Args:
        parts: texts as `{"text": …}`, calls as `{"call": number}` with the service's `id` if it gave one, anything else
            whole; each with its signature if it had one.
        model: the model that made them.
    """
    if all(set(part) in ({"text"}, {"call"}) for part in parts):
        return None
    payload: dict[str, Any] = {"format": FORMAT}
    if model is not None:
        payload["model"] = model
    payload["parts"] = [dict(part) for part in parts]
    return payload


def kept_parts(message: AssistantMessage, model: str | None) -> list[dict[str, Any]] | None:
    """The parts kept for a message; None if there are none, or they no longer fit what the message says."""
    replay = message.replay
    if replay is None or replay.get("format") != FORMAT or not isinstance(replay.get("parts"), list):
        return None
    parts = [cast("dict[str, Any]", part) for part in cast("list[Any]", replay["parts"]) if isinstance(part, dict)]
    calls = [part["call"] for part in parts if "call" in part]
    text = "".join([part["text"] for part in parts if isinstance(part.get("text"), str) and not part.get("thought")])
    if calls != list(range(len(message.tool_calls))) or text != (message.content or ""):
        return None
    if not _same_generation(replay.get("model"), model):
        parts = [{key: value for key, value in part.items() if key != SIGNATURE} for part in parts]
    return parts


def _same_generation(made_by: object, model: str | None) -> bool:
    """Whether signatures may go back: they may unless both generations are known and differ."""
    known = generation(made_by) if isinstance(made_by, str) else None
    asked = generation(model)
    return known is None or asked is None or known[0] == asked[0]
