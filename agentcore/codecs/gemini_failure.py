"""Errors of Gemini: what their details say beside the status, the same wherever an error stands.

Source: Google API design guide, "Errors" (`google.rpc.ErrorInfo`, `RetryInfo` and `QuotaFailure` in `details`).
"""

import re

from agentcore.codecs.failures import provider_error
from agentcore.errors import ProviderError

_BAD_KEY = re.compile(rb"API_KEY_INVALID|API key (?:not valid|not found|expired)", re.IGNORECASE)
_WAIT = re.compile(rb'"retryDelay"\s*:\s*"(\d{1,9}(?:\.\d+)?)s"|Please retry in (\d{1,9}(?:\.\d+)?)s')
# A limit of the day, or one of none at all (a model that the free tier does not have), is not over in a minute.
_LASTING = re.compile(rb"per ?day|\blimit: 0(?![\d.])", re.IGNORECASE)


def gemini_error(provider: str, body: bytes, *, status: int | None = None) -> ProviderError:
    """An error body, by itself or out of a stream, as an error.

    Args:
        provider: name for the message.
        body: the body as it came, the object alone or in a list.
        status: HTTP status, if it is an error status.
    """
    error = provider_error(provider, body, status=status)
    if _BAD_KEY.search(body):  # said with status 400
        error.kind, error.retryable = "auth", False
    wait = _WAIT.search(body)
    if wait is not None:
        error.retry_after = float(wait[1] or wait[2])
    if error.kind == "rate_limit" and _LASTING.search(body):
        error.kind, error.retryable = "quota", False
    return error
