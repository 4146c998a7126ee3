"""LoggingFilter: one structured log record a turn, a model call and a tool call."""

import logging
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.context import ToolContext
from agentcore.errors import AgentCoreError
from agentcore.exchange import InvokeResult, TurnRequest
from agentcore.filters.base import ChatCall, Filter, ToolRun, TurnCall
from agentcore.messages import AssistantMessage, Message, ToolMessage, text_of
from agentcore.tools.request import ToolRequest
from agentcore.usage import Usage


class LoggingFilter(Filter):
    """Logs what happened, how long it took and what it cost; not what was said, unless asked to.

        client = ChatClient(model, filters=[LoggingFilter()])            # first: it sees what all others do
        logging.basicConfig(level=logging.INFO)

    The figures are attributes of the record (`extra`), for a formatter that writes JSON: `event` (`turn`, `model_call`,
    `tool_call`), `conversation_id`, `turn_id`, `duration` in seconds, and what there is of `status`, `model`,
    `finish_reason`, `input_tokens`, `output_tokens`, `model_calls`, `tool_names`, `is_error` and `error` (its kind or
    type alone: an error's text may quote what was said).

    Args:
        logger: where records go; `agentcore.turns` if not said.
        level: of records of what went well; failures are warnings.
        log_content: also what was said, as `input` and `output`.
        redact: what of a text may be logged; it is given every text before it is.
    """

    def __init__(
        self,
        *,
        logger: logging.Logger | None = None,
        level: int = logging.INFO,
        log_content: bool = False,
        redact: Callable[[str], str] | None = None,
    ) -> None:
        self._logger = logger or logging.getLogger("agentcore.turns")
        self._level = level
        self._log_content = log_content
        self._redact = redact or str

    async def around_turn(self, request: TurnRequest, call_next: TurnCall) -> InvokeResult:
        """Log the turn."""
        with self._record("turn", request.turn.context) as fields:
            result = await call_next(request)
            fields |= {"status": result.status, "model_calls": result.model_calls, **_tokens(result.usage)}
            fields["finish_reason"] = result.finish_reason
            fields["tool_names"] = [
                call.name for m in result.messages if isinstance(m, AssistantMessage) for call in m.tool_calls
            ]
            if self._log_content:
                fields |= {"input": self._texts(request.messages), "output": self._redact(result.text)}
            return result

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        """Log the model call."""
        with self._record("model_call", request.context) as fields:
            fields["model"] = request.options.model or getattr(request.model, "name", None)
            response = await call_next(request)
            fields |= {"finish_reason": response.finish_reason, **_tokens(response.usage)}
            fields["model"] = response.model or fields["model"]
            fields["tool_names"] = [call.name for call in response.message.tool_calls]
            if self._log_content:
                fields |= {"input": self._texts(request.messages), "output": self._redact(response.text)}
            return response

    async def around_tool(self, request: ToolRequest, call_next: ToolRun) -> ToolMessage:
        """Log the tool call."""
        with self._record("tool_call", request.context) as fields:
            fields |= {"tool_names": [request.call.name], "tool_call_id": request.call.id}
            message = await call_next(request)
            fields["is_error"] = message.is_error
            if self._log_content:
                fields |= {"input": self._redact(repr(request.call.args)), "output": self._texts([message])}
            return message

    @contextmanager
    def _record(self, event: str, context: ToolContext) -> Generator[dict[str, Any]]:
        fields: dict[str, Any] = {"event": event, "conversation_id": context.conversation_id}
        fields["turn_id"] = context.turn_id
        level, start = self._level, time.perf_counter()
        try:
            yield fields
            if fields.get("is_error"):
                level = logging.WARNING
        except BaseException as error:
            level = logging.WARNING
            fields["error"] = error.kind if isinstance(error, AgentCoreError) else type(error).__name__
            raise
        finally:
            fields["duration"] = time.perf_counter() - start
            if self._logger.isEnabledFor(level):
                outcome = fields.get("error") or fields.get("status") or fields.get("finish_reason") or "done"
                names = " ".join(fields.get("tool_names", ()))
                self._logger.log(level, "%s %s in %.3f s %s", event, outcome, fields["duration"], names, extra=fields)

    def _texts(self, messages: Sequence[Message]) -> str:
        return self._redact("\n".join(text_of(message.content) for message in messages))


def _tokens(usage: Usage) -> dict[str, int | None]:
    return {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
