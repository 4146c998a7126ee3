"""Error bodies of every known shape: the text in them, and what kind of failure it is in neutral words."""

import re
from typing import Any, cast

import msgspec
from msgspec import Struct

from agentcore.codecs.shared import as_int, as_text, encode_json, excerpt
from agentcore.errors import ErrorKind, ProviderError

_MAX_MESSAGE = 300

_BY_STATUS: dict[int, ErrorKind] = {
    400: "invalid_request",
    401: "auth",
    402: "quota",
    403: "permission",
    404: "not_found",
    405: "not_found",
    408: "timeout",
    409: "server",
    413: "invalid_request",
    422: "invalid_request",
    429: "rate_limit",
    498: "rate_limit",
    499: "network",
    502: "server",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}

_BY_WORD: dict[str, ErrorKind] = {
    "authentication_error": "auth",
    "invalid_api_key": "auth",
    "unauthorized": "auth",
    "unauthenticated": "auth",
    "permission_error": "permission",
    "permission_denied": "permission",
    "forbidden": "permission",
    "not_found_error": "not_found",
    "model_not_found": "not_found",
    "not_found": "not_found",
    "rate_limit_error": "rate_limit",
    "rate_limit_exceeded": "rate_limit",
    "rate_limit_reached": "rate_limit",
    "resource_exhausted": "rate_limit",
    "too_many_requests": "rate_limit",
    "throttling": "rate_limit",
    "insufficient_quota": "quota",
    "billing_error": "quota",
    "billing_hard_limit_reached": "quota",
    "insufficient_balance": "quota",
    "overloaded_error": "overloaded",
    "overloaded": "overloaded",
    "unavailable": "overloaded",
    "service_unavailable": "overloaded",
    "engine_overloaded": "overloaded",
    "engine_overloaded_error": "overloaded",
    "server_error": "server",
    "internal_error": "server",
    "internal_server_error": "server",
    "internalservererror": "server",
    "internal": "server",
    "api_error": "server",
    "timeout_error": "timeout",
    "timeout": "timeout",
    "deadline_exceeded": "timeout",
    "invalid_request_error": "invalid_request",
    "badrequesterror": "invalid_request",
    "bad_request": "invalid_request",
    "invalid_argument": "invalid_request",
    "failed_precondition": "invalid_request",
    "context_length_exceeded": "context_length",
    "exceed_context_size_error": "context_length",
    "string_above_max_length": "context_length",
    "content_filter": "content_filter",
    "content_policy_violation": "content_filter",
    "responsibleaipolicyviolation": "content_filter",
    "data_inspection_failed": "content_filter",
    "request_too_large": "invalid_request",
}

_CONTEXT_WORDS = re.compile(
    r"context[ _-]?(length|window|size|limit)|prompt is too long|too many (input )?tokens|maximum.{0,30}context|"
    r"input.{0,40}(exceeds|longer than).{0,40}(token|context)|input is too long|reduce the length of the (messages|prompt)|"
    r"token count.{0,60}exceeds|range of input length|exceeds the maximum number of tokens|larger than the max.{0,20}context",
    re.IGNORECASE,
)
_QUOTA_WORDS = re.compile(
    r"exceeded your current quota|insufficient (balance|credit|funds)|credit balance|billing|payment required|"
    r"out of credits|add (more )?credits",
    re.IGNORECASE,
)
_FILTER_WORDS = re.compile(r"content (management|filter)|content[_ ]policy|filtered due to", re.IGNORECASE)
_RETRYABLE_KINDS = frozenset(("rate_limit", "overloaded", "server", "timeout", "network"))
_RETRYABLE_STATUS = frozenset((408, 409, 429, 498, 499))


class Failure(Struct, frozen=True):
    """What an error body says."""

    message: str
    words: tuple[str, ...] = ()  # type, code, status: whatever names the failure
    code: int | None = None  # a number used like an HTTP status


def provider_error(provider: str, body: bytes, *, status: int | None = None) -> ProviderError:
    """An error body as an error.

    Args:
        provider: name for the message.
        body: the body as it came: JSON of any known shape, HTML, text, or nothing.
        status: HTTP status, if it is an error status.
    """
    return failure_error(provider, read_failure(body, status), status=status)


def failure_error(provider: str, failure: Failure, *, status: int | None = None, partial_text: str = "") -> ProviderError:
    """What an error object says, as an error."""
    kind = _kind(failure, status)
    code = status if status is not None else failure.code
    retryable = kind in _RETRYABLE_KINDS or (
        kind not in ("quota", "context_length", "content_filter", "auth", "permission")
        and code is not None
        and (code in _RETRYABLE_STATUS or code >= 500)
    )
    return ProviderError(
        failure.message, kind=kind, provider=provider, status=status, retryable=retryable, partial_text=partial_text
    )


def read_failure(body: bytes, status: int | None = None) -> Failure:
    """The text and the words of an error body of any known shape."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Failure(_plain(body, status))
    return failure_of(value, body)


def failure_of(value: object, body: bytes = b"") -> Failure:
    """The text and the words of an error value that has been decoded."""
    if isinstance(value, list) and value:  # Gemini wraps its error in a list
        value = cast("list[object]", value)[0]
    if isinstance(value, str):
        return Failure(_short(value) or "(no text)")
    if not isinstance(value, dict):
        return Failure(excerpt(body) if body else "(no text)")
    outer = cast("dict[str, Any]", value)
    inner = outer.get("error")
    if isinstance(inner, str):  # {"error": "CODE", "message": "text"} or {"error": "text"}
        text = as_text(outer.get("message"))
        words = _words(outer)
        return Failure(_short(f"{inner}: {text}" if text else inner), (*words, inner), _code(outer))
    if isinstance(inner, dict):
        error = cast("dict[str, Any]", inner)
    elif isinstance(outer.get("errors"), list) and outer["errors"]:
        return failure_of({"error": outer["errors"][0]}, body)
    else:
        error = outer
    text = _text(error) or _text(outer) or excerpt(body or encode_json(value))
    raw = error.get("metadata")
    if isinstance(raw, dict) and as_text(cast("dict[str, Any]", raw).get("raw")):  # OpenRouter: the upstream's own words
        text = f"{text}: {cast('dict[str, Any]', raw)['raw']}"
    return Failure(_short(text), (*_words(error), *(_words(outer) if error is not outer else ())), _code(error))


def _text(error: dict[str, Any]) -> str | None:
    for key in ("message", "detail", "msg", "error_msg", "error_message", "reason", "title"):
        value = error.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value:
            return "; ".join(_detail(item) for item in cast("list[object]", value))
        if isinstance(value, dict):
            return _text(cast("dict[str, Any]", value)) or encode_json(value).decode()
    return None


def _detail(item: object) -> str:
    """One entry of a list of details: FastAPI's {"loc": [...], "msg": "..."}, or a text."""
    if isinstance(item, dict):
        entry = cast("dict[str, Any]", item)
        where = ".".join(str(step) for step in cast("list[object]", entry.get("loc") or []))
        text = as_text(entry.get("msg")) or as_text(entry.get("message")) or encode_json(entry).decode()
        return f"{where}: {text}" if where else text
    return str(item)


def _words(error: dict[str, Any]) -> tuple[str, ...]:
    words = [error.get(key) for key in ("code", "type", "status", "param")]
    nested = error.get("innererror") or error.get("error")
    if isinstance(nested, dict):
        words.append(cast("dict[str, Any]", nested).get("code"))
    return tuple(word for word in words if isinstance(word, str) and word)


def _code(error: dict[str, Any]) -> int | None:
    for key in ("code", "status", "status_code"):
        code = as_int(error.get(key))
        if code is not None and 400 <= code < 600:
            return code
    return None


def _kind(failure: Failure, status: int | None) -> ErrorKind:
    named: list[ErrorKind] = [_BY_WORD[word.lower()] for word in failure.words if word.lower() in _BY_WORD]
    code = status if status is not None else failure.code
    for kind in named:
        if kind in ("context_length", "content_filter", "quota"):
            return kind
    if code not in (401, 403) and _CONTEXT_WORDS.search(failure.message):
        return "context_length"
    if code in (402, 403, 429, 400, None) and _QUOTA_WORDS.search(failure.message):
        return "quota"
    if code in (400, 403, None) and _FILTER_WORDS.search(failure.message):
        return "content_filter"
    if code is not None:
        by_status = _BY_STATUS.get(code)
        if code == 400 or by_status is None:  # a general status: the words know more
            if named:
                return named[0]
            return by_status or ("server" if code >= 500 else "invalid_request")
        if code == 503 and "server" in named:
            return "server"
        return by_status
    return named[0] if named else "server"


def _plain(body: bytes, status: int | None) -> str:
    """A body that is not JSON: an HTML page's title, the text itself, or the fact that there is none."""
    text = body[:8192].decode("utf-8", "replace")
    title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
    if title is not None:
        return _short(f"an HTML page: {' '.join(title.group(1).split())}")
    if re.match(r"\s*<(!doctype|html)", text, re.IGNORECASE):
        return _short(f"an HTML page: {' '.join(re.sub(r'<[^>]*>', ' ', text).split())}")
    return excerpt(text) if text.strip() else f"an empty body with status {status}"


def _short(text: str) -> str:
    text = text.strip()
    return text[:_MAX_MESSAGE] + "…" if len(text) > _MAX_MESSAGE else text
