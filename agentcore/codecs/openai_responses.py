"""OpenAI Responses: requests, replies and streams of it and of what claims to be compatible, without stored state."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.codecs.base import NO_NAMES, WireRequest
from agentcore.codecs.dialect import OPENAI, Dialect
from agentcore.codecs.failures import failure_error, is_failure, read_failure
from agentcore.codecs.openai_responses_reply import Body, Reply, bodies
from agentcore.codecs.openai_responses_request import request_body, unsupported_parts
from agentcore.codecs.openai_responses_stream import OpenAIResponsesStreamDecoder
from agentcore.codecs.shared import decode_json, encode_json, excerpt, tool_names, wire_names
from agentcore.codecs.sse import MAX_EVENT_BYTES
from agentcore.codecs.whole_body import BodyCodec
from agentcore.errors import DecodeError
from agentcore.messages import Message

_json_value: "msgspec.json.Decoder[object]" = msgspec.json.Decoder(object)


class OpenAIResponsesCodec(BodyCodec):
    """The codec of `POST …/responses`.

    Args:
        provider: name for errors; encrypted reasoning goes back only to the provider it came from.
        dialect: how the endpoint differs from the original.
        reasoning_summary: ask for a readable summary of the reasoning (OpenAI gives some models' to verified
            organisations only).
        max_event_bytes: largest single event of a stream.
        keep_raw: keep the body (of a stream: its event payloads) on the response.
    """

    path = "/responses"

    def __init__(
        self,
        provider: str = "openai",
        dialect: Dialect = OPENAI,
        *,
        reasoning_summary: Literal["auto", "concise", "detailed"] | None = None,
        max_event_bytes: int = MAX_EVENT_BYTES,
        keep_raw: bool = False,
    ) -> None:
        super().__init__(provider, max_event_bytes=max_event_bytes, keep_raw=keep_raw)
        self.dialect = dialect
        self.reasoning_summary = reasoning_summary

    async def encode(self, request: ChatRequest, *, stream: bool) -> WireRequest:
        """The request as bytes; see `Codec.encode`.

        Settings that the model is known to refuse, and those the format does not have (`stop`, `seed`), are left out,
        and the log says so.
        """
        names = tool_names(request)
        body = request_body(request, self.provider, self.dialect, names, summary=self.reasoning_summary, stream=stream)
        return WireRequest(self.path, encode_json(body), wire_names(names) or NO_NAMES)

    def stream_decoder(self, wire: WireRequest) -> OpenAIResponsesStreamDecoder:
        """A fresh decoder for one stream."""
        return OpenAIResponsesStreamDecoder(
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
            whole = decode_json(body, bodies, Body, mend=True)
        except DecodeError:
            if body.lstrip()[:1] == b"[" and is_failure(decode_json(body, _json_value, object)):
                raise failure_error(self.provider, read_failure(body)) from None
            raise
        if whole.output is None and whole.output_text is None and whole.status != "failed":
            if whole.error or is_failure(decode_json(body, _json_value, object)):
                raise failure_error(self.provider, read_failure(body))
            raise DecodeError(f"the answer has no output: {excerpt(body)}", retryable=True)
        reply = Reply(self.provider, wire)
        reply.end(whole, None)
        return reply.response()
