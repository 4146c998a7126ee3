"""The codecs alone, and one request: each beside what it cannot do without, interleaved, medians of one run.

python -m benchmarks.codecs [--quick] [--rounds N]
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import msgspec

from agentcore import (
    AssistantMessage,
    ChatOptions,
    ChatRequest,
    Message,
    OpenAIChatModel,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentcore.codecs import anthropic_stream, gemini_reply, openai_chat_reply, openai_responses_stream
from agentcore.codecs.anthropic_messages import AnthropicMessagesCodec
from agentcore.codecs.base import Codec, WireRequest
from agentcore.codecs.gemini import GeminiCodec
from agentcore.codecs.openai_chat import OpenAIChatCodec
from agentcore.codecs.openai_responses import OpenAIResponsesCodec
from agentcore.providers.pool import PooledTransport
from benchmarks.server import serving

DELTAS = 2000
EVENTS_A_READ = 16
WIRE = WireRequest("/", b"")


def history(length: int) -> list[Message]:
    """Turns of four messages: a question, a call, its result, an answer."""
    made: list[Message] = []
    while len(made) < length:
        n = len(made)
        made += [
            UserMessage(f"question {n}, about as long as one is"),
            AssistantMessage(None, (ToolCall(f"call_{n}", "add", {"a": n, "b": 1}),)),
            ToolMessage(f"call_{n}", "add", f"{n + 1}"),
            AssistantMessage(f"answer {n}, likewise"),
        ]
    return made[:length]


def as_structs(value: Any, types: dict[tuple[str, ...], type[Any]]) -> Any:
    """A JSON value with a Struct for every object: what a codec's output would be with nothing left to decide."""
    if isinstance(value, list):
        return [as_structs(item, types) for item in value]
    if not isinstance(value, dict):
        return value
    names = tuple(value)
    if names not in types:
        fields = [(f"f{number}", Any) for number in range(len(names))]
        renamed = {f"f{number}": name for number, name in enumerate(names)}
        types[names] = msgspec.defstruct("Wire", fields, rename=renamed, gc=False)
    return types[names](*(as_structs(item, types) for item in value.values()))


def encoding(codec: Codec, length: int) -> dict[str, Callable[[], Awaitable[float]]]:
    request = ChatRequest(history(length), (), ChatOptions(model="m"))
    body = asyncio.run(codec.encode(request, stream=False)).body
    wire = as_structs(msgspec.json.decode(body), {})
    assert msgspec.json.decode(msgspec.json.encode(wire)) == msgspec.json.decode(body)

    async def ours() -> float:
        start = time.perf_counter()
        for _ in range(20):
            await codec.encode(request, stream=False)
        return (time.perf_counter() - start) / 20 * 1e6

    async def bare() -> float:
        start = time.perf_counter()
        for _ in range(20):
            msgspec.json.encode(wire)
        return (time.perf_counter() - start) / 20 * 1e6

    return {"agentcore": ours, "msgspec": bare}


def decoding(
    codec: Codec, events: list[tuple[str, Any]], decoder: "msgspec.json.Decoder[Any]"
) -> dict[str, Callable[[], Awaitable[float]]]:
    payloads = [msgspec.json.encode(event) for _, event in events]
    lines = [
        (f"event: {name}\n".encode() if name else b"") + b"data: " + payload + b"\n\n"
        for (name, _), payload in zip(events, payloads, strict=True)
    ]
    reads = [b"".join(lines[n : n + EVENTS_A_READ]) for n in range(0, len(lines), EVENTS_A_READ)]

    async def ours() -> float:
        start = time.perf_counter()
        stream = codec.stream_decoder(WIRE)
        for data in reads:
            stream.feed(data)
        stream.finish()
        taken = time.perf_counter() - start
        assert len(stream.response().text) > DELTAS
        return taken / DELTAS * 1e6

    async def bare() -> float:
        decode = decoder.decode
        start = time.perf_counter()
        for payload in payloads[: DELTAS - 1]:  # the last event is of another shape
            decode(payload)
        return (time.perf_counter() - start) / DELTAS * 1e6

    return {"agentcore": ours, "msgspec": bare}


def chat_events() -> Iterator[tuple[str, Any]]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    for n in range(DELTAS):
        yield "", {**head, "choices": [{"index": 0, "delta": {"content": f"word{n} "}, "finish_reason": None}]}
    yield "", {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def anthropic_events() -> Iterator[tuple[str, Any]]:
    message = {"id": "msg_1", "role": "assistant", "model": "m", "content": [], "usage": {"input_tokens": 9}}
    yield "message_start", {"type": "message_start", "message": message}
    block = {"type": "text", "text": ""}
    yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": block}
    for n in range(DELTAS):
        delta = {"type": "text_delta", "text": f"word{n} "}
        yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": 0}
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    yield "message_delta", {"type": "message_delta", "delta": delta, "usage": {"output_tokens": DELTAS}}
    yield "message_stop", {"type": "message_stop"}


def responses_events() -> Iterator[tuple[str, Any]]:
    text = "".join(f"word{n} " for n in range(DELTAS))
    content = [{"type": "output_text", "text": text, "annotations": []}]
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}
    yield "response.created", {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}
    added = {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}}
    yield "response.output_item.added", added
    for n in range(DELTAS):
        delta = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": f"word{n} "}
        yield "response.output_text.delta", {"type": "response.output_text.delta", "sequence_number": n, **delta}
    yield "response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}
    whole = {"id": "resp_1", "status": "completed", "model": "m", "output": [item]}
    yield "response.completed", {"type": "response.completed", "response": whole}


def gemini_events() -> Iterator[tuple[str, Any]]:
    for n in range(DELTAS):
        content = {"role": "model", "parts": [{"text": f"word{n} "}]}
        usage = {"promptTokenCount": 9, "candidatesTokenCount": n, "totalTokenCount": 9 + n}
        finish = {"finishReason": "STOP"} if n == DELTAS - 1 else {}
        candidate = {"content": content, "index": 0, **finish}
        yield "", {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r"}


def requests(port: int, count: int) -> dict[str, dict[str, Callable[[], Awaitable[float]]]]:
    """A model call beside a bare `post` of the same bytes: with httpx's own transport, and with ours under it."""
    request = ChatRequest([UserMessage("hello")])
    path = "/turn/chat/completions"
    headers = {"authorization": "Bearer sk-none", "content-type": "application/json"}

    async def ours() -> float:
        async with OpenAIChatModel("m", api_key="sk-none", base_url=f"http://127.0.0.1:{port}/turn") as model:
            await model.chat(request)
            start = time.perf_counter()
            for _ in range(count):
                await model.chat(request)
            return (time.perf_counter() - start) / count * 1e6

    def bare(transport: Callable[[], httpx.AsyncBaseTransport]) -> Callable[[], Awaitable[float]]:
        async def run() -> float:
            wire = await OpenAIChatCodec().encode(request, stream=False)
            async with httpx.AsyncClient(transport=transport(), timeout=60) as client:
                url = f"http://127.0.0.1:{port}{path}"
                await client.post(url, content=wire.body, headers=headers)
                start = time.perf_counter()
                for _ in range(count):
                    response = await client.post(url, content=wire.body, headers=headers)
                    msgspec.json.decode(response.content)
                return (time.perf_counter() - start) / count * 1e6

        return run

    return {
        "request, beside httpx as it comes": {"agentcore": ours, "httpx": bare(httpx.AsyncHTTPTransport)},
        "request, beside httpx on our transport": {"agentcore": ours, "httpx": bare(PooledTransport)},
    }


async def measure(
    name: str, ways: dict[str, Callable[[], Awaitable[float]]], rounds: int, aim: str, unit: str, *, ratio: bool
) -> None:
    figures: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, run in ways.items():
            figures[way].append(await run())
    ours, bare = (statistics.median(figures[way]) for way in ways)
    result = f"{ours / bare:>9.2f} ×" if ratio else f"{ours - bare:>+9.2f} +"
    spread = statistics.stdev(figures["agentcore"]) / ours * 100 if rounds > 1 else 0
    print(f"{name:<44} {ours:>10.2f} {bare:>10.2f} {result:>12} {aim:>8} {unit:>9} ±{spread:.0f} %")


CODECS: list[tuple[str, Codec, Callable[[], Iterator[tuple[str, Any]]], "msgspec.json.Decoder[Any]"]] = [
    ("Chat Completions", OpenAIChatCodec(), chat_events, openai_chat_reply.chunks),
    ("Anthropic Messages", AnthropicMessagesCodec(), anthropic_events, anthropic_stream._events),
    ("OpenAI Responses", OpenAIResponsesCodec(), responses_events, openai_responses_stream._events),
    ("Gemini", GeminiCodec(), gemini_events, gemini_reply.plain_chunks),
]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="once, to see that it runs")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args(argv)
    rounds = 1 if args.quick else args.rounds
    print(f"{'':<44} {'agentcore':>10} {'bare':>10} {'':>12} {'aim':>8} {'unit':>9}")
    for name, codec, events, decoder in CODECS:
        ways = decoding(codec, list(events()), decoder)
        asyncio.run(measure(f"{name}: decode a delta, above JSON", ways, rounds, "+2", "µs", ratio=False))
    for name, codec, _, _ in CODECS:
        for length in (100, 1000, 10_000):
            ways = encoding(codec, length)
            aim = "2" if length == 1000 else ""
            asyncio.run(measure(f"{name}: encode {length:,} messages", ways, rounds, aim, "µs", ratio=True))
    with serving() as port:
        for name, ways in requests(port, 20 if args.quick else 300).items():
            asyncio.run(measure(name, ways, rounds, "+60", "µs", ratio=False))


if __name__ == "__main__":
    main()
