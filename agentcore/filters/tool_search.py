"""ToolSearchFilter: of many tools the model sees only those it has looked for."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from agentcore.chat import ChatRequest, ChatResponse, ToolSchema
from agentcore.errors import ConfigurationError
from agentcore.exchange import InvokeResult, TurnRequest
from agentcore.filters.base import ChatCall, Filter, MemorySide, TurnCall
from agentcore.filters.tool_index import KeywordToolIndex, ToolIndex
from agentcore.messages import AssistantMessage, Message, ToolMessage
from agentcore.tools.results import ToolResult
from agentcore.tools.tool import Tool

SLOT = "found_tools"
"""What a search writes to the tool context: the names it found last."""

_KEPT_SETS = 16  # sets of tools whose index is kept: of a client, its toolsets, and calls with tools of their own


class ToolSearchFilter(Filter):
    """Offers the tool `search_tools` instead of all tools; what it finds is offered from the next model call on.

        client = ChatClient(model, tools=many_tools, memory=store, filters=[ToolSearchFilter(always=["get_time"])])

    What was found is read from the history that the model sees: it stays on offer in later turns, after a pause, and in
    another process, for as long as the search is there, and so do tools that were called. Newly found tools come last,
    so that those before them stay in the provider's prompt cache. Every tool can be run; the filter decides what is
    shown. In `invoke_chat`, where no tool is run, all are shown.

    Args:
        always: names of tools that are always shown.
        limit: most tools that one search finds.
        name: of the search tool.
        index: makes the index out of the tools that can be found; by keywords if not said.

    Raises:
        ConfigurationError: `limit` is less than 1. From a turn: a tool has the name of the search tool.
    """

    memory_side: ClassVar[MemorySide | None] = "inside"

    def __init__(
        self,
        *,
        always: Collection[str] = (),
        limit: int = 5,
        name: str = "search_tools",
        index: Callable[[Sequence[ToolSchema]], ToolIndex] = KeywordToolIndex,
    ) -> None:
        if limit < 1:
            raise ConfigurationError(f"limit={limit} tools are none at all; give at least 1")
        self._always, self._limit, self._name = frozenset(always), limit, name
        self._index = index
        # By identity; the tools are kept beside it, since a dead one's id may be another's tomorrow.
        self._searches: OrderedDict[tuple[int, ...], tuple[Sequence[ToolSchema], Tool]] = OrderedDict()

    async def around_turn(self, request: TurnRequest, call_next: TurnCall) -> InvokeResult:
        """Give the loop the search tool, besides all the others."""
        return await call_next(replace(request, tools=(*request.tools, self._search_of(request.tools))))

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        """Show what is always shown, the search, and what was found or called."""
        by_name = {one.name: one for one in request.tools}
        if self._name not in by_name:
            return await call_next(request)
        shown = [one.name for one in request.tools if one.name in self._always or one.name == self._name]
        shown += self._found(request.messages)
        if request.options.tool_choice is not None:
            shown.append(request.options.tool_choice)
        tools = [by_name[name] for name in dict.fromkeys(shown) if name in by_name]
        return await call_next(replace(request, tools=tools))

    def _found(self, messages: Sequence[Message]) -> list[str]:
        names: list[str] = []
        for message in messages:
            if isinstance(message, ToolMessage):
                if message.name == self._name and message.writes is not None:
                    found: Any = message.writes.get(SLOT)
                    names += found if isinstance(found, list) else ()
            elif isinstance(message, AssistantMessage):
                names += [call.name for call in message.tool_calls]
        return names

    def _search_of(self, tools: Sequence[ToolSchema]) -> Tool:
        key = tuple(map(id, tools))
        known = self._searches.get(key)
        if known is None:
            known = self._searches[key] = (tools, self._new_search(tools))
            if len(self._searches) > _KEPT_SETS:
                self._searches.popitem(last=False)
        else:
            self._searches.move_to_end(key)
        return known[1]

    def _new_search(self, tools: Sequence[ToolSchema]) -> Tool:
        hidden = {one.name: one for one in tools if one.name not in self._always}
        if any(one.name == self._name for one in tools):
            raise ConfigurationError(f"a tool is named {self._name!r}; give ToolSearchFilter another name=…")
        index = self._index(list(hidden.values()))

        async def search_tools(query: str) -> ToolResult:
            found = [name for name in await index.search(query, self._limit) if name in hidden][: self._limit]
            if not found:
                return ToolResult("No tool fits; try other words for what it should do.", writes={SLOT: []})
            told = [{"name": name, "description": hidden[name].description} for name in found]
            return ToolResult({"you can call these now": told}, writes={SLOT: found})

        return Tool(
            search_tools,
            name=self._name,
            description=(
                f"Find tools by what they do: {len(hidden)} more are there, and can be called once they are found."
            ),
            local_names={"ToolResult": ToolResult},
        )
