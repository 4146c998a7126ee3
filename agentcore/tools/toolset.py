"""Toolsets: named groups of tools with a common set-up, whose tools may only be known once they are open."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias, runtime_checkable

from agentcore.chat import ToolDefinition
from agentcore.errors import ConfigurationError
from agentcore.tools.tool import Tool, ToolSource, tools_by_name


@runtime_checkable
class Toolset(Protocol):
    """A group of tools. A client opens it before the first turn that may use it, and closes it with itself."""

    async def open(self) -> None:
        """Make the tools ready. Opening twice is harmless; a toolset that was closed may be opened again."""
        ...

    async def tools(self) -> Sequence[Tool | ToolDefinition]:
        """The tools as they are now; asked at the beginning of every turn, so it is quick."""
        ...

    async def aclose(self) -> None:
        """Let go of what `open` took. Closing twice is harmless."""
        ...


class FunctionToolset:
    """Functions and tools as a group.

    Args:
        tools: what `@tool` returns, plain functions, or definitions of tools that run elsewhere.
        prefix: put before every name, so that two groups may have tools of one name: `prefix="github_"`.
        lifespan: makes the context in which the tools may run (a connection, a directory); entered when the toolset is
            opened, left when it is closed, both in one task.

    Raises:
        ConfigurationError: two tools of one name.
    """

    def __init__(
        self,
        tools: Sequence[ToolSource],
        *,
        prefix: str = "",
        lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
    ) -> None:
        self._tools = tuple(prefixed(one, prefix) for one in tools_by_name(tools).values())
        self._resource = HostedResource(lifespan) if lifespan is not None else None

    async def open(self) -> None:
        """Enter the lifespan; an error of it comes out here."""
        if self._resource is not None:
            await self._resource.open()

    async def tools(self) -> Sequence[Tool | ToolDefinition]:
        """The tools, by their prefixed names."""
        return self._tools

    async def aclose(self) -> None:
        """Leave the lifespan; an error of it comes out here."""
        if self._resource is not None:
            await self._resource.aclose()


def prefixed(one: Tool | ToolDefinition, prefix: str) -> Tool | ToolDefinition:
    """The tool under a name with a prefix."""
    if not prefix:
        return one
    if isinstance(one, Tool):
        return one.renamed(prefix + one.name)
    return ToolDefinition(prefix + one.name, one.description, one.parameters, one.strict)


class HostedResource:
    """A context that is entered and left in a task of its own, whoever opens and closes it.

    Clients of protocols hold task groups inside, which the task that entered them has to leave; turns come and go.
    The task lives from `open` to `aclose`, which waits for it.

    Args:
        lifespan: makes the context.
    """

    def __init__(self, lifespan: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self._lifespan = lifespan
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Any] | None = None
        self._leave = asyncio.Event()

    async def open(self) -> Any:
        """The value of the context; entered if it is not open.

        Raises:
            ConfigurationError: it is open in another event loop.
            Exception: what entering it raised.
        """
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done():
            self._leave = asyncio.Event()
            self._ready = loop.create_future()
            self._task = loop.create_task(self._live(self._ready, self._leave))
        elif self._task.get_loop() is not loop:
            raise ConfigurationError(
                "this toolset is open in another event loop; close it there first, or make one for each loop"
            )
        assert self._ready is not None
        return await asyncio.shield(self._ready)

    async def aclose(self) -> None:
        """Leave the context and wait until it is left."""
        task, self._task = self._task, None
        if task is None or task.done():
            return
        self._leave.set()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    async def _live(self, ready: "asyncio.Future[Any]", leave: asyncio.Event) -> None:
        try:
            async with self._lifespan() as value:
                ready.set_result(value)
                await leave.wait()
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error if isinstance(error, Exception) else RuntimeError(f"not opened: {error!r}"))
            if not isinstance(error, Exception):
                raise


AnyToolSource: TypeAlias = "ToolSource | Toolset"
"""What a client takes as a tool: a tool, a function, a definition, or a group of these."""
