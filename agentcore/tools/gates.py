"""Gates: which calls of a batch wait for somebody before anything of it runs."""

import inspect
from collections.abc import Sequence
from typing import cast

from agentcore.context import ToolContext
from agentcore.messages import ToolCall
from agentcore.pause import PendingCall
from agentcore.tools.errors import describe
from agentcore.tools.request import ToolRequest
from agentcore.tools.tool import ArgumentError, Gate


async def calls_that_wait(requests: Sequence[ToolRequest], elsewhere: frozenset[str]) -> list[PendingCall]:
    """The calls that may not run yet, in call order. Gates are asked one after another, in that order.

    A call that cannot run anyway (no such tool, arguments that do not fit) needs nobody's consent to fail. Whether the
    arguments fit is only looked at when a gate has closed: a gate may see some that do not.

    Args:
        requests: the batch.
        elsewhere: names of tools that the model was offered and that run on the caller's side.
    """
    waiting: list[PendingCall] = []
    for request in requests:
        call, tool = request.call, request.tool
        if tool is None:
            if call.name in elsewhere and call.raw_arguments is None:
                waiting.append(PendingCall(call=call, kind="client_tool"))
        elif tool.approval is not False and call.raw_arguments is None:
            reason = await _ask(tool.approval, call, request.context)
            if reason is not None and _fits(request):
                waiting.append(PendingCall(call=call, kind="approval", reason=reason))
    return waiting


def _fits(request: ToolRequest) -> bool:
    assert request.tool is not None
    try:
        request.tool.bind(request.call.args, request.context)
    except ArgumentError:
        return False
    return True


async def _ask(gate: "bool | Gate", call: ToolCall, context: ToolContext) -> str | None:
    """Why the call has to wait; None if it need not."""
    if isinstance(gate, bool):
        return "" if gate else None
    try:
        answer = gate(call, context)
        if answer is False:  # what most gates say of most calls
            return None
        if inspect.isawaitable(answer):
            answer = await answer
    except Exception as error:  # noqa: BLE001 - who cannot tell whether a call is safe does not let it run
        return f"the gate of {call.name} failed: {describe(error)}"
    if isinstance(answer, str):
        return answer
    return "" if cast("object", answer) else None
