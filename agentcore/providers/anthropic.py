"""AnthropicChatModel: Anthropic Messages, and every endpoint that is compatible with it."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from agentcore.chat import NO_OPTIONS, ChatOptions, ChatRequest
from agentcore.codecs.anthropic_messages import DEFAULT_MAX_TOKENS, AnthropicMessagesCodec
from agentcore.codecs.sse import MAX_EVENT_BYTES
from agentcore.providers.http_model import MAX_RESPONSE_BYTES, HTTPChatModel, silence_of
from agentcore.providers.retries import MAX_RETRY_AFTER, RetryHook, RetryPolicy
from agentcore.providers.secrets import Secret, bearer, find_key, hidden_headers

if TYPE_CHECKING:
    import httpx

    from agentcore.providers.http import HTTPClient

ANTHROPIC_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"


class AnthropicChatModel(HTTPChatModel):
    """A model behind `POST {base_url}/v1/messages`.

    Args:
        model: the provider's name of the model.
        api_key: the key; from `ANTHROPIC_API_KEY` if not given. Endpoints other than Anthropic's own may need none.
        base_url: from `ANTHROPIC_BASE_URL` if not given; without `/v1`, which changes nothing if it is there.
        http_client: your own `httpx.AsyncClient` (or `httpx2.AsyncClient`), which you close yourself.
        default_max_tokens: sent when a call does not say `max_tokens`, which this API requires.
        max_retries: attempts after the first, for failures that may pass.
        max_retry_after: longest `Retry-After` that is waited for, in seconds.
        timeout: seconds of silence tolerated; see `ChatOptions.timeout`.
        options: settings of every call.
        headers: further headers of every request, for example `anthropic-beta`.
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
        default_max_tokens: int = DEFAULT_MAX_TOKENS,
        max_retries: int = 2,
        max_retry_after: float = MAX_RETRY_AFTER,
        timeout: float | None = None,
        options: ChatOptions | None = None,
        headers: Mapping[str, str] | None = None,
        key_header: str = "x-api-key",
        key_variable: str | None = "ANTHROPIC_API_KEY",
        provider: str = "anthropic",
        keep_raw: bool = False,
        max_event_bytes: int = MAX_EVENT_BYTES,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        on_retry: RetryHook | None = None,
    ) -> None:
        from agentcore.providers.http import Endpoint, is_host_of

        # First of all hidden, so that no frame of ours shows a secret should what follows raise.
        given, api_key = Secret.of(api_key), None
        sent, headers = hidden_headers(headers), None
        url = base_url or os.environ.get("ANTHROPIC_BASE_URL") or ANTHROPIC_URL
        needed = is_host_of(url, "anthropic.com") and not {key_header, "authorization"} & sent.keys()
        key = find_key(given, key_variable, needed=needed, what=provider)
        if key is not None:
            sent.setdefault(key_header, bearer(key) if key_header == "authorization" else key)
        sent.setdefault("anthropic-version", Secret(API_VERSION))
        self._messages = AnthropicMessagesCodec(
            provider, default_max_tokens=default_max_tokens, max_event_bytes=max_event_bytes, keep_raw=keep_raw
        )
        super().__init__(
            self._messages,
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

    async def count_tokens(self, request: ChatRequest) -> int:
        """Input tokens of a request, counted by the service itself, free of charge (`POST …/v1/messages/count_tokens`).

        Not every compatible service has this endpoint; an estimate is `agentcore.tokens.count_tokens`.

        Raises:
            ProviderError: after the retries.
            UnsupportedContentError: a part the provider cannot carry; nothing was sent.
        """
        request = self._complete(request)
        codec = self._messages
        count, _ = await self.fetch(codec.encode_count(request), silence_of(request), codec.decode_count)
        return count
