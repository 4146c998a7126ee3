"""TelemetryFilter: spans and metrics of turns, model calls and tools, by OpenTelemetry's GenAI semantic conventions.

Needs the extra `opentelemetry` (the API alone; who exports installs the SDK). Source of names and kinds: OpenTelemetry
semantic conventions for generative AI, "Spans", "Agent spans" and "Metrics".
"""

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.codecs.shared import encode_json
from agentcore.errors import AgentCoreError, ConfigurationError
from agentcore.exchange import InvokeResult, TurnRequest
from agentcore.filters.base import ChatCall, Filter, ToolRun, TurnCall
from agentcore.messages import AssistantMessage, Message, SystemMessage, ToolMessage, text_of
from agentcore.tools.request import ToolRequest

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

_PROVIDERS = {
    "azure": "azure.ai.openai",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "openai-responses": "openai",
    "xai": "x_ai",
}
"""The convention's names of providers, where ours differ."""

_DURATION_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKEN_BUCKETS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)


class TelemetryFilter(Filter):
    """Spans `invoke_agent`, `chat` and `execute_tool`, and the metrics of operation duration and token usage.

    Put it first, so that it sees what all others do. What was said is never recorded unless asked for.

    Args:
        agent_name: name of the agent in spans.
        capture_content: record messages, tool arguments and results, and instructions: they are often private.
        tracer_provider: instead of the global one.
        meter_provider: instead of the global one.

    Raises:
        ConfigurationError: OpenTelemetry's API is not installed.
    """

    def __init__(
        self,
        *,
        agent_name: str | None = None,
        capture_content: bool = False,
        tracer_provider: "TracerProvider | None" = None,
        meter_provider: "MeterProvider | None" = None,
    ) -> None:
        try:
            from opentelemetry import metrics, trace
        except ImportError as error:
            raise ConfigurationError(
                "telemetry needs OpenTelemetry's API: pip install 'agentcore-async[opentelemetry]'"
            ) from error
        self._agent_name = agent_name
        self._capture_content = capture_content
        self._kinds = trace.SpanKind
        self._error_status = trace.Status(trace.StatusCode.ERROR)
        self._tracer = trace.get_tracer("agentcore", tracer_provider=tracer_provider)
        meter = metrics.get_meter("agentcore", meter_provider=meter_provider)
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=_DURATION_BUCKETS,
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKEN_BUCKETS,
        )

    async def around_turn(self, request: TurnRequest, call_next: TurnCall) -> InvokeResult:
        """A span around the turn."""
        attributes: dict[str, Any] = {"gen_ai.operation.name": "invoke_agent"}
        _put(attributes, "gen_ai.agent.name", self._agent_name)
        _put(attributes, "gen_ai.conversation.id", request.context.conversation_id)
        name = f"invoke_agent {self._agent_name}" if self._agent_name else "invoke_agent"
        with self._span(name, "INTERNAL", attributes) as (span, _):
            result = await call_next(request)
            span.set_attribute("agentcore.turn.status", result.status)
            _put_usage(span, result.usage.input_tokens, result.usage.output_tokens)
            if self._capture_content:
                span.set_attribute("gen_ai.input.messages", _messages_text(request.messages))
                if result.message is not None:
                    span.set_attribute("gen_ai.output.messages", _messages_text([result.message]))
            return result

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        """A span around the model call, its duration and its tokens."""
        model = request.model
        asked = request.options.model or _text_attribute(model, "name")
        attributes: dict[str, Any] = {"gen_ai.operation.name": "chat"}
        provider = _text_attribute(model, "provider")
        _put(attributes, "gen_ai.provider.name", _PROVIDERS.get(provider or "", provider))
        _put(attributes, "gen_ai.request.model", asked)
        metric = dict(attributes)
        _put(attributes, "gen_ai.conversation.id", request.context.conversation_id)
        _put_options(attributes, request)
        with self._span(f"chat {asked}" if asked else "chat", "CLIENT", attributes, metric) as (span, measured):
            response = await call_next(request)
            _put_response(span, response)
            _put(measured, "gen_ai.response.model", response.model)
            for kind, count in (("input", response.usage.input_tokens), ("output", response.usage.output_tokens)):
                if count is not None:
                    self._tokens.record(count, {**measured, "gen_ai.token.type": kind})
            if self._capture_content:
                span.set_attribute("gen_ai.input.messages", _messages_text(request.messages))
                span.set_attribute("gen_ai.output.messages", _messages_text([response.message]))
            return response

    async def around_tool(self, request: ToolRequest, call_next: ToolRun) -> ToolMessage:
        """A span around the tool."""
        call = request.call
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
        }
        if request.tool is not None:
            _put(attributes, "gen_ai.tool.description", request.tool.description)
        if self._capture_content:
            attributes["gen_ai.tool.call.arguments"] = _json_text(call.args)
        with self._span(f"execute_tool {call.name}", "INTERNAL", attributes) as (span, measured):
            message = await call_next(request)
            if message.is_error:
                measured["error.type"] = "tool_error"
                span.set_attribute("error.type", "tool_error")
                span.set_status(self._error_status)
            if self._capture_content:
                span.set_attribute("gen_ai.tool.call.result", text_of(message.content))
            return message

    @contextmanager
    def _span(
        self, name: str, kind: str, attributes: Mapping[str, Any], metric: dict[str, Any] | None = None
    ) -> "Generator[tuple[Span, dict[str, Any]]]":
        """A span that is current inside; errors by their type alone, since their text may quote what was said."""
        measured = {"gen_ai.operation.name": attributes["gen_ai.operation.name"]} if metric is None else metric
        start = time.perf_counter()
        with self._tracer.start_as_current_span(
            name,
            kind=getattr(self._kinds, kind),
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span, measured
            except BaseException as error:
                measured["error.type"] = _error_type(error)
                span.set_attribute("error.type", measured["error.type"])
                span.set_status(self._error_status)
                raise
            finally:
                self._duration.record(time.perf_counter() - start, measured)


def _error_type(error: BaseException) -> str:
    return error.kind if isinstance(error, AgentCoreError) else type(error).__qualname__


def _put(attributes: dict[str, Any], name: str, value: Any) -> None:
    if value:
        attributes[name] = value


def _text_attribute(model: object, name: str) -> str | None:
    value = getattr(model, name, None)
    return value if isinstance(value, str) and value else None


def _put_options(attributes: dict[str, Any], request: ChatRequest) -> None:
    options = request.options
    for name, value in (
        ("max_tokens", options.max_tokens),
        ("temperature", options.temperature),
        ("top_p", options.top_p),
        ("seed", options.seed),
        ("stop_sequences", options.stop),
    ):
        if value is not None:
            attributes[f"gen_ai.request.{name}"] = value
    if request.turn is not None and request.turn.sink is not None:
        attributes["gen_ai.request.stream"] = True
    if options.response_format is not None:
        attributes["gen_ai.output.type"] = "json"


def _put_response(span: "Span", response: ChatResponse) -> None:
    if response.model:
        span.set_attribute("gen_ai.response.model", response.model)
    if response.response_id:
        span.set_attribute("gen_ai.response.id", response.response_id)
    span.set_attribute("gen_ai.response.finish_reasons", (response.raw_finish_reason or response.finish_reason,))
    usage = response.usage
    _put_usage(span, usage.input_tokens, usage.output_tokens)
    for name, count in (
        ("gen_ai.usage.cache_read.input_tokens", usage.cached_input_tokens),
        ("gen_ai.usage.cache_creation.input_tokens", usage.cache_write_tokens),
        ("gen_ai.usage.reasoning.output_tokens", usage.reasoning_tokens),
    ):
        if count is not None:
            span.set_attribute(name, count)


def _put_usage(span: "Span", input_tokens: int | None, output_tokens: int | None) -> None:
    if input_tokens is not None:
        span.set_attribute("gen_ai.usage.input_tokens", input_tokens)
    if output_tokens is not None:
        span.set_attribute("gen_ai.usage.output_tokens", output_tokens)


def _messages_text(messages: Sequence[Message]) -> str:
    """Messages in the convention's JSON form."""
    return _json_text([_as_convention(message) for message in messages])


def _as_convention(message: Message) -> dict[str, Any]:
    if isinstance(message, AssistantMessage):
        parts: list[dict[str, Any]] = []
        if message.reasoning:
            parts.append({"type": "reasoning", "content": message.reasoning})
        if message.content:
            parts.append({"type": "text", "content": message.content})
        parts += [
            {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.args}
            for call in message.tool_calls
        ]
        finish = message.finish_reason or ("tool_call" if message.tool_calls else "stop")
        return {"role": "assistant", "parts": parts, "finish_reason": finish}
    if isinstance(message, ToolMessage):
        part = {"type": "tool_call_response", "id": message.tool_call_id, "response": text_of(message.content)}
        return {"role": "tool", "parts": [part]}
    role = "system" if isinstance(message, SystemMessage) else "user"
    return {"role": role, "parts": [{"type": "text", "content": text_of(message.content)}]}


def _json_text(value: object) -> str:
    return encode_json(value).decode()
