"""One batch of tool calls: run together, answered in call order, each failure an answer of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias, cast

from anyio import CapacityLimiter
from msgspec import Struct
from msgspec.structs import replace

from agentcore.context import ToolContext
from agentcore.events import ToolFinished, ToolStarted
from agentcore.messages import ToolCall, ToolMessage
from agentcore.pause import PendingCall
from agentcore.tools.deadlines import Deadlines
from agentcore.tools.errors import EnvironmentToolError, describe
from agentcore.tools.execution import ToolExecution
from agentcore.tools.request import ToolRequest
from agentcore.tools.results import ToolResult, UnpresentableResultError, plain_writes, readable, render, shorten
from agentcore.tools.tool import ArgumentError
from agentcore.turn import EventSink
from agentcore.usage import UNKNOWN_USAGE, Usage

ToolRun: TypeAlias = Callable[[ToolRequest], Awaitable[ToolMessage]]

_MAX_QUOTED = 500
_CANCELLED_INSIDE = "CancelledError: something inside the tool cancelled it."


class BatchResult(Struct, frozen=True):
    """What a batch brought.

    Attributes:
        messages: one tool message a call, in call order.
        tool_context: the context with the tools' writes folded in, in call order.
        return_direct: all tools of the batch declared that their result is the answer, and none failed.
        pending: calls that wait for a decision. As long as there are any, nothing of the batch has run.
        environment_failures: ids of the calls whose surroundings failed.
        usage: tokens that the tools took from models.
    """

    messages: tuple[ToolMessage, ...]
    tool_context: ToolContext
    return_direct: bool = False
    pending: tuple[PendingCall, ...] = ()
    environment_failures: frozenset[str] = frozenset()
    usage: Usage = UNKNOWN_USAGE


class BatchOutcome:
    """What a batch leaves besides its answers.

    Attributes:
        environment_failures: ids of the calls whose surroundings failed.
        usage: tokens that the tools took from models.
    """

    def __init__(self) -> None:
        self.environment_failures: set[str] = set()
        self.usage = UNKNOWN_USAGE
        self._writes: dict[str, tuple[dict[str, Any], Mapping[str, Any]]] = {}

    def take_writes(self, call_id: str, writes: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the values a tool wrote; what the record holds of them has to have a JSON form."""
        plain = plain_writes(writes)
        self._writes[call_id] = (plain, writes)
        return plain

    def writes_of(self, message: ToolMessage) -> Mapping[str, Any] | None:
        """The values to fold in for an answer: the tool's own, unless a filter put others in their place."""
        plain, writes = self._writes.get(message.tool_call_id, (None, None))
        return writes if message.writes is plain else message.writes


async def run_together(
    requests: Sequence[ToolRequest],
    run: ToolRun,
    finished: MutableMapping[str, ToolMessage],
    max_concurrency: int | None,
    sink: EventSink | None = None,
    record: Callable[[ToolMessage], Awaitable[None]] | None = None,
) -> tuple[ToolMessage, ...]:
    """Run the calls at once, serial ones one after another; the answers in call order.

    `finished` gets each answer as it comes, and `record` too, before anybody hears of it. A cancellation stops all
    calls and waits for their clean-up; it comes out as it is, never in a group.
    """
    crowded = max_concurrency is not None and max_concurrency < len(requests)
    places = asyncio.Semaphore(max_concurrency) if max_concurrency and crowded else None

    async def one(request: ToolRequest) -> ToolMessage:
        try:
            if places is None:
                return await started(request)
            async with places:
                return await started(request)
        except (KeyboardInterrupt, SystemExit) as error:
            raise _Exit(error) from None

    async def started(request: ToolRequest) -> ToolMessage:
        if sink is not None:
            await sink.send((ToolStarted(request.call),))
        message = await _answer(request, run)
        finished[request.call.id] = message
        if record is not None:
            await record(message)
        if sink is not None:
            await sink.send((ToolFinished(message),))
        return message

    async def in_order(serial: Sequence[ToolRequest]) -> list[ToolMessage]:
        return [await one(request) for request in serial]

    serial = [request for request in requests if request.tool is not None and request.tool.serial]
    try:
        # asyncio's group, not anyio's: it cancels a tool once, so that the tool's clean-up may await.
        async with asyncio.TaskGroup() as group:
            tasks = [
                None if request.tool is not None and request.tool.serial else group.create_task(one(request))
                for request in requests
            ]
            rest = group.create_task(in_order(serial)) if serial else None
    except BaseExceptionGroup as error:
        # Tools' own errors are answers by now: what is left is something that is not to be caught.
        first = error.exceptions[0]
        raise first.error if isinstance(first, _Exit) else first from None
    in_turn = iter(rest.result() if rest is not None else ())
    return tuple([next(in_turn) if task is None else task.result() for task in tasks])


class _Exit(BaseException):
    """An exit on its way to the task that runs the batch.

    Raised in a task of its own it would stop the event loop under all others: nothing could clean up any more, and the
    worker threads of sync tools would keep the process from ending.
    """

    def __init__(self, error: BaseException) -> None:
        self.error = error


async def _answer(request: ToolRequest, run: ToolRun) -> ToolMessage:
    """The answer to one call, whatever the filters around it do."""
    call = request.call
    try:
        message = await run(request)
    except asyncio.CancelledError:
        if _is_cancelled():
            raise
        return failure(call, _CANCELLED_INSIDE)
    except Exception as error:  # noqa: BLE001 - a filter's failure is the answer to this call, not the batch's end
        return failure(call, describe(error))
    # What a filter gives back is only as typed as its author likes.
    if not isinstance(cast("object", message), ToolMessage):
        return failure(call, f"A tool filter answered with {type(message).__name__} instead of a ToolMessage.")
    if message.tool_call_id != call.id:
        return replace(message, tool_call_id=call.id)
    return message


def _is_cancelled() -> bool:
    """Whether somebody cancels us; if not, a CancelledError comes from a library inside that let its own out."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def run_call(
    request: ToolRequest,
    known: Sequence[str],
    threads: CapacityLimiter,
    default_timeout: float | None,
    max_result_chars: int | None,
    sleep: Callable[[float], Awaitable[object]],
    outcome: BatchOutcome,
    deadlines: Deadlines,
) -> ToolMessage:
    """The inside of the tool onion: check the arguments, run the function, make its result or its failure an answer."""
    call, tool = request.call, request.tool
    if tool is None:
        return failure(call, f"There is no tool named {call.name!r}. The tools are: {', '.join(known) or 'none'}.")
    if call.raw_arguments is not None:
        return failure(
            call,
            f"The arguments of {call.name} were not run: a JSON object was expected, but this came: "
            f"{_quoted(call.raw_arguments) or '(nothing)'}",
        )
    try:
        bound = tool.bind(call.args, request.context)
    except ArgumentError as error:
        return failure(call, str(error), max_result_chars)
    try:
        value = await ToolExecution(tool, bound, threads, sleep).within(
            tool.timeout if tool.timeout is not None else default_timeout, deadlines
        )
    except asyncio.CancelledError:
        if _is_cancelled():
            raise
        return failure(call, _CANCELLED_INSIDE)
    except Exception as error:  # noqa: BLE001 - errors are data: the model is told
        if isinstance(error, EnvironmentToolError):
            outcome.environment_failures.add(call.id)
        return failure(call, describe(error), max_result_chars)
    writes: Any = None
    if isinstance(value, ToolResult):
        if value.usage is not None:
            outcome.usage += value.usage
        writes, value = value.writes, value.value
    if writes is not None and not isinstance(writes, Mapping):
        return failure(call, f"the tool ran, but its writes are a {type(writes).__name__}, not a mapping")
    try:
        content = shorten(render(value), max_result_chars)
    except UnpresentableResultError as error:
        return failure(call, str(error), max_result_chars)
    return ToolMessage(
        call.id,
        call.name,
        content,
        writes=outcome.take_writes(call.id, cast("Mapping[str, Any]", writes)) if writes else None,
    )


def failure(call: ToolCall, text: str, max_chars: int | None = None) -> ToolMessage:
    """The answer to a call that failed."""
    return ToolMessage(call.id, call.name, shorten(readable(text), max_chars), is_error=True)


def _quoted(text: str) -> str:
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}… ({len(text)} characters)"
