"""Error bodies of every known shape: the text in them, and what kind of failure it is in neutral words."""

import re
from typing import Any, cast

from msgspec import Struct

from agentcore.codecs.shared import as_int, as_text, encode_json, excerpt, json_or_none
from agentcore.errors import ErrorKind, ProviderError

_MAX_MESSAGE = 300
_ERROR_KEYS = ("error", "errors", "message", "detail", "msg", "error_msg", "error_message")


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

# Types, codes and statuses as services write them, letters only: `rate_limit_error`, `Throttling.RateQuota`.
_WORDS: tuple[tuple[ErrorKind, str], ...] = (
    ("auth", "authenticationerror authentication invalidapikey unauthorized unauthenticated invalidauthentication"),
    ("permission", "permissionerror permissiondenied permissiondeniederror forbidden accessdenied"),
    ("not_found", "notfounderror modelnotfound notfound modelnotfounderror deploymentnotfound resourcenotfounderror"),
    (
        "rate_limit",
        "ratelimiterror ratelimitexceeded ratelimitreached ratelimitreachederror resourceexhausted ratelimit "
        "toomanyrequests throttling throttlingratequota throttlingexception throttlingburstrate "
        "throttlingallocationquota limitrequests",
    ),
    (
        "quota",
        "insufficientquota billingerror billinghardlimitreached billingnotactive insufficientbalance arrearage "
        "exceededcurrentquotaerror allocationquota paymentrequired freetieronly "
        "allocationquotafreetieronly insufficientfunds insufficientcredits",
    ),
    (
        "overloaded",
        "overloadederror overloaded unavailable serviceunavailable engineoverloaded engineoverloadederror "
        "serviceunavailableerror modeloverloaded serveroverloaded overcapacity",
    ),
    (
        "server",
        "servererror internalerror internalservererror internal apierror internalfailure internalerrorexception",
    ),
    ("timeout", "timeouterror timeout deadlineexceeded requesttimeout gatewaytimeout"),
    (
        "context_length",
        "contextlengthexceeded exceedcontextsizeerror stringabovemaxlength contextwindowexceeded "
        "contextwindowexceedederror modelcontextwindowexceeded contextoverflow",
    ),
    (
        "content_filter",
        "contentfilter contentpolicyviolation responsibleaipolicyviolation datainspectionfailed "
        "contentfiltererror moderationblocked safety sensitivecontent inputmoderationerror",
    ),
    (
        "invalid_request",
        "invalidrequesterror badrequesterror badrequest invalidargument failedprecondition "
        "requesttoolarge invalidrequest invalidparameter validationerror invalidrequestinput unprocessableentityerror "
        "invalidtype unprocessableentity",
    ),
)
_BY_WORD: dict[str, ErrorKind] = {word: kind for kind, words in _WORDS for word in words.split()}

_CONTEXT_WORDS = re.compile(
    r"context[ _-]?(length|window|size|limit)|prompt (is too long|too long|length)|too many (input )?tokens|"
    r"maximum.{0,30}context|input.{0,40}(exceeds|longer than).{0,40}(token|context)|input is too long|"
    r"reduce the length of the (messages|prompt)|token count.{0,60}exceeds|too large for model with.{0,20}context|"
    r"range of input length|exceeds the maximum number of tokens|larger than the max.{0,20}context|"
    r"input \(\d+ tokens\) is too large",
    re.IGNORECASE,
)
_QUOTA_WORDS = re.compile(
    r"exceeded your current quota|insufficient (balance|credit|funds)|credit balance|billing|payment required|"
    r"out of credits|add (more )?credits|余额不足|欠费",
    re.IGNORECASE,
)
_PASSING_WORDS = re.compile(r"too many|concurren|per (minute|second)|rate.?limit|(try|retry) again", re.IGNORECASE)
_FILTER_WORDS = re.compile(r"content (management|filter)|content[_ ]policy|filtered due to", re.IGNORECASE)
# Where neither status nor code says anything: bare texts inside a stream or a good status.
_OTHER_WORDS: tuple[tuple[ErrorKind, "re.Pattern[str]"], ...] = (
    ("rate_limit", re.compile(r"rate.?limit|too many requests", re.IGNORECASE)),
    ("overloaded", re.compile(r"overloaded|over capacity|at capacity", re.IGNORECASE)),
    ("auth", re.compile(r"api.?key|unauthorized|authentication", re.IGNORECASE)),
    ("not_found", re.compile(r"not found|does not exist|no such model", re.IGNORECASE)),
    ("timeout", re.compile(r"timed out|timeout", re.IGNORECASE)),
)
# MiniMax API documentation, "Error codes": what the number in `base_resp` means, in the words above.
_MINIMAX_CODES = {
    1001: "timeout",
    1002: "rate_limit",
    1004: "authentication",
    1008: "insufficient_balance",
    1026: "content_filter",
    1027: "content_filter",
    1039: "rate_limit",
    1041: "rate_limit",
    1042: "invalid_request",
    2013: "invalid_request",
    2049: "invalid_api_key",
}
_RETRYABLE_KINDS = frozenset(("rate_limit", "overloaded", "server", "timeout", "network"))
_RETRYABLE_STATUS = frozenset((408, 409, 425, 429, 498, 499))


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


def failure_error(
    provider: str, failure: Failure, *, status: int | None = None, partial_text: str = ""
) -> ProviderError:
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
    value = json_or_none(body)  # not an error of its own: that would quote the body, and the body may quote the key
    try:
        return Failure(_plain(body, status)) if value is None else failure_of(value, body)
    except RecursionError:
        return Failure(_plain(body, status))


def is_plain_failure(value: object) -> bool:
    """Whether a JSON value says of itself that it is an error, whatever else stands in it."""
    if not isinstance(value, dict):
        return False
    known = cast("dict[str, Any]", value)
    return known.get("object") == "error" or bool(known.get("error")) or bool(_base_resp(known))


def is_failure(value: object) -> bool:
    """Whether a JSON value without an answer in it says why there is none."""
    if isinstance(value, list):
        return is_failure(next(iter(cast("list[object]", value)), None))
    if not isinstance(value, dict):
        return False
    known = cast("dict[str, Any]", value)
    return known.get("object") == "error" or any(known.get(key) for key in _ERROR_KEYS) or bool(_base_resp(known))


def failure_of(value: object, body: bytes = b"") -> Failure:
    """The text and the words of an error value that has been decoded.

    Raises:
        RecursionError: the value is nested as deeply as the interpreter allows.
    """
    if isinstance(value, list) and value:  # Gemini wraps its error in a list
        value = cast("list[object]", value)[0]
    if isinstance(value, str):
        return Failure(_short(value) or "(no text)")
    if not isinstance(value, dict):
        return Failure(excerpt(body) if body else "(no text)")
    outer = cast("dict[str, Any]", value)
    inner: object = outer.get("error") or _base_resp(outer) or outer.get("errors") or None
    if isinstance(inner, list) and inner:
        inner = cast("list[object]", inner)[0]
    if isinstance(inner, str) and inner.strip():  # {"error": "CODE", "message": "text"} or {"error": "text"}
        text = as_text(outer.get("message"))
        return Failure(_short(f"{inner}: {text}" if text else inner), (*_words(outer), inner), _code(outer))
    error = cast("dict[str, Any]", inner) if isinstance(inner, dict) else outer
    text = _text(error) or _text(outer) or excerpt(body or encode_json(cast("object", value)))
    metadata = error.get("metadata")
    if isinstance(metadata, dict):  # OpenRouter: the upstream's own words
        raw = as_text(cast("dict[str, Any]", metadata).get("raw"))
        text = f"{text}: {raw}" if raw else text
    words, code = _words(error), _code(error)
    if error is not outer:
        words, code = (*words, *_words(outer)), code if code is not None else _code(outer)
    return Failure(_short(text), words, code)


def _base_resp(outer: dict[str, Any]) -> object:
    """MiniMax's way: a status beside the answer, zero when all is well."""
    status = outer.get("base_resp")
    if not isinstance(status, dict):
        return None
    known = cast("dict[str, Any]", status)
    code = as_int(known.get("status_code"))
    if code is None:
        return known if known.get("status_code") else None
    return {**known, "type": _MINIMAX_CODES.get(code)} if code else None


def _text(error: dict[str, Any]) -> str | None:
    for key in (
        "message",
        "detail",
        "msg",
        "error_msg",
        "error_message",
        "status_msg",
        "reason",
        "title",
        "description",
    ):
        value = error.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value:
            return "; ".join([_detail(item) for item in cast("list[object]", value)])
        if isinstance(value, dict):
            return _text(cast("dict[str, Any]", value)) or encode_json(cast("object", value)).decode()
    return None


def _detail(item: object) -> str:
    """One entry of a list of details: FastAPI's {"loc": [...], "msg": "..."}, or a text."""
    if isinstance(item, dict):
        entry = cast("dict[str, Any]", item)
        loc = entry.get("loc")
        where = ".".join([str(step) for step in cast("list[object]", loc)]) if isinstance(loc, list) else as_text(loc)
        text = as_text(entry.get("msg")) or as_text(entry.get("message")) or encode_json(entry).decode()
        return f"{where}: {text}" if where else text
    return item if isinstance(item, str) else encode_json(item).decode()


def _words(error: dict[str, Any]) -> tuple[str, ...]:
    words = [error.get(key) for key in ("code", "type", "status", "error_code")]
    nested = error.get("innererror") or error.get("error")
    if isinstance(nested, dict):
        words.append(cast("dict[str, Any]", nested).get("code"))
    return tuple(word for word in words if isinstance(word, str) and word)


def _code(error: dict[str, Any]) -> int | None:
    for key in ("code", "status", "status_code", "statusCode", "error_code"):
        code = as_int(error.get(key))
        if code is not None and 400 <= code < 600:
            return code
    return None


def _kind(failure: Failure, status: int | None) -> ErrorKind:
    words = [re.sub(r"[^a-z]", "", word.lower()) for word in failure.words]
    named: list[ErrorKind] = [_BY_WORD[word] for word in words if word in _BY_WORD]
    code = status if status is not None else failure.code
    for kind in named:
        if kind == "quota" and code == 429 and _PASSING_WORDS.search(failure.message):
            return "rate_limit"  # gateways that call every limit a quota
        if kind in ("context_length", "content_filter", "quota"):
            return kind
    limited = code == 429 or "rate_limit" in named  # "too many tokens" is then a matter of minutes, not of length
    if not limited and code not in (401, 403) and _CONTEXT_WORDS.search(failure.message):
        return "context_length"
    # Gemini speaks of "your current quota" when a minute's limit is reached, and says when to come back.
    if "resourceexhausted" not in words and code in (None, 400, 402, 403, 429) and _QUOTA_WORDS.search(failure.message):
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
    if named:
        return named[0]
    for kind, pattern in _OTHER_WORDS:
        if pattern.search(failure.message):
            return kind
    return "server"


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
