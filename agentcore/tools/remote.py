"""RemoteTool: a tool that runs elsewhere and is known by its JSON Schema alone."""

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from agentcore.context import ToolContext
from agentcore.tools.tool import Tool

RemoteCall: TypeAlias = Callable[[dict[str, Any], ToolContext], Awaitable[Any]]
"""Calls the tool where it is, with the arguments as the model wrote them."""


class RemoteTool(Tool):
    """A tool without a signature: its arguments are checked where it runs.

    Args:
        name: what the model calls it.
        description: what the model is told it does.
        parameters: JSON Schema of the arguments.
        call: calls it.
        timeout: seconds it may take; None for the client's default.
    """

    def __init__(
        self,
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        call: RemoteCall,
        *,
        timeout: float | None = None,
    ) -> None:
        async def run(args: dict[str, Any], context: ToolContext) -> Any:
            return await call(args, context)

        super().__init__(
            run, name=name, description=description, timeout=timeout, local_names={"ToolContext": ToolContext}
        )
        self.parameters = dict(parameters)
        self._call = call

    def bind(self, args: Mapping[str, Any], context: ToolContext) -> functools.partial[Any]:
        """The call, ready to be made, with the arguments as they are."""
        return functools.partial(self._call, dict(args), context)
