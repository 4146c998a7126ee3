"""The stream of OpenAI Responses: bytes cut anywhere in, events out, the whole reply at the end."""

from collections.abc import Callable
from typing import Any, Literal, cast

import msgspec
from msgspec import Raw, Struct

from agentcore.chat import ChatResponse
from agentcore.codecs.base import WireRequest
from agentcore.codecs.failures import failure_of, is_failure, provider_error
from agentcore.codecs.openai_responses_items import Item
from agentcore.codecs.openai_responses_reply import Body, Reply, bodies, response_failure
from agentcore.codecs.shared import as_int, as_text, decode_json, encode_json
from agentcore.codecs.stream_base import EventStreamDecoder, closed_early
from agentcore.errors import DecodeError
from agentcore.events import StreamEvent


class _Event(Struct, gc=False):
    type: Any = None
    delta: Any = None
    item_id: Any = None
    output_index: Any = None
    summary_index: Any = None
    content_index: Any = None
    item: Any = None
    response: Raw = Raw(b"")
    text: Any = None
    refusal: Any = None
    arguments: Any = None
    call_id: Any = None
    name: Any = None
    error: Any = None


class _Head(Struct, gc=False):
    id: Any = None
    model: Any = None


_events = msgspec.json.Decoder(_Event)
_heads = msgspec.json.Decoder(_Head)
_objects: "msgspec.json.Decoder[dict[str, Any]]" = msgspec.json.Decoder(dict[str, Any])

_ENDS = {
    "response.completed": "completed",
    "response.done": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
_PIECES = {
    "response.output_text.delta": "message",
    "response.function_call_arguments.delta": "call",
    "response.reasoning_summary_text.delta": "reasoning",
}
# Older servers of open models write the shorter names.
_THOUGHTS: dict[str, Literal["content", "summary"]] = {
    "response.reasoning_text": "content",
    "response.reasoning": "content",
    "response.reasoning_summary_text": "summary",
    "response.reasoning_summary": "summary",
}


class OpenAIResponsesStreamDecoder(EventStreamDecoder):
    """Decodes one stream; see `EventStreamDecoder`.

    Args:
        provider: name for errors.
        wire: the request that is answered.
        decode_body: reads a whole body, where a server answers with one though a stream was asked for.
        max_event_bytes: largest single event.
        keep_raw: keep the event payloads on the response.
    """

    def __init__(
        self,
        provider: str,
        wire: WireRequest,
        decode_body: Callable[[bytes], ChatResponse],
        *,
        max_event_bytes: int,
        keep_raw: bool = False,
    ) -> None:
        super().__init__(provider, decode_body, max_event_bytes=max_event_bytes, keep_raw=keep_raw)
        self._reply = Reply(provider, wire)

    @property
    def text(self) -> str:
        """The text so far."""
        return str(self._reply.text)

    def _close(self, events: list[StreamEvent]) -> None:
        self._reply.flush(events)

    def _announced(self) -> bool:
        return self._reply.ended

    def _assemble(self) -> ChatResponse:
        return self._reply.response()

    def _take_rest(self, events: list[StreamEvent]) -> None:
        try:
            for name, payload in self._parser.finish():
                self._take(name, payload, events)
        except DecodeError as error:
            raise closed_early() from error  # half an event is a symptom; the broken connection is the cause

    def _take(self, name: str, payload: bytes, events: list[StreamEvent]) -> None:
        reply = self._reply
        try:
            event = _events.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._take_odd(name, payload, events)
            return
        if self._raw is not None:
            self._raw.append(payload)
        # Nearly all there is: the next piece of the item that the last event was about.
        item = reply.items.last
        if (
            item is not None
            and event.item_id == item.id
            and event.output_index == item.index
            and type(event.delta) is str
            and type(event.type) is str
            and _PIECES.get(event.type) == item.kind
            and not reply.odd
            and reply.put_next(item, event.delta, event.summary_index, events)
        ):
            return
        self._apply(event, name, payload, events)

    def _take_odd(self, name: str, payload: bytes, events: list[StreamEvent]) -> None:
        """A payload that is not plainly an event."""
        payload = payload.strip()
        if payload[:6] == b"[DONE]":
            self._end(Body(), events)
        elif name == "error":
            raise provider_error(self._provider, payload)
        elif b"\n" in payload:  # several values in one event: a server that leaves the blank lines out
            for line in payload.split(b"\n"):
                self._take("", line, events)
                if self.done:
                    return
        elif payload:
            kind = decode_json(payload, _objects, cast("type[dict[str, Any]]", dict)).get("type", name)
            if not _is_known(kind):
                return  # an event nobody knows may be of any shape
            self._reply.odd = True
            if self._raw is not None:
                self._raw.append(payload)
            self._apply(_odd_event(payload), name, payload, events)

    def _apply(self, event: _Event, name: str, payload: bytes, events: list[StreamEvent]) -> None:
        kind: object = event.type if event.type is not None else name
        if not isinstance(kind, str):
            return
        subject, _, verb = kind.rpartition(".")
        if kind in _ENDS:
            self._end(_whole(event.response, bodies, Body), events, _ENDS[kind])
        elif kind in ("error", "response.error") or name == "error" or (not kind and is_failure(_object(payload))):
            raise response_failure(self._provider, failure_of(_object(payload), payload))
        elif kind == "response.output_item.added":
            self._reply.open(event.item, event.output_index, events)
        elif kind == "response.output_item.done":
            self._reply.close(event.item, event.output_index, events)
        elif kind in ("response.created", "response.in_progress", "response.queued"):
            head = _whole(event.response, _heads, _Head)
            self._reply.begin(head.id, head.model)
        elif subject in ("response.output_text", "response.refusal"):
            self._take_text(event, subject == "response.refusal", verb, events)
        elif subject == "response.function_call_arguments":
            self._take_arguments(event, verb, events)
        elif subject in _THOUGHTS:
            self._take_thought(event, _THOUGHTS[subject], verb, events)
        elif kind == "response.reasoning_summary_part.added" and as_int(event.summary_index) is None:
            self._find("reasoning", event).part = -1  # the next piece begins a part

    def _take_text(self, event: _Event, refusal: bool, verb: str, events: list[StreamEvent]) -> None:
        item = self._find("message", event)
        if verb == "delta":
            text = _text(event.delta)
        else:  # of interest only where no deltas came
            text = "" if item.said else _text(event.refusal if refusal else event.text)
        if text:
            self._reply.put_text(item, text, events, refusal=refusal)

    def _take_arguments(self, event: _Event, verb: str, events: list[StreamEvent]) -> None:
        item = self._find("call", event)
        item.learn({"name": event.name, "call_id": event.call_id})
        if verb == "delta":
            self._reply.put_arguments(item, event.delta, events)
        else:
            item.take_arguments(event.arguments)

    def _take_thought(
        self, event: _Event, field: Literal["content", "summary"], verb: str, events: list[StreamEvent]
    ) -> None:
        item = self._find("reasoning", event)
        text = _text(event.delta) if verb == "delta" else "" if item.said else _text(event.text)
        if text:
            part = as_int(event.summary_index if field == "summary" else event.content_index)
            self._reply.put_reasoning(item, text, field, part, events)

    def _find(self, kind: Literal["message", "reasoning", "call"], event: _Event) -> Item:
        return self._reply.items.found(kind, event.item_id, as_int(event.output_index), as_text(event.call_id) or "")

    def _end(self, body: Body, events: list[StreamEvent], status: str | None = None) -> None:
        self._reply.end(body, events, status=status)
        self.done = True


def _is_known(kind: object) -> bool:
    """Whether an event says something about the reply."""
    if not isinstance(kind, str):
        return False
    subject = kind.rpartition(".")[0]
    return (
        kind in _ENDS
        or kind in ("error", "response.error", "response.created", "response.in_progress")
        or subject in ("response.output_item", "response.output_text", "response.refusal")
        or subject == "response.function_call_arguments"
        or subject in _THOUGHTS
    )


def _odd_event(payload: bytes) -> _Event:
    """An event with half characters in it."""
    known = _object(payload)
    fields = {name: known[name] for name in _Event.__struct_fields__ if name in known and name != "response"}
    response = known.get("response")
    return _Event(**fields, response=Raw(b"" if response is None else encode_json(response)))


def _object(payload: bytes) -> dict[str, Any]:
    return decode_json(payload, _objects, cast("type[dict[str, Any]]", dict))


def _whole(response: Raw, decoder: "msgspec.json.Decoder[Any]", type_: Any) -> Any:
    """The `response` of an event; nothing where it is left out or null."""
    data = bytes(response)
    return type_() if data in (b"", b"null") else decode_json(data, decoder, type_)


def _text(value: object) -> str:
    """A piece of text; some servers wrap it into an object."""
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value).get("text")
    return value if isinstance(value, str) else ""
