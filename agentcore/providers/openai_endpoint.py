"""Where requests in OpenAI's format go, and with which key: the same for chat and for embeddings."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from agentcore.providers.secrets import Secret, bearer, find_key

if TYPE_CHECKING:
    import httpx

    from agentcore.providers.http import Endpoint, HTTPClient

OPENAI_URL = "https://api.openai.com/v1"


def openai_endpoint(
    provider: str,
    *,
    key: Secret | None,
    base_url: str | None,
    headers: Mapping[str, Secret],
    organization: str | None,
    project: str | None,
    key_header: str,
    key_variable: str | None,
    http_client: "HTTPClient | httpx.AsyncClient | None",
    max_response_bytes: int,
) -> "Endpoint":
    """The endpoint of a model that speaks OpenAI's format; the arguments are those of the model, secrets hidden.

    Raises:
        ConfigurationError: no key for an endpoint that needs one, or a base URL that is none.
    """
    from agentcore.providers.http import Endpoint, is_host_of

    sent = dict(headers)
    url = base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
    needed = is_host_of(url, "openai.com") and key_header not in sent
    key = find_key(key, key_variable, needed=needed, what=provider)
    if key is not None:
        sent.setdefault(key_header, bearer(key) if key_header == "authorization" else key)
    for name, value in (("openai-organization", organization), ("openai-project", project)):
        if value:
            sent.setdefault(name, Secret(value))
    return Endpoint(
        provider,
        url,
        headers=sent,
        secrets=[key] if key is not None else [],
        http_client=http_client,
        max_response_bytes=max_response_bytes,
    )
