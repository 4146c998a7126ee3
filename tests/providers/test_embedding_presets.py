"""Embedding services by name: where each posts to, with which key, and how much at once."""

import pytest

from agentcore.errors import ConfigurationError
from agentcore.providers.embedding_batches import EmbeddingLimits
from agentcore.providers.embedding_presets import EMBEDDING_PRESETS, embedding_model
from agentcore.providers.http import request_url

KEY = "k-0123456789"
EXPECTED = [
    ("openai", "https://api.openai.com/v1/embeddings", "OPENAI_API_KEY"),
    ("dashscope", "https://dashscope.aliyuncs.com/compatible-mode/v1/embeddings", "DASHSCOPE_API_KEY"),
    ("fireworks", "https://api.fireworks.ai/inference/v1/embeddings", "FIREWORKS_API_KEY"),
    ("gemini", "https://generativelanguage.googleapis.com/v1beta/openai/embeddings", "GEMINI_API_KEY"),
    ("jina", "https://api.jina.ai/v1/embeddings", "JINA_API_KEY"),
    ("llamacpp", "http://127.0.0.1:8080/v1/embeddings", None),
    ("lmstudio", "http://127.0.0.1:1234/v1/embeddings", None),
    ("mistral", "https://api.mistral.ai/v1/embeddings", "MISTRAL_API_KEY"),
    ("ollama", "http://127.0.0.1:11434/v1/embeddings", None),
    ("openrouter", "https://openrouter.ai/api/v1/embeddings", "OPENROUTER_API_KEY"),
    ("siliconflow", "https://api.siliconflow.cn/v1/embeddings", "SILICONFLOW_API_KEY"),
    ("together", "https://api.together.xyz/v1/embeddings", "TOGETHER_API_KEY"),
    ("vllm", "http://127.0.0.1:8000/v1/embeddings", None),
    ("voyage", "https://api.voyageai.com/v1/embeddings", "VOYAGE_API_KEY"),
    ("zhipu", "https://open.bigmodel.cn/api/paas/v4/embeddings", "ZHIPU_API_KEY"),
]


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for preset in EMBEDDING_PRESETS.values():
        for variable in (preset.service.key_variable, preset.service.url_variable):
            if variable:
                monkeypatch.delenv(variable, raising=False)


def test_every_preset_is_expected() -> None:
    assert {"azure", *[service for service, *_ in EXPECTED]} == EMBEDDING_PRESETS.keys()


@pytest.mark.parametrize(("service", "url", "variable"), EXPECTED, ids=[row[0] for row in EXPECTED])
def test_preset_posts_to_its_address_with_its_key(
    service: str, url: str, variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        with pytest.raises(ConfigurationError, match=variable):
            embedding_model(f"{service}:m")
        monkeypatch.setenv(variable, KEY)
    model = embedding_model(f" {service.upper()}: some/model:tag")
    assert (model.provider, model.name) == (service, "some/model:tag")
    assert str(request_url(model.endpoint.base_url, model.codec.path)) == url
    assert model.limits == EMBEDDING_PRESETS[service].limits


@pytest.mark.parametrize(
    ("service", "texts", "tokens"),
    [("dashscope", 10, 8192 * 10), ("gemini", 100, None), ("mistral", 512, 16_384), ("openai", 2048, 300_000)],
)
def test_limits_stay_below_what_the_service_takes(service: str, texts: int, tokens: int | None) -> None:
    limits = EMBEDDING_PRESETS[service].limits
    assert limits.max_texts <= texts
    assert limits.max_tokens is None or (tokens is not None and limits.max_tokens < tokens * 0.75)


def test_settings_stand_over_the_preset() -> None:
    limits = EmbeddingLimits(max_texts=25)
    model = embedding_model(
        "dashscope:text-embedding-v2",
        api_key=KEY,
        base_url="https://eu.example/v1",
        limits=limits,
        encoding_format="base64",
        dimensions=512,
    )
    assert (model.limits, model.codec.encoding_format, model.options.dimensions) == (limits, "base64", 512)
    assert model.endpoint.base_url == "https://eu.example/v1"
    assert KEY not in repr(model)


def test_azure_asks_for_its_address() -> None:
    with pytest.raises(ConfigurationError, match="base_url"):
        embedding_model("azure:text-embedding-3-small", api_key=KEY)


@pytest.mark.parametrize("name", ["text-embedding-3-small", "openai:", "anthropic:claude", ":m", ""])
def test_name_that_is_none_is_told_with_the_services_that_embed(name: str) -> None:
    with pytest.raises(ConfigurationError, match="the services that embed are azure, dashscope"):
        embedding_model(name)
