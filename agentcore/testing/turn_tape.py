"""What is on record of a turn besides its messages, and what a client is built with so that it comes there."""

from collections.abc import Sequence
from typing import Any, Protocol

import httpx
import msgspec
from msgspec import Struct

from agentcore.chat import ToolDefinition, ToolSchema
from agentcore.filters.base import Filter
from agentcore.memory.base import ChatMemory
from agentcore.memory.stored_form import from_text, to_text
from agentcore.messages import Message
from agentcore.pause import Decision, PendingCall
from agentcore.testing.exchanges import Exchange
from agentcore.tools.tool import Tool
from agentcore.tools.toolset import AnyToolSource


class TurnTape(Protocol):
    """What a client is built with so that its turns are recorded, or replayed: one function makes both clients.

    def make_client(tape: TurnTape) -> ChatClient:
        return ChatClient(
            OpenAIChatModel("gpt-5-mini", http_client=tape.http_client),
            tools=tape.tools([search, pay]),
            memory=WindowedChatMemory(tape.memory, max_turns=10),
            filters=[tape.filter, RetrievalFilter(notes)],
        )
    """

    @property
    def http_client(self) -> httpx.AsyncClient:
        """For `http_client=` of all models."""
        ...

    @property
    def memory(self) -> ChatMemory:
        """The store, to be put in a window or not."""
        ...

    @property
    def filter(self) -> Filter:
        """The client's first filter."""
        ...

    def tools(self, sources: Sequence[AnyToolSource], /) -> Sequence[AnyToolSource]:
        """The tools; while replaying without the toolsets, which are not opened: what they offered is on record."""
        ...


class RecordedTool(Struct, frozen=True, omit_defaults=True):
    """A tool that a turn was offered.

    Attributes:
        elsewhere: it runs on the caller's side.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    strict: bool | None = None
    serial: bool = False
    return_direct: bool = False
    elsewhere: bool = False


class RecordBeside(Struct, frozen=True, omit_defaults=True):
    """A record that was kept with the conversation when the turn began: a summary, a pause, who speaks."""

    kind: str
    key: str
    body: str
    seq: int | None = None


class RecordedRun(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A turn from its beginning, or from being resumed, to its end, or to its pause.

    Attributes:
        position: messages that the turn had stored before.
        after: of the first run: the `seq` of the last message before the turn.
        paused_at: Unix time of the pause it goes on from.
        streamed: somebody read along.
        messages: what was said, in stored form; see `message_from`.
        tools: what the turn was offered.
        beside: of the first run: what was kept with the conversation.
        decisions: on the calls that had waited.
        status: how it ended; None if it did not come to an end.
        pending: the calls that it left waiting.
        exchanges: what it asked over HTTP, in order.
    """

    position: int = 0
    after: int = 0
    paused_at: float = 0.0
    streamed: bool = False
    messages: tuple[msgspec.Raw, ...] = ()
    tools: tuple[RecordedTool, ...] = ()
    beside: tuple[RecordBeside, ...] = ()
    decisions: tuple[Decision, ...] = ()
    status: str | None = None
    pending: tuple[PendingCall, ...] = ()
    exchanges: tuple[Exchange, ...] = ()


def recorded_tool(one: ToolSchema) -> RecordedTool:
    """What the record holds of a tool."""
    is_tool = isinstance(one, Tool)
    return RecordedTool(
        one.name,
        one.description,
        dict(one.parameters),
        strict=one.strict if isinstance(one, ToolDefinition) else None,
        serial=is_tool and one.serial,
        return_direct=is_tool and one.return_direct,
        elsewhere=not is_tool,
    )


def message_to(message: Message) -> msgspec.Raw:
    """A message in the form of the documents: its JSON, or a text of it if it holds what JSON cannot say."""
    try:
        return msgspec.Raw(msgspec.json.encode(message))
    except UnicodeEncodeError:  # lone surrogates
        return msgspec.Raw(msgspec.json.encode(to_text(message)))


def message_from(raw: msgspec.Raw) -> Message:
    """The message of such a form."""
    text = bytes(raw)
    return from_text(msgspec.json.decode(text, type=str) if text.startswith(b'"') else text)
