"""Neutral messages: what a conversation is made of, free of any provider.

The JSON form of these Structs is also the stored form. They are immutable, so a store may hand out what it holds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct, convert, field
from msgspec.structs import force_setattr

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "interrupted", "other"]
"""Why a reply ended, in neutral words. `interrupted`: it was cut by a cancellation or a broken stream."""


class TextPart(Struct, frozen=True, gc=False, tag_field="type", tag="text"):
    """Text inside a multi-part content."""

    text: str


class ImagePart(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag_field="type", tag="image"):
    """An image: a `url`, or `data` (the raw bytes) with its `media_type` (`image/png`, …)."""

    url: str | None = None
    data: bytes | None = None
    media_type: str | None = None
    detail: Literal["low", "high", "auto"] | None = None

    def __post_init__(self) -> None:
        _require_one_source("ImagePart", self.url, self.data, self.media_type)


class AudioPart(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag_field="type", tag="audio"):
    """Audio: `data` (the raw bytes) with its `media_type` (`audio/wav`, `audio/mpeg`, …), or a `url`."""

    url: str | None = None
    data: bytes | None = None
    media_type: str | None = None

    def __post_init__(self) -> None:
        _require_one_source("AudioPart", self.url, self.data, self.media_type)


class FilePart(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag_field="type", tag="file"):
    """A document, usually a PDF: a `url`, or `data` (the raw bytes) with its `media_type` and a `name`."""

    url: str | None = None
    data: bytes | None = None
    media_type: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        _require_one_source("FilePart", self.url, self.data, self.media_type)


Part: TypeAlias = TextPart | ImagePart | AudioPart | FilePart
Content: TypeAlias = str | tuple[Part, ...]


def _require_one_source(kind: str, url: str | None, data: bytes | None, media_type: str | None) -> None:
    if (url is None) == (data is None):
        raise ValueError(f"{kind} takes either url or data, not {'both' if url is not None else 'neither'}")
    if data is not None and not media_type:
        raise ValueError(f"{kind} with data needs its media_type, for example 'image/png' or 'application/pdf'")


class ToolCall(Struct, frozen=True, gc=False, omit_defaults=True):
    """A model's wish to have a tool run.

    `raw_arguments` is set only when the provider's arguments were not a JSON object: it keeps their text, `args` is
    empty, and the call must not run.
    """

    id: str
    name: str
    args: dict[str, Any] = field(default_factory=lambda: dict[str, Any]())
    raw_arguments: str | None = None


class SystemMessage(Struct, frozen=True, gc=False, tag_field="role", tag="system"):
    """Instructions to the model."""

    content: str


class UserMessage(Struct, frozen=True, gc=False, tag_field="role", tag="user"):
    """What the user said: text, or parts (text, images, audio, files)."""

    content: Content

    def __post_init__(self) -> None:
        _freeze_content(self)


class AssistantMessage(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="role", tag="assistant"):
    """A model's reply: text, tool calls, or both.

    Attributes:
        reasoning: the readable thoughts of the model, when it gave them.
        finish_reason: set when the message did not end in the ordinary way (`length`, `content_filter`,
            `interrupted`, `other`); `None` when it did: its shape already tells `stop` from `tool_calls`.
            `ChatResponse.finish_reason` always holds a word.
        replay: an opaque payload, tagged with its `format`, which only the codec of that format reads (signed thinking
            blocks, encrypted reasoning items). Everyone else carries it untouched.
    """

    # A factory, not a default: `omit_defaults` would leave `"content":null` out of the stored form.
    content: str | None = field(default_factory=type(None))
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    finish_reason: FinishReason | None = None
    replay: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if type(self.tool_calls) is not tuple:
            force_setattr(self, "tool_calls", tuple(self.tool_calls))


class ToolMessage(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="role", tag="tool"):
    """The answer to one tool call.

    `is_error` and, for audit, the tool's `writes` to the tool context are kept in the record; neither reaches a
    provider that has no field for it.
    """

    tool_call_id: str
    name: str
    content: Content
    is_error: bool = False
    writes: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        _freeze_content(self)


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage


def _freeze_content(message: "UserMessage | ToolMessage") -> None:
    content: object = message.content
    if type(content) is not str and type(content) is not tuple:
        if not isinstance(content, list):
            raise TypeError(
                f"{type(message).__name__}.content is a str or a list of parts, not {type(content).__name__}"
            )
        force_setattr(message, "content", tuple(cast("list[Part]", content)))


def text_of(content: Content | None) -> str:
    """The text of a content: the string itself, or its text parts put together."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join([part.text for part in content if isinstance(part, TextPart)])


class HistoryProblem(Struct, frozen=True):
    """One breach of the pairing rule: where it is (index of the message) and what is wrong."""

    index: int
    kind: Literal["unanswered_call", "orphan_result", "answered_twice", "duplicate_id", "missing_id", "missing_name"]
    detail: str

    def __str__(self) -> str:
        return f"message {self.index}: {self.detail}"


def check_history(messages: Iterable[Message]) -> list[HistoryProblem]:
    """Report every breach of the pairing rule; an empty list means that the history is whole.

    The rule: each tool call is answered exactly once, right after its assistant message; no tool message stands
    without its call; ids are present and unique within a batch, and every call has a name.
    """
    problems: list[HistoryProblem] = []
    open_calls: dict[str, str] = {}  # id → name, of the batch being answered
    answered: set[str] = set()
    batch_index = 0

    def close_batch() -> None:
        problems.extend(
            HistoryProblem(
                batch_index, "unanswered_call", f"tool call {call_id!r} ({name}) has no result right after it"
            )
            for call_id, name in open_calls.items()
        )
        open_calls.clear()
        answered.clear()

    for index, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            call_id = message.tool_call_id
            if call_id in open_calls:
                del open_calls[call_id]
                answered.add(call_id)
            elif call_id in answered:
                problems.append(HistoryProblem(index, "answered_twice", f"tool call {call_id!r} is answered twice"))
            else:
                detail = f"tool result for {call_id!r} has no call right before it"
                problems.append(HistoryProblem(index, "orphan_result", detail))
            continue
        if open_calls or answered:
            close_batch()
        if isinstance(message, AssistantMessage) and message.tool_calls:
            batch_index = index
            problems.extend(_check_calls(index, message.tool_calls, open_calls))
    close_batch()
    return sorted(problems, key=lambda problem: problem.index)


def _check_calls(index: int, calls: Sequence[ToolCall], open_calls: dict[str, str]) -> Iterator[HistoryProblem]:
    for call in calls:
        if not call.name:
            yield HistoryProblem(index, "missing_name", f"tool call {call.id!r} has no name")
        if not call.id:
            yield HistoryProblem(index, "missing_id", f"a call of {call.name!r} has no id")
        elif call.id in open_calls:
            yield HistoryProblem(index, "duplicate_id", f"two calls of one batch share the id {call.id!r}")
        else:
            open_calls[call.id] = call.name


def as_messages(value: "str | Message | Sequence[str | Message] | Sequence[Mapping[str, Any]]") -> list[Message]:
    """The messages a caller means: a text becomes one user message; mappings of the stored shape are converted.

    Raises:
        TypeError: something else was given.
        msgspec.ValidationError: a mapping is not of the stored shape.
    """
    if isinstance(value, str):
        return [UserMessage(value)]
    if isinstance(value, SystemMessage | UserMessage | AssistantMessage | ToolMessage):
        return [value]
    messages: list[Message] = []
    for item in cast("Sequence[object]", value):
        if isinstance(item, SystemMessage | UserMessage | AssistantMessage | ToolMessage):
            messages.append(item)
        elif isinstance(item, str):
            messages.append(UserMessage(item))
        elif isinstance(item, Mapping):
            messages.append(convert(cast("Mapping[str, Any]", item), Message))
        else:
            raise TypeError(f"messages are texts, message Structs or mappings, not {type(item).__name__}")
    return messages
