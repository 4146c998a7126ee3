"""agent_tool: a client as a tool of another client."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from agentcore.client import ChatClient
from agentcore.context import ToolContext
from agentcore.errors import ConfigurationError
from agentcore.events import AgentEvent
from agentcore.exchange import InvokeResult
from agentcore.limits import Limits
from agentcore.tools.results import ToolResult
from agentcore.tools.tool import Tool

_TOLD = {
    "limit": "(The agent reached a limit before it was done. What it had:)",
    "paused": "(The agent waits for a person's decision, which cannot be given here. What it had:)",
    "cancelled": "(The agent was stopped. What it had:)",
    "blocked": "(The agent was not allowed to answer.)",
    "stopped": "(The agent stopped before it was done. What it had:)",
}


def agent_tool(
    client: ChatClient,
    *,
    name: str,
    description: str,
    share: Sequence[str] = (),
    remembers: bool = False,
    limits: Limits | None = None,
    timeout: float | None = None,
) -> Tool:
    """Make a tool of a client: the model that calls it gives it a task in words and gets its answer.

    The agent sees the task and nothing else: not the caller's history, and of its tool context only what `share` names.
    It works within what is left of the caller's limits, its tokens count as the caller's, it is cancelled with the
    caller, and its events reach the reader of the caller's stream as `AgentEvent`.

    Args:
        client: the agent, with its own model, tools, filters and memory.
        name: of the tool, and of the agent in events.
        description: what the calling model is told it can do.
        share: keys of the tool context that the agent is given.
        remembers: the agent has a conversation of its own beside each conversation of the caller
            (`<conversation id>/<name>`, in its own client's memory), so that it remembers earlier tasks of it.
        limits: bounds of one task, within what is left of the caller's.
        timeout: seconds one task may take.

    Raises:
        ConfigurationError: `share` names the conversation id, which an agent never shares.
    """
    if "conversation_id" in share:
        raise ConfigurationError(
            f"agent {name!r}: an agent has a conversation of its own; use remembers=True instead of sharing the id"
        )

    async def run(task: str, context: ToolContext) -> ToolResult:
        conversation_id = f"{context.conversation_id}/{name}" if remembers and context.conversation_id else None
        shared = {key: context[key] for key in share if key in context}
        bounds = _within(limits, context)
        async with client.stream(task, conversation_id=conversation_id, tool_context=shared, limits=bounds) as turn:
            async for event in turn:
                await context.emit(AgentEvent(name, context.call_id, event))
        return ToolResult(_told(turn.result), usage=turn.result.usage)

    run.__doc__ = f"{description}\n\nArgs:\n    task: what to do, with everything the agent has to know for it."
    return Tool(run, name=name, timeout=timeout, local_names={"ToolContext": ToolContext, "ToolResult": ToolResult})


def _within(limits: Limits | None, context: ToolContext) -> Limits | None:
    """The tighter of both, bound by bound."""
    left: Limits | None = context.scope.remaining() if context.scope is not None else None
    if left is None or limits is None:
        return limits if left is None else left
    tighter: dict[str, Any] = {}
    for bound in ("model_calls", "tool_calls", "tokens", "cost", "seconds", "repeated_calls"):
        given = [value for value in (getattr(limits, bound), getattr(left, bound)) if value is not None]
        tighter[bound] = min(given, default=None)
    return replace(limits, **tighter)


def _told(result: InvokeResult) -> str:
    """What the calling model is told."""
    if result.status == "completed":
        return result.text or "(The agent gave no answer.)"
    return "\n".join(part for part in (_TOLD[result.status], result.text) if part)
