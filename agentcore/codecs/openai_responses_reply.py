"""A reply of OpenAI Responses, put together from its items. Body and stream both end here."""

from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, Struct

from agentcore.chat import ChatResponse
from agentcore.codecs.base import WireRequest
from agentcore.codecs.failures import Failure, failure_error, failure_of
from agentcore.codecs.openai_responses_items import (
    Item,
    Items,
    arguments_of,
    id_text,
    kind_of_item,
    texts_of_message,
    thoughts_of,
)
from agentcore.codecs.openai_responses_replay import replay_payload, replayable
from agentcore.codecs.openai_usage import usage_of
from agentcore.codecs.pieces import Pieces
from agentcore.codecs.shared import (
    as_int,
    as_text,
    encode_json,
    excerpt,
    mend_surrogates,
    with_distinct_ids,
    without_surrogates,
)
from agentcore.errors import DecodeError, ProviderError
from agentcore.events import ReasoningDelta, StreamEvent, TextDelta, ToolCallDelta
from agentcore.messages import AssistantMessage, FinishReason, ToolCall
from agentcore.usage import Usage

_REASONS: dict[str, FinishReason] = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "length": "length",
    "content_filter": "content_filter",
}


class Body(Struct, gc=False):
    """A whole body, or the `response` of the event that ends a stream. Untyped: a side field never costs the answer."""

    id: Any = None
    model: Any = None
    output: Any = None
    status: Any = None
    usage: Any = None
    error: Any = None
    incomplete_details: Any = UNSET
    output_text: Any = None


bodies = msgspec.json.Decoder(Body)


class _Asked(Struct, gc=False):
    model: Any = None
    max_output_tokens: Any = None


_asked = msgspec.json.Decoder(_Asked)


class Reply:
    """A reply put together from items.

    Attributes:
        odd: surrogates may be in what comes.
        ended: the service said that the reply is over.
    """

    def __init__(self, provider: str, wire: WireRequest) -> None:
        self.provider = provider
        self.text = Pieces()
        self.reasoning = Pieces()
        self.items = Items()
        self.odd = False
        self.ended = False
        self._wire = wire
        self._names: Mapping[str, str] = wire.tool_names
        self._refused = False
        self._id: str | None = None
        self._model: str | None = None
        self._status: str | None = None
        self._reason: str | None = None
        self._tells_reason = False
        self._has_output = False
        self._usage: Any = None

    def begin(self, response_id: object, model: object) -> None:
        """Take what is known of the reply from its beginning on."""
        self._id = as_text(response_id) or self._id
        self._model = as_text(model) or self._model

    def open(self, item: object, index: object, events: list[StreamEvent]) -> None:
        """An item begins."""
        if not isinstance(item, dict):
            return
        known = cast("dict[str, Any]", item)
        kind = kind_of_item(known)
        made = self.items.opened(kind, known.get("id"), as_int(index))
        made.learn(known)
        if kind == "call":
            events.append(self._call_event(made, ""))

    def close(self, item: object, index: object, events: list[StreamEvent]) -> None:
        """An item is finished: what was not told of it yet is delivered."""
        if not isinstance(item, dict):
            return
        known = cast("dict[str, Any]", item)
        kind = kind_of_item(known)
        found = self.items.found(kind, known.get("id"), as_int(index), id_text(known.get("call_id")))
        if found.done and kind == "call" and found.is_other_than(known, as_int(index)):
            found = self.items.add(kind, known.get("id"), as_int(index))
        self._finish(found, known, events)

    def put_next(self, item: Item, piece: str, part: object, events: list[StreamEvent]) -> bool:
        """The next piece of the item that the last event was about, if it is plainly that."""
        if not piece:
            return True
        if item.kind == "message":
            self.text.pieces.append(piece)
            events.append(TextDelta(piece))
        elif item.kind == "call":
            if not item.is_alone or item.done:
                return False
            name = item.name
            events.append(ToolCallDelta(item.call, item.call_id, self._names.get(name, name), piece))
        else:
            if part != item.part or item.field != "summary":
                return False
            self.reasoning.pieces.append(piece)
            events.append(ReasoningDelta(piece))
        item.said.append(piece)
        return True

    def put_text(self, item: Item, text: str, events: list[StreamEvent] | None, *, refusal: bool = False) -> None:
        """The next piece of a message."""
        self._refused = self._refused or refusal
        if self.odd:
            text = self.text.mended(text)
        if text:
            item.said.append(text)
            self.text.pieces.append(text)
            if events is not None:
                events.append(TextDelta(text))

    def put_reasoning(
        self,
        item: Item,
        text: str,
        field: Literal["content", "summary"],
        part: int | None,
        events: list[StreamEvent] | None,
    ) -> None:
        """The next piece of readable reasoning; parts are paragraphs."""
        if item.field is None:
            item.field = field
        elif item.field != field:
            return
        if self.odd:
            text = self.reasoning.mended(text)
        if not text:
            return
        part = max(item.part, 0) if part is None else part
        if part != item.part:
            if item.said:
                text = f"\n\n{text}"
            item.said.append(text)
            if len(item.said) == 1 and self.reasoning.pieces:
                text = f"\n\n{text}"
            item.part = part
        else:
            item.said.append(text)
        self.reasoning.pieces.append(text)
        if events is not None:
            events.append(ReasoningDelta(text))

    def put_arguments(self, item: Item, arguments: object, events: list[StreamEvent]) -> None:
        """The next piece of a call's arguments, or all of them as an object."""
        if isinstance(arguments, str):
            if arguments:
                item.said.append(arguments)
                events.append(self._call_event(item, mend_surrogates(arguments)))
        elif arguments is not None:
            item.take_arguments(arguments)

    def end(self, body: Body, events: list[StreamEvent] | None, *, status: str | None = None) -> None:
        """The reply is over.

        Args:
            body: the whole reply as the service sums it up; of a stream its items are known already, or should be.
            events: of a stream, what the caller is told; None for a whole body.
            status: what the event that ended the stream says.

        Raises:
            ProviderError: the reply failed, or cannot be read.
        """
        self.begin(body.id, body.model)
        self._usage = body.usage if body.usage else self._usage
        self._status = as_text(body.status) or status
        details = cast("object", body.incomplete_details)
        self._tells_reason = details is not UNSET
        if isinstance(details, dict):
            self._reason = as_text(cast("dict[str, Any]", details).get("reason"))
        if status in ("failed", "incomplete", "cancelled"):
            self._status = status
        if body.error or self._status == "failed":
            raise self._failed(body)
        self._take_output(body, events)
        if self._status == "cancelled":
            raise ProviderError("the response was cancelled", kind="server", provider=self.provider, retryable=True)
        self.flush(events)
        self.ended = True

    def flush(self, events: list[StreamEvent] | None) -> None:
        """Nothing more comes: half a character that was held back is given up."""
        for pieces, event in ((self.reasoning, ReasoningDelta), (self.text, TextDelta)):
            if pieces.held:
                pieces.held = ""
                pieces.pieces.append("\ufffd")
                if events is not None:
                    events.append(event("\ufffd"))

    def response(self) -> ChatResponse:
        """The whole reply."""
        if not self.items.all and (not self._has_output or self._status in ("queued", "in_progress")):
            status = f" (status {self._status})" if self._status is not None else ""
            raise DecodeError(f"the answer has no output{status}", provider=self.provider, retryable=True)
        usage = usage_of(self._usage)
        asked = _what_was_asked(self._wire.body) if self._needs_asked(usage) else None
        neutral, raw = self._finish_reason(usage, asked)
        calls = self._calls(cut=neutral == "length")
        if neutral != "length":
            neutral = "tool_calls" if calls else "content_filter" if self._refused else neutral
        text = str(self.text)
        told: list[Any] = [self._id, self._model, raw, self._replay(calls, asked)]
        response_id, model, raw, replay = without_surrogates(told) if self.odd else told
        message = AssistantMessage(
            text or (None if calls else ""),
            calls,
            str(self.reasoning) or None,
            neutral if neutral not in ("stop", "tool_calls") else None,
            replay,
        )
        return ChatResponse(message, neutral, raw, usage, model, response_id)

    def _finish(self, item: Item, known: dict[str, Any], events: list[StreamEvent] | None) -> None:
        item.learn(known)
        if item.kind == "message":
            text, refused = texts_of_message(known)
            self._refused = self._refused or refused
            told = item.told()
            if text != told and text.startswith(told):
                self.text.held = ""  # it is in the text, whole
                self.put_text(item, text[len(told) :], events)
        elif item.kind == "reasoning":
            self._finish_reasoning(item, known, events)
        elif item.kind == "call":
            if not item.call_id:  # some servers have one id only
                item.call_id = id_text(known.get("id"))
            item.take_arguments(arguments_of(known), first=True)
            if events is not None and not item.said and not item.done and item.says_arguments():
                args, raw = item.final_arguments()
                events.append(self._call_event(item, raw if raw is not None else encode_json(args).decode()))
        item.raw = known
        item.done = True

    def _finish_reasoning(self, item: Item, known: dict[str, Any], events: list[StreamEvent] | None) -> None:
        parts = thoughts_of(known, item.field)
        field = item.field or (
            "content" if known.get("content") and parts == thoughts_of(known, "content") else "summary"
        )
        if not item.said:
            for number, part in enumerate(parts):
                self.put_reasoning(item, part, field, number, events)
            return
        text, told = "\n\n".join(parts), item.told()
        if text != told and text.startswith(told):
            self.reasoning.held = ""
            self.put_reasoning(item, text[len(told) :], field, item.part, events)

    def _take_output(self, body: Body, events: list[StreamEvent] | None) -> None:
        output: Any = body.output
        self._has_output = output is not None
        if output is None or output == []:
            text = as_text(body.output_text)
            if text is not None and not self.items.all:  # the convenience of a package, sent as if it were the format
                self._finish(self.items.add("message", None, None), {"content": text}, events)
            return
        if isinstance(output, dict):
            output = [output]
        if not isinstance(output, list):
            raise DecodeError(f"output is not a list: {excerpt(encode_json(output))}")
        known = [cast("dict[str, Any]", item) for item in cast("list[Any]", output) if isinstance(item, dict)]
        streamed = list(self.items.all)
        for kind in ("reasoning", "message", "call", "other") if streamed else ():
            # The n-th of a kind is the n-th of a kind: the ids of the two tellings are known to differ.
            told = [item for item in streamed if item.kind == kind]
            same = [item for item in known if kind_of_item(item) == kind]
            for item, final in zip(told, same, strict=False):
                if not item.done:
                    self._finish(item, final, events)
            known = [item for item in known if not any(item is one for one in same[: len(told)])]
        for item in known:
            self._finish(self.items.add(kind_of_item(item), item.get("id"), None), item, events)

    def _finish_reason(self, usage: Usage, asked: _Asked | None) -> tuple[FinishReason, str | None]:
        last = self.items.all[-1] if self.items.all else None
        if self._reason is not None:
            return _REASONS.get(self._reason.lower(), "other"), self._reason
        if self._status == "incomplete" or (last is not None and last.raw.get("status") == "incomplete"):
            return "length", self._status
        limit = as_int(asked.max_output_tokens) if asked is not None and not self._tells_reason else None
        if limit is not None and usage.output_tokens is not None and usage.output_tokens >= limit:
            return "length", self._status  # llama.cpp calls a reply completed that its limit cut
        return "stop", self._status

    def _needs_asked(self, usage: Usage) -> bool:
        return (usage.output_tokens is not None and not self._tells_reason) or any(
            item.kind in ("reasoning", "other") or item.phase for item in self.items.all
        )

    def _calls(self, *, cut: bool) -> tuple[ToolCall, ...]:
        made: list[ToolCall] = []
        for item in self.items.all:
            if item.kind != "call":
                continue
            args, raw = item.final_arguments()
            if not item.name:
                if args or raw:
                    raise DecodeError(
                        f"a tool call came without a name; its arguments: {excerpt(raw or encode_json(args))}"
                    )
                continue
            unfinished = item.raw.get("status") == "incomplete" or (cut and item is self.items.all[-1])
            if unfinished and raw is None and not item.says_arguments():
                raw = ""  # its arguments never came
            name = self._names.get(item.name, item.name)
            made.append(ToolCall(mend_surrogates(item.call_id), mend_surrogates(name), args, raw))
        return with_distinct_ids(made, self._id)

    def _replay(self, calls: tuple[ToolCall, ...], asked: _Asked | None) -> dict[str, Any] | None:
        parts: list[dict[str, Any]] = []
        ids = iter([call.id for call in calls])
        for item in self.items.all:
            if item.kind == "call" and item.name:
                parts.append({"type": "function_call", "call_id": next(ids)})
            elif item.kind == "message" and item.said:
                mark = {"type": "message", "text": item.told()}
                parts.append(mark if item.phase is None else {**mark, "phase": item.phase})
            elif item.kind in ("reasoning", "other"):
                whole = replayable(item.raw)
                if whole is not None:
                    parts.append(whole)
        return replay_payload(parts, self.provider, as_text(asked.model) if asked is not None else None)

    def _call_event(self, item: Item, fragment: str) -> ToolCallDelta:
        return ToolCallDelta(item.call, item.call_id, self._names.get(item.name, item.name), fragment)

    def _failed(self, body: Body) -> ProviderError:
        return response_failure(self.provider, failure_of({"error": body.error or "the response failed"}))


# Codes of a failed response that say that the request cannot be answered as it is.
_REFUSED_INPUT = ("invalid_", "image_", "unsupported_", "empty_", "failed_to_download", "bio_policy", "misalignment")


def response_failure(provider: str, failure: Failure) -> ProviderError:
    """What a failed response says, as an error (OpenAI API reference, "The response object", `error.code`)."""
    words = failure.words
    if any(word.startswith(_REFUSED_INPUT) for word in words):
        policy = any("policy" in word for word in words)
        failure = Failure(failure.message, (*words, "content_filter" if policy else "invalid_request"), failure.code)
    return failure_error(provider, failure)


def _what_was_asked(body: bytes) -> _Asked | None:
    try:
        return _asked.decode(body)
    except msgspec.DecodeError:
        return None
