"""The demo: two turns of one conversation with a real model, checked as they happen, over each wire format."""

import functools
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from agentcore.chat import ChatOptions, ChatRequest, ChatResponse
from agentcore.cli.answer_after_tools import AnswerAfterTools
from agentcore.cli.local_model import serve_local_model
from agentcore.cli.sample_tools import SAMPLE_TOOLS
from agentcore.client import ChatClient
from agentcore.events import TextDelta, ToolFinished, ToolStarted
from agentcore.exchange import InvokeResult
from agentcore.filters.base import ChatCall, Filter
from agentcore.filters.memory import MemoryFilter
from agentcore.limits import Limits
from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.messages import Message, text_of
from agentcore.providers.anthropic import AnthropicChatModel
from agentcore.providers.http_model import HTTPChatModel
from agentcore.providers.openai import OpenAIChatModel
from agentcore.tools.tool import Tool, tool

# The next one where a model this small does not play along, as it may under load: it never ends a call, for example.
CONVERSATIONS = (
    ("Please roll two dice.", "And what time is it?"),
    ("Roll a die.", "Roll a die again."),
    ("What time is it in Oslo?", "Now roll a die for me."),
)
_SHOWN = 160


class DemoFailedError(RuntimeError):
    """Something the demo is there to show did not happen."""


class ModelPlaysNotAlongError(DemoFailedError):
    """It may be the model's doing alone."""


class Watch(Filter):
    """Inside the memory filter: sees what is really sent to the model."""

    def __init__(self) -> None:
        self.sent: list[Sequence[Message]] = []

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        """Keep the messages of each request."""
        self.sent.append(request.messages)
        return await call_next(request)


class _Seen(Struct):
    pieces: int = 0
    ran: list[str] = []


async def demo() -> int:
    """Run it; returns the exit status."""
    print(
        "A tiny model (SmolLM2-135M) on this machine. It talks nonsense at times: watch what happens, not what it says."
    )
    try:
        async with serve_local_model() as server:
            await _show_wire(
                "OpenAI Chat Completions", lambda: OpenAIChatModel(server.model, base_url=f"{server.url}/v1")
            )
            await _show_wire("Anthropic Messages", lambda: AnthropicChatModel(server.model, base_url=server.url))
    except DemoFailedError as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    return 0


async def _show_wire(wire: str, make_model: Callable[[], HTTPChatModel]) -> None:
    """The first conversation in which the model plays along; what the library owes is not given a second chance."""
    first_failure = None
    for texts in CONVERSATIONS:
        print(f"\n── {wire} ──")
        try:
            return await _conversation(wire, make_model(), texts)
        except ModelPlaysNotAlongError as error:
            first_failure = first_failure or error
            print(f"[this time {error}]")
    assert first_failure is not None
    raise first_failure


async def _conversation(wire: str, model: HTTPChatModel, texts: Sequence[str]) -> None:
    started = time.perf_counter()
    memory, watch, seen = InMemoryChatMemory(), Watch(), _Seen()
    client = ChatClient(
        model,
        tools=[_recorded(one, seen.ran) for one in SAMPLE_TOOLS],
        filters=[AnswerAfterTools(), MemoryFilter(memory), watch],
        options=ChatOptions(max_tokens=48),
        limits=Limits(model_calls=6),
    )
    results: list[InvokeResult] = []
    async with client:
        for text in texts:
            before = len(watch.sent)
            stored = list(await memory.get("demo"))
            results.append(await _turn(client, text, seen))
            if list(watch.sent[before][: len(stored)]) != stored or len(watch.sent[before]) != len(stored) + 1:
                raise DemoFailedError(
                    f"the request of turn {len(results)} did not hold what the turns before it stored"
                )
        history = await memory.get("demo")
    if len(history) != sum(len(result.messages) for result in results):
        raise DemoFailedError("the store does not hold what the turns brought")
    if not seen.ran:
        raise ModelPlaysNotAlongError("no tool was run")
    if seen.pieces < 2 * len(texts):
        raise ModelPlaysNotAlongError("the text did not come as a stream")
    usage = results[0].usage + results[1].usage
    calls = sum(result.model_calls for result in results)
    print(
        f"[{model.name} over {wire}: {calls} model calls, {len(seen.ran)} tool calls, {usage.input_tokens} + "
        f"{usage.output_tokens} tokens, {time.perf_counter() - started:.1f} s]"
    )


def _recorded(inner: Tool, ran: list[str]) -> Tool:
    """The same tool, which writes down in its own body that it ran: an event could only claim so."""

    @functools.wraps(inner.__wrapped__)
    def record(*args: Any, **kwargs: Any) -> Any:
        value = inner(*args, **kwargs)
        ran.append(inner.name)
        return value

    return tool(record)


async def _turn(client: ChatClient, text: str, seen: _Seen) -> InvokeResult:
    print(f"> {text}")
    async with client.stream(text, conversation_id="demo") as turn:
        async for event in turn:
            match event:
                case TextDelta():
                    seen.pieces += 1
                    print(event.text, end="", flush=True)
                case ToolStarted():
                    print(f"[{event.call.name} {event.call.args}]", flush=True)
                case ToolFinished():
                    print(f"[→ {text_of(event.message.content)[:_SHOWN]}]", flush=True)
                case _:
                    pass
    print()
    return turn.result
