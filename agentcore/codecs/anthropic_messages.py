"""Anthropic Messages: requests and replies of it and of what is compatible with it."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.codecs.anthropic_reply import blocks_of, response_of
from agentcore.codecs.anthropic_request import losses, request_body
from agentcore.codecs.anthropic_stream import AnthropicStreamDecoder, json_object
from agentcore.codecs.base import NO_NAMES, WireRequest
from agentcore.codecs.failures import failure_error, failure_of, is_failure, provider_error
from agentcore.codecs.shared import as_int, decode_json, encode_json, excerpt, json_or_none, tool_names, wire_names
from agentcore.codecs.sse import MAX_EVENT_BYTES
from agentcore.codecs.stream_base import BLANK
from agentcore.codecs.whole_body import BodyCodec
from agentcore.errors import DecodeError, ProviderError
from agentcore.messages import Message

DEFAULT_MAX_TOKENS = 4096
"""Sent when a call does not say `max_tokens`, which this API requires."""


# What the counting endpoint takes; it refuses the settings of the reply (API reference, "Count tokens in a Message").
_COUNTED = {
    "model",
    "system",
    "messages",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "cache_control",
    "context_management",
    "mcp_servers",
    "speed",
}


class _Body(Struct, gc=False):
    type: Any = None
    id: Any = None
    model: Any = None
    content: Any = None
    stop_reason: Any = None
    usage: Any = None
    error: Any = None
    message: Any = None


_bodies = msgspec.json.Decoder(_Body)


class AnthropicMessagesCodec(BodyCodec):
    """The codec of `POST …/v1/messages`.

    Args:
        provider: name for errors.
        default_max_tokens: sent when a call does not say `max_tokens`.
        max_event_bytes: largest single event of a stream.
        keep_raw: keep the body (of a stream: its event payloads) on the response.
    """

    path = "/v1/messages"

    def __init__(
        self,
        provider: str = "anthropic",
        *,
        default_max_tokens: int = DEFAULT_MAX_TOKENS,
        max_event_bytes: int = MAX_EVENT_BYTES,
        keep_raw: bool = False,
    ) -> None:
        super().__init__(provider, max_event_bytes=max_event_bytes, keep_raw=keep_raw)
        self.default_max_tokens = default_max_tokens

    async def encode(self, request: ChatRequest, *, stream: bool) -> WireRequest:
        """The request as bytes; see `Codec.encode`."""
        names = tool_names(request)
        body = request_body(request, self.provider, names, self.default_max_tokens, stream=stream)
        return WireRequest(self.path, encode_json(body), wire_names(names) or NO_NAMES)

    def encode_count(self, request: ChatRequest) -> WireRequest:
        """The request as it would be sent, to be counted only.

        Raises:
            UnsupportedContentError: a part this format cannot carry.
            InvalidInputError: there is nothing to count.
        """
        body = request_body(request, self.provider, tool_names(request), self.default_max_tokens, stream=False)
        counted = {key: value for key, value in body.items() if key in _COUNTED}
        return WireRequest(f"{self.path}/count_tokens", encode_json(counted))

    def decode_count(self, body: bytes) -> int:
        """Input tokens, as the service counted them.

        Raises:
            ProviderError: an error inside a good status, or a body that cannot be read (`DecodeError`).
        """
        try:
            reply = json_object(body)
            count = as_int(reply.get("input_tokens"))
            if count is None and is_failure(reply):
                raise failure_error(self.provider, failure_of(reply, body))
            if count is None:
                raise DecodeError(f"the answer has no input_tokens: {excerpt(body)}")
        except ProviderError as error:
            error.provider = error.provider or self.provider
            raise
        return count

    def stream_decoder(self, wire: WireRequest) -> AnthropicStreamDecoder:
        """A fresh decoder for one stream."""
        return AnthropicStreamDecoder(
            self.provider,
            wire.tool_names,
            lambda body: self.decode(body, wire),
            max_event_bytes=self.max_event_bytes,
            keep_raw=self.keep_raw,
        )

    def check(self, messages: Sequence[Message]) -> list[str]:
        """What this format could not carry of a history, one line for each part."""
        return losses(messages, self.provider)

    def _decode_body(self, body: bytes, wire: WireRequest) -> ChatResponse:
        if body.lstrip(BLANK)[:1] == b"[" and is_failure(json_or_none(body)):  # as some gateways wrap it
            raise provider_error(self.provider, body)
        reply = decode_json(body, _bodies, _Body)
        if reply.type == "error" or reply.error or (reply.message and not reply.content and not reply.stop_reason):
            raise failure_error(self.provider, failure_of(json_object(body), body))
        if reply.content is None and reply.stop_reason is None:
            whole = json_object(body)
            if is_failure(whole):
                raise failure_error(self.provider, failure_of(whole, body))
            raise DecodeError(f"the answer has no content: {excerpt(body)}", retryable=True)
        return response_of(
            blocks_of(reply.content),
            raw_inputs={},
            stop_reason=reply.stop_reason,
            usage=reply.usage,
            model=reply.model,
            response_id=reply.id,
            names=wire.tool_names,
        )
