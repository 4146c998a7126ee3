"""Token counting: how much of a model's context messages take, before they are sent.

    counter = ESTIMATE                                # no package, no network; see `token_estimate` for how near
    counter(text), counter.count_message(message), counter.count_request(request)

Counting is additive: a request is the sum of its messages and tools and a fixed number, so that a window can add and
take away message by message. What a service charges for its own wrapping is not published for every model; the figures
here are those of OpenAI's cookbook ("How to count tokens with tiktoken") where it has one.
"""

import json
import logging
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol, assert_never, cast

import msgspec

from agentcore.chat import ChatRequest, ToolSchema
from agentcore.errors import ConfigurationError
from agentcore.messages import (
    AssistantMessage,
    AudioPart,
    Content,
    FilePart,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentcore.token_estimate import estimate_tokens
from agentcore.token_vocabulary import knows, text_counter

logger = logging.getLogger(__name__)

REQUEST_TOKENS = 3
"""Of every request: the reply's opening."""

MESSAGE_TOKENS = 3
"""Of every message: its role and its limits."""

CALL_TOKENS = 8
"""Of every tool call, beside its name and arguments."""

TOOL_TOKENS = 8
"""Of every tool offered, beside its name, description and schema."""

IMAGE_TOKENS = 1000
"""Of an image. OpenAI takes 765 for 1024 × 1024 and 1,105 for 2048 × 1024, Anthropic a 750th of the pixels, at most
about 1,600, Gemini 258 a tile of 768 × 768."""

LOW_IMAGE_TOKENS = 85
"""Of an image with `detail="low"` (OpenAI)."""

PAGE_TOKENS = 2000
"""Of a page of a PDF: its text and its picture (Anthropic: 1,500 to 3,000 for the text alone)."""

_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_PDF_PAGE_BYTES = 100_000  # where the pages are compressed too
_AUDIO_BYTES = 1_000  # a token: 10 to 32 a second (OpenAI, Gemini), of 16 to 48 KB
_UNKNOWN_SIZE = 2_000  # behind a URL: nobody knows
_KEPT_TOKENS = 2_000_000
_TIKTOKEN_SERVICES = frozenset(("openai", "openai-responses", "azure"))
_KEPT_FOR_ONE = 32  # what an entry takes beside its text, in tokens of four bytes or so


class TokenCounter(Protocol):
    """Counts the tokens of texts, messages and requests."""

    def __call__(self, text: str) -> int:
        """Tokens of a text alone."""
        ...

    def count_message(self, message: Message) -> int:
        """Tokens that a message adds to a request."""
        ...

    def count_request(self, request: ChatRequest) -> int:
        """Tokens of a request: the sum over its messages and tools, and a fixed number."""
        ...


class MessageTokenCounter:
    """A `TokenCounter` out of any function that counts a text.

    Messages do not change, so what one was counted to is kept, by identity: the estimate takes 10 µs for a message of
    200 characters, and 0.2 µs for one that it has counted before. Safe to share between threads and conversations.

    Args:
        count_text: tokens of a text; it may be an estimate.
        cache_tokens: how much the messages kept may hold together; then all are forgotten. 0 keeps none.
    """

    def __init__(self, count_text: Callable[[str], int], *, cache_tokens: int = _KEPT_TOKENS) -> None:
        self._count_text = count_text
        self._cache_tokens = cache_tokens
        # The message is kept beside its count: a dead one's id may be another's tomorrow.
        self._known: dict[int, tuple[Message, int]] = {}
        self._held = 0

    def __call__(self, text: str) -> int:
        """Tokens of a text alone."""
        return self._count_text(text)

    def count_message(self, message: Message) -> int:
        """Tokens that a message adds to a request: its texts, names and arguments, its parts, and its wrapping.

        Reasoning is counted where a provider may be given it again: with tool calls or a `replay`. An opaque payload
        counts nothing.
        """
        known = self._known.get(id(message))
        if known is not None and known[0] is message:
            return known[1]
        count = MESSAGE_TOKENS + self._count(message)
        self._keep(message, count)
        return count

    def count_tools(self, tools: Sequence[ToolSchema]) -> int:
        """Tokens that tools add to a request."""
        return sum([self._tool(tool) for tool in tools])

    def count_request(self, request: ChatRequest) -> int:
        """Tokens of a request: the sum over its messages and tools, and a fixed number."""
        count = REQUEST_TOKENS + sum(map(self.count_message, request.messages))
        if request.tools:
            count += self.count_tools(request.tools)
        wanted: object = request.options.response_format
        return count + self._json(cast("object", wanted)) if isinstance(wanted, dict) else count

    def _count(self, message: Message) -> int:
        match message:
            case SystemMessage():
                return self._count_text(message.content)
            case UserMessage():
                return self._content(message.content)
            case AssistantMessage():
                count = self._count_text(message.content) if message.content else 0
                if message.tool_calls:
                    count += sum([self._call(call) for call in message.tool_calls])
                if message.reasoning and (message.tool_calls or message.replay is not None):
                    count += self._count_text(message.reasoning)
                return count
            case ToolMessage():
                return self._content(message.content)
            case _:  # pyright: ignore[reportUnnecessaryComparison]
                assert_never(message)

    def _content(self, content: Content) -> int:
        if isinstance(content, str):
            return self._count_text(content)
        count = 0
        for part in content:
            match part:
                case TextPart():
                    count += self._count_text(part.text)
                case ImagePart():
                    count += LOW_IMAGE_TOKENS if part.detail == "low" else IMAGE_TOKENS
                case AudioPart():
                    count += _UNKNOWN_SIZE if part.data is None else 1 + len(part.data) // _AUDIO_BYTES
                case FilePart():
                    count += self._file(part)
        return count

    def _file(self, part: FilePart) -> int:
        data = part.data
        if data is None:
            return _UNKNOWN_SIZE
        if (part.media_type or "").startswith(("text/", "application/json", "application/xml")):
            return self._count_text(data.decode("utf-8", "replace"))
        return PAGE_TOKENS * max(len(_PAGE.findall(data)), 1 + len(data) // _PDF_PAGE_BYTES)

    def _call(self, call: ToolCall) -> int:
        return CALL_TOKENS + self._count_text(call.name) + (self._json(call.args) if call.args else 1)

    def _tool(self, tool: ToolSchema) -> int:
        said = self._count_text(tool.name) + self._count_text(tool.description)
        return TOOL_TOKENS + said + self._json(tool.parameters)

    def _json(self, value: object) -> int:
        # Services do not say what they make of JSON for the model; compact, it is near OpenAI's own notation.
        try:
            return self._count_text(msgspec.json.encode(value).decode())
        except UnicodeEncodeError:  # a lone surrogate
            return self._count_text(json.dumps(value))

    def _keep(self, message: Message, count: int) -> None:
        size = count + _KEPT_FOR_ONE
        if size > self._cache_tokens:
            return
        if self._held + size > self._cache_tokens:
            self._known = {}
            self._held = 0
        self._known[id(message)] = (message, count)
        self._held += size


ESTIMATE = MessageTokenCounter(estimate_tokens)
"""The counter that needs nothing: no package, no vocabulary, no network."""


def count_tokens(
    messages: Sequence[Message],
    *,
    model: str | None = None,
    tools: Sequence[ToolSchema] = (),
    counter: TokenCounter | None = None,
) -> int:
    """Tokens of a request with these messages and tools.

    Args:
        messages: the whole history as the model would see it.
        model: the model's name, with or without its service; see `token_counter`.
        tools: the tools offered.
        counter: instead of the one that fits the model.
    """
    counter = counter or token_counter(model)
    return counter.count_request(ChatRequest(messages, tools))


def token_counter(model: str | None = None) -> TokenCounter:
    """The counter that fits a model: tiktoken's where it is installed and knows the model, else the estimate.

    tiktoken loads a vocabulary from the network at its first use (see `tiktoken_counter`): make the counter when the
    program starts. Where that fails the log says so, once for each model, and the estimate counts.

    Args:
        model: the model's name, with or without its service: `"openai:gpt-5-mini"`, `"gpt-5-mini"`.
    """
    if model is None:
        return ESTIMATE
    service, _, name = model.partition(":")
    return _fitting(name if service.lower() in _TIKTOKEN_SERVICES else model)


def tiktoken_counter(model: str | None = None, *, encoding: Any = None) -> MessageTokenCounter:
    """A counter with one of tiktoken's vocabularies: exact for the texts, the wrapping as everywhere.

    tiktoken fetches a vocabulary (2 to 4 MB) from openaipublic.blob.core.windows.net when it is first used, blocking,
    and keeps it in the folder that TIKTOKEN_CACHE_DIR names, else in a temporary one.

    Args:
        model: OpenAI's name of the model.
        encoding: instead of a model: the name of a vocabulary (`o200k_base`), or a `tiktoken.Encoding`.

    Raises:
        ConfigurationError: tiktoken is not installed, does not know the model, or cannot load the vocabulary.
    """
    return MessageTokenCounter(text_counter(model, encoding=encoding))


@lru_cache(maxsize=256)
def _fitting(model: str) -> TokenCounter:
    try:
        return tiktoken_counter(model) if knows(model) else ESTIMATE
    except ConfigurationError as error:
        logger.warning("tokens of %s are estimated: %s", model, error)
        return ESTIMATE
