"""The demo: two turns of one conversation with a real model, checked as they happen, over each wire format."""

import sys
import time
from collections.abc import Sequence

from msgspec import Struct

from agentcore.chat import ChatOptions, ChatRequest, ChatResponse
from agentcore.cli.local_model import LocalModelServer, serve_local_model
from agentcore.cli.sample_tools import calculate, current_time, roll_dice
from agentcore.client import ChatClient
from agentcore.events import TextDelta, ToolFinished, ToolStarted
from agentcore.exchange import InvokeResult
from agentcore.filters.base import ChatCall, Filter
from agentcore.filters.memory import MemoryFilter
from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.messages import Message, text_of
from agentcore.providers.anthropic import AnthropicChatModel
from agentcore.providers.http_model import HTTPChatModel
from agentcore.providers.openai import OpenAIChatModel

TURNS = ("What time is it in Oslo?", "Now roll a die for me.")
_SHOWN = 160


class DemoFailedError(RuntimeError):
    """Something the demo is there to show did not happen."""


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
    tools_run: int = 0


async def demo() -> int:
    """Run it; returns the exit status."""
    print(
        "A tiny model (SmolLM2-135M) on this machine. It talks nonsense at times: watch what happens, not what it says."
    )
    try:
        async with serve_local_model() as server:
            await _conversation(
                "OpenAI Chat Completions", OpenAIChatModel(server.model, base_url=f"{server.url}/v1"), server
            )
            await _conversation("Anthropic Messages", AnthropicChatModel(server.model, base_url=server.url), server)
    except DemoFailedError as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    return 0


async def _conversation(wire: str, model: HTTPChatModel, server: LocalModelServer) -> None:
    print(f"\n── {wire} ──")
    started = time.perf_counter()
    memory, watch, seen = InMemoryChatMemory(), Watch(), _Seen()
    client = ChatClient(
        model,
        tools=[current_time, calculate, roll_dice],
        filters=[MemoryFilter(memory), watch],
        options=ChatOptions(max_tokens=48),
    )
    results: list[InvokeResult] = []
    async with client:
        for text in TURNS:
            before = len(watch.sent)
            stored = list(await memory.get("demo"))
            results.append(await _turn(client, text, seen))
            if list(watch.sent[before][: len(stored)]) != stored or len(watch.sent[before]) != len(stored) + 1:
                raise DemoFailedError(
                    f"the request of turn {len(results)} did not hold what the turns before it stored"
                )
        history = await memory.get("demo")
    if not seen.tools_run:
        raise DemoFailedError("no tool was run")
    if seen.pieces < 2 * len(TURNS):
        raise DemoFailedError("the text did not come as a stream")
    if len(history) != sum(len(result.messages) for result in results):
        raise DemoFailedError("the store does not hold what the turns brought")
    usage = results[0].usage + results[1].usage
    calls = sum(result.model_calls for result in results)
    print(
        f"[{server.model} over {wire}: {calls} model calls, {seen.tools_run} tool calls, {usage.input_tokens} + "
        f"{usage.output_tokens} tokens, {time.perf_counter() - started:.1f} s]"
    )


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
                    seen.tools_run += not event.message.is_error
                    print(f"[→ {text_of(event.message.content)[:_SHOWN]}]", flush=True)
                case _:
                    pass
    print()
    return turn.result
