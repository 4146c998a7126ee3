"""Bodies of an embeddings reply, as services write them."""

import base64
import json
import struct
from collections.abc import Sequence
from typing import Any


def base64_of(values: Sequence[float]) -> str:
    """A vector as float32, little endian, in base64."""
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()


def embeddings_body(
    vectors: Sequence[Sequence[float]],
    *,
    tokens: int | None = 7,
    as_base64: bool = False,
    order: Sequence[int] | None = None,
    model: str = "embedder-001",
) -> dict[str, Any]:
    """The body of a reply; `order` says in which order the items come."""
    items = [
        {"object": "embedding", "index": index, "embedding": base64_of(vector) if as_base64 else list(vector)}
        for index, vector in enumerate(vectors)
    ]
    body: dict[str, Any] = {"object": "list", "data": [items[i] for i in order] if order else items, "model": model}
    if tokens is not None:
        body["usage"] = {"prompt_tokens": tokens, "total_tokens": tokens}
    return body


def vector_of(text: str) -> list[float]:
    """A vector that tells which text it belongs to."""
    return [float(len(text)), float(sum(map(ord, text)) % 1009), 0.5]


def embedded(request: bytes) -> dict[str, Any]:
    """The body of a reply to the body of a request."""
    body = json.loads(request)
    return embeddings_body(
        [vector_of(text) for text in body["input"]],
        tokens=len(body["input"]),
        as_base64=body.get("encoding_format") == "base64",
    )
