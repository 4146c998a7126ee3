"""ChatClient and Conversation: the public face. It wires model, tools, memory and filters; it decides nothing."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias
from uuid import uuid4

from anyio import CapacityLimiter
from msgspec.structs import replace

from agentcore.chat import (
    NO_OPTIONS,
    BatchedChatStream,
    ChatModel,
    ChatOptions,
    ChatRequest,
    ChatResponse,
    ToolDefinition,
    ToolSchema,
)
from agentcore.context import Reducer, ToolContext
from agentcore.errors import ConfigurationError, InvalidInputError, LeaseLostError, PauseError
from agentcore.exchange import InvokeResult, TurnRequest, turn_result
from agentcore.filters.base import Filter, compose, overridden
from agentcore.filters.memory import MemoryFilter
from agentcore.filters.order import check_order, with_memory
from agentcore.limits import DEFAULT_LIMITS, Limits
from agentcore.loop import run_loop
from agentcore.memory.base import BusyPolicy, ChatMemory, record_store
from agentcore.memory.pauses import open_pause, pause_to_resume
from agentcore.messages import AssistantMessage, Message, SystemMessage, ToolCall, UserMessage, as_messages
from agentcore.pause import Decision, Pause, Resumption
from agentcore.stream import TurnStream
from agentcore.tool_round import Approver, Eligibility, ToolRounds
from agentcore.tools.batch import BatchResult
from agentcore.tools.runner import ToolRunner
from agentcore.tools.tool import ToolSource, tools_by_name
from agentcore.tools.toolset import AnyToolSource, Toolset
from agentcore.turn import Turn

Input: TypeAlias = str | Message | Sequence[str | Message] | Sequence[Mapping[str, Any]]
"""What a caller may say: a text, a message, several of either, or mappings of the stored shape."""


class ChatClient:
    """A model with its tools, memory and filters. Immutable, holds no conversation: share it between all requests.

    Args:
        model: a `ChatModel`, or a model string such as `"openai:gpt-5-mini"`.
        tools: what `@tool` returns, plain functions, definitions of tools that run on the caller's side (their calls
            pause the turn), or toolsets.
        memory: where conversations live; None remembers nothing beyond a turn.
        filters: the onion, outermost first. The memory filter, unless it is in the list, comes innermost, but outside
            of filters that belong inside it (`Filter.memory_side`).
        system: instructions, put before the history at every model call; never stored.
        options: settings of every model call, unless a call says otherwise.
        limits: bounds of every turn, unless a call says otherwise.
        reducers: for slots of the tool context that several tools of a batch may write: how values are folded.
        on_busy: what a turn does when another one of its conversation is running.
        busy_timeout: seconds a turn waits for its place at most.
        tool_timeout: seconds a tool may take if it does not declare its own.
        max_concurrent_tools: tools of one batch that run at once; None is all of them.
        max_tool_threads: worker threads for sync tools, shared by all turns of this client.
        max_result_chars: longest tool result shown to the model; what is beyond is cut with a visible mark.
        approver: decides at once on calls that need a person's consent, as a command line does; without it the turn
            pauses, and `resume` goes on with it.
        pause_expires_in: seconds after which a pause can no longer be resumed.
        pause_on_environment_error: a tool that raises `EnvironmentToolError` pauses the turn instead of telling the
            model.
        run_tools_if: asked before the tools of a reply run; if it says no, the turn ends with status `stopped`. The
            caller may run them (`run_tools(result.message)`) and go on with `invoke(batch.messages, …)`.

    Raises:
        ConfigurationError: two tools of one name, two memories, an unknown model string, filters in an order that is
            known to be wrong.
    """

    def __init__(
        self,
        model: ChatModel | str,
        *,
        tools: Sequence[AnyToolSource] = (),
        memory: ChatMemory | None = None,
        filters: Sequence[Filter] = (),
        system: str | None = None,
        options: ChatOptions | None = None,
        limits: Limits = DEFAULT_LIMITS,
        reducers: Mapping[str, Reducer] | None = None,
        on_busy: BusyPolicy = "wait",
        busy_timeout: float | None = None,
        tool_timeout: float | None = None,
        max_concurrent_tools: int | None = None,
        max_tool_threads: int = 40,
        max_result_chars: int | None = None,
        approver: Approver | None = None,
        pause_expires_in: float | None = None,
        pause_on_environment_error: bool = False,
        run_tools_if: Eligibility | None = None,
    ) -> None:
        self._model = _resolve_model(model)
        self._named_models: dict[str, ChatModel] = {}  # of the calls that named another
        self._system = SystemMessage(system) if system else None
        self._options = options or NO_OPTIONS
        self._limits = limits
        self._toolsets = tuple(one for one in tools if isinstance(one, Toolset))
        self._tools = tools_by_name([one for one in tools if not isinstance(one, Toolset)])
        self._filters, self._memory = _with_memory(filters, memory, on_busy, busy_timeout)
        self._tool_runner = ToolRunner(
            compose=partial(compose, overridden(self._filters, "around_tool")),
            reducers=dict(reducers or {}),
            timeout=tool_timeout,
            max_concurrency=max_concurrent_tools,
            max_result_chars=max_result_chars,
            threads=CapacityLimiter(max_tool_threads),
        )
        self._chat = compose(overridden(self._filters, "around_chat"), self._call_model)
        rounds = ToolRounds(
            run_batch=self._tool_runner.run_batch,
            approver=approver,
            pause_expires_in=pause_expires_in,
            pause_on_environment_error=pause_on_environment_error,
            eligibility=run_tools_if,
        )
        loop = partial(run_loop, chat=self._chat, rounds=rounds)
        self._run = compose(overridden(self._filters, "around_turn"), loop)
        self._transforms = overridden(self._filters, "transform_stream")

    async def invoke(
        self,
        messages: Input,
        *,
        conversation_id: str | None = None,
        tool_context: Mapping[str, Any] | None = None,
        options: ChatOptions | None = None,
        limits: Limits | None = None,
        model: ChatModel | str | None = None,
        tools: Sequence[ToolSource] = (),
    ) -> InvokeResult:
        """Run one turn: model calls and tools until the model answers.

        Args:
            messages: only what is new.
            conversation_id: the conversation to go on with; None for a turn that is remembered nowhere.
            tool_context: the mapping that tools and filters read.
            options: settings for this turn, over the client's.
            limits: bounds of this turn, instead of the client's.
            model: the model of this turn, instead of the client's: of any provider, since the history is neutral. A
                model string is made into a model once, and closed with the client.
            tools: further tools for this turn, besides the client's. Calls of a `ToolDefinition` pause the turn.
                Without a conversation they end it, with the same status and nothing run: the caller goes on with a new
                turn, whose messages are the history, the calls it has run and their results.

        Returns:
            The result; see its `status` for how the turn ended.

        Raises:
            InvalidInputError: no messages, or messages that cannot follow the history; nothing was stored.
            ConversationBusyError: another turn of the conversation is running and this one does not wait.
            ProviderError: the model failed. What tools did before is stored; the failed call left no trace.
        """
        settings = _CallSettings(tool_context, options, limits, model, tools)
        return await self._run_turn(self._request(messages, conversation_id, settings))

    def stream(
        self,
        messages: Input,
        *,
        conversation_id: str | None = None,
        tool_context: Mapping[str, Any] | None = None,
        options: ChatOptions | None = None,
        limits: Limits | None = None,
        model: ChatModel | str | None = None,
        tools: Sequence[ToolSource] = (),
    ) -> TurnStream:
        """Run one turn and read along: `async with client.stream(…) as turn: async for event in turn: …`.

        Arguments and errors are those of `invoke`; errors come out of the iteration.
        """
        settings = _CallSettings(tool_context, options, limits, model, tools)
        request = self._request(messages, conversation_id, settings)
        return TurnStream(partial(self._run_turn, request), request.turn, self._transforms)

    async def invoke_chat(
        self,
        messages: Input,
        *,
        conversation_id: str | None = None,
        tool_context: Mapping[str, Any] | None = None,
        options: ChatOptions | None = None,
        model: ChatModel | str | None = None,
        tools: Sequence[ToolSource] = (),
    ) -> ChatResponse:
        """One model call through the chat filters; the tools are shown to the model, none is run.

        With `run_tools` this is the external loop: call, run the tools, call again with `batch.messages`, with the same
        memory behaviour as `invoke`.

        Raises:
            InvalidInputError: no messages, or messages that cannot follow the history; nothing was stored.
            ProviderError: the model failed.
        """
        settings = _CallSettings(tool_context, options, None, model, tools)
        request = await self._with_toolsets(self._request(messages, conversation_id, settings))
        return await self._chat(
            ChatRequest(
                request.messages,
                request.tools,
                request.options,
                request.context,
                request.turn,
                request.model,
                request.system,
            )
        )

    async def resume(
        self,
        conversation_id: str,
        decisions: Decision | Iterable[Decision],
        *,
        tool_context: Mapping[str, Any] | None = None,
        options: ChatOptions | None = None,
        limits: Limits | None = None,
        model: ChatModel | str | None = None,
        tools: Sequence[ToolSource] = (),
    ) -> InvokeResult:
        """Go on with a turn that paused, in this process or another that has the same tools and store.

        Args:
            conversation_id: the conversation that waits.
            decisions: one for each call that waits, made by the methods of `PendingCall`.
            tool_context: as for `invoke`; it is not kept over a pause.
            options: as for `invoke`.
            limits: as for `invoke`; what the turn took before the pause counts.
            model: as for `invoke`.
            tools: as for `invoke`: those that the turn was given before the pause are given again.

        Raises:
            PauseError: nothing waits there, it was resumed already, it has expired, or a decision is missing, stale or
                forged; nothing was run.
            ProviderError: the model failed after the tools had run; their results are stored.
        """
        settings = _CallSettings(tool_context, options, limits, model, tools)
        return await self._run_turn(await self._resumption(conversation_id, decisions, settings))

    @asynccontextmanager
    async def resume_stream(
        self,
        conversation_id: str,
        decisions: Decision | Iterable[Decision],
        *,
        tool_context: Mapping[str, Any] | None = None,
        options: ChatOptions | None = None,
        limits: Limits | None = None,
        model: ChatModel | str | None = None,
        tools: Sequence[ToolSource] = (),
    ) -> AsyncGenerator[TurnStream]:
        """Go on with a turn that paused, and read along; see `resume` and `stream`."""
        settings = _CallSettings(tool_context, options, limits, model, tools)
        request = await self._resumption(conversation_id, decisions, settings)
        async with TurnStream(partial(self._run_turn, request), request.turn, self._transforms) as turn:
            yield turn

    async def open_pause(self, conversation_id: str) -> Pause | None:
        """What waits for a decision in a conversation; None if nothing does."""
        records = self._memory.records
        return None if records is None else await open_pause(records, conversation_id)

    async def run_tools(
        self,
        calls: ChatResponse | AssistantMessage | Sequence[ToolCall],
        *,
        tool_context: Mapping[str, Any] | None = None,
        decisions: Iterable[Decision] | None = None,
    ) -> BatchResult:
        """Run the tool calls of a reply in one batch.

        Args:
            calls: the reply, or its calls.
            tool_context: the mapping that tools and filters read.
            decisions: on the calls that an earlier run of the same calls returned as `pending`.

        Returns:
            `messages`, one tool message a call, in call order; `tool_context`, with the tools' writes folded in. If
            calls need a decision first, nothing has run, and `pending` says which they are.
        """
        if isinstance(calls, ChatResponse):
            calls = calls.message
        if isinstance(calls, AssistantMessage):
            calls = calls.tool_calls
        context = _context(tool_context, None, uuid4().hex)
        made = None if decisions is None else {decision.call_id: decision for decision in decisions}
        offered = await self.tools()
        return await self._tool_runner.run_batch(calls, offered, context, None, {}, decisions=made)

    async def tools(self) -> Sequence[ToolSchema]:
        """The tools that a turn is offered: the client's own and those of its toolsets, which are opened for it."""
        return await self._offered(tuple(self._tools.values()))

    def conversation(self, conversation_id: str) -> "Conversation":
        """The stateful face of one conversation.

        Raises:
            ConfigurationError: the client has no memory to hold it.
        """
        if self._memory.store is None:
            raise ConfigurationError(
                "this client has no memory; make it with memory=InMemoryChatMemory() or another store"
            )
        return Conversation(self, conversation_id, self._memory)

    @property
    def memory(self) -> ChatMemory | None:
        """The store that holds the record, behind whatever the model sees of it; None remembers nothing."""
        store = self._memory.store
        return None if store is None else record_store(store)

    def describe(self) -> str:
        """The onion as it is: one line a layer, outermost first, with the grains each layer takes part in."""
        lines = [f"{type(one).__name__}: {', '.join(_grains(one)) or 'nothing'}" for one in self._filters]
        lines.append(f"model: {self._model!r}")
        lines.append(f"tools: {', '.join(self._tools) or 'none'}")
        return "\n".join(lines)

    async def aclose(self) -> None:
        """Close the toolsets, the model's connections, and those of models made of strings. Twice is harmless."""
        for toolset in reversed(self._toolsets):
            await toolset.aclose()
        for model in (self._model, *self._named_models.values()):
            close = getattr(model, "aclose", None)
            if close is not None:
                await close()

    async def __aenter__(self) -> Self:
        for toolset in self._toolsets:
            await toolset.open()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def _resolved(self, name: str) -> ChatModel:
        model = self._named_models.get(name)
        if model is None:
            model = self._named_models[name] = _resolve_model(name)
        return model

    def _request(self, messages: Input, conversation_id: str | None, settings: "_CallSettings") -> TurnRequest:
        given = as_messages(messages)
        _check_input(given)
        context = _context(settings.tool_context, conversation_id, uuid4().hex)
        return self._turn_request(given, Turn(context.turn_id, context), settings)

    async def _resumption(
        self, conversation_id: str, decisions: Decision | Iterable[Decision], settings: "_CallSettings"
    ) -> TurnRequest:
        """The request of a turn that goes on: the turn as it was when it paused, and what was decided."""
        records = self._memory.records
        if records is None:
            raise PauseError("this client's memory keeps no pauses, so nothing can wait in it", reason="nothing")
        pause = await pause_to_resume(records, conversation_id)
        made = pause.decide(decisions)
        turn = Turn(pause.turn_id, _context(settings.tool_context, conversation_id, pause.turn_id))
        turn.position, turn.usage = pause.position, pause.usage
        turn.model_calls, turn.tool_calls = pause.model_calls, pause.tool_calls
        return replace(self._turn_request((), turn, settings), resumption=Resumption(pause, made))

    def _turn_request(self, messages: Sequence[Message], turn: Turn, settings: "_CallSettings") -> TurnRequest:
        """The one place where a call's settings and the client's defaults meet."""
        model, options = settings.model, settings.options
        # The name of the client's model says nothing to another one.
        base = self._options if model is None else replace(self._options, model=None)
        offered = tuple(self._tools.values())
        turn.limits = self._limits if settings.limits is None else settings.limits
        if settings.tools:
            turn.callers_tools = frozenset(one.name for one in settings.tools if isinstance(one, ToolDefinition))
        return TurnRequest(
            messages,
            turn,
            (*offered, *tools_by_name(settings.tools).values()) if settings.tools else offered,
            base if options is None else options.over(base),
            turn.limits,
            turn.context,
            self._model if model is None else self._resolved(model) if isinstance(model, str) else model,
            system=self._system.content if self._system is not None else None,
        )

    async def _with_toolsets(self, request: TurnRequest) -> TurnRequest:
        return replace(request, tools=await self._offered(request.tools)) if self._toolsets else request

    async def _offered(self, tools: Sequence[ToolSchema]) -> Sequence[ToolSchema]:
        """The tools, and those of the toolsets, which are opened if they are not.

        Raises:
            ConfigurationError: two tools of one name.
        """
        offered = {one.name: one for one in tools}
        for toolset in self._toolsets:
            await toolset.open()
            for one in await toolset.tools():
                if one.name in offered:
                    raise ConfigurationError(
                        f"two tools are named {one.name!r}; give a toolset a prefix, or one of the tools another name"
                    )
                offered[one.name] = one
        return tuple(offered.values())

    async def _run_turn(self, request: TurnRequest) -> InvokeResult:
        turn = request.turn
        if turn.cancelled:  # before it began: nothing of it happens, even if nothing in it would ever wait
            return turn_result(turn, "cancelled")
        scope = turn.open_scope(request.limits.seconds)
        try:
            async with scope:
                return await self._run(await self._with_toolsets(request))
        except TimeoutError:
            if not scope.expired():
                raise
        except LeaseLostError:  # another process took the conversation over, or it was cleared: this turn was stopped
            turn.cancelled = True
        # Only this scope ends here: somebody else's cancellation goes on as CancelledError.
        if turn.cancelled:
            return turn_result(turn, "cancelled")
        return turn_result(turn, "limit", limit="seconds")

    async def _call_model(self, request: ChatRequest) -> ChatResponse:
        """The inside of the onion: the request as it is sent, the reply as it comes."""
        system = self._system  # the very one, unless a filter says otherwise: what was counted of it is known
        if request.system is not None and (system is None or system.content != request.system):
            system = SystemMessage(request.system)
        if system is not None:
            request = replace(request, messages=[system, *request.messages])
        sink = request.turn.sink if request.turn is not None else None
        model = request.model or self._model
        if sink is None:
            return await model.chat(request)
        sink.begin_attempt()
        async with model.stream(request) as stream:
            if isinstance(stream, BatchedChatStream):
                async for batch in stream.batches():
                    await sink.send(batch)
            else:
                async for event in stream:
                    await sink.send((event,))
            return stream.response


class _CallSettings(NamedTuple):
    """What one call says for itself."""

    tool_context: Mapping[str, Any] | None
    options: ChatOptions | None
    limits: Limits | None
    model: ChatModel | str | None
    tools: Sequence[ToolSource]


class Conversation:
    """One conversation of a client: the same calls without the id."""

    def __init__(self, client: ChatClient, conversation_id: str, memory: MemoryFilter) -> None:
        self.id = conversation_id
        self._client = client
        self._memory = memory

    async def send(
        self,
        messages: Input,
        *,
        tool_context: Mapping[str, Any] | None = None,
        options: ChatOptions | None = None,
        limits: Limits | None = None,
        model: ChatModel | str | None = None,
        tools: Sequence[ToolSource] = (),
    ) -> InvokeResult:
        """Run one turn; see `ChatClient.invoke`."""
        return await self._client.invoke(
            messages,
            conversation_id=self.id,
            tool_context=tool_context,
            options=options,
            limits=limits,
            model=model,
            tools=tools,
        )

    def stream(
        self,
        messages: Input,
        *,
        tool_context: Mapping[str, Any] | None = None,
        options: ChatOptions | None = None,
        limits: Limits | None = None,
        model: ChatModel | str | None = None,
        tools: Sequence[ToolSource] = (),
    ) -> TurnStream:
        """Run one turn and read along; see `ChatClient.stream`."""
        return self._client.stream(
            messages,
            conversation_id=self.id,
            tool_context=tool_context,
            options=options,
            limits=limits,
            model=model,
            tools=tools,
        )

    async def open_pause(self) -> Pause | None:
        """What waits for a decision here; None if nothing does."""
        return await self._client.open_pause(self.id)

    async def resume(
        self,
        decisions: Decision | Iterable[Decision],
        *,
        tool_context: Mapping[str, Any] | None = None,
        options: ChatOptions | None = None,
        limits: Limits | None = None,
        model: ChatModel | str | None = None,
        tools: Sequence[ToolSource] = (),
    ) -> InvokeResult:
        """Go on with the turn that paused here; see `ChatClient.resume`."""
        return await self._client.resume(
            self.id, decisions, tool_context=tool_context, options=options, limits=limits, model=model, tools=tools
        )

    def resume_stream(
        self,
        decisions: Decision | Iterable[Decision],
        *,
        tool_context: Mapping[str, Any] | None = None,
        options: ChatOptions | None = None,
        limits: Limits | None = None,
        model: ChatModel | str | None = None,
        tools: Sequence[ToolSource] = (),
    ) -> AbstractAsyncContextManager[TurnStream]:
        """Go on with the turn that paused here, and read along; see `ChatClient.resume_stream`."""
        return self._client.resume_stream(
            self.id, decisions, tool_context=tool_context, options=options, limits=limits, model=model, tools=tools
        )

    async def history(self) -> Sequence[Message]:
        """All messages of the conversation, oldest first, as they are stored."""
        return await self._store.get(self.id)

    async def stop_turn(self) -> None:
        """Stop the turn that is running, in whatever process; it ends as `cancelled`. Returns when it has ended.

        Raises:
            ConversationBusyError: it had not ended within the client's `busy_timeout`.
        """
        async with self._memory.hold_turn(self.id, on_busy="supersede"):
            pass

    async def reset(self) -> None:
        """Forget the conversation, after the turn that is running, if one is."""
        async with self._memory.hold_turn(self.id):
            await self._store.clear(self.id)

    @property
    def _store(self) -> ChatMemory:
        store = self._memory.store
        assert store is not None  # ChatClient.conversation has looked
        return record_store(store)


def _resolve_model(model: ChatModel | str) -> ChatModel:
    if not isinstance(model, str):
        return model
    from agentcore.providers.presets import chat_model

    return chat_model(model)


def _with_memory(
    filters: Sequence[Filter], memory: ChatMemory | None, on_busy: BusyPolicy, busy_timeout: float | None
) -> tuple[tuple[Filter, ...], MemoryFilter]:
    own = [one for one in filters if isinstance(one, MemoryFilter)]
    if len(own) > 1 or (own and memory is not None):
        raise ConfigurationError("two memories: give either memory=… or one MemoryFilter in filters, not both")
    memory_filter = own[0] if own else MemoryFilter(memory, on_busy=on_busy, busy_timeout=busy_timeout)
    onion = tuple(filters) if own else with_memory(filters, memory_filter)
    check_order(onion)
    return onion, memory_filter


def _context(values: Mapping[str, Any] | None, conversation_id: str | None, turn_id: str) -> ToolContext:
    if conversation_id is not None:
        if not conversation_id:
            raise InvalidInputError("conversation_id is empty; leave it out for a turn that is remembered nowhere")
        values = {**(values or {}), "conversation_id": conversation_id}
    return ToolContext(values, turn_id=turn_id)


def _check_input(messages: Sequence[Message]) -> None:
    if not messages:
        raise InvalidInputError("there is nothing to say: messages is empty; give at least one message")
    for index, message in enumerate(messages):
        if isinstance(message, UserMessage) and not (
            message.content.strip() if isinstance(message.content, str) else message.content
        ):
            raise InvalidInputError(f"message {index} is empty: a user message needs text or parts")


def _grains(one: Filter) -> list[str]:
    grains = {"around_turn": "turn", "around_chat": "chat", "around_tool": "tool", "transform_stream": "stream"}
    return [name for method, name in grains.items() if overridden([one], method)]
