"""Settings of a call in Anthropic's words: what each family of Claude models takes, and what is left out by name.

Sources: Claude platform documentation, "Effort", "Thinking", "Structured outputs" and the migration guides; the types
of the `anthropic` package 2.14. Names that are not Claude's belong to compatible endpoints and get the oldest form.

* `reasoning_effort`: from 4.6 on `thinking: adaptive` with `output_config.effort`; from 3.7 to 4.5, and on compatible
  endpoints, `thinking: enabled` with a budget; before, nothing. `none` switches thinking off; models that always think
  get the least effort.
* `temperature`, `top_p`: refused from 4.7 on, and beside thinking.
* `response_format`: `output_config.format` from 4.5 on and on compatible endpoints; before, and for schemas that the
  service cannot enforce, words in the system text.
* `seed`, and `metadata` other than `user_id`, have no field.

What a model would refuse is left out, and the log names it: a warning costs less than the answer.
"""

import logging
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

from msgspec import Struct

from agentcore.chat import ChatOptions, PromptCache, ReasoningEffort
from agentcore.codecs.shared import cache_control, encode_json
from agentcore.structured import output_schema

logger = logging.getLogger("agentcore.codecs")

_BUDGETS: dict[str, int] = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 24576,
    "max": 27648,  # beside the default max_tokens still under the 32,000 that the smallest thinking model can write
}
_LEAST_BUDGET = 1024
_LEAST_TOP_P_WHEN_THINKING = 0.95

_NAME_FIRST = re.compile(r"claude-([a-z]+)-(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?")
_NUMBER_FIRST = re.compile(r"claude-(\d)(?!\d)(?:[-.](\d)(?!\d))?(?:-([a-z]+))?")


class Family(Struct, frozen=True):
    """A family of Claude models: `claude-opus-4-7-20260416` is opus 4.7."""

    name: str
    version: tuple[int, int]

    @property
    def thinks_adaptively(self) -> bool:
        return self.version >= (4, 6)

    @property
    def always_thinks(self) -> bool:
        return self.name in ("fable", "mythos") or self.version >= (5, 5)

    @property
    def can_think(self) -> bool:
        return self.version >= (3, 7)

    @property
    def takes_sampling(self) -> bool:
        return self.version < (4, 7)

    @property
    def takes_both_samplings(self) -> bool:
        return self.version < (4, 1)

    @property
    def has_output_format(self) -> bool:
        return self.version >= (4, 5)


@lru_cache(maxsize=256)
def family_of(model: str) -> Family | None:
    """The family of a model name, with any prefix or date around it; None if it is not Claude's."""
    found = _NAME_FIRST.search(model)
    if found is not None:
        return Family(found[1], (int(found[2]), int(found[3] or 0)))
    found = _NUMBER_FIRST.search(model)
    if found is not None:
        return Family(found[3] or "", (int(found[1]), int(found[2] or 0)))
    if "claude-mythos" in model:
        return Family("mythos", (4, 7))  # the preview, which has no number
    return None


def put_settings(body: dict[str, Any], options: ChatOptions) -> None:
    """Everything a call asks for beyond messages and tools. Puts keys in a fixed order."""
    model = options.model or ""
    family = family_of(model)
    if options.reasoning_effort is not None:
        _put_effort(body, options, options.reasoning_effort, family)
    _put_sampling(body, options, family)
    _put_stop(body, options)
    if options.seed is not None:
        logger.warning("Anthropic Messages has no setting for seed; it was left out")
    if options.metadata:
        if "user_id" in options.metadata:
            body["metadata"] = {"user_id": options.metadata["user_id"]}
        others = [key for key in options.metadata if key != "user_id"]
        if others:
            logger.warning("Anthropic Messages keeps only the metadata user_id; left out: %s", ", ".join(others))
    if options.response_format is not None:
        _put_response_format(body, options.response_format, family)


def put_prompt_cache(body: dict[str, Any], wanted: PromptCache) -> None:
    """Ask for the prompt to be kept: tools and system text, which conversations share, and all of it, which this one
    goes on with. The second mark stands at the top, so that no message changes when the next one follows.

    Source: Anthropic platform documentation, "Prompt caching": a prompt is tools, system, messages, in this order; a
    mark keeps what stands before it; at most four marks.
    """
    mark = cache_control(wanted)
    if "system" in body:
        body["system"] = [{"type": "text", "text": body["system"], "cache_control": mark}]
    elif body.get("tools"):
        *others, last = cast("list[dict[str, Any]]", body["tools"])
        body["tools"] = [*others, {**last, "cache_control": mark}]
    body["cache_control"] = mark


def put_extra(body: dict[str, Any], options: ChatOptions) -> None:
    """Merge `extra`, untouched and last; make room for a thinking budget in it where nobody chose `max_tokens`."""
    body.update(options.extra)
    thinking: object = options.extra.get("thinking")
    if isinstance(thinking, dict) and options.max_tokens is None and "max_tokens" not in options.extra:
        budget: object = cast("dict[str, object]", thinking).get("budget_tokens")
        if isinstance(budget, int) and budget >= body["max_tokens"]:
            body["max_tokens"] += budget


def _put_effort(body: dict[str, Any], options: ChatOptions, effort: ReasoningEffort, family: Family | None) -> None:
    model = options.model
    if effort == "none":
        if family is None or (family.version >= (5, 0) and not family.always_thinks):
            body["thinking"] = {"type": "disabled"}
        elif family.always_thinks:
            logger.warning("%s always thinks; reasoning_effort 'none' asks for the least effort", model)
            body["output_config"] = {"effort": "low"}
        return  # the models between think only when they are told to
    if family is not None and not family.can_think:
        logger.warning("%s cannot think; reasoning_effort was left out", model)
        return
    forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
    if forced and (family is None or not family.always_thinks):
        logger.warning("thinking and a forced tool call exclude each other; thinking was left out")
    if family is not None and family.thinks_adaptively:
        if not forced:
            body["thinking"] = {"type": "adaptive"}
        body["output_config"] = {"effort": _effort_word(effort, family)}
        if options.max_tokens is None:
            body["max_tokens"] += _BUDGETS[effort]  # thoughts count, whatever their number
        return
    if not forced:
        _put_budget(body, options, _BUDGETS[effort])


def _effort_word(effort: ReasoningEffort, family: Family) -> str:
    if effort == "minimal":
        return "low"
    if effort == "xhigh" and family.version < (4, 7):
        return "high"
    return effort


def _put_budget(body: dict[str, Any], options: ChatOptions, budget: int) -> None:
    if options.max_tokens is None:
        body["max_tokens"] += budget  # the budget is part of max_tokens
    elif options.max_tokens <= _LEAST_BUDGET:
        logger.warning("max_tokens=%d leaves no room for thinking; it was left out", options.max_tokens)
        return
    else:
        budget = min(budget, options.max_tokens - 1)
    body["thinking"] = {"type": "enabled", "budget_tokens": budget}


def _put_sampling(body: dict[str, Any], options: ChatOptions, family: Family | None) -> None:
    temperature, top_p, model = options.temperature, options.top_p, options.model
    if family is not None and not family.takes_sampling:
        for name, value in (("temperature", temperature), ("top_p", top_p)):
            if value is not None:
                logger.warning("%s takes no %s; it was left out", model, name)
        return
    if body.get("thinking", {}).get("type") in ("enabled", "adaptive"):
        if temperature is not None and temperature != 1:
            logger.warning("%s takes no temperature while it thinks; it was left out", model)
            temperature = None
        if top_p is not None and top_p < _LEAST_TOP_P_WHEN_THINKING:
            logger.warning("%s takes no top_p under 0.95 while it thinks; it was left out", model)
            top_p = None
    if temperature is not None and top_p is not None and family is not None and not family.takes_both_samplings:
        logger.warning("%s takes temperature or top_p, not both; top_p was left out", model)
        top_p = None
    if temperature is not None:
        body["temperature"] = temperature
    if top_p is not None:
        body["top_p"] = top_p


def _put_stop(body: dict[str, Any], options: ChatOptions) -> None:
    stop = [text for text in options.stop or () if text.strip()]
    if stop:
        body["stop_sequences"] = stop
    if len(stop) < len(options.stop or ()):
        logger.warning("Anthropic Messages takes no stop text of white space alone; it was left out")


def _put_response_format(body: dict[str, Any], wanted: Any, family: Family | None) -> None:
    if wanted == "json":
        _instruct(body, "Answer with one JSON value and nothing else.")
        return
    schema = output_schema(wanted)
    enforced = None if family is not None and not family.has_output_format else _enforceable(schema)
    if enforced is None:
        text = encode_json(schema).decode()
        _instruct(body, f"Answer with one JSON value that fits this JSON Schema, and nothing else:\n{text}")
        return
    config = cast("dict[str, Any]", body.setdefault("output_config", {}))
    config["format"] = {"type": "json_schema", "schema": enforced}


def _instruct(body: dict[str, Any], instruction: str) -> None:
    body["system"] = f"{body['system']}\n\n{instruction}" if "system" in body else instruction


# Keywords that the service enforces; others it refuses, so they become part of the description, for the model to read.
_ENFORCED = frozenset(
    (
        "type",
        "enum",
        "const",
        "anyOf",
        "allOf",
        "$ref",
        "$defs",
        "properties",
        "required",
        "items",
        "description",
        "title",
    )
)
_FORMATS = frozenset(("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"))


class _NotEnforceableError(Exception):
    pass


def _enforceable(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The schema in the part of JSON Schema that the service enforces; None if it is out of its reach."""
    try:
        return _closed(schema)
    except _NotEnforceableError:
        return None


def _closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    hints: list[str] = []
    for keyword, value in schema.items():
        match keyword:
            case "properties" | "$defs" if isinstance(value, Mapping):
                made[keyword] = {name: _closed_child(child) for name, child in cast("Mapping[str, Any]", value).items()}
            case "anyOf" | "allOf" if isinstance(value, list):
                made[keyword] = [_closed_child(child) for child in cast("list[Any]", value)]
            case "oneOf" if isinstance(value, list):
                made["anyOf"] = [_closed_child(child) for child in cast("list[Any]", value)]
            case "items":
                made[keyword] = _closed_child(value)
            case "format" if value in _FORMATS:
                made[keyword] = value
            case "minItems" if value in (0, 1):
                made[keyword] = value
            case "additionalProperties" | "default" | "$schema" | "discriminator":
                pass
            case _ if keyword in _ENFORCED:
                made[keyword] = value
            case _:
                hints.append(f"{keyword}: {encode_json(value).decode()}")
    if schema.get("type") == "object" or "properties" in schema:
        if schema.get("additionalProperties") not in (None, False) or "properties" not in schema:
            raise _NotEnforceableError  # a free-form mapping: the service closes every object
        made["additionalProperties"] = False
    if hints:
        said = f"{made['description']}\n" if "description" in made else ""
        made["description"] = f"{said}({', '.join(hints)})"
    return made


def _closed_child(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or not schema:
        raise _NotEnforceableError  # `true` and `{}`: anything at all
    return _closed(cast("Mapping[str, Any]", schema))
