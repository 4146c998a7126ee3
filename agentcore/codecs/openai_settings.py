"""What both of OpenAI's formats share: which settings a model takes, prompt caching, schemas under strict rules."""

import re
from collections.abc import Mapping
from typing import Any, cast

from agentcore.chat import PromptCache, ReasoningEffort, ToolSchema
from agentcore.codecs.dialect import Dialect
from agentcore.codecs.shared import cache_control

# OpenAI API reference: these families take `max_completion_tokens`, and neither sampling settings nor `stop`.
_REASONING_MODEL = re.compile(r"(?:.*/)?(?:o\d(?:$|-)|gpt-[5-9](?!.*chat))", re.IGNORECASE)
# OpenAI "Using GPT-5.2": from 5.1 on they do, as long as the model does not reason.
_OPTIONAL_REASONING = re.compile(r"(?:.*/)?gpt-5\.\d", re.IGNORECASE)


def is_reasoning_model(model: str | None) -> bool:
    """Whether a model reasons, by its name."""
    return bool(_REASONING_MODEL.match(model or ""))


def refuses_sampling(model: str | None, effort: ReasoningEffort | None) -> bool:
    """Whether a model refuses temperature, top_p and stop."""
    return is_reasoning_model(model) and not (effort == "none" and _OPTIONAL_REASONING.match(model or ""))


def effort_word(effort: ReasoningEffort) -> str:
    """The reasoning effort in OpenAI's words."""
    return "xhigh" if effort == "max" else effort  # the most there is here


def prompt_cache_fields(wanted: PromptCache, dialect: Dialect) -> dict[str, Any]:
    """What asks the service to keep the prompt; empty where it does so by itself, or never.

    Sources: OpenAI API reference, `prompt_cache_key` and `prompt_cache_retention`; OpenRouter API, `cache_control`.
    """
    fields: dict[str, Any] = {}
    if dialect.prompt_cache == "openai":
        if wanted.key is not None:
            fields["prompt_cache_key"] = wanted.key
        if wanted.ttl == "24h":
            fields["prompt_cache_retention"] = "24h"
    elif dialect.prompt_cache == "cache_control":
        fields["cache_control"] = cache_control(wanted)
    return fields


def tool_parameters(one: ToolSchema, dialect: Dialect) -> tuple[Mapping[str, Any], bool]:
    """The parameters of a tool, and whether they are under the strict rules: a claim that has to be true."""
    parameters: Mapping[str, Any] = one.parameters or {"type": "object", "properties": {}}
    if "type" not in parameters and "properties" in parameters:
        parameters = {"type": "object", **parameters}
    if dialect.strict_tools and getattr(one, "strict", None):
        strict = strict_if_same(parameters)
        if strict is not None:  # a claim that the schema does not keep is refused as a whole
            return strict, True
    return parameters, False


def named_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema as a response format with a name, strict where it says the same under the strict rules."""
    strict = strict_if_same(schema)
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", str(schema.get("title") or "answer"))[:64]
    made: dict[str, Any] = {"name": name, "schema": schema if strict is None else strict}
    if strict is not None:
        made["strict"] = True
    return made


def strict_if_same(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema under OpenAI's strict rules, if it says the same there.

    A property that may be missing would have to be null instead, and who reads the answer does not expect that.
    """
    from agentcore.schema import strict_schema

    return strict_schema(schema) if _requires_all(schema) else None


def _requires_all(node: Any) -> bool:
    if isinstance(node, list):
        return all(_requires_all(item) for item in cast("list[Any]", node))
    if not isinstance(node, Mapping):
        return True
    known = cast("Mapping[str, Any]", node)
    properties = known.get("properties")
    if isinstance(properties, Mapping):
        names = set(cast("Mapping[str, Any]", properties))
        if not names <= set(known.get("required") or ()):
            return False
    return all(_requires_all(value) for value in known.values())
