"""StructuredOutputFilter: an answer that does not fit the type that was asked for is sent back to be repaired."""

from typing import ClassVar

from msgspec.structs import replace

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.errors import ConfigurationError, OutputError
from agentcore.filters.base import ChatCall, Filter, MemorySide
from agentcore.messages import UserMessage
from agentcore.structured import parse_output

FEEDBACK = "Your answer cannot be used: {error}. Answer again with the corrected JSON alone, without any other text."


class StructuredOutputFilter(Filter):
    """Validates answers against `ChatOptions.response_format`, if that is a type, and has the model repair them.

        client = ChatClient(model, memory=store, filters=[StructuredOutputFilter()])
        result = await client.invoke("Who wrote it?", options=ChatOptions(response_format=Person))
        person = result.parse(Person)

    A failed answer and what the model is told of it are in the next attempt's request, and nowhere in the history; of
    a stream, what was delivered of it is kept as `interrupted`, and a `ReplyRestarted` event comes before the next
    attempt. Every attempt counts as a model call of the turn, with its tokens. When the attempts are used up, or the
    turn's limit of model calls is reached, the last answer stands, and `result.parse` raises. Replies with tool calls
    and refusals are left alone.

    Args:
        max_retries: attempts after the first, for each answer.
        feedback: what the model is told; `{error}` stands for what is wrong.

    Raises:
        ConfigurationError: `max_retries` is negative.
    """

    memory_side: ClassVar[MemorySide | None] = "inside"

    def __init__(self, *, max_retries: int = 2, feedback: str = FEEDBACK) -> None:
        if max_retries < 0:
            raise ConfigurationError(f"max_retries={max_retries} is no number of further attempts; give 0 or more")
        self._max_retries = max_retries
        self._feedback = feedback

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        """Ask, and ask again while the answer does not fit."""
        response = await call_next(request)
        wanted = request.options.response_format
        if wanted is None or isinstance(wanted, str | dict):
            return response
        turn, asked = request.turn, request
        for _ in range(self._max_retries):
            error = _fault(response, wanted)
            if error is None:
                break
            if turn is not None:
                limit = turn.limits.model_calls
                if limit is not None and turn.model_calls >= limit:
                    break
                turn.model_calls += 1
            # Added to this attempt's request, not to the one before: what was wrong earlier is wrong no longer.
            told = UserMessage(self._feedback.replace("{error}", str(error)))
            asked = replace(request, messages=[*request.messages, response.message, told])
            spent = response.usage
            try:
                response = await call_next(asked)
            except BaseException:
                if turn is not None:
                    turn.usage += spent
                raise
            response = replace(response, usage=spent + response.usage)
        return response


def _fault(response: ChatResponse, wanted: type[object]) -> OutputError | None:
    if response.message.tool_calls or response.finish_reason == "content_filter":
        return None
    try:
        parse_output(response.text, wanted)
    except OutputError as error:
        return error
    return None
