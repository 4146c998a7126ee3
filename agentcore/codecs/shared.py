"""What several wire formats need: tolerant JSON, tool-call arguments, ids and names that a service accepts."""

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from json import JSONDecodeError, loads
from math import isfinite
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from agentcore.chat import ChatRequest, PromptCache
from agentcore.errors import DecodeError
from agentcore.messages import AssistantMessage, ToolCall

T = TypeVar("T")

_BOM = b"\xef\xbb\xbf"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
EXCERPT_CHARS = 200
_TOO_MANY = 2**53  # beyond it a count is a mistake, and not every store holds it


def encode_json(value: object) -> bytes:
    """JSON of a wire value; lone surrogates, which UTF-8 cannot hold, become U+FFFD."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(without_surrogates(msgspec.to_builtins(value)))


def decode_json(body: bytes, decoder: "msgspec.json.Decoder[T]", type_: type[T], *, mend: bool = False) -> T:
    """A JSON value of the decoder's type, also with a byte order mark or lone surrogates in it.

    Args:
        body: the JSON.
        decoder: tried first, being fast and strict.
        type_: the decoder's type.
        mend: replace lone surrogates by U+FFFD. Not for a stream, whose next event may bring the other half.

    Raises:
        DecodeError: it is not JSON, or not of that type; the message shows an excerpt.
    """
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        first = error
    try:
        # Replaced, not refused: a broken character must not cost the answer around it.
        text = body.removeprefix(_BOM).decode("utf-8", "replace")
        value = loads(text, parse_constant=_no_number, parse_float=_finite_or_none)
        return msgspec.convert(without_surrogates(value) if mend else value, type_)
    except (JSONDecodeError, msgspec.ValidationError, RecursionError, ValueError):
        # Nothing at all is an accident on the way, not what the service answers.
        raise DecodeError(f"{_reason(first)}: {excerpt(body)}", retryable=not body.strip()) from first


def _reason(error: Exception) -> str:
    if isinstance(error, msgspec.ValidationError):
        return f"the answer has an unexpected shape ({error})"
    if isinstance(error, RecursionError):
        return "the answer is nested too deeply"
    return "the answer is not JSON"


def excerpt(body: bytes | str) -> str:
    """The first characters of a body, on one line, fit for a message."""
    text = body if isinstance(body, str) else body[: EXCERPT_CHARS * 4].decode("utf-8", "replace")
    text = " ".join(_LONE_SURROGATE.sub("\ufffd", text).split())
    kind = "HTML: " if text[:15].lower().startswith(("<!doctype html", "<html")) else ""
    return kind + (text[:EXCERPT_CHARS] + "…" if len(text) > EXCERPT_CHARS else text) if text else "(empty)"


def without_surrogates(node: Any) -> Any:
    """A JSON value in which every surrogate is paired or replaced by U+FFFD."""
    if isinstance(node, str):
        return mend_surrogates(node)
    if isinstance(node, dict):
        return {
            without_surrogates(key): without_surrogates(value) for key, value in cast("dict[Any, Any]", node).items()
        }
    if isinstance(node, list | tuple):
        return [without_surrogates(item) for item in cast("list[Any]", node)]
    return node


def mend_surrogates(text: str) -> str:
    """Surrogate pairs put together, lone ones replaced by U+FFFD."""
    if _LONE_SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def as_int(value: object) -> int | None:
    """A count as the service meant it: 3, 3.0 and "3" are three; anything else is unknown."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    if isinstance(value, int | float) and 0 <= value < _TOO_MANY and value == int(value):
        return int(value)
    return None


def as_text(value: object) -> str | None:
    """A text, or None for anything else and for the empty text."""
    return value if isinstance(value, str) and value else None


_json_value: "msgspec.json.Decoder[Any]" = msgspec.json.Decoder()


def cache_control(wanted: PromptCache) -> dict[str, Any]:
    """The mark up to which Anthropic, and who speaks its words, keeps a prompt: for five minutes or an hour.

    Source: Anthropic platform documentation, "Prompt caching".
    """
    mark: dict[str, Any] = {"type": "ephemeral"}
    if wanted.ttl is not None:
        mark["ttl"] = "5m" if wanted.ttl == "5m" else "1h"
    return mark


def parse_arguments(raw: object) -> tuple[dict[str, Any], str | None]:
    """Tool-call arguments as a service sends them: the arguments, and the raw text if they are not an object.

    Nothing, null and an empty text are no arguments; an object is itself; a text holding a JSON object is that object,
    also when it was encoded twice. Nothing else is guessed: `({}, raw text)`.
    """
    if raw is None:
        return {}, None
    if isinstance(raw, dict):
        return cast("dict[str, Any]", raw), None
    if not isinstance(raw, str):
        return {}, encode_json(raw).decode()
    if not raw.strip():
        return {}, None
    value = _loads(raw)
    if isinstance(value, str):
        value = _loads(value)
    if isinstance(value, dict):
        return cast("dict[str, Any]", value), None
    if value is None and raw.strip() == "null":
        return {}, None
    return {}, mend_surrogates(raw)


def is_complete_json(raw: str) -> bool:
    """Whether a text is one whole JSON value."""
    return raw.strip() == "null" or _loads(raw) is not None


def json_or_none(body: bytes) -> Any:
    """The JSON value of a body, broken characters in it replaced; None if it is no JSON (or null)."""
    return _loads(body.removeprefix(_BOM).decode("utf-8", "replace"))


def _loads(text: str) -> Any:
    try:
        return _json_value.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        pass
    try:
        return without_surrogates(loads(text, parse_constant=_refuse_constant, parse_float=_finite))
    except (ValueError, RecursionError):
        return None


def _no_number(_name: str) -> None:
    """NaN and its like, which some servers write for a missing figure."""


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    """A number that Python can hold: `1e999` would be infinity, which no JSON can say again."""
    number = float(digits)
    if not isfinite(number):
        raise ValueError(f"{digits[:20]} is beyond any number")
    return number


def _finite_or_none(digits: str) -> float | None:
    number = float(digits)
    return number if isfinite(number) else None


def make_call_id(*what: object) -> str:
    """An id for a call that came without one: the same for the same reply, however it came."""
    digest = blake2b(repr(what).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    return f"call_{digest}"


def with_distinct_ids(calls: Sequence[ToolCall], response_id: str | None) -> tuple[ToolCall, ...]:
    """The calls of one reply with an id each, no two alike."""
    if len(calls) == 1 and calls[0].id:
        return tuple(calls)
    seen: set[str] = set()
    distinct: list[ToolCall] = []
    for position, call in enumerate(calls):
        call_id = call.id
        if not call_id or call_id in seen:
            call_id = make_call_id(response_id, position, call.name, call.args, call.raw_arguments)
        seen.add(call_id)
        distinct.append(call if call_id == call.id else replace(call, id=call_id))
    return tuple(distinct)


class LegalIds:
    """Call ids as a service accepts them, by first come: legal, short enough, and different over the whole request.

    Deterministic, and an id once given does not change when more history follows. A batch that uses an id again (some
    servers call every first call `call_0`) gets another one; the results of that batch follow it.
    """

    def __init__(self, pattern: str, max_length: int) -> None:
        self._legal = re.compile(pattern).fullmatch
        self._max_length = max_length
        # Nearly every id is a word; asking so costs a tenth of a regular expression.
        self._takes_words = max_length >= 16 and self._legal("call_0aZ") is not None
        self._used: set[str] = set()
        self.current: dict[str, str] = {}

    def open_batch(self, calls: Iterable[ToolCall]) -> list[str]:
        """The ids of the calls of the next assistant message, in order; `current` maps to them until the next batch."""
        current: dict[str, str] = {}
        self.current = current
        used, takes_words, max_length = self._used, self._takes_words, self._max_length
        for call in calls:
            given = call.id
            if not (
                takes_words
                and given not in used
                and len(given) <= max_length
                and given.isidentifier()
                and given.isascii()
            ):
                given = self._legal_id(call.id)
            used.add(given)
            current[call.id] = given
        return list(current.values())

    def _legal_id(self, call_id: str) -> str:
        given, attempt = call_id, 0
        while given in self._used or len(given) > self._max_length or not self._legal(given):
            told = f"{call_id}#{attempt}#{len(self._used)}".encode("utf-8", "surrogatepass")
            digest = blake2b(told, digest_size=20).hexdigest()
            prefix = "call_" if self._max_length >= 16 and not attempt % 2 else ""  # not every pattern takes "_"
            given = f"{prefix}{digest}"[: self._max_length]
            attempt += 1
        return given

    def __getitem__(self, call_id: str) -> str:
        return self.current.get(call_id, call_id)


_LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def legal_names(
    names: Iterable[str], later: Iterable[str] = (), *, legal_name: "re.Pattern[str]" = _LEGAL_NAME
) -> dict[str, str]:
    """Neutral name → name that the service accepts, no two alike; deterministic.

    Names that are legal keep themselves; `a.b` becomes `a_b`, or, where that is taken, `a_b_` and a short hash.

    Args:
        names: the legal ones among them come first, whatever the order.
        later: names in order of their coming; one that comes does not change what those before it were given.
        legal_name: what the service accepts: most of them `^[a-zA-Z0-9_-]{1,64}$`, some only a part of it, to which
            an underscore in front has to lead.
    """
    wanted = dict.fromkeys(names)
    legal = {name: name for name in wanted if legal_name.fullmatch(name)}
    taken = set(legal)
    for name in (*wanted, *dict.fromkeys(later)):
        if name in legal:
            continue
        made = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "tool"
        if not legal_name.fullmatch(made):
            made = f"_{made}"[:64]
        attempt = 0
        while made in taken:
            told = f"{name}#{attempt}".encode("utf-8", "surrogatepass")
            made = f"{made[:55]}_{blake2b(told, digest_size=4).hexdigest()}"
            attempt += 1
        taken.add(made)
        legal[name] = made
    return legal


def tool_names(request: ChatRequest, *, legal_name: "re.Pattern[str]" = _LEGAL_NAME) -> dict[str, str]:
    """Neutral name → name on the wire, of the tools offered and of those in the history; see `legal_names`."""
    called = [
        call.name
        for message in request.messages
        if type(message) is AssistantMessage and message.tool_calls
        for call in message.tool_calls
    ]
    return legal_names([one.name for one in request.tools], called, legal_name=legal_name)


def wire_names(legal: Mapping[str, str]) -> dict[str, str]:
    """Wire name → neutral name, of those that differ."""
    return {wire: name for name, wire in legal.items() if wire != name}
