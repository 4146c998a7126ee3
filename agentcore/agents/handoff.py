"""HandoffFilter: a conversation that moves between personas, each with instructions, tools and a model of its own."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from agentcore.chat import ChatModel, ChatOptions, ChatRequest, ChatResponse, ToolSchema
from agentcore.context import ToolContext
from agentcore.errors import ConfigurationError
from agentcore.exchange import InvokeResult, TurnRequest
from agentcore.filters.base import ChatCall, Filter, ToolRun, TurnCall
from agentcore.memory.base import ChatMemory, RecordKeeping, record_store
from agentcore.messages import ToolMessage
from agentcore.tools.request import ToolRequest
from agentcore.tools.results import ToolResult
from agentcore.tools.tool import Tool, ToolSource, tools_by_name

SLOT = "persona"
"""Slot of the tool context that says who speaks."""

_KIND = "persona"
_CURRENT = "current"


class Persona(Struct, frozen=True, kw_only=True):
    """Somebody a conversation can be handed to.

    Attributes:
        name: unique; other personas hand over with the tool `transfer_to_<name>`.
        instructions: its system text, instead of the client's.
        description: what the other personas are told it is good for.
        tools: its own tools, besides the client's.
        handoffs: names of the personas it may hand over to; None is all others.
        model: its model, instead of the client's or the turn's.
        options: its settings, over the turn's.
    """

    name: str
    instructions: str
    description: str = ""
    tools: Sequence[ToolSource] = ()
    handoffs: Sequence[str] | None = None
    model: ChatModel | None = None
    options: ChatOptions | None = None


class _Part(Struct, frozen=True):
    """A persona, ready: what it may call, by name."""

    persona: Persona
    tools: Mapping[str, ToolSchema]


class HandoffFilter(Filter):
    """Lets a conversation move from persona to persona; the history stays one, and neutral.

    The model hands over by calling `transfer_to_<name>`; from the next model call on the new persona speaks, with its
    instructions, tools and model. Who speaks is in the tool context (`persona`) and, with a store, kept with the
    conversation, so that the next turn goes on with the same persona.

    Args:
        personas: the first one begins.
        memory: the store that keeps who speaks; without it every turn begins with the persona that the caller's
            tool context names, or the first one.

    Raises:
        ConfigurationError: no personas, two of one name, a hand-off to nobody, two tools of one name.
    """

    def __init__(self, personas: Sequence[Persona], *, memory: ChatMemory | None = None) -> None:
        if not personas:
            raise ConfigurationError("a hand-off needs personas; give at least one")
        names = [one.name for one in personas]
        if len(set(names)) < len(names):
            raise ConfigurationError(f"two personas have one name: {', '.join(sorted(names))}")
        store = record_store(memory) if memory is not None else None
        self._records = store if isinstance(store, RecordKeeping) else None
        self._first = names[0]
        transfers = {one.name: _transfer(one) for one in personas}
        self._parts = {one.name: _Part(one, _tools_of(one, transfers)) for one in personas}
        _check_tools(self._parts.values())

    async def around_turn(self, request: TurnRequest, call_next: TurnCall) -> InvokeResult:
        """Begin with who spoke last, offer the tools of all personas to the loop, and keep who speaks at the end."""
        turn = request.turn
        conversation_id = turn.context.conversation_id
        if turn.context.get(SLOT) not in self._parts:
            speaker = await self._kept(conversation_id) or self._first
            turn.context = ToolContext({**turn.context, SLOT: speaker}, turn_id=turn.id)
        before = turn.context[SLOT]
        offered = {one.name: one for one in request.tools}
        for part in self._parts.values():
            offered |= part.tools
        result = await call_next(replace(request, tools=tuple(offered.values()), context=turn.context))
        after = result.tool_context.get(SLOT, before)
        if after != before and self._records is not None and conversation_id is not None:
            await self._records.put_record(conversation_id, _KIND, _CURRENT, f'"{after}"')
        return result

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        """Let the persona speak: its instructions, its tools, its model."""
        part = self._parts[request.context.get(SLOT, self._first)]
        own = {name for other in self._parts.values() for name in other.tools}
        tools = [one for one in request.tools if one.name not in own or one.name in part.tools]
        persona = part.persona
        return await call_next(
            replace(
                request,
                tools=tools,
                system=persona.instructions,
                model=persona.model or request.model,
                options=persona.options.over(request.options) if persona.options is not None else request.options,
            )
        )

    async def around_tool(self, request: ToolRequest, call_next: ToolRun) -> ToolMessage:
        """Refuse a tool that belongs to another persona: it was not offered."""
        name = request.call.name
        part = self._parts.get(request.context.get(SLOT, self._first))
        theirs = any(name in other.tools for other in self._parts.values())
        if part is not None and theirs and name not in part.tools:
            return await call_next(replace(request, tool=None))
        return await call_next(request)

    async def _kept(self, conversation_id: str | None) -> str | None:
        if self._records is None or conversation_id is None:
            return None
        record = await self._records.get_record(conversation_id, _KIND, _CURRENT)
        name = record.body.strip('"') if record is not None else None
        return name if name in self._parts else None


def _tools_of(persona: Persona, transfers: Mapping[str, Tool]) -> Mapping[str, ToolSchema]:
    others = [name for name in transfers if name != persona.name]
    tools: dict[str, ToolSchema] = dict(tools_by_name(persona.tools))
    for target in others if persona.handoffs is None else persona.handoffs:
        if target not in others:
            known = ", ".join(others) or "nobody"
            raise ConfigurationError(f"persona {persona.name!r} cannot hand over to {target!r}; the others are {known}")
        transfer = transfers[target]
        if transfer.name in tools:
            raise ConfigurationError(f"persona {persona.name!r} has a tool named {transfer.name!r} of its own")
        tools[transfer.name] = transfer
    return tools


def _check_tools(parts: Iterable[_Part]) -> None:
    seen: dict[str, ToolSchema] = {}
    for part in parts:
        for name, one in part.tools.items():
            if seen.setdefault(name, one) is not one:
                raise ConfigurationError(
                    f"two personas have different tools named {name!r}; share one tool, or give one another name"
                )


def _transfer(target: Persona) -> Tool:
    async def transfer() -> ToolResult:
        return ToolResult(f"The conversation is with {target.name} now.", writes={SLOT: target.name})

    about = f" {target.description}" if target.description else ""
    return Tool(
        transfer,
        name=f"transfer_to_{target.name}",
        description=f"Hand the conversation over to {target.name}.{about}",
        serial=True,
        local_names={"ToolResult": ToolResult},
    )
