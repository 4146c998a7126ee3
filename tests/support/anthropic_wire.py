"""Replies of the Anthropic Messages API as bytes: bodies, and the streams in which the service would send them."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from agentcore.chat import ChatResponse
from agentcore.codecs.anthropic_messages import AnthropicMessagesCodec
from agentcore.codecs.anthropic_stream import AnthropicStreamDecoder
from agentcore.codecs.base import WireRequest
from agentcore.events import StreamEvent

WIRE = WireRequest("/v1/messages", b"")


def message(*blocks: Any, stop: str | None = "end_turn", usage: dict[str, Any] | None = None, **more: Any) -> bytes:
    """A whole body."""
    return json.dumps(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-test",
            "content": list(blocks),
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {"input_tokens": 5, "output_tokens": 3} if usage is None else usage,
            **more,
        }
    ).encode()


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


def call(name: str = "add", args: Any = None, call_id: str = "toolu_1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {} if args is None else args, **more}


def thinking(value: str = "hm", signature: str = "c2ln") -> dict[str, Any]:
    return {"type": "thinking", "thinking": value, "signature": signature}


def event(kind: str, **fields: Any) -> bytes:
    """One event of a stream."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def start(**more: Any) -> bytes:
    """The first event of a stream."""
    known = json.loads(message(stop=None, usage={"input_tokens": 5, "output_tokens": 1}))
    return event("message_start", message=known | more)


def opened(index: int, block: dict[str, Any]) -> bytes:
    return event("content_block_start", index=index, content_block=block)


def delta(index: int, **fields: Any) -> bytes:
    return event("content_block_delta", index=index, delta=fields)


def said(index: int, value: str) -> bytes:
    return delta(index, type="text_delta", text=value)


def stopped(index: int) -> bytes:
    return event("content_block_stop", index=index)


def ended(stop: str | None = "end_turn", **usage: Any) -> bytes:
    """The two last events of a stream."""
    return event(
        "message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=usage or {"output_tokens": 3}
    ) + event("message_stop")


def _pieces(value: str, size: int) -> Iterable[str]:
    return (value[i : i + size] for i in range(0, len(value), size))


def stream_of(body: bytes, *, size: int = 3) -> bytes:
    """The stream in which the service would send this body, in pieces of `size` characters."""
    known = json.loads(body)
    usage = known.get("usage") or {}
    first = {key: value for key, value in usage.items() if key not in ("output_tokens", "output_tokens_details")}
    parts = [event("message_start", message=known | {"content": [], "stop_reason": None, "usage": first})]
    for index, block in enumerate(known["content"]):
        match block["type"]:
            case "text":
                parts.append(
                    opened(index, block | {"text": ""} | ({"citations": []} if block.get("citations") else {}))
                )
                parts.extend(said(index, piece) for piece in _pieces(block["text"], size))
                parts.extend(delta(index, type="citations_delta", citation=one) for one in block.get("citations") or ())
            case "thinking":
                parts.append(opened(index, {"type": "thinking", "thinking": "", "signature": ""}))
                parts.extend(
                    delta(index, type="thinking_delta", thinking=piece) for piece in _pieces(block["thinking"], size)
                )
                if block.get("signature"):
                    parts.append(delta(index, type="signature_delta", signature=block["signature"]))
            case "tool_use" | "server_tool_use":
                parts.append(opened(index, block | {"input": {}}))
                raw = json.dumps(block["input"], separators=(",", ":"), ensure_ascii=False) if block["input"] else ""
                parts.extend(
                    delta(index, type="input_json_delta", partial_json=piece) for piece in ["", *_pieces(raw, size)]
                )
            case _:
                parts.append(opened(index, block))
        parts.append(stopped(index))
    parts.append(
        event(
            "message_delta",
            delta={"stop_reason": known["stop_reason"], "stop_sequence": None},
            usage={key: value for key, value in usage.items() if key not in first},
        )
    )
    parts.append(event("message_stop"))
    return b"".join(parts)


def play(
    data: bytes | Sequence[bytes], *, codec: AnthropicMessagesCodec | None = None, wire: WireRequest = WIRE
) -> tuple[AnthropicStreamDecoder, list[StreamEvent]]:
    """A decoder that has seen a whole stream, and what it delivered."""
    decoder = (codec or AnthropicMessagesCodec()).stream_decoder(wire)
    events: list[StreamEvent] = []
    for piece in [data] if isinstance(data, bytes) else data:
        events.extend(decoder.feed(piece))
    events.extend(decoder.finish())
    return decoder, events


def decode(body: bytes, wire: WireRequest = WIRE) -> ChatResponse:
    return AnthropicMessagesCodec().decode(body, wire)
