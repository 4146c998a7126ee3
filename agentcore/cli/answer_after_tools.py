"""A filter for models too small to know when to stop calling tools."""

from msgspec.structs import replace

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.filters.base import ChatCall, Filter
from agentcore.messages import ToolMessage


class AnswerAfterTools(Filter):
    """Offers no tools in the model call that follows tool results, so that the model has to say something.

    SmolLM2-135M repeats the same call up to the limit of the turn after some results of `current_time`; which
    ones depends on the clock, since it is decoded greedily.
    """

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        """Leave the tools out where the newest message is a tool's."""
        if request.messages and isinstance(request.messages[-1], ToolMessage):
            request = replace(request, tools=())
        return await call_next(request)
