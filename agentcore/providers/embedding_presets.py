"""Services that embed, as data, and `embedding_model("service:model")` to make a model of one."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from agentcore.codecs.openai_embeddings import EncodingFormat
from agentcore.errors import ConfigurationError
from agentcore.providers.embedding_batches import OPENAI_LIMITS, EmbeddingLimits
from agentcore.providers.openai_embeddings import OpenAIEmbeddingModel
from agentcore.providers.presets import PRESETS, Preset, connection
from agentcore.providers.secrets import Secret


class EmbeddingPreset(Struct, frozen=True, kw_only=True):
    """A service that embeds in OpenAI's format.

    Attributes:
        service: its address and key.
        limits: what one request may hold. Where a service states different ones for its models, the smallest.
        encoding_format: base64 where the service documents it, or is known to let it pass.
        dimensions_field: the service's name of the `dimensions` setting.
    """

    service: Preset
    limits: EmbeddingLimits = OPENAI_LIMITS
    encoding_format: EncodingFormat = "float"
    dimensions_field: str = "dimensions"


def _limits(limit: int, tokens: int | None = None) -> EmbeddingLimits:
    return EmbeddingLimits(max_texts=limit, max_tokens=tokens)


_SERVER = EmbeddingLimits(max_texts=64)  # one on this machine: small replies come sooner, and a queue is as fast

EMBEDDING_PRESETS: Mapping[str, EmbeddingPreset] = {
    "openai": EmbeddingPreset(service=PRESETS["openai"], encoding_format="base64"),
    "azure": EmbeddingPreset(service=PRESETS["azure"], encoding_format="base64"),
    "dashscope": EmbeddingPreset(service=PRESETS["dashscope"], limits=_limits(10)),
    "fireworks": EmbeddingPreset(service=PRESETS["fireworks"], limits=_limits(256)),
    "gemini": EmbeddingPreset(
        service=PRESETS["gemini-openai"],
        limits=_limits(100),
    ),
    "jina": EmbeddingPreset(
        service=Preset(base_url="https://api.jina.ai/v1", key_variable="JINA_API_KEY"), limits=_limits(512)
    ),
    "llamacpp": EmbeddingPreset(service=PRESETS["llamacpp"], limits=_SERVER, encoding_format="base64"),
    "lmstudio": EmbeddingPreset(service=PRESETS["lmstudio"], limits=_SERVER),
    "mistral": EmbeddingPreset(
        service=PRESETS["mistral"], limits=_limits(512, 11_000), dimensions_field="output_dimension"
    ),
    "ollama": EmbeddingPreset(service=PRESETS["ollama"], limits=_SERVER),
    "openrouter": EmbeddingPreset(service=PRESETS["openrouter"]),
    "siliconflow": EmbeddingPreset(service=PRESETS["siliconflow"], limits=_limits(32), encoding_format="base64"),
    "together": EmbeddingPreset(service=PRESETS["together"], limits=_limits(128)),
    "vllm": EmbeddingPreset(service=PRESETS["vllm"], limits=_SERVER, encoding_format="base64"),
    "voyage": EmbeddingPreset(
        service=Preset(base_url="https://api.voyageai.com/v1", key_variable="VOYAGE_API_KEY"),
        limits=_limits(128, 80_000),
        encoding_format="base64",
        dimensions_field="output_dimension",
    ),
    "zhipu": EmbeddingPreset(service=PRESETS["zhipu"], limits=_limits(64)),
}
"""The services known by name; limits are those of their documentation, or of the refusals they are known for."""


def embedding_model(
    name: str, *, base_url: str | None = None, api_key: str | Secret | None = None, **settings: Any
) -> OpenAIEmbeddingModel:
    """An embedding model by name: `"openai:text-embedding-3-small"`, `"ollama:nomic-embed-text"`.

    Args:
        name: the service, a colon, and the service's name of the model (which may hold colons and slashes itself).
        base_url: instead of the preset's.
        api_key: instead of the environment variable's.
        settings: further arguments of `OpenAIEmbeddingModel`.

    Raises:
        ConfigurationError: no such service, no model name, no key, or no base URL where each user has their own.
    """
    given, api_key = Secret.of(api_key), None  # hidden before anything can raise
    service, colon, model = name.partition(":")
    service, model = service.strip().lower(), model.strip()
    preset = EMBEDDING_PRESETS.get(service)
    if not colon or not model or preset is None:
        known = ", ".join(sorted(EMBEDDING_PRESETS))
        raise ConfigurationError(
            f"{name!r} is not an embedding model: write 'service:model'; the services that embed are {known}"
        )
    arguments = connection(service, preset.service, base_url, given)
    arguments |= {
        "limits": preset.limits,
        "encoding_format": preset.encoding_format,
        "dimensions_field": preset.dimensions_field,
    }
    return OpenAIEmbeddingModel(model, **{**arguments, **settings})
