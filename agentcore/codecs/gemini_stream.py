"""The stream of Gemini `streamGenerateContent`: bytes cut anywhere in, events out, the whole reply at the end."""

from collections.abc import Callable, Mapping

import msgspec

from agentcore.chat import ChatResponse
from agentcore.codecs.failures import is_failure
from agentcore.codecs.gemini_failure import gemini_error
from agentcore.codecs.gemini_reply import Chunk, Reply, chunks, plain_chunks
from agentcore.codecs.shared import decode_json, json_or_none
from agentcore.codecs.stream_base import EventStreamDecoder, closed_early
from agentcore.errors import DecodeError
from agentcore.events import StreamEvent


class GeminiStreamDecoder(EventStreamDecoder):
    """Decodes one stream; see `EventStreamDecoder`. Each event is a whole response with the next piece in it.

    Args:
        provider: name for errors.
        names: wire name → neutral name of tools, where they differ.
        decode_body: reads a whole body, where a server answers with one though a stream was asked for.
        max_event_bytes: largest single event.
        keep_raw: keep the event payloads on the response.
    """

    def __init__(
        self,
        provider: str,
        names: Mapping[str, str],
        decode_body: Callable[[bytes], ChatResponse],
        *,
        max_event_bytes: int,
        keep_raw: bool = False,
    ) -> None:
        super().__init__(provider, decode_body, max_event_bytes=max_event_bytes, keep_raw=keep_raw)
        self._reply = Reply(provider, names)

    @property
    def text(self) -> str:
        """The text so far."""
        return str(self._reply.text)

    def _close(self, events: list[StreamEvent]) -> None:
        self._reply.end(events)

    def _announced(self) -> bool:
        return self._reply.ended

    def _assemble(self) -> ChatResponse:
        return self._reply.response()

    def _take_rest(self, events: list[StreamEvent]) -> None:
        try:
            for name, payload in self._parser.finish():
                self._take(name, payload, events)
        except DecodeError as error:
            raise closed_early() from error  # half an event is a symptom; the broken connection is the cause

    def _take(self, name: str, payload: bytes, events: list[StreamEvent]) -> None:
        if name == "error":
            raise gemini_error(self._provider, payload)
        try:
            plain = plain_chunks.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError):  # not plainly the usual event: looked at more closely
            plain = None
        if plain is not None and self._reply.take_plain(plain, events):
            if self._raw is not None:
                self._raw.append(payload)
            return
        try:
            chunk = chunks.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._take_odd(payload.strip(), events)
            return
        self._apply(chunk, payload, events)

    def _take_odd(self, payload: bytes, events: list[StreamEvent]) -> None:
        """A payload that is not plainly a chunk."""
        if payload[:6] == b"[DONE]":  # a gateway that thinks of another format
            self._reply.end(events)
            self.done = True
        elif payload[:1] == b"[":
            raise gemini_error(self._provider, payload)
        elif b"\n" in payload:  # several values in one event: a server that leaves the blank lines out
            for line in payload.split(b"\n"):
                self._take("", line, events)
                if self.done:
                    return
        elif payload:
            chunk = decode_json(payload, chunks, Chunk)
            self._reply.odd = True
            self._apply(chunk, payload, events)

    def _apply(self, chunk: Chunk, payload: bytes, events: list[StreamEvent]) -> None:
        if self._raw is not None:
            self._raw.append(payload)
        reply = self._reply
        empty = chunk.candidates is None and chunk.promptFeedback is None and chunk.usageMetadata is None
        if empty and is_failure(json_or_none(payload)):
            raise gemini_error(self._provider, payload)
        reply.take(chunk, events)
        # Gemini 1 gives every event a reason to stop, and some gateways give it to the first ones. It is the end where
        # pieces came without it; elsewhere only the end of the connection is.
        if reply.finish is not None and reply.has_usage and reply.went_on:
            reply.end(events)
            self.done = True
