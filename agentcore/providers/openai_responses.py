"""OpenAIResponsesModel: OpenAI Responses without stored state, and every endpoint that is compatible with it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from agentcore.chat import NO_OPTIONS, ChatOptions
from agentcore.codecs.dialect import OPENAI, Dialect
from agentcore.codecs.openai_responses import OpenAIResponsesCodec
from agentcore.codecs.sse import MAX_EVENT_BYTES
from agentcore.providers.http_model import MAX_RESPONSE_BYTES, HTTPChatModel
from agentcore.providers.openai_endpoint import openai_endpoint
from agentcore.providers.retries import MAX_RETRY_AFTER, RetryHook, RetryPolicy
from agentcore.providers.secrets import Secret, hidden_headers

if TYPE_CHECKING:
    import httpx

    from agentcore.providers.http import HTTPClient


class OpenAIResponsesModel(HTTPChatModel):
    """A model behind `POST {base_url}/responses`.

    Each call sends the whole history and nothing is stored at the service (`store: false`), so a conversation may
    move to and from it at any message. Reasoning comes back encrypted and is sent back with the reply it belongs to.

    Args:
        model: the provider's name of the model.
        api_key: the key; from `OPENAI_API_KEY` if not given. Endpoints other than OpenAI's own may need none.
        base_url: from `OPENAI_BASE_URL` if not given; a trailing slash changes nothing, a query stays.
        http_client: your own `httpx.AsyncClient` (or `httpx2.AsyncClient`), which you close yourself.
        max_retries: attempts after the first, for failures that may pass.
        max_retry_after: longest `Retry-After` that is waited for, in seconds.
        timeout: seconds of silence tolerated; see `ChatOptions.timeout`.
        options: settings of every call.
        headers: further headers of every request.
        organization, project: OpenAI's headers of that name.
        dialect: how the endpoint differs from the original.
        reasoning_summary: ask for a readable summary of the reasoning (OpenAI gives some models' to verified
            organisations only).
        key_variable: environment variable of the key.
        key_header: header that carries the key; `authorization` carries it as a bearer token.
        provider: name for errors; give another service its own, since encrypted reasoning goes back only to the
            provider it came from (`x` and `x-responses` are one).
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
        organization: str | None = None,
        project: str | None = None,
        dialect: Dialect = OPENAI,
        reasoning_summary: Literal["auto", "concise", "detailed"] | None = None,
        key_header: str = "authorization",
        key_variable: str | None = "OPENAI_API_KEY",
        provider: str = "openai",
        keep_raw: bool = False,
        max_event_bytes: int = MAX_EVENT_BYTES,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        on_retry: RetryHook | None = None,
    ) -> None:
        # First of all hidden, so that no frame of ours shows a secret should what follows raise.
        key, api_key = Secret.of(api_key), None
        sent, headers = hidden_headers(headers), None
        super().__init__(
            OpenAIResponsesCodec(
                provider,
                dialect,
                reasoning_summary=reasoning_summary,
                max_event_bytes=max_event_bytes,
                keep_raw=keep_raw,
            ),
            openai_endpoint(
                provider,
                key=key,
                base_url=base_url,
                headers=sent,
                organization=organization,
                project=project,
                key_header=key_header,
                key_variable=key_variable,
                http_client=http_client,
                max_response_bytes=max_response_bytes,
            ),
            options=ChatOptions(model=model, timeout=timeout).over(options or NO_OPTIONS),
            retries=RetryPolicy(max_retries=max_retries, max_retry_after=max_retry_after, on_retry=on_retry),
        )
