"""Replies of Responses endpoints, as bodies and as streams, and requests to them."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

from agentcore.chat import ChatOptions, ChatRequest, ChatResponse, ToolSchema
from agentcore.codecs.base import WireRequest
from agentcore.codecs.dialect import OPENAI, Dialect
from agentcore.codecs.openai_responses import OpenAIResponsesCodec
from agentcore.errors import ProviderError
from agentcore.events import ReasoningDelta, StreamEvent, TextDelta
from agentcore.messages import Message
from tests.support.openai_wire import pieces

CODEC = OpenAIResponsesCodec()
WIRE = WireRequest("/responses", b'{"model":"gpt-5"}')
USAGE = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 16,
}


def text(*texts: Any, item_id: Any = "msg_1", **fields: Any) -> dict[str, Any]:
    """A message item, each text a part of its content."""
    parts = [one if isinstance(one, dict) else {"type": "output_text", "text": one, "annotations": []} for one in texts]
    return {"id": item_id, "type": "message", "role": "assistant", "status": "completed", "content": parts, **fields}


def refusal(words: str) -> dict[str, Any]:
    return {"type": "refusal", "refusal": words}


def call(
    arguments: Any = '{"a":1}', call_id: Any = "call_1", name: Any = "add", item_id: Any = "fc_1", **fields: Any
) -> dict[str, Any]:
    made = {"id": item_id, "type": "function_call", "status": "completed", "arguments": arguments}
    return {**made, "call_id": call_id, "name": name, **fields}


def reasoning(*summary: str, item_id: Any = "rs_1", encrypted: Any = "gAAA", **fields: Any) -> dict[str, Any]:
    parts = [{"type": "summary_text", "text": one} for one in summary]
    return {"id": item_id, "type": "reasoning", "summary": parts, "encrypted_content": encrypted, **fields}


def whole(*items: Any, status: Any = "completed", **fields: Any) -> dict[str, Any]:
    """A response object; `incomplete_details` and the like by name."""
    made = {"id": "resp_1", "object": "response", "status": status, "error": None, "incomplete_details": None}
    return {**made, "model": "gpt-5-2025-08-07", "output": list(items), "usage": USAGE, **fields}


def body(*items: Any, **fields: Any) -> bytes:
    return json.dumps(whole(*items, **fields)).encode()


def event(kind: str | None, *, named: bool = True, **fields: Any) -> bytes:
    """One event of a stream."""
    payload = json.dumps(fields if kind is None else {"type": kind, **fields}).encode()
    return (f"event: {kind}\n".encode() if named and kind else b"") + b"data: " + payload + b"\n\n"


def delta(words: Any, item_id: Any = "msg_1", index: Any = 0, kind: str = "response.output_text.delta") -> bytes:
    return event(kind, item_id=item_id, output_index=index, content_index=0, delta=words)


def added(item: Any, index: Any = 0) -> bytes:
    return event("response.output_item.added", output_index=index, item=item)


def done(item: Any, index: Any = 0) -> bytes:
    return event("response.output_item.done", output_index=index, item=item)


def end(*items: Any, status: Any = "completed", kind: str | None = None, **fields: Any) -> bytes:
    return event(kind or f"response.{status}", response=whole(*items, status=status, **fields))


def begin() -> bytes:
    return event("response.created", response={**whole(status="in_progress"), "usage": None})


def stream_of(*items: dict[str, Any], size: int = 3, **fields: Any) -> bytes:
    """The stream in which the service would tell a reply, its texts in pieces of `size` characters."""
    parts = [begin(), event("response.in_progress", response=whole(status="in_progress"))]
    for index, item in enumerate(items):
        parts += _told(item, index, size)
    return b"".join([*parts, end(*items, **fields)])


def _told(item: dict[str, Any], index: int, size: int) -> Iterator[bytes]:
    where = {"item_id": item.get("id"), "output_index": index}
    hollow = {**item, "status": "in_progress", "encrypted_content": None} if item["type"] == "reasoning" else dict(item)
    hollow.update({"content": []} if "content" in item else {"arguments": ""} if "arguments" in item else {})
    hollow.update({"summary": []} if "summary" in item else {})
    yield added(hollow, index)
    for number, part in enumerate(item.get("content") or ()):
        field, subject = {
            "refusal": ("refusal", "response.refusal"),
            "reasoning_text": ("text", "response.reasoning_text"),
        }.get(part["type"], ("text", "response.output_text"))
        at = {**where, "content_index": number}
        for piece in _cut(part[field], size):
            yield event(f"{subject}.delta", **at, delta=piece)
        yield event(f"{subject}.done", **at, **{field: part[field]})
    for number, part in enumerate(item.get("summary") or ()):
        at = {**where, "summary_index": number}
        yield event("response.reasoning_summary_part.added", **at, part={"type": "summary_text", "text": ""})
        for piece in _cut(part["text"], size):
            yield event("response.reasoning_summary_text.delta", **at, delta=piece, obfuscation="xyz")
        yield event("response.reasoning_summary_text.done", **at, text=part["text"])
    if item["type"] == "function_call":
        for piece in _cut(item["arguments"], size):
            yield event("response.function_call_arguments.delta", **where, delta=piece)
        yield event("response.function_call_arguments.done", **where, arguments=item["arguments"])
    yield done(item, index)


def _cut(words: str, size: int) -> list[str]:
    return [words[at : at + size] for at in range(0, len(words), size)]


def decode(data: bytes, codec: OpenAIResponsesCodec = CODEC, wire: WireRequest = WIRE) -> ChatResponse:
    return codec.decode(data, wire)


def play(
    data: bytes, cuts: Sequence[int] = (), codec: OpenAIResponsesCodec = CODEC, wire: WireRequest = WIRE
) -> tuple[list[StreamEvent], ChatResponse | ProviderError]:
    """The events of a stream whose bytes come in pieces, and how it ended."""
    decoder = codec.stream_decoder(wire)
    events: list[StreamEvent] = []
    for piece in pieces(data, cuts):
        events += decoder.feed(piece)
    events += decoder.finish()
    try:
        return events, decoder.response()
    except ProviderError as error:
        return events, error


def played(data: bytes, wire: WireRequest = WIRE) -> ChatResponse:
    """The reply of a stream that ends well."""
    ended = play(data, wire=wire)[1]
    assert isinstance(ended, ChatResponse), ended
    return ended


def said(events: Sequence[StreamEvent]) -> str:
    return "".join([one.text for one in events if isinstance(one, TextDelta)])


def thought(events: Sequence[StreamEvent]) -> str:
    return "".join([one.text for one in events if isinstance(one, ReasoningDelta)])


def encode(
    *messages: Message,
    tools: Sequence[ToolSchema] = (),
    stream: bool = False,
    codec: OpenAIResponsesCodec | None = None,
    dialect: Dialect = OPENAI,
    **options: Any,
) -> Any:
    """The body of a request, decoded."""
    request = ChatRequest(messages, tools, ChatOptions(**{"model": "gpt-4.1", **options}))
    wire = asyncio.run((codec or OpenAIResponsesCodec(dialect=dialect)).encode(request, stream=stream))
    assert wire.path == "/responses"
    return json.loads(wire.body)
