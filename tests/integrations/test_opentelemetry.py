"""Telemetry: spans and metrics by the convention, of invoke and stream alike, and nothing of what was said."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from agentcore import (
    ChatClient,
    ChatOptions,
    ChatResponse,
    InMemoryChatMemory,
    ProviderError,
    ToolCall,
    Usage,
    tool,
)
from agentcore.integrations.opentelemetry import TelemetryFilter
from agentcore.testing import Reply, ScriptedModel

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanKind, StatusCode

pytestmark = pytest.mark.asyncio

KNOWN = {
    value
    for module in (gen_ai_attributes, error_attributes)
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
}


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def boom() -> str:
    """Fail."""
    raise RuntimeError("private words")


class Named(ScriptedModel):
    """A scripted model that says what a provider says."""

    def __init__(self, script: Any) -> None:
        super().__init__(script)
        self.provider, self.name = "mistral", "large"

    async def chat(self, request: Any) -> ChatResponse:
        return replace(await super().chat(request), model="large-2", response_id="r1", raw_finish_reason="stop")


class Scope:
    """Exporters, and a filter that feeds them."""

    def __init__(self, **settings: Any) -> None:
        self.spans_of = InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.spans_of))
        self.reader = InMemoryMetricReader()
        meters = MeterProvider([self.reader])
        self.filter = TelemetryFilter(tracer_provider=tracers, meter_provider=meters, **settings)

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.spans_of.get_finished_spans()}

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics if m.name == name]
        return [point for metric in metrics for point in metric.data.data_points]


SCRIPT = [
    Reply(tool_calls=[ToolCall("c1", "add", {"a": 1, "b": 2})], usage=Usage(input_tokens=7, output_tokens=3)),
    Reply(text="private words", usage=Usage(input_tokens=9, output_tokens=1, cached_input_tokens=4)),
]


async def run(scope: Scope, script: Any, *, stream: bool = False, tools: Any = (add, boom)) -> Any:
    client = ChatClient(Named(list(script)), tools=list(tools), memory=InMemoryChatMemory(), filters=[scope.filter])
    options = ChatOptions(temperature=0.5, max_tokens=9)
    if not stream:
        return await client.invoke("private words", conversation_id="u1", options=options)
    async with client.stream("private words", conversation_id="u1", options=options) as turn:
        async for _ in turn:
            pass
    return turn.result


@pytest.mark.parametrize("stream", [False, True], ids=["invoke", "stream"])
async def test_turn_model_call_and_tool_are_spans_of_the_convention(stream: bool) -> None:
    scope = Scope(agent_name="helper")
    await run(scope, SCRIPT, stream=stream)
    spans = scope.spans
    assert set(spans) == {"invoke_agent helper", "chat large", "execute_tool add"}
    agent, chat, execute = spans["invoke_agent helper"], spans["chat large"], spans["execute_tool add"]
    assert (agent.kind, chat.kind, execute.kind) == (SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL)
    assert agent.context is not None
    for child in (chat, execute):
        assert child.parent is not None
        assert child.parent.span_id == agent.context.span_id
    assert dict(agent.attributes or {}) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "helper",
        "gen_ai.conversation.id": "u1",
        "agentcore.turn.status": "completed",
        "gen_ai.usage.input_tokens": 16,
        "gen_ai.usage.output_tokens": 4,
    }
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "mistral_ai",
        "gen_ai.request.model": "large",
        "gen_ai.conversation.id": "u1",
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.response.model": "large-2",
        "gen_ai.response.id": "r1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 9,
        "gen_ai.usage.output_tokens": 1,
        "gen_ai.usage.cache_read.input_tokens": 4,
    }
    if stream:
        expected |= {"gen_ai.request.stream": True, "gen_ai.response.model": "large"}
        del expected["gen_ai.response.id"]  # the scripted stream does not say it
    assert dict(chat.attributes or {}) == expected
    assert dict(execute.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Add two numbers.",
    }


async def test_every_attribute_is_the_conventions_or_carries_our_name() -> None:
    scope = Scope(agent_name="helper", capture_content=True)
    await run(scope, SCRIPT)
    names = {name for span in scope.spans.values() for name in (span.attributes or {})}
    assert {name for name in names if not name.startswith("agentcore.")} <= KNOWN
    assert gen_ai_metrics.GEN_AI_CLIENT_OPERATION_DURATION == "gen_ai.client.operation.duration"
    assert gen_ai_metrics.GEN_AI_CLIENT_TOKEN_USAGE == "gen_ai.client.token.usage"


async def test_metrics_count_tokens_and_time_by_operation() -> None:
    scope = Scope()
    await run(scope, SCRIPT)
    tokens = {
        point.attributes["gen_ai.token.type"]: (point.sum, point.count)
        for point in scope.points("gen_ai.client.token.usage")
    }
    assert tokens == {"input": (16, 2), "output": (4, 2)}
    durations = {
        point.attributes["gen_ai.operation.name"]: point.count
        for point in scope.points("gen_ai.client.operation.duration")
    }
    assert durations == {"invoke_agent": 1, "chat": 2, "execute_tool": 1}


async def test_nothing_that_was_said_is_recorded_unless_asked_for() -> None:
    quiet, open_ = Scope(), Scope(capture_content=True)
    script = [[ToolCall("c1", "boom")], "private words"]
    for scope in (quiet, open_):
        await run(scope, script)
    assert "private words" not in "".join(span.to_json() for span in quiet.spans.values())
    recorded = open_.spans["chat large"].attributes or {}
    assert '"parts":[{"type":"text","content":"private words"}]' in str(recorded["gen_ai.output.messages"])
    assert "private words" in str((open_.spans["execute_tool boom"].attributes or {})["gen_ai.tool.call.result"])


async def test_failures_are_told_by_their_kind() -> None:
    scope = Scope()
    with pytest.raises(ProviderError):
        await run(scope, [ProviderError("private words", kind="rate_limit")])
    for name in ("invoke_agent", "chat large"):
        span = scope.spans[name]
        assert (span.attributes or {})["error.type"] == "rate_limit"
        assert span.status.status_code is StatusCode.ERROR
        assert not span.events
        assert "private words" not in span.to_json()
    [point] = [
        p for p in scope.points("gen_ai.client.operation.duration") if p.attributes["gen_ai.operation.name"] == "chat"
    ]
    assert point.attributes["error.type"] == "rate_limit"


async def test_failed_tool_is_an_error_span_in_a_good_turn() -> None:
    scope = Scope()
    result = await run(scope, [[ToolCall("c1", "boom")], "sorry"])
    assert result.status == "completed"
    assert scope.spans["execute_tool boom"].status.status_code is StatusCode.ERROR
    assert scope.spans["invoke_agent"].status.status_code is StatusCode.UNSET


async def test_cancelled_turn_ends_its_spans() -> None:
    started = asyncio.Event()

    @tool
    async def wait() -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    scope = Scope()
    task = asyncio.create_task(run(scope, [[ToolCall("c1", "wait")]], tools=[wait]))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (scope.spans["execute_tool wait"].attributes or {})["error.type"] == "CancelledError"
    assert set(scope.spans) == {"invoke_agent", "chat large", "execute_tool wait"}
