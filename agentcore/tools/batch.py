"""One batch of tool calls: run together, answered in call order, each failure an answer of its own."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, TypeAlias

import anyio
from anyio import CapacityLimiter, to_thread
from msgspec import Struct

from agentcore.context import ToolContext
from agentcore.messages import Content, ToolCall, ToolMessage
from agentcore.tools.errors import ToolError, TransientToolError
from agentcore.tools.request import ToolRequest
from agentcore.tools.results import ToolResult, UnpresentableResultError, readable, render, shorten
from agentcore.tools.tool import ArgumentError, Tool

ToolRun: TypeAlias = Callable[[ToolRequest], Awaitable[ToolMessage]]

_MAX_QUOTED = 500


class BatchResult(Struct, frozen=True):
    """What a batch brought.

    Attributes:
        messages: one tool message a call, in call order.
        tool_context: the context with the tools' writes folded in, in call order.
        return_direct: all tools of the batch declared that their result is the answer, and none failed.
    """

    messages: tuple[ToolMessage, ...]
    tool_context: ToolContext
    return_direct: bool = False


async def run_together(
    requests: Sequence[ToolRequest],
    run: ToolRun,
    finished: MutableMapping[str, ToolMessage],
    max_concurrency: int | None,
) -> None:
    """Run the calls at once, serial ones one after another; `finished` gets each answer as it comes.

    A cancellation stops all of them and waits for their clean-up; it comes out as it is, never in a group.
    """

    async def one(request: ToolRequest) -> None:
        try:
            message = await run(request)
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            message = failure(request.call, describe(error))
        except Exception as error:  # noqa: BLE001 - a filter's failure is the answer to this call, not the batch's end
            message = failure(request.call, describe(error))
        finished[request.call.id] = message

    async def in_order(serial: Sequence[ToolRequest]) -> None:
        for request in serial:
            await one(request)

    places = asyncio.Semaphore(max_concurrency or len(requests) or 1)

    async def in_place(request: ToolRequest) -> None:
        async with places:
            await one(request)

    try:
        # asyncio's group, not anyio's: it cancels a tool once, so that the tool's clean-up may await.
        async with asyncio.TaskGroup() as group:
            for request in requests:
                if request.tool is None or not request.tool.serial:
                    group.create_task(in_place(request) if max_concurrency else one(request))
            serial = [request for request in requests if request.tool is not None and request.tool.serial]
            if serial:
                group.create_task(in_order(serial))
    except BaseExceptionGroup as error:
        # Tools' own errors are answers by now: what is left is something that is not to be caught.
        raise error.exceptions[0] from None


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
) -> ToolMessage:
    """The inside of the tool onion: check the arguments, run the function, make its result or its failure an answer."""
    call, tool = request.call, request.tool
    if tool is None:
        return failure(call, f"There is no tool named {call.name!r}. The tools are: {', '.join(known) or 'none'}.")
    if call.raw_arguments is not None:
        return failure(
            call,
            f"The arguments of {call.name} were not run: a JSON object was expected, but this came: "
            f"{call.raw_arguments[:_MAX_QUOTED] or '(nothing)'}",
        )
    try:
        bound = tool.bind(call.args, request.context)
    except ArgumentError as error:
        return failure(call, str(error))
    timeout = tool.timeout if tool.timeout is not None else default_timeout
    try:
        value = await _within(timeout, tool, bound, threads)
    except _ToolTimeoutError as error:
        return failure(call, str(error))
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        return failure(call, describe(error))
    except Exception as error:  # noqa: BLE001 - errors are data: the model is told
        return failure(call, describe(error))
    writes = None
    if isinstance(value, ToolResult):
        writes, value = value.writes, value.value
    try:
        content: Content = shorten(render(value), max_result_chars)
    except UnpresentableResultError as error:
        return failure(call, str(error))
    return ToolMessage(call.id, call.name, content, writes=dict(writes) if writes else None)


def failure(call: ToolCall, text: str) -> ToolMessage:
    """The answer to a call that failed."""
    return ToolMessage(call.id, call.name, readable(text), is_error=True)


def describe(error: BaseException) -> str:
    """An exception in words, never empty: its name, its text, and what caused it."""
    if isinstance(error, ToolError):
        return str(error) or type(error).__name__
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    cause = error.__cause__
    return f"{text} (caused by {describe(cause)})" if cause is not None else text


class _ToolTimeoutError(Exception):
    pass


async def _within(
    timeout: float | None,  # noqa: ASYNC109 - a declared property of the tool
    tool: Tool,
    bound: Callable[[], Any],
    threads: CapacityLimiter,
) -> Any:
    if timeout is None:
        return await _attempts(tool, bound, threads)
    scope = asyncio.timeout(timeout)
    try:
        async with scope:
            return await _attempts(tool, bound, threads)
    except TimeoutError:
        if not scope.expired():
            raise  # the tool's own
    text = f"{tool.name} timed out after {timeout:g} s."
    if not tool.is_async:
        text += " It could not be stopped and was abandoned: it may still take effect."
    raise _ToolTimeoutError(text)


async def _attempts(tool: Tool, bound: Callable[[], Any], threads: CapacityLimiter) -> Any:
    for attempt in range(tool.retry):
        try:
            return await _run(tool, bound, threads)
        except TransientToolError:
            await anyio.sleep(min(0.1 * 2**attempt, 5.0))
    return await _run(tool, bound, threads)


async def _run(tool: Tool, bound: Callable[[], Any], threads: CapacityLimiter) -> Any:
    if tool.is_async:
        return await bound()
    value = await to_thread.run_sync(bound, abandon_on_cancel=True, limiter=threads)
    return await value if inspect.isawaitable(value) else value
