"""Gemini `generateContent`: requests, replies and streams."""

from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import quote

import msgspec

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.codecs.base import NO_NAMES, WireRequest
from agentcore.codecs.failures import is_failure
from agentcore.codecs.gemini_failure import gemini_error
from agentcore.codecs.gemini_reply import Chunk, Reply, chunks
from agentcore.codecs.gemini_request import LEGAL_NAME, request_body, unsupported_parts
from agentcore.codecs.gemini_stream import GeminiStreamDecoder
from agentcore.codecs.shared import decode_json, encode_json, excerpt, json_or_none, tool_names, wire_names
from agentcore.codecs.sse import MAX_EVENT_BYTES
from agentcore.codecs.stream_base import BLANK, closed_early
from agentcore.codecs.whole_body import BodyCodec
from agentcore.errors import ConfigurationError, DecodeError, ProviderError
from agentcore.messages import Message

_lists = msgspec.json.Decoder(list[Chunk])


class GeminiCodec(BodyCodec):
    """The codec of `POST …/models/{model}:generateContent` and `:streamGenerateContent`.

    Args:
        provider: name for errors.
        max_event_bytes: largest single event of a stream.
        keep_raw: keep the body (of a stream: its event payloads) on the response.
    """

    def __init__(
        self, provider: str = "gemini", *, max_event_bytes: int = MAX_EVENT_BYTES, keep_raw: bool = False
    ) -> None:
        super().__init__(provider, max_event_bytes=max_event_bytes, keep_raw=keep_raw)

    async def encode(self, request: ChatRequest, *, stream: bool) -> WireRequest:
        """The request as bytes; see `Codec.encode`. The model is part of the path.

        Settings that the model does not have are left out, and the log says so.
        """
        model = request.options.model
        if not model:
            raise ConfigurationError("Gemini has the model in its address: name one (options.model)")
        names = tool_names(request, legal_name=LEGAL_NAME)
        body = request_body(request, self.provider, names)
        path = model if "/" in model else f"models/{model}"
        action = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return WireRequest(f"/{quote(path)}:{action}", encode_json(body), wire_names(names) or NO_NAMES)

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
        return gemini_error(self.provider, body, status=status)

    def check(self, messages: Sequence[Message]) -> list[str]:
        """What no model of this format could carry of a history, one line for each part."""
        return [str(error) for error in unsupported_parts(messages, self.provider)]

    def _decode_body(self, body: bytes, wire: WireRequest) -> ChatResponse:
        reply = Reply(self.provider, wire.tool_names)
        if body.lstrip(BLANK)[:1] == b"[":  # a stream without `alt=sse`, or an error in a list
            value: Any = json_or_none(body)
            first: Any = next(iter(cast("list[Any]", value or ())), None)
            if is_failure(first):
                raise gemini_error(self.provider, body)
            try:
                taken = decode_json(body, _lists, list[Chunk], mend=True)
            except DecodeError as error:
                if not body.rstrip().endswith(b"]"):  # half a list is a symptom; the broken connection is the cause
                    raise closed_early() from error
                raise
            for chunk in taken:
                reply.take(chunk)
        else:
            chunk = decode_json(body, chunks, Chunk, mend=True)
            if chunk.candidates is None and chunk.promptFeedback is None:
                if chunk.error or is_failure(json_or_none(body)):
                    raise gemini_error(self.provider, body)
                raise DecodeError(f"the answer has no candidates: {excerpt(body)}", retryable=True)
            reply.take(chunk)
        reply.end()
        return reply.response()
