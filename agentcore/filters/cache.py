"""CacheFilter: the same request is answered once, and after that from memory."""

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import msgspec
from msgspec.structs import replace

from agentcore.chat import ChatRequest, ChatResponse, events_of
from agentcore.errors import ConfigurationError, OutputError
from agentcore.filters.base import ChatCall, Filter, MemorySide
from agentcore.structured import output_schema, parse_output
from agentcore.usage import Usage

logger = logging.getLogger(__name__)

_NOTHING_SPENT = Usage(input_tokens=0, output_tokens=0)
_NOT_IN_THE_ANSWER = {"metadata": None, "timeout": None, "prompt_cache": None}
"""Options that do not change what a model says."""


class ReplyStore(Protocol):
    """Where cached replies live: a dictionary, Redis, a table. What it loses is asked for again."""

    async def get(self, key: str) -> bytes | None:
        """What was put under a key, unless it is too old."""
        ...

    async def put(self, key: str, value: bytes, ttl: float | None) -> None:
        """Keep a value, for `ttl` seconds at most."""
        ...


class InMemoryReplyStore:
    """Replies of this process; the one not used for longest goes first.

    Args:
        max_entries: most replies that are kept.
        clock: seconds that only go forward.
    """

    def __init__(self, *, max_entries: int = 1000, clock: Callable[[], float] = time.monotonic) -> None:
        if max_entries < 1:
            raise ConfigurationError(f"max_entries={max_entries} keeps nothing; give at least 1")
        self._max_entries, self._clock = max_entries, clock
        self._entries: OrderedDict[str, tuple[bytes, float | None]] = OrderedDict()

    async def get(self, key: str) -> bytes | None:
        """What was put under a key, unless it is too old."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, until = entry
        if until is not None and self._clock() >= until:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return value

    async def put(self, key: str, value: bytes, ttl: float | None) -> None:
        """Keep a value, for `ttl` seconds at most."""
        self._entries[key] = (value, None if ttl is None else self._clock() + ttl)
        self._entries.move_to_end(key)
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)


class CacheFilter(Filter):
    """Answers a request that was answered before with the same reply, without the model.

        client = ChatClient(model, memory=store, filters=[CacheFilter(ttl=3600)])

    The same is what the model would be given to the letter: model, instructions, whole history, tools, and the options
    that change an answer. So it belongs inside the memory: outside of it, "yes" would be the same in every
    conversation. A model is known by its provider and name; one without a name is always asked. Only whole answers are
    kept: no errors, no cut or refused replies, none that does not fit the type that was asked for, and no tool calls
    unless they are wanted. Outside a `StructuredOutputFilter` it keeps what came of the repair. A cached reply takes no
    tokens; in a stream it is delivered as events, and it is stored in the conversation as any other.

    Args:
        store: where replies are kept.
        ttl: seconds after which a reply is asked for anew; None never.
        cache_tool_calls: also keep replies that call tools; the tools run each time.
        scope: a slot of the tool context that keeps replies apart, such as `tenant`; None shares them between all.
    """

    memory_side: ClassVar[MemorySide | None] = "inside"
    inside_of: ClassVar[tuple[str, ...]] = ("RetrievalFilter", "HandoffFilter")

    def __init__(
        self,
        store: ReplyStore | None = None,
        *,
        ttl: float | None = None,
        cache_tool_calls: bool = False,
        scope: str | None = None,
    ) -> None:
        self._store = store if store is not None else InMemoryReplyStore()
        self._ttl, self._cache_tool_calls, self._scope = ttl, cache_tool_calls, scope

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        """Answer out of the store, or ask and keep the answer."""
        key = _key(request, None if self._scope is None else request.context.get(self._scope))
        if key is None:
            return await call_next(request)
        kept = await self._store.get(key)
        response = None if kept is None else _decoded(kept)
        if response is None:
            response = await call_next(request)
            if self._worth_keeping(request, response):
                await self._keep(key, response)
            return response
        sink = request.turn.sink if request.turn is not None else None
        if sink is not None:
            sink.begin_attempt()
            await sink.send(events_of(response.message))
        return response

    def _worth_keeping(self, request: ChatRequest, response: ChatResponse) -> bool:
        if response.finish_reason == "tool_calls":
            return self._cache_tool_calls
        if response.finish_reason != "stop":
            return False
        wanted = request.options.response_format
        if wanted is None or isinstance(wanted, str | dict):
            return True
        try:
            parse_output(response.text, wanted)
        except OutputError:
            return False
        return True

    async def _keep(self, key: str, response: ChatResponse) -> None:
        kept = replace(response, usage=_NOTHING_SPENT, request_id=None, raw=None)
        try:
            value = msgspec.json.encode(kept)
        except UnicodeEncodeError:  # half a character in it: it cannot be kept as it is
            return
        await self._store.put(key, value, self._ttl)


def _decoded(value: bytes) -> ChatResponse | None:
    try:
        return msgspec.json.decode(value, type=ChatResponse)
    except msgspec.MsgspecError:
        logger.warning("a cached reply cannot be read, perhaps that of another version; the model is asked again")
        return None


def _key(request: ChatRequest, scope: object) -> str | None:
    """A digest of all that makes the answer; None for what cannot be told apart safely."""
    model, options = request.model, request.options
    name = getattr(model, "name", None)
    if name is None:
        return None
    wanted = options.response_format
    if wanted is not None and not isinstance(wanted, str):
        wanted = output_schema(wanted)
    asked: tuple[Any, ...] = (
        scope,
        getattr(model, "provider", None),
        name,
        request.system,
        request.messages,
        [(one.name, one.description, one.parameters) for one in request.tools],
        replace(options, response_format=wanted, **_NOT_IN_THE_ANSWER),
    )
    try:
        return hashlib.sha256(msgspec.json.encode(asked, order="deterministic")).hexdigest()
    except (TypeError, ValueError):  # a value of the caller's without a JSON form, or half a character
        return None
