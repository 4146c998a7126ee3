"""Replies of Chat Completions endpoints, as bodies and as streams, and requests to them."""

import asyncio
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from agentcore.chat import ChatOptions, ChatRequest, ChatResponse, ToolSchema
from agentcore.codecs.base import WireRequest
from agentcore.codecs.dialect import OPENAI, Dialect
from agentcore.codecs.openai_chat import OpenAIChatCodec
from agentcore.errors import ProviderError
from agentcore.events import StreamEvent, TextDelta
from agentcore.messages import Message

CODEC = OpenAIChatCodec()
WIRE = WireRequest("/chat/completions", b"")
DONE = b"data: [DONE]\n\n"


def body(message: Any = None, finish: Any = "stop", **fields: Any) -> bytes:
    """A whole reply."""
    choice = {"index": 0, "message": {"role": "assistant", **(message or {})}, "finish_reason": finish}
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    whole = {"id": "r1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    return json.dumps({**whole, **fields}).encode()


def call(arguments: Any = '{"a":1}', call_id: Any = "c1", name: Any = "add") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def part(index: Any = 0, **fields: Any) -> dict[str, Any]:
    """A fragment of a tool call: `id`, and `name`/`arguments` of its function; None leaves a key out."""
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    made = {**fields, "function": function}
    return made if index is None else {"index": index, **made}


def event(delta: Any = None, finish: Any = None, **fields: Any) -> bytes:
    """One chunk of a stream."""
    choice = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish}
    whole = {"id": "r1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **fields}
    return b"data: " + json.dumps(whole).encode() + b"\n\n"


def stream(*deltas: Any, finish: Any = "stop", done: bool = True) -> bytes:
    """A whole stream: one chunk a delta, the reason, the end."""
    return b"".join([*map(event, deltas), event({}, finish), DONE if done else b""])


def calls_stream(*fragments: dict[str, Any], finish: Any = "tool_calls") -> bytes:
    return stream(*({"tool_calls": [fragment]} for fragment in fragments), finish=finish)


def decode(data: bytes, codec: OpenAIChatCodec = CODEC, wire: WireRequest = WIRE) -> ChatResponse:
    return codec.decode(data, wire)


def play(
    data: bytes, cuts: Sequence[int] = (), codec: OpenAIChatCodec = CODEC, wire: WireRequest = WIRE
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


def pieces(data: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    borders = [0, *sorted(cuts), len(data)]
    for start, end in itertools.pairwise(borders):
        yield data[start:end]


def read(data: bytes) -> ChatResponse:
    """The response of a stream that ends well."""
    response = play(data)[1]
    if isinstance(response, ProviderError):
        raise response
    return response


def text_of(events: Sequence[StreamEvent]) -> str:
    return "".join(one.text for one in events if isinstance(one, TextDelta))


def request(
    *messages: Message,
    tools: Sequence[ToolSchema] = (),
    dialect: Dialect = OPENAI,
    stream: bool = False,
    **options: Any,
) -> Any:
    """The body that is sent."""
    return json.loads(encode(*messages, tools=tools, dialect=dialect, stream=stream, **options).body)


def encode(
    *messages: Message,
    tools: Sequence[ToolSchema] = (),
    dialect: Dialect = OPENAI,
    stream: bool = False,
    **options: Any,
) -> WireRequest:
    codec = OpenAIChatCodec(dialect=dialect)
    made = ChatRequest(messages, tools, ChatOptions(**{"model": "test-model", **options}))
    return asyncio.run(codec.encode(made, stream=stream))
