"""OpenAI Embeddings: requests and replies of it and of everything that claims to be compatible."""

import sys
from array import array
from collections.abc import Sequence
from math import isfinite
from typing import Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from agentcore.codecs.base import WireRequest
from agentcore.codecs.failures import failure_error, is_failure, provider_error, read_failure
from agentcore.codecs.shared import as_int, as_text, decode_json, encode_json, excerpt
from agentcore.embeddings import Embedding, EmbeddingOptions, EmbeddingResponse
from agentcore.errors import DecodeError, ProviderError
from agentcore.usage import UNKNOWN_USAGE, Usage

EncodingFormat: TypeAlias = Literal["base64", "float"]


class _Item(Struct, gc=False):
    # Bytes: msgspec decodes base64 by itself. A server that does not know `encoding_format` sends numbers all the same.
    embedding: bytes | list[float]
    index: Any = None


class _Body(Struct, gc=False):
    data: list[_Item] | None = None
    model: Any = None
    usage: Any = None
    error: Any = None


_bodies = msgspec.json.Decoder(_Body)
_values: "msgspec.json.Decoder[object]" = msgspec.json.Decoder(object)


class OpenAIEmbeddingsCodec:
    """The codec of `POST …/embeddings`.

    Args:
        provider: name for errors.
        encoding_format: how the service is asked to write the vectors. base64 takes a fifth of the time to decode and
            less than half of the bytes (1,536 dimensions: 20 µs and 8 KB a vector, as numbers 116 µs and 21 KB).
        dimensions_field: the service's name of the `dimensions` setting.
    """

    path = "/embeddings"

    def __init__(
        self,
        provider: str = "openai",
        *,
        encoding_format: EncodingFormat = "base64",
        dimensions_field: str = "dimensions",
    ) -> None:
        self.provider = provider
        self.encoding_format = encoding_format
        self.dimensions_field = dimensions_field

    def encode(self, texts: Sequence[str], options: EmbeddingOptions) -> WireRequest:
        """One request for some texts."""
        body: dict[str, Any] = {"model": options.model, "input": texts}
        if options.dimensions is not None:
            body[self.dimensions_field] = options.dimensions
        if self.encoding_format != "float":  # which is the default everywhere, and unknown to some
            body["encoding_format"] = self.encoding_format
        return WireRequest(self.path, encode_json(body | options.extra))

    def decode(self, body: bytes, count: int, dimensions: int | None = None) -> EmbeddingResponse:
        """A whole body as a response.

        Args:
            body: the JSON.
            count: how many texts were sent.
            dimensions: the length that was asked for, if one was.

        Raises:
            ProviderError: an error inside a good status, or a body that cannot be read (`DecodeError`).
        """
        try:
            reply = self._read(body)
            items = reply.data or []
            if len(items) != count:
                raise DecodeError(f"{len(items)} embeddings came for {count} texts: {excerpt(body)}", retryable=True)
            vectors = tuple([_vector(item.embedding) for item in _in_order(items)])
            _check_lengths(vectors, dimensions)
        except ProviderError as error:
            error.provider = error.provider or self.provider
            raise
        return EmbeddingResponse(vectors, _usage(reply.usage), as_text(reply.model))

    def decode_error(self, status: int, body: bytes) -> ProviderError:
        """An error status and its body as an error."""
        return provider_error(self.provider, body, status=status)

    def _read(self, body: bytes) -> _Body:
        try:
            reply = decode_json(body, _bodies, _Body)
        except DecodeError:
            if is_failure(decode_json(body, _values, object)):  # a list with an error in it, or odd fields beside one
                raise failure_error(self.provider, read_failure(body)) from None
            raise
        if not reply.data and (reply.error or is_failure(decode_json(body, _values, object))):
            raise failure_error(self.provider, read_failure(body))
        return reply


def _in_order(items: list[_Item]) -> list[_Item]:
    """The items by their `index`; by their place where no item has one.

    Gemini leaves out an index of 0, so one item without an index is the first.
    """
    indices = [item.index for item in items]
    if all(index is None for index in indices):
        return items
    ordered: list[_Item | None] = [None] * len(items)
    for item in items:
        index = 0 if item.index is None else as_int(item.index)
        if index is None or index >= len(items):
            raise DecodeError(f"an embedding has the index {item.index!r}, of {len(items)} texts")
        if ordered[index] is not None:
            raise DecodeError(f"two embeddings have the index {index}")
        ordered[index] = item
    return [item for item in ordered if item is not None]  # as many as texts, and no two alike: none is missing


def _vector(value: bytes | list[float]) -> Embedding:
    try:
        vector = array("f", value)
    except (ValueError, OverflowError) as error:
        size = len(value)
        raise DecodeError(f"an embedding is not a row of float32 ({size} {_unit(value)}: {error})") from error
    if sys.byteorder == "big" and isinstance(value, bytes):  # they come little endian
        vector.byteswap()
    if not isfinite(sum(vector)):  # a single one would poison an index: it is as near to everything as to nothing
        raise DecodeError("an embedding holds values that are infinite or not a number")
    return vector


def _unit(value: bytes | list[float]) -> str:
    return "bytes" if isinstance(value, bytes) else "numbers"


def _check_lengths(vectors: Sequence[Embedding], dimensions: int | None) -> None:
    lengths = {len(vector) for vector in vectors}
    if len(lengths) > 1 or 0 in lengths:
        raise DecodeError(f"the embeddings have {_listed(lengths)} dimensions")
    if dimensions is not None and lengths and lengths != {dimensions}:
        raise DecodeError(
            f"{dimensions} dimensions were asked for, and the embeddings have {_listed(lengths)}: "
            "the service or the model cannot shorten them; leave dimensions out"
        )


def _listed(lengths: set[int]) -> str:
    return " and ".join([str(length) for length in sorted(lengths)])


def _usage(value: object) -> Usage:
    if not isinstance(value, dict):
        return UNKNOWN_USAGE
    counts = cast("dict[str, object]", value)  # JSON
    # Some services count the total alone, and some write 0 for what they do not count.
    tokens = as_int(counts.get("prompt_tokens")) or as_int(counts.get("total_tokens")) or None
    return UNKNOWN_USAGE if tokens is None else Usage(input_tokens=tokens)
