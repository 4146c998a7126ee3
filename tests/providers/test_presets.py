"""Services by name: where each posts to, with which key, in which format."""

import re

import pytest

from agentcore import AnthropicChatModel, ConfigurationError, GeminiChatModel, OpenAIChatModel, chat_model
from agentcore.providers.http import request_url
from agentcore.providers.openai_responses import OpenAIResponsesModel
from agentcore.providers.presets import PRESETS

KEY = "k-0123456789"
EXPECTED = [
    ("openai", "https://api.openai.com/v1/chat/completions", "OPENAI_API_KEY", "authorization"),
    ("anthropic", "https://api.anthropic.com/v1/messages", "ANTHROPIC_API_KEY", "x-api-key"),
    (
        "dashscope",
        "https://dashscope.aliyuncs.com/compatible-mode/v1/chat/completions",
        "DASHSCOPE_API_KEY",
        "authorization",
    ),
    ("deepseek", "https://api.deepseek.com/chat/completions", "DEEPSEEK_API_KEY", "authorization"),
    ("fireworks", "https://api.fireworks.ai/inference/v1/chat/completions", "FIREWORKS_API_KEY", "authorization"),
    (
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta/models/some/model:tag:generateContent",
        "GEMINI_API_KEY",
        "x-goog-api-key",
    ),
    (
        "google",
        "https://generativelanguage.googleapis.com/v1beta/models/some/model:tag:generateContent",
        "GEMINI_API_KEY",
        "x-goog-api-key",
    ),
    (
        "gemini-openai",
        "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
        "GEMINI_API_KEY",
        "authorization",
    ),
    ("groq", "https://api.groq.com/openai/v1/chat/completions", "GROQ_API_KEY", "authorization"),
    ("llamacpp", "http://127.0.0.1:8080/v1/chat/completions", None, "authorization"),
    ("lmstudio", "http://127.0.0.1:1234/v1/chat/completions", None, "authorization"),
    ("minimax", "https://api.minimax.io/anthropic/v1/messages", "MINIMAX_API_KEY", "authorization"),
    ("mistral", "https://api.mistral.ai/v1/chat/completions", "MISTRAL_API_KEY", "authorization"),
    ("moonshot", "https://api.moonshot.ai/v1/chat/completions", "MOONSHOT_API_KEY", "authorization"),
    ("ollama", "http://127.0.0.1:11434/v1/chat/completions", None, "authorization"),
    ("openai-responses", "https://api.openai.com/v1/responses", "OPENAI_API_KEY", "authorization"),
    ("openrouter", "https://openrouter.ai/api/v1/chat/completions", "OPENROUTER_API_KEY", "authorization"),
    ("siliconflow", "https://api.siliconflow.cn/v1/chat/completions", "SILICONFLOW_API_KEY", "authorization"),
    ("together", "https://api.together.xyz/v1/chat/completions", "TOGETHER_API_KEY", "authorization"),
    ("vllm", "http://127.0.0.1:8000/v1/chat/completions", None, "authorization"),
    ("xai", "https://api.x.ai/v1/chat/completions", "XAI_API_KEY", "authorization"),
    ("zhipu", "https://open.bigmodel.cn/api/paas/v4/chat/completions", "ZHIPU_API_KEY", "authorization"),
]
PATHS = {
    "openai": "/chat/completions",
    "openai-responses": "/responses",
    "anthropic": "/v1/messages",
    "gemini": "/models/some/model:tag:generateContent",
}
MODELS = {
    "openai": OpenAIChatModel,
    "openai-responses": OpenAIResponsesModel,
    "anthropic": AnthropicChatModel,
    "gemini": GeminiChatModel,
}
KEYED = [(service, variable) for service, _, variable, _ in EXPECTED if variable]


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for preset in PRESETS.values():
        for variable in (preset.key_variable, preset.url_variable, "GOOGLE_API_KEY"):
            if variable:
                monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize(("service", "url", "variable", "header"), EXPECTED, ids=[row[0] for row in EXPECTED])
def test_preset_posts_to_its_address_with_its_key(
    service: str, url: str, variable: str | None, header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv(variable, KEY)
    model = chat_model(f"{service}:some/model:tag")
    path = PATHS[PRESETS[service].wire]
    assert str(request_url(model.endpoint.base_url, path)) == url
    sent = model.endpoint._headers({})
    assert sent.get(header) == (None if variable is None else f"Bearer {KEY}" if header == "authorization" else KEY)
    assert (model.provider, model.name) == (service, "some/model:tag")
    assert isinstance(model, MODELS[PRESETS[service].wire])


def test_every_preset_has_its_row_here() -> None:
    assert {row[0] for row in EXPECTED} | {"azure"} == set(PRESETS)


def test_azure_needs_an_address_and_sends_the_key_in_its_own_header() -> None:
    with pytest.raises(ConfigurationError, match="base_url"):
        chat_model("azure:gpt-5-mini", api_key=KEY)
    url = "https://name.openai.azure.com/openai/v1?api-version=preview"
    model = chat_model("azure:gpt-5-mini", api_key=KEY, base_url=url)
    assert model.endpoint._headers({})["api-key"] == KEY
    assert str(request_url(url, "/chat/completions")) == url.replace("?", "/chat/completions?")


@pytest.mark.parametrize(("service", "variable"), KEYED, ids=[row[0] for row in KEYED])
def test_missing_key_names_the_services_own_variable(service: str, variable: str) -> None:
    with pytest.raises(ConfigurationError, match=variable):
        chat_model(f"{service}:m")


@pytest.mark.parametrize(
    ("service", "header", "value"),
    [("gemini", "x-goog-api-key", KEY), ("gemini-openai", "authorization", f"Bearer {KEY}")],
)
def test_googles_other_variable_holds_the_key_as_well(
    service: str, header: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", KEY)
    assert chat_model(f"{service}:m").endpoint._headers({})[header] == value


def test_local_server_is_not_sent_another_services_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert "authorization" not in chat_model("ollama:llama3.2").endpoint._headers({})


@pytest.mark.parametrize(
    "name",
    ["gpt-5-mini", "openai:", ":m", "nobody:m", ""],
    ids=["no-service", "no-model", "empty", "unknown", "nothing"],
)
def test_name_that_is_no_model_lists_the_services(name: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(", ".join(sorted(PRESETS)))):
        chat_model(name, api_key=KEY)


def test_address_from_the_environment_counts_before_the_presets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert chat_model("openai:m").endpoint.base_url == "http://127.0.0.1:9/v1"


def test_settings_reach_the_model() -> None:
    model = chat_model("deepseek:m", api_key=KEY, max_retries=7, timeout=3)
    assert (model.retries.max_retries, model.options.timeout) == (7, 3)
