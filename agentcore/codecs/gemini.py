"""Gemini `generateContent`: requests, replies and streams."""

import re
from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.codecs.base import NO_NAMES, WireRequest
from agentcore.codecs.failures import failure_error, is_failure, provider_error, read_failure
from agentcore.codecs.gemini_reply import Chunk, Reply, chunks
from agentcore.codecs.gemini_request import request_body, unsupported_parts
from agentcore.codecs.gemini_stream import GeminiStreamDecoder
from agentcore.codecs.shared import decode_json, encode_json, excerpt, json_or_none, tool_names, wire_names
from agentcore.codecs.sse import MAX_EVENT_BYTES
from agentcore.codecs.stream_base import BLANK
from agentcore.errors import ConfigurationError, DecodeError, ProviderError
from agentcore.messages import Message

_lists = msgspec.json.Decoder(list[Chunk])
_RETRY_DELAY = re.compile(rb'"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"')


class GeminiCodec:
    """The codec of `POST …/models/{model}:generateContent` and `:streamGenerateContent`.

    Args:
        provider: name for errors.
        max_event_bytes: largest single event of a stream.
        keep_raw: keep the body (of a stream: its event payloads) on the response.
    """

    def __init__(
        self, provider: str = "gemini", *, max_event_bytes: int = MAX_EVENT_BYTES, keep_raw: bool = False
    ) -> None:
        self.provider = provider
        self.max_event_bytes = max_event_bytes
        self.keep_raw = keep_raw

    async def encode(self, request: ChatRequest, *, stream: bool) -> WireRequest:
        """The request as bytes; see `Codec.encode`. The model is part of the path.

        Settings that the model does not have are left out, and the log says so.
        """
        model = request.options.model
        if not model:
            raise ConfigurationError("Gemini has the model in its address: name one (options.model)")
        names = tool_names(request)
        body = request_body(request, self.provider, names)
        path = model if "/" in model else f"models/{model}"
        action = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return WireRequest(f"/{quote(path)}:{action}", encode_json(body), wire_names(names) or NO_NAMES)

    def decode(self, body: bytes, wire: WireRequest) -> ChatResponse:
        """A whole body as a response; see `Codec.decode`."""
        if body[:64].lstrip(BLANK).startswith((b"data:", b"event:", b"id:", b"retry:", b":")):
            decoder = self.stream_decoder(wire)  # a stream, though none was asked for
            decoder.feed(body)
            decoder.finish()
            return decoder.response()
        try:
            response = self._decode_body(body, wire)
        except ProviderError as error:
            error.provider = error.provider or self.provider
            raise
        except RecursionError as error:
            raise DecodeError("the answer is nested too deeply", provider=self.provider) from error
        return replace(response, raw=body) if self.keep_raw else response

    def stream_decoder(self, wire: WireRequest) -> GeminiStreamDecoder:
        """A fresh decoder for one stream."""
        return GeminiStreamDecoder(
            self.provider,
            wire.tool_names,
            lambda body: self.decode(body, wire),
            max_event_bytes=self.max_event_bytes,
            keep_raw=self.keep_raw,
        )

    def decode_error(self, status: int, body: bytes) -> ProviderError:
        """An error status and its body as an error."""
        error = provider_error(self.provider, body, status=status)
        if b"API_KEY_INVALID" in body or b"API key expired" in body:  # said with status 400
            error.kind, error.retryable = "auth", False
        delay = _RETRY_DELAY.search(body)
        if delay is not None:  # google.rpc.RetryInfo
            error.retry_after = float(delay[1])
        if error.kind == "rate_limit" and b"PerDay" in body:
            error.kind, error.retryable = "quota", False
        return error

    def check(self, messages: Sequence[Message]) -> list[str]:
        """What this format could not carry of a history, one line each."""
        return [str(error) for error in unsupported_parts(messages, self.provider)]

    def _decode_body(self, body: bytes, wire: WireRequest) -> ChatResponse:
        reply = Reply(self.provider, wire.tool_names)
        if body.lstrip(BLANK)[:1] == b"[":  # a stream without `alt=sse`, or an error in a list
            value: Any = json_or_none(body)
            first: Any = next(iter(cast("list[Any]", value or ())), None)
            if is_failure(first):
                raise failure_error(self.provider, read_failure(body))
            for chunk in decode_json(body, _lists, list[Chunk], mend=True):
                reply.take(chunk)
        else:
            chunk = decode_json(body, chunks, Chunk, mend=True)
            if chunk.candidates is None and chunk.promptFeedback is None:
                if chunk.error or is_failure(json_or_none(body)):
                    raise failure_error(self.provider, read_failure(body))
                raise DecodeError(f"the answer has no candidates: {excerpt(body)}", retryable=True)
            reply.take(chunk)
        reply.end()
        return reply.response()
