"""Token counts as OpenAI's formats, and those who speak them, write them."""

from typing import Any, cast

from agentcore.codecs.shared import as_int
from agentcore.usage import UNKNOWN_USAGE, Usage


def usage_of(value: object) -> Usage:
    """The counts of a `usage` object of Chat Completions or Responses; what is absent is None."""
    if not value or not isinstance(value, dict):
        return UNKNOWN_USAGE
    usage = cast("dict[str, Any]", value)
    prompt = _details(usage, "prompt_tokens_details", "input_tokens_details")
    reply = _details(usage, "completion_tokens_details", "output_tokens_details")
    return Usage(
        input_tokens=_first(usage.get("prompt_tokens"), usage.get("input_tokens")),
        output_tokens=_first(usage.get("completion_tokens"), usage.get("output_tokens")),
        # The fields of OpenAI, DeepSeek and Moonshot.
        cached_input_tokens=_first(
            prompt.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"), usage.get("cached_tokens")
        ),
        cache_write_tokens=as_int(prompt.get("cache_write_tokens")),
        reasoning_tokens=_first(reply.get("reasoning_tokens"), usage.get("reasoning_tokens")),
    )


def _details(usage: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        details = usage.get(name)
        if isinstance(details, dict):
            return cast("dict[str, Any]", details)
    return {}


def _first(*values: object) -> int | None:
    return next((count for value in values if (count := as_int(value)) is not None), None)
