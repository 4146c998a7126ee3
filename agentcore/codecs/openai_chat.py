"""OpenAI Chat Completions: requests, replies and streams of it and of everything that claims to be compatible."""

from collections.abc import Sequence

import msgspec

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.codecs.base import NO_NAMES, WireRequest
from agentcore.codecs.dialect import OPENAI, Dialect
from agentcore.codecs.failures import failure_error, is_failure, read_failure
from agentcore.codecs.openai_chat_reply import Chunk, Reply, chunks
from agentcore.codecs.openai_chat_request import request_body, unsupported_parts
from agentcore.codecs.openai_chat_stream import OpenAIChatStreamDecoder
from agentcore.codecs.shared import decode_json, encode_json, excerpt, tool_names, wire_names
from agentcore.codecs.sse import MAX_EVENT_BYTES
from agentcore.codecs.whole_body import BodyCodec
from agentcore.errors import DecodeError
from agentcore.messages import Message

_json_value: "msgspec.json.Decoder[object]" = msgspec.json.Decoder(object)


class OpenAIChatCodec(BodyCodec):
    """The codec of `POST …/chat/completions`.

    Args:
        provider: name for errors.
        dialect: how the endpoint differs from the original.
        max_event_bytes: largest single event of a stream.
        keep_raw: keep the body (of a stream: its event payloads) on the response.
    """

    path = "/chat/completions"

    def __init__(
        self,
        provider: str = "openai",
        dialect: Dialect = OPENAI,
        *,
        max_event_bytes: int = MAX_EVENT_BYTES,
        keep_raw: bool = False,
    ) -> None:
        super().__init__(provider, max_event_bytes=max_event_bytes, keep_raw=keep_raw)
        self.dialect = dialect

    async def encode(self, request: ChatRequest, *, stream: bool) -> WireRequest:
        """The request as bytes; see `Codec.encode`.

        Sampling settings that the model is known to refuse are left out, and the log says so.
        """
        names = tool_names(request)
        body = request_body(request, self.provider, self.dialect, names, stream=stream)
        return WireRequest(self.path, encode_json(body), wire_names(names) or NO_NAMES)

    def stream_decoder(self, wire: WireRequest) -> OpenAIChatStreamDecoder:
        """A fresh decoder for one stream."""
        return OpenAIChatStreamDecoder(
            self.provider,
            wire,
            lambda body: self.decode(body, wire),
            max_event_bytes=self.max_event_bytes,
            keep_raw=self.keep_raw,
        )

    def check(self, messages: Sequence[Message]) -> list[str]:
        """What this endpoint could not carry of a history, one line each."""
        return [str(error) for error in unsupported_parts(messages, self.provider, self.dialect)]

    def _decode_body(self, body: bytes, wire: WireRequest) -> ChatResponse:
        try:
            chunk = decode_json(body, chunks, Chunk, mend=True)
        except DecodeError:
            if body.lstrip()[:1] == b"[" and is_failure(decode_json(body, _json_value, object)):  # Gemini
                raise failure_error(self.provider, read_failure(body)) from None
            raise
        if chunk.error or (not chunk.choices and is_failure(decode_json(body, _json_value, object))):
            raise failure_error(self.provider, read_failure(body))
        if not chunk.choices:
            raise DecodeError(f"the answer has no choices: {excerpt(body)}", retryable=True)
        reply = Reply(self.provider, wire.tool_names)
        reply.take(chunk)
        reply.end()
        return reply.response()
