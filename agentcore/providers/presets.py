"""Presets: services as data, and `chat_model("service:model")` to make a model of one."""

import os
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from agentcore.codecs.dialect import OPENAI, Dialect
from agentcore.errors import ConfigurationError
from agentcore.providers.anthropic import ANTHROPIC_URL, AnthropicChatModel
from agentcore.providers.gemini import GEMINI_URL, GeminiChatModel, present_variable
from agentcore.providers.http_model import HTTPChatModel
from agentcore.providers.openai import OPENAI_URL, OpenAIChatModel
from agentcore.providers.openai_responses import OpenAIResponsesModel
from agentcore.providers.secrets import Secret, find_key

_PLAIN = Dialect(files=False, audio=False, strict_tools=False, max_tokens_field="max_tokens")
_TEXT = Dialect(images=False, files=False, audio=False, strict_tools=False, max_tokens_field="max_tokens")


class Preset(Struct, frozen=True, kw_only=True):
    """A service: its wire format, address, key and habits.

    Attributes:
        base_url: None where every user has their own; then `base_url=…` has to be given.
        key_variable: environment variable of the key; None where a server on this machine needs none.
        url_variable: environment variable of another address.
        key_header: header that carries the key.
    """

    base_url: str | None
    key_variable: str | None
    url_variable: str | None = None
    wire: Literal["openai", "anthropic", "openai-responses", "gemini"] = "openai"
    key_header: str = "authorization"
    dialect: Dialect = OPENAI

    @property
    def needs_key(self) -> bool:
        """Whether the service at `base_url` refuses requests without a key."""
        return self.key_variable is not None


_DEEPSEEK = Dialect(
    images=False, files=False, audio=False, strict_tools=False, max_tokens_field="max_tokens",
    response_format="json_object", replay_reasoning="reasoning_content", effort="none", parallel_flag=False,
)  # fmt: skip
_MISTRAL = Dialect(
    files=False, audio=False, max_tokens_field="max_tokens", call_id=r"[a-zA-Z0-9]{9}", call_id_length=9,
    empty_content="empty", effort="none", stream_usage=False,
)  # fmt: skip
_OPENROUTER = Dialect(
    effort="reasoning", replay_details=True, max_tokens_field="max_tokens", prompt_cache="cache_control"
)
_LOCAL = Dialect(files=False, audio=False, strict_tools=False, max_tokens_field="max_tokens", empty_content="empty")
_JSON_OBJECT = Dialect(
    files=False, audio=False, strict_tools=False, max_tokens_field="max_tokens", response_format="json_object",
    effort="none", parallel_flag=False,
)  # fmt: skip
_GEMINI = Preset(
    base_url=GEMINI_URL,
    key_variable="GEMINI_API_KEY",
    url_variable="GEMINI_BASE_URL",
    wire="gemini",
    key_header="x-goog-api-key",
)
_MOONSHOT = Dialect(
    files=False, audio=False, strict_tools=False, max_tokens_field="max_tokens", response_format="json_object",
    replay_reasoning="reasoning_content", effort="none", parallel_flag=False,
)  # fmt: skip

PRESETS: Mapping[str, Preset] = {
    "openai": Preset(base_url=OPENAI_URL, key_variable="OPENAI_API_KEY", url_variable="OPENAI_BASE_URL"),
    "anthropic": Preset(
        base_url=ANTHROPIC_URL,
        key_variable="ANTHROPIC_API_KEY",
        url_variable="ANTHROPIC_BASE_URL",
        wire="anthropic",
        key_header="x-api-key",
    ),
    "azure": Preset(base_url=None, key_variable="AZURE_OPENAI_API_KEY", key_header="api-key"),
    "dashscope": Preset(
        base_url="https://dashscope.aliyuncs.com/compatible-mode/v1",
        key_variable="DASHSCOPE_API_KEY",
        dialect=_JSON_OBJECT,
    ),
    "deepseek": Preset(base_url="https://api.deepseek.com", key_variable="DEEPSEEK_API_KEY", dialect=_DEEPSEEK),
    "fireworks": Preset(
        base_url="https://api.fireworks.ai/inference/v1", key_variable="FIREWORKS_API_KEY", dialect=_PLAIN
    ),
    "gemini": _GEMINI,
    "gemini-openai": Preset(
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_variable="GEMINI_API_KEY",
        dialect=_PLAIN,
    ),
    "google": _GEMINI,
    "groq": Preset(base_url="https://api.groq.com/openai/v1", key_variable="GROQ_API_KEY", dialect=_PLAIN),
    "llamacpp": Preset(base_url="http://127.0.0.1:8080/v1", key_variable=None, dialect=_LOCAL),
    "lmstudio": Preset(base_url="http://127.0.0.1:1234/v1", key_variable=None, dialect=_LOCAL),
    "minimax": Preset(
        base_url="https://api.minimax.io/anthropic",
        key_variable="MINIMAX_API_KEY",
        wire="anthropic",
        key_header="authorization",
    ),
    "mistral": Preset(base_url="https://api.mistral.ai/v1", key_variable="MISTRAL_API_KEY", dialect=_MISTRAL),
    "moonshot": Preset(base_url="https://api.moonshot.ai/v1", key_variable="MOONSHOT_API_KEY", dialect=_MOONSHOT),
    "ollama": Preset(base_url="http://127.0.0.1:11434/v1", key_variable=None, dialect=_LOCAL),
    "openai-responses": Preset(
        base_url=OPENAI_URL,
        key_variable="OPENAI_API_KEY",
        url_variable="OPENAI_BASE_URL",
        wire="openai-responses",
    ),
    "openrouter": Preset(
        base_url="https://openrouter.ai/api/v1", key_variable="OPENROUTER_API_KEY", dialect=_OPENROUTER
    ),
    "siliconflow": Preset(
        base_url="https://api.siliconflow.cn/v1", key_variable="SILICONFLOW_API_KEY", dialect=_JSON_OBJECT
    ),
    "together": Preset(base_url="https://api.together.xyz/v1", key_variable="TOGETHER_API_KEY", dialect=_PLAIN),
    "vllm": Preset(base_url="http://127.0.0.1:8000/v1", key_variable=None, dialect=_LOCAL),
    "xai": Preset(base_url="https://api.x.ai/v1", key_variable="XAI_API_KEY", dialect=_PLAIN),
    "zhipu": Preset(
        base_url="https://open.bigmodel.cn/api/paas/v4", key_variable="ZHIPU_API_KEY", dialect=_JSON_OBJECT
    ),
}
"""The services known by name; the addresses and variables are those of their documentation."""


def chat_model(
    name: str, *, base_url: str | None = None, api_key: str | Secret | None = None, **settings: Any
) -> HTTPChatModel:
    """A chat model by name: `"openai:gpt-5-mini"`, `"deepseek:deepseek-chat"`, `"ollama:llama3.2"`.

    Args:
        name: the service, a colon, and the service's name of the model (which may hold colons and slashes itself).
        base_url: instead of the preset's.
        api_key: instead of the environment variable's.
        settings: further arguments of the model, which is the one of the service's format.

    Raises:
        ConfigurationError: no such service, no model name, no key, or no base URL where each user has their own.
    """
    given, api_key = Secret.of(api_key), None  # hidden before anything can raise
    service, colon, model = name.partition(":")
    preset = PRESETS.get(service.strip().lower())
    if not colon or not model.strip() or preset is None:
        known = ", ".join(sorted(PRESETS))
        raise ConfigurationError(f"{name!r} is not a model: write 'service:model'; the services are {known}")
    arguments = connection(service, preset, base_url, given)
    if preset.wire == "anthropic":
        return AnthropicChatModel(model.strip(), **{**arguments, **settings})
    if preset.wire == "gemini":
        return GeminiChatModel(model.strip(), **{**arguments, **settings})
    arguments["dialect"] = preset.dialect
    if preset.wire == "openai-responses":
        return OpenAIResponsesModel(model.strip(), **{**arguments, **settings})
    return OpenAIChatModel(model.strip(), **{**arguments, **settings})


def connection(service: str, preset: Preset, base_url: str | None, given: Secret | None) -> dict[str, Any]:
    """Where a service is, and with which key: arguments of its models.

    Raises:
        ConfigurationError: no key, or no base URL where each user has their own.
    """
    url = base_url or (os.environ.get(preset.url_variable) if preset.url_variable else None) or preset.base_url
    if url is None:
        raise ConfigurationError(f"{service} has no common address: give base_url=…")
    variable = present_variable(preset.key_variable)
    key = find_key(given, variable, needed=url == preset.base_url and preset.needs_key, what=service)
    return {
        "api_key": key,
        "base_url": url,
        "key_header": preset.key_header,
        "key_variable": variable,
        "provider": service,
    }
