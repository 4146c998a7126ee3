"""Settings in Anthropic's words: what each family of models is sent, and what is left out by name."""

import asyncio
import json
import logging
from typing import Any

import pytest
from msgspec import Struct

from agentcore.chat import ChatOptions, ChatRequest, ToolDefinition
from agentcore.codecs.anthropic_messages import DEFAULT_MAX_TOKENS, AnthropicMessagesCodec
from agentcore.codecs.anthropic_settings import Family, family_of
from agentcore.messages import SystemMessage, UserMessage

ADD = ToolDefinition("add", "Add.")
OLD, BUDGET, MIDDLE, NEW, ALWAYS, FOREIGN = (
    "claude-3-5-sonnet-20241022",
    "claude-haiku-4-5-20251001",
    "claude-opus-4-6",
    "claude-sonnet-5",
    "claude-opus-5-5",
    "some-model",
)


def settings(model: str = FOREIGN, *, tools: tuple[ToolDefinition, ...] = (), system: str = "", **options: Any) -> Any:
    """The body without its messages."""
    messages = [SystemMessage(system), UserMessage("q")]
    request = ChatRequest(messages, tools, ChatOptions(model=model, **options))
    body = json.loads(asyncio.run(AnthropicMessagesCodec().encode(request, stream=False)).body)
    del body["messages"]
    return body


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("claude-opus-4-7", Family("opus", (4, 7))),
        ("claude-opus-4-5-20251101", Family("opus", (4, 5))),
        ("claude-sonnet-4-20250514", Family("sonnet", (4, 0))),
        ("claude-sonnet-5", Family("sonnet", (5, 0))),
        ("claude-3-5-sonnet-20241022", Family("sonnet", (3, 5))),
        ("claude-3-opus-20240229", Family("opus", (3, 0))),
        ("claude-3.7-sonnet", Family("sonnet", (3, 7))),
        ("anthropic.claude-opus-4-1-20250805-v1:0", Family("opus", (4, 1))),
        ("us.anthropic.claude-opus-4-6-v1", Family("opus", (4, 6))),
        ("claude-opus-4@20250514", Family("opus", (4, 0))),
        ("anthropic/claude-haiku-4.5", Family("haiku", (4, 5))),
        ("claude-mythos-preview", Family("mythos", (4, 7))),
        ("claude-test", None),
        ("deepseek-chat", None),
        ("", None),
    ],
)
def test_family_is_read_from_a_model_name(model: str, family: Family | None) -> None:
    assert family_of(model) == family


def test_max_tokens_is_always_sent() -> None:
    assert settings()["max_tokens"] == DEFAULT_MAX_TOKENS
    assert settings(max_tokens=7)["max_tokens"] == 7


def test_default_max_tokens_can_be_set() -> None:
    request = ChatRequest([UserMessage("q")], options=ChatOptions(model="m"))
    wire = asyncio.run(AnthropicMessagesCodec(default_max_tokens=99).encode(request, stream=False))
    assert json.loads(wire.body)["max_tokens"] == 99


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        (BUDGET, "minimal", {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4096 + 1024}),
        (BUDGET, "medium", {"thinking": {"type": "enabled", "budget_tokens": 8192}, "max_tokens": 4096 + 8192}),
        (FOREIGN, "low", {"thinking": {"type": "enabled", "budget_tokens": 2048}, "max_tokens": 4096 + 2048}),
        (MIDDLE, "minimal", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}, "max_tokens": 5120}),
        (MIDDLE, "xhigh", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}, "max_tokens": 28672}),
        (NEW, "xhigh", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"}, "max_tokens": 28672}),
        (NEW, "max", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}, "max_tokens": 31744}),
        (OLD, "high", {"max_tokens": 4096}),
        (BUDGET, "none", {"max_tokens": 4096}),
        (MIDDLE, "none", {"max_tokens": 4096}),
        (NEW, "none", {"thinking": {"type": "disabled"}, "max_tokens": 4096}),
        (FOREIGN, "none", {"thinking": {"type": "disabled"}, "max_tokens": 4096}),
        (ALWAYS, "none", {"output_config": {"effort": "low"}, "max_tokens": 4096}),
    ],
)
def test_reasoning_effort_by_family(model: str, effort: Any, sent: dict[str, Any]) -> None:
    assert settings(model, reasoning_effort=effort) == {"model": model, **sent}


def test_thinking_budget_stays_below_a_given_max_tokens() -> None:
    sent = settings(BUDGET, reasoning_effort="high", max_tokens=2000)
    assert (sent["max_tokens"], sent["thinking"]["budget_tokens"]) == (2000, 1999)


def test_every_default_budget_fits_the_smallest_thinking_model() -> None:
    assert settings("claude-opus-4-1", reasoning_effort="max")["max_tokens"] <= 32_000


@pytest.mark.parametrize(
    ("model", "options", "kept", "named"),
    [
        pytest.param(NEW, {"temperature": 0.5}, {}, "temperature", id="temperature on a model that takes none"),
        pytest.param(NEW, {"top_p": 0.5}, {}, "top_p", id="top_p on a model that takes none"),
        pytest.param(
            BUDGET, {"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5}, "top_p was left out", id="both samplings"
        ),
        pytest.param(MIDDLE, {"seed": 7}, {}, "seed", id="seed"),
        pytest.param(
            FOREIGN, {"metadata": {"user_id": "u", "team": "t"}}, {"metadata": {"user_id": "u"}}, "team", id="metadata"
        ),
        pytest.param(FOREIGN, {"metadata": {"team": "t"}}, {}, "team", id="metadata without user_id"),
        pytest.param(
            FOREIGN, {"stop": ("END", "\n")}, {"stop_sequences": ["END"]}, "white space", id="blank stop text"
        ),
        pytest.param(FOREIGN, {"stop": ("\n",)}, {}, "white space", id="blank stop text alone"),
        pytest.param(
            OLD, {"reasoning_effort": "low"}, {}, "reasoning_effort", id="effort on a model that cannot think"
        ),
        pytest.param(
            BUDGET, {"reasoning_effort": "low", "max_tokens": 500}, {"max_tokens": 500}, "max_tokens=500", id="no room"
        ),
        pytest.param(
            ALWAYS,
            {"reasoning_effort": "none"},
            {"output_config": {"effort": "low"}},
            "always thinks",
            id="always thinks",
        ),
    ],
)
def test_what_a_model_would_refuse_is_left_out_by_name(
    model: str, options: dict[str, Any], kept: dict[str, Any], named: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "agentcore.codecs"):
        assert settings(model, **options) == {"model": model, "max_tokens": 4096, **kept}
    assert [named in record.getMessage() for record in caplog.records] == [True]


def test_sampling_is_left_out_beside_thinking(caplog: pytest.LogCaptureFixture) -> None:
    sent = settings(BUDGET, reasoning_effort="low", temperature=0.2, top_p=0.5)
    assert "temperature" not in sent
    assert "top_p" not in sent
    assert len(caplog.records) == 2


def test_thinking_is_left_out_beside_a_forced_call(caplog: pytest.LogCaptureFixture) -> None:
    sent = settings(MIDDLE, tools=(ADD,), reasoning_effort="high", tool_choice="required")
    assert "thinking" not in sent
    assert sent["output_config"] == {"effort": "high"}
    assert "forced tool call" in caplog.text


@pytest.mark.parametrize(
    ("model", "options", "sent"),
    [
        (FOREIGN, {"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}),
        (OLD, {"temperature": 0.0, "top_p": 0.9}, {"temperature": 0.0, "top_p": 0.9}),
        (MIDDLE, {"top_p": 0.9}, {"top_p": 0.9}),
        (NEW, {"stop": ("a", "b")}, {"stop_sequences": ["a", "b"]}),
        (NEW, {"metadata": {"user_id": "u"}}, {"metadata": {"user_id": "u"}}),
    ],
)
def test_what_a_model_takes_is_sent_in_silence(
    model: str, options: dict[str, Any], sent: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert settings(model, **options) == {"model": model, "max_tokens": 4096, **sent}
    assert not caplog.records


def test_extra_is_merged_last_and_untouched() -> None:
    sent = settings(temperature=0.5, extra={"temperature": 0.1, "top_k": 5, "container": {"id": "c"}})
    assert (sent["temperature"], sent["top_k"], sent["container"]) == (0.1, 5, {"id": "c"})


def test_budget_in_extra_makes_room_where_nobody_chose_max_tokens() -> None:
    extra = {"thinking": {"type": "enabled", "budget_tokens": 10_000}}
    assert settings(extra=extra)["max_tokens"] == 14_096
    assert settings(extra=extra, max_tokens=12_000)["max_tokens"] == 12_000
    assert settings(extra={**extra, "max_tokens": 11_000})["max_tokens"] == 11_000


class City(Struct):
    name: str
    people: int | None = None


def test_type_as_response_format_becomes_a_closed_schema() -> None:
    sent = settings(NEW, response_format=City, reasoning_effort="low")["output_config"]
    assert sent["effort"] == "low"
    assert sent["format"]["type"] == "json_schema"
    schema = sent["format"]["schema"]
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["name"]
    assert schema["properties"]["name"] == {"type": "string"}


def test_keywords_that_are_not_enforced_are_told_in_the_description() -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 1, "maximum": 5, "description": "How many."},
            "d": {"type": "string", "format": "date"},
            "e": {"type": "string", "format": "regex"},
            "l": {"type": "array", "items": {"type": "object", "properties": {}}, "minItems": 1, "maxItems": 3},
            "u": {"oneOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["n"],
    }
    assert settings(NEW, response_format=schema)["output_config"]["format"]["schema"] == {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "description": "How many.\n(minimum: 1, maximum: 5)"},
            "d": {"type": "string", "format": "date"},
            "e": {"type": "string", "description": '(format: "regex")'},
            "l": {
                "type": "array",
                "items": {"type": "object", "properties": {}, "additionalProperties": False},
                "minItems": 1,
                "description": "(maxItems: 3)",
            },
            "u": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["n"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("model", "wanted", "said"),
    [
        pytest.param(NEW, "json", "one JSON value", id="json"),
        pytest.param(OLD, City, '"people"', id="a model without structured output"),
        pytest.param(NEW, dict[str, int], '"additionalProperties"', id="a free-form mapping"),
        pytest.param(NEW, {"type": "array", "items": {}}, '"items":{}', id="anything at all"),
    ],
)
def test_format_that_cannot_be_enforced_is_asked_for_in_words(model: str, wanted: Any, said: str) -> None:
    sent = settings(model, system="Be brief.", response_format=wanted)
    assert "output_config" not in sent
    assert sent["system"].startswith("Be brief.\n\n")
    assert said in sent["system"]


def test_instruction_stands_alone_without_a_system_text() -> None:
    assert settings(response_format="json")["system"].startswith("Answer with")
