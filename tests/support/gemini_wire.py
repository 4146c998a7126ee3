"""Replies of Gemini, as bodies and as streams, and requests to it."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from agentcore.chat import ChatOptions, ChatRequest, ChatResponse
from agentcore.codecs.base import WireRequest
from agentcore.codecs.gemini import GeminiCodec
from agentcore.events import ReasoningDelta, StreamEvent, TextDelta
from agentcore.messages import Message
from tests.support.openai_wire import pieces

CODEC = GeminiCodec()
WIRE = WireRequest("/models/m:generateContent", b"{}")
USAGE = {
    "promptTokenCount": 9,
    "candidatesTokenCount": 4,
    "thoughtsTokenCount": 3,
    "cachedContentTokenCount": 5,
    "totalTokenCount": 16,
}


def text(words: Any, signature: str | None = None, *, thought: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = {"text": words}
    if thought:
        made["thought"] = True
    return made if signature is None else {**made, "thoughtSignature": signature}


def call(args: Any = None, name: Any = "add", signature: str | None = None, **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"functionCall": {"name": name, "args": {"a": 1} if args is None else args, **fields}}
    return made if signature is None else {**made, "thoughtSignature": signature}


def chunk(*parts: Any, finish: Any = None, usage: Any = None, **fields: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0}
    if parts:
        candidate["content"] = {"role": "model", "parts": list(parts)}
    if finish is not None:
        candidate["finishReason"] = finish
    made: dict[str, Any] = {"candidates": [candidate], "modelVersion": "gemini-3-pro", "responseId": "r1"}
    return {**made, **({} if usage is None else {"usageMetadata": usage}), **fields}


def body(*parts: Any, finish: Any = "STOP", usage: Any = USAGE, **fields: Any) -> bytes:
    return json.dumps(chunk(*parts, finish=finish, usage=usage, **fields)).encode()


def event(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\r\n\r\n"


def stream_of(*parts: Any, finish: Any = "STOP", usage: Any = USAGE) -> bytes:
    """Each part a chunk of its own; why it ended, and the tokens, with the last."""
    chunks = [chunk(part) for part in parts[:-1]]
    return b"".join(event(one) for one in [*chunks, chunk(*parts[-1:], finish=finish, usage=usage)])


def decode(data: bytes, codec: GeminiCodec = CODEC, wire: WireRequest = WIRE) -> ChatResponse:
    return codec.decode(data, wire)


def play(
    data: bytes, cuts: Sequence[int] = (), codec: GeminiCodec = CODEC, wire: WireRequest = WIRE
) -> tuple[list[StreamEvent], ChatResponse]:
    """What a stream brings, cut at these places."""
    decoder = codec.stream_decoder(wire)
    events: list[StreamEvent] = []
    for piece in pieces(data, cuts):
        events += decoder.feed(piece)
    events += decoder.finish()
    return events, decoder.response()


def said(events: Sequence[StreamEvent]) -> str:
    return "".join([event.text for event in events if isinstance(event, TextDelta)])


def thought(events: Sequence[StreamEvent]) -> str:
    return "".join([event.text for event in events if isinstance(event, ReasoningDelta)])


def encode(*messages: Message, tools: Any = (), stream: bool = False, **options: Any) -> dict[str, Any]:
    options = {"model": "gemini-3-pro", **options}
    request = ChatRequest(list(messages), tools, ChatOptions(**options))
    return json.loads(asyncio.run(CODEC.encode(request, stream=stream)).body)
