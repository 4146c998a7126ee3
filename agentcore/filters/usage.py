"""UsageFilter: what each model call took, told to whoever keeps the books."""

from collections.abc import Awaitable, Callable, Hashable
from inspect import isawaitable
from typing import TypeAlias

from msgspec import Struct

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.context import ToolContext
from agentcore.filters.base import ChatCall, Filter
from agentcore.usage import Usage


class UsageRecord(Struct, frozen=True, kw_only=True):
    """One model call.

    Attributes:
        key: whose it is.
        model: the model that answered, as the provider names it.
        usage: what is known of its tokens.
        cost: US dollars, if prices are asked for and one is known.
    """

    key: Hashable
    conversation_id: str | None
    turn_id: str
    model: str | None
    usage: Usage
    cost: float | None = None


UsageSink: TypeAlias = Callable[[UsageRecord], "Awaitable[object] | object"]


class UsageFilter(Filter):
    """Tells a function of every model call: whose it was, and what it took.

        def book(record: UsageRecord) -> None:
            spent[record.key] += record.usage.output_tokens or 0

        client = ChatClient(model, memory=store, filters=[UsageFilter(book, key="tenant")])

    As the last in the list it sees each call to the model; further out, what a filter made of them: the sum over the
    attempts of a repair, nothing spent for a cached reply. Calls that fail are not told: services do not say what they
    took. What the function raises comes out of the turn; a reply that was not stored by then is not.

    Args:
        sink: told of each call, before the reply goes on; sync or async.
        key: the slot of the tool context that names whose call it is, or a function of the context.
        with_cost: look up what it cost (the extra `prices`).
    """

    def __init__(
        self, sink: UsageSink, *, key: str | Callable[[ToolContext], Hashable] = "user_id", with_cost: bool = False
    ) -> None:
        self._sink = sink
        self._key = key
        self._with_cost = with_cost

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        """Call, and tell.

        Raises:
            ConfigurationError: prices are asked for, and the package that has them is not installed.
        """
        response = await call_next(request)
        context = request.context
        model = response.model or request.options.model or getattr(request.model, "name", None)
        cost = None
        if self._with_cost:
            from agentcore.pricing import cost_of

            cost = cost_of(response.usage, model)
        told = self._sink(
            UsageRecord(
                key=self._key(context) if callable(self._key) else context.get(self._key),
                conversation_id=context.conversation_id,
                turn_id=context.turn_id,
                model=model,
                usage=response.usage,
                cost=cost,
            )
        )
        if isawaitable(told):
            await told
        return response
