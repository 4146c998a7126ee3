"""Replay of an exported turn: the same client without a network and without its tools, held to the same requests."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import httpx
from msgspec import Struct
from msgspec.structs import replace

from agentcore.chat import ChatOptions, ToolDefinition, ToolSchema
from agentcore.client import ChatClient
from agentcore.context import ToolContext
from agentcore.errors import ConfigurationError, InvalidInputError
from agentcore.exchange import InvokeResult, TurnRequest
from agentcore.filters.base import Filter, MemorySide, ToolRun, TurnCall
from agentcore.limits import Limits
from agentcore.memory.base import ChatMemory
from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.messages import Message, ToolCall, ToolMessage, UserMessage
from agentcore.pause import Decision, Pause
from agentcore.testing.differences import difference
from agentcore.testing.exchanges import Exchange, asked_by, played
from agentcore.testing.turn_document import TurnDocument
from agentcore.testing.turn_tape import RecordedRun, RecordedTool, TurnTape, message_from
from agentcore.tools.errors import EnvironmentToolError
from agentcore.tools.remote import RemoteTool
from agentcore.tools.request import ToolRequest
from agentcore.tools.tool import Gate, Tool
from agentcore.tools.toolset import AnyToolSource, Toolset


class ReplayError(AssertionError):
    """The turn did something else than when it was recorded."""


class ReplayedTurn(Struct, frozen=True):
    """A turn that asked what it had asked before, byte for byte.

    Attributes:
        results: of its beginning, and of each time it was resumed.
        messages: what it stored.
    """

    results: tuple[InvokeResult, ...]
    messages: tuple[Message, ...]

    @property
    def result(self) -> InvokeResult:
        """How it ended."""
        return self.results[-1]


async def replay_turn(
    document: TurnDocument,
    make_client: Callable[[TurnTape], ChatClient],
    *,
    tool_context: Mapping[str, Any] | None = None,
    options: ChatOptions | None = None,
    limits: Limits | None = None,
) -> ReplayedTurn:
    """Run a recorded turn again, from the document alone.

    Models get the recorded answers, in the pieces in which the network brought them. No tool is run and no gate is
    asked: calls get the results that are on record, as the tool filters had left them, and wait where they had waited.
    All other filters, the memory's window and the loop are the client's own (and the gates of tools that a filter
    brings). Each request has to be the recorded one.

    Args:
        document: the turn, exported from a store that a `TurnRecorder` wrote to.
        make_client: makes the client as for the recording. Its models may have any key and address.
        tool_context: as given to the turn: it is not on record, and neither are options and limits.
        options: likewise.
        limits: likewise.

    Raises:
        InvalidInputError: the turn was not recorded, so that its requests are not known.
        ConfigurationError: the client does not go through the tape.
        ReplayError: a request is another one, and where it differs; a call has no result on record; the turn ended
            earlier, later or otherwise.
        Exception: what the turn had raised when it was recorded, such as a `ProviderError`.
    """
    if not document.runs:
        raise InvalidInputError(
            f"turn {document.turn_id!r} was not recorded, so what it asked is not known; make the client with a "
            "TurnRecorder, and export a turn that it ran"
        )
    tape = _ReplayTape(document, await _store_before(document))
    given: dict[str, Any] = {"tool_context": tool_context, "options": options, "limits": limits}
    results: list[InvokeResult] = []
    async with make_client(tape) as client:
        if client.memory is not tape.memory:
            raise ConfigurationError("the client's memory is not the tape's; make it with memory=tape.memory")
        for number, run in enumerate(document.runs):
            tape.begin(number)
            try:
                result = await _run(client, document.conversation_id, run, results, given)
            except Exception as error:
                if tape.fault is None or error is tape.fault:
                    raise
                raise tape.fault from error
            tape.check_end(result)
            results.append(result)
    stored = await tape.memory.get(document.conversation_id)
    return ReplayedTurn(tuple(results), tuple(stored[len(document.history) :]))


async def _run(
    client: ChatClient,
    conversation_id: str,
    run: RecordedRun,
    results: Sequence[InvokeResult],
    given: dict[str, Any],
) -> InvokeResult:
    if not results:
        said = [message_from(raw) for raw in run.messages]
        if not run.streamed:
            return await client.invoke(said, conversation_id=conversation_id, **given)
        opening: Any = client.stream(said, conversation_id=conversation_id, **given)
    else:
        decisions = _decisions_on(results[-1].pause, run.decisions)
        if not run.streamed:
            return await client.resume(conversation_id, decisions, **given)
        opening = client.resume_stream(conversation_id, decisions, **given)
    async with opening as turn:
        async for _ in turn:
            pass
        return turn.result


def _decisions_on(pause: Pause | None, decisions: Sequence[Decision]) -> list[Decision]:
    """The recorded decisions, made on the pause of the replay.

    Other arguments are left out: the result on record says already that the call ran with them.
    """
    waiting = {} if pause is None else {one.call.id: one.digest for one in pause.calls}
    return [replace(one, digest=waiting.get(one.call_id, ""), args=None) for one in decisions]


class _Store(InMemoryChatMemory):
    """A class of its own, so that a turn treats it like a store that lasts, as the recorded one was."""


async def _store_before(document: TurnDocument) -> _Store:
    """A store as it was when the turn began, with the numbers that its messages had."""
    store, name = _Store(), document.conversation_id
    version = 0
    first = document.runs[0]
    for one in document.history:
        if one.seq > version + 1:  # taken back, or cleared: numbers are not used twice
            gap = [UserMessage("taken back")] * (one.seq - version - 1)
            await store.append(name, gap, turn_id=f"before {one.seq}", position=0)
            await store.rollback(name, to=version)
        await store.append(name, [one.message], turn_id=one.turn_id, position=one.position)
        version = one.seq
    for record in first.beside:
        await store.put_record(name, record.kind, record.key, record.body, seq=record.seq)
    return store


class _ReplayTape:
    """What the client takes part with; knows what comes next. Satisfies `TurnTape`.

    Attributes:
        fault: the first thing that went otherwise: filters and the loop may make something else of an error.
    """

    def __init__(self, document: TurnDocument, store: ChatMemory) -> None:
        self.document = document
        self.memory = store
        self.filter: Filter = _ReplayingFilter(self)
        self.http_client = httpx.AsyncClient(transport=_Player(self), timeout=None)  # noqa: S113 - nothing is waited for
        self.fault: ReplayError | ConfigurationError | None = None
        self.run = document.runs[0]
        self.entered = False
        self._end = 0
        self._left: list[Exchange] = []
        self._asked = 0

    def tools(self, sources: Sequence[AnyToolSource], /) -> Sequence[AnyToolSource]:
        """The tools without the toolsets."""
        return [one for one in sources if not isinstance(one, Toolset)]

    def begin(self, number: int) -> None:
        """Put a run on."""
        runs = self.document.runs
        self.run = runs[number]
        self.entered = False
        self._end = runs[number + 1].position if number + 1 < len(runs) else len(self.document.messages)
        self._left = [
            one
            for place, one in enumerate(self.run.exchanges)
            # What was sent again and answered is not waited for again.
            if not (one.refused and any(_answers(one, later) for later in self.run.exchanges[place + 1 :]))
        ]
        self._asked = 0

    def answer_to(self, asked: tuple[str, str, str]) -> Exchange:
        """The recorded answer to a request."""
        if self.fault is not None:
            raise self.fault
        if not self.entered:
            raise self.fail(
                ConfigurationError("the client leaves out the tape's filter; give filters=[tape.filter, …]")
            )
        self._asked += 1
        if not self._left:
            raise self.fail(f"request {self._asked} to {asked[1]}, where the recorded turn had no answer any more")
        # Those that were sent at once may come in any order.
        found = next((one for one in self._left if one.asked == asked), None)
        if found is None:
            raise self.fail(f"request {self._asked} is another one: {_compared(self._left[0].asked, asked)}")
        self._left.remove(found)
        return found

    def result_of(self, call: ToolCall, position: int) -> ToolMessage | None:
        """The result on record of a call in a batch.

        Args:
            call: the call.
            position: how many messages the turn had stored when the batch ran: the results come right after them.
        """
        for one in self.document.messages:
            if position <= one.position < self._end:
                if not isinstance(one.message, ToolMessage):
                    break
                if one.message.tool_call_id == call.id:
                    return one.message
        return None

    def waits(self, call: ToolCall, position: int) -> str | None:
        """Why a call waited at the end of the run; None if it did not."""
        pending = next((one for one in self.run.pending if one.call.id == call.id), None)
        if pending is None or pending.kind == "client_tool" or self.result_of(call, position) is not None:
            return None
        return pending.reason

    def check_end(self, result: InvokeResult) -> None:
        """See that the run did all that it had done."""
        if self.fault is not None:
            raise self.fault
        if self._left:
            rest = ", ".join(one.asked[1] for one in self._left)
            raise ReplayError(f"the turn ended as {result.status!r} before it asked what is on record: {rest}")
        if result.status != self.run.status:
            raise ReplayError(f"the turn ended as {result.status!r}; when it was recorded, as {self.run.status!r}")

    def fail(self, what: str | ConfigurationError) -> ReplayError | ConfigurationError:
        """The error for something that went otherwise, which is kept."""
        self.fault = ReplayError(what) if isinstance(what, str) else what
        return self.fault


def _answers(refused: Exchange, later: Exchange) -> bool:
    return later.asked == refused.asked and not later.refused


def _compared(recorded: tuple[str, str, str], sent: tuple[str, str, str]) -> str:
    if recorded[:2] != sent[:2]:
        return f"it goes to {' '.join(sent[:2])}; the recorded one went to {' '.join(recorded[:2])}"
    return difference(recorded[2], sent[2])


class _Player(httpx.AsyncBaseTransport):
    def __init__(self, tape: _ReplayTape) -> None:
        self._tape = tape

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return played(self._tape.answer_to(await asked_by(request)), request)


class _ReplayingFilter(Filter):
    """Outermost: gives the turn its old name and its old tools, and answers for the tools."""

    memory_side: ClassVar[MemorySide | None] = "outside"

    def __init__(self, tape: _ReplayTape) -> None:
        self._tape = tape

    async def around_turn(self, request: TurnRequest, call_next: TurnCall) -> InvokeResult:
        """Call ids that a provider did not give are made of the turn's."""
        turn, tape = request.turn, self._tape
        tape.entered = True
        turn.id = tape.document.turn_id
        turn.context = ToolContext(turn.context, turn_id=turn.id)
        offered = {one.name: one for one in request.tools}
        tools = [offered.pop(one.name, None) or _stub(one) for one in tape.run.tools]
        gated = [self._gated(one, request) for one in (*tools, *offered.values())]
        return await call_next(replace(request, context=turn.context, tools=tuple(gated)))

    async def around_tool(self, request: ToolRequest, call_next: ToolRun) -> ToolMessage:
        """The result on record; a call whose surroundings had failed fails again, so that the turn waits for it."""
        call, tape = request.call, self._tape
        position = _position(request)
        result = tape.result_of(call, position)
        if result is not None:
            return result
        reason = tape.waits(call, position)
        if reason is None:
            raise tape.fail(
                f"{call.name}, call {call.id!r} with {call.args}, has no result on record: the recorded turn did not "
                "make this call, or broke off before it was answered"
            )
        await call_next(replace(request, tool=RemoteTool(call.name, "", {}, _fails)))
        return ToolMessage(call.id, call.name, reason, is_error=True)

    def _gated(self, one: ToolSchema, request: TurnRequest) -> ToolSchema:
        """The tool with a gate that knows which calls had waited."""
        if not isinstance(one, Tool):
            return one
        gated = copy.copy(one)
        gated.approval = self._gate(request)
        return gated

    def _gate(self, request: TurnRequest) -> Gate:
        def gate(call: ToolCall, _context: ToolContext) -> bool | str:
            history = request.turn.history
            assert history is not None  # the memory filter has opened it
            reason = self._tape.waits(call, history.position)
            return False if reason is None or self._failed(call) else reason

        return gate

    def _failed(self, call: ToolCall) -> bool:
        return any(one.call.id == call.id and one.kind == "environment" for one in self._tape.run.pending)


def _position(request: ToolRequest) -> int:
    assert request.turn is not None  # only turns are replayed
    assert request.turn.history is not None
    return request.turn.history.position


async def _fails(_args: dict[str, Any], _context: ToolContext) -> Any:
    raise EnvironmentToolError("it failed when it was recorded")


def _stub(recorded: RecordedTool) -> ToolSchema:
    """A tool of a toolset, or of the call, as the turn was offered it."""
    if recorded.elsewhere:
        return ToolDefinition(recorded.name, recorded.description, recorded.parameters, recorded.strict)
    stub = RemoteTool(recorded.name, recorded.description, recorded.parameters, _fails)
    stub.serial, stub.return_direct = recorded.serial, recorded.return_direct
    return stub
