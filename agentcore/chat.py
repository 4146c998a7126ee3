"""The model's side of a call: request, options, response, usage, and the protocol that every chat model satisfies."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from msgspec import Struct, field
from msgspec.structs import replace

from agentcore.context import ToolContext
from agentcore.events import ReasoningDelta, StreamEvent, TextDelta, ToolCallDelta
from agentcore.messages import AssistantMessage, FinishReason, Message
from agentcore.turn import Turn
from agentcore.usage import UNKNOWN_USAGE, Usage

T = TypeVar("T")

ReasoningEffort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ToolSchema(Protocol):
    """What a model is told of a tool. `@tool` objects satisfy it; `ToolDefinition` is the plain form."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]:
        """JSON Schema of the arguments, an object schema."""
        ...


class ToolDefinition(Struct, frozen=True):
    """A tool that the model may call and that runs elsewhere: name, description and JSON Schema of its arguments."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=lambda: dict[str, Any]())
    strict: bool | None = None


class PromptCache(Struct, frozen=True, kw_only=True):
    """How a provider should keep the beginning of a prompt, which later calls then need not pay in full.

    Attributes:
        ttl: how long it should be kept at least; the provider's shortest time if not said, its nearest if it has no
            such time.
        key: a text that calls with the same beginning share, by which the provider finds its cache.
    """

    ttl: Literal["5m", "30m", "1h", "24h"] | None = None
    key: str | None = None


class ChatOptions(Struct, frozen=True, kw_only=True):
    """Settings of a model call. `None` means: not said, so the next level (client, model, provider) decides.

    Attributes:
        model: model name, instead of the one the `ChatModel` was made with.
        max_tokens: most tokens of the reply, reasoning included where the provider counts it so.
        stop: texts that end the reply.
        tool_choice: `auto`, `none`, `required`, or the name of the one tool to call. In a turn the last two hold until
            tools have run; then the model is free to answer.
        response_format: `"json"`, a JSON Schema (a dict), or a type to be answered in (msgspec Struct, dataclass,
            TypedDict, Pydantic model).
        reasoning_effort: how long the model may think, in neutral words; the codec maps it.
        prompt_cache: ask for the prompt to be cached, where that has to be asked for (`PromptCache()`); providers that
            cache by themselves take the key and the time. What was cached is in `Usage`.
        metadata: short texts that the provider keeps with the request.
        timeout: seconds of silence tolerated: while connecting, before the first byte, and between two events of a
            stream. It limits silence, not length.
        extra: fields merged into the request body untouched, for whatever has no neutral name.
    """

    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    response_format: Any = None
    reasoning_effort: ReasoningEffort | None = None
    prompt_cache: PromptCache | None = None
    metadata: dict[str, str] | None = None
    timeout: float | None = None
    extra: dict[str, Any] = field(default_factory=lambda: dict[str, Any]())

    def over(self, base: "ChatOptions | None") -> "ChatOptions":
        """These options where they say something, `base` where they do not; `extra` is merged key by key."""
        if base is None or base is NO_OPTIONS:
            return self
        if self is NO_OPTIONS:
            return base
        said = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        said["extra"] = {**base.extra, **self.extra}
        return replace(base, **said)


NO_OPTIONS = ChatOptions()


class ChatRequest(Struct, frozen=True):
    """One model call.

    Outside the memory filter `messages` is the delta: only what is new. Inside it is all that the model will see.

    Attributes:
        tools: what `@tool` returns, or anything else with the three attributes of `ToolSchema`.
        context: the request-scoped mapping that filters read.
        turn: the turn this call belongs to; None for a call of its own, which is neither stored nor streamed.
        model: the model to ask: the client's, unless the turn or a filter names another.
        system: instructions: the client's, unless a filter names others; never stored.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSchema] = ()
    options: ChatOptions = NO_OPTIONS
    context: ToolContext = ToolContext()
    turn: Turn | None = None
    model: "ChatModel | None" = None
    system: str | None = None


class ChatResponse(Struct, frozen=True):
    """A model's reply.

    Attributes:
        finish_reason: why it ended, in neutral words; `tool_calls` whenever there are calls, unless it was cut.
        raw_finish_reason: the provider's own word.
        model: the model that answered, as the provider names it.
        response_id: the provider's id of the reply.
        request_id: the provider's id of the HTTP request.
        raw: the body as it came, when the model was made with `keep_raw=True`; for a stream, its event payloads.
    """

    message: AssistantMessage
    finish_reason: FinishReason
    raw_finish_reason: str | None = None
    usage: Usage = UNKNOWN_USAGE
    model: str | None = None
    response_id: str | None = None
    request_id: str | None = None
    raw: bytes | None = None

    @property
    def text(self) -> str:
        """The answer's text, empty if there is none."""
        return self.message.content or ""

    def parse(self, type_: type[T]) -> T:
        """The answer as a value of the type that `ChatOptions.response_format` asked for.

        Raises:
            OutputError: the answer is not of that type, or was cut.
        """
        from agentcore.structured import parse_output

        return parse_output(self.text, type_)


class ChatStream(Protocol):
    """A reply as it comes. Iterate it to its end, then read `response`."""

    @property
    def response(self) -> ChatResponse:
        """The response that `chat` would have given; there when the iteration is over."""
        ...

    def __aiter__(self) -> AsyncIterator[StreamEvent]: ...


@runtime_checkable
class BatchedChatStream(Protocol):
    """A `ChatStream` that can also hand out all events of one network read at once, which is cheaper."""

    def batches(self) -> AsyncIterator[Sequence[StreamEvent]]: ...


class ChatModel(Protocol):
    """Anything that can answer a `ChatRequest`, at once or as a stream."""

    async def chat(self, request: ChatRequest) -> ChatResponse: ...

    def stream(self, request: ChatRequest) -> AbstractAsyncContextManager[ChatStream]: ...


def events_of(message: AssistantMessage) -> list[StreamEvent]:
    """The events that a stream would have delivered for a message that is already whole."""
    events: list[StreamEvent] = []
    if message.reasoning:
        events.append(ReasoningDelta(message.reasoning))
    if message.content:
        events.append(TextDelta(message.content))
    for index, call in enumerate(message.tool_calls):
        from msgspec import json

        arguments = call.raw_arguments if call.raw_arguments is not None else json.encode(call.args).decode()
        events.append(ToolCallDelta(index, call.id, call.name, arguments))
    return events


class WholeReplyStream:
    """A finished response in the shape of a stream."""

    def __init__(self, response: ChatResponse) -> None:
        self.response = response

    async def __aiter__(self) -> AsyncIterator[StreamEvent]:
        for event in events_of(self.response.message):
            yield event


@asynccontextmanager
async def stream_whole(response: ChatResponse) -> AsyncGenerator[ChatStream]:
    """Serve a finished response as a stream: `stream` of a model that can only answer at once."""
    yield WholeReplyStream(response)
