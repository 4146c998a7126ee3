"""GeminiChatModel: Google's Gemini API."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from agentcore.chat import NO_OPTIONS, ChatOptions
from agentcore.codecs.gemini import GeminiCodec
from agentcore.codecs.sse import MAX_EVENT_BYTES
from agentcore.providers.http_model import MAX_RESPONSE_BYTES, HTTPChatModel
from agentcore.providers.retries import MAX_RETRY_AFTER, RetryHook, RetryPolicy
from agentcore.providers.secrets import Secret, bearer, find_key, hidden_headers

if TYPE_CHECKING:
    import httpx

    from agentcore.providers.http import HTTPClient

GEMINI_URL = "https://generativelanguage.googleapis.com/v1beta"


def present_variable(key_variable: str | None) -> str | None:
    """`GOOGLE_API_KEY` where, of Google's two variables, only that one is set; the variable itself otherwise."""
    if key_variable == "GEMINI_API_KEY" and not os.environ.get(key_variable) and os.environ.get("GOOGLE_API_KEY"):
        return "GOOGLE_API_KEY"
    return key_variable


class GeminiChatModel(HTTPChatModel):
    """A model behind `POST {base_url}/models/{model}:generateContent`.

    Args:
        model: the service's name of the model, with or without `models/` in front.
        api_key: the key; from `GEMINI_API_KEY` or `GOOGLE_API_KEY` if not given. It is sent in a header, never in the
            address.
        base_url: instead of Google's, with the version; from `GEMINI_BASE_URL` if not given.
        http_client: your own `httpx.AsyncClient` (or `httpx2.AsyncClient`), which you close yourself.
        max_retries: attempts after the first, for failures that may pass.
        max_retry_after: longest wait the service may ask for, in seconds.
        timeout: seconds of silence tolerated; see `ChatOptions.timeout`.
        options: settings of every call. Objects in `extra` are merged key by key and `tools` are added, so that
            `extra={"generationConfig": {"responseLogprobs": True}, "tools": [{"googleSearch": {}}]}` takes nothing
            away.
        headers: further headers of every request.
        key_variable: environment variable of the key.
        key_header: header that carries the key; `authorization` carries it as a bearer token.
        provider: name for errors.
        keep_raw: keep the raw body on each response.
        max_event_bytes, max_response_bytes: caps of one event and of a whole answer.
        on_retry: told of each wait before a retry.

    Raises:
        ConfigurationError: no key for an endpoint that needs one, or a base URL that is none.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | Secret | None = None,
        base_url: str | None = None,
        http_client: "HTTPClient | httpx.AsyncClient | None" = None,
        max_retries: int = 2,
        max_retry_after: float = MAX_RETRY_AFTER,
        timeout: float | None = None,
        options: ChatOptions | None = None,
        headers: Mapping[str, str] | None = None,
        key_header: str = "x-goog-api-key",
        key_variable: str | None = "GEMINI_API_KEY",
        provider: str = "gemini",
        keep_raw: bool = False,
        max_event_bytes: int = MAX_EVENT_BYTES,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        on_retry: RetryHook | None = None,
    ) -> None:
        from agentcore.providers.http import Endpoint, is_host_of

        # First of all hidden, so that no frame of ours shows a secret should what follows raise.
        given, api_key = Secret.of(api_key), None
        sent, headers = hidden_headers(headers), None
        url = base_url or os.environ.get("GEMINI_BASE_URL") or GEMINI_URL
        key_variable = present_variable(key_variable)
        needed = is_host_of(url, "googleapis.com") and not {key_header, "authorization"} & sent.keys()
        key = find_key(given, key_variable, needed=needed, what=provider)
        if key is not None:
            sent.setdefault(key_header, bearer(key) if key_header == "authorization" else key)
        super().__init__(
            GeminiCodec(provider, max_event_bytes=max_event_bytes, keep_raw=keep_raw),
            Endpoint(
                provider,
                url,
                headers=sent,
                secrets=[key] if key is not None else [],
                http_client=http_client,
                max_response_bytes=max_response_bytes,
            ),
            options=ChatOptions(model=model, timeout=timeout).over(options or NO_OPTIONS),
            retries=RetryPolicy(max_retries=max_retries, max_retry_after=max_retry_after, on_retry=on_retry),
        )
