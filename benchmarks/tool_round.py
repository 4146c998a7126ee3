"""What tools' guards cost where none of them steps in: a turn of 3 rounds × 8 tools, plain and with each of them.

python -m benchmarks.tool_round [--quick] [--only WORD] [--rounds N]

The turn is the one of the main table. Over HTTP it is what the core was measured by; with a model in the process, which
answers at once, there is nothing but the loop and the tools, and so each guard shows. Interleaved, medians of the
ratios; the noise is that of the plain client beside itself.
"""

import argparse
import asyncio
import gc
import statistics
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from agentcore import (
    AssistantMessage,
    ChatClient,
    ChatRequest,
    ChatResponse,
    FunctionToolset,
    InMemoryChatMemory,
    Limits,
    OpenAIChatModel,
    ToolCall,
    ToolMessage,
    Usage,
    tool,
)
from agentcore.chat import ChatModel, ChatStream, stream_whole
from benchmarks import by_hand
from benchmarks.server import serving

ROUNDS, TOOLS = 3, 8
ADD = tool(by_hand.add)
GUARDED = tool(timeout=60, retry=2, approval=lambda call, context: False)(by_hand.add)
LIMITS = Limits(model_calls=1_000, tool_calls=10_000, tokens=10**9, seconds=3_600, repeated_calls=100)


class InstantModel:
    """Asks for eight tools, three times, and answers."""

    name = "instant"

    def __init__(self) -> None:
        usage = Usage(input_tokens=100, output_tokens=20)
        asked = [
            tuple(ToolCall(f"c{number}_{place}", "add", {"a": place, "b": 1}) for place in range(TOOLS))
            for number in range(ROUNDS)
        ]
        self._replies = [ChatResponse(AssistantMessage(None, calls), "tool_calls", usage=usage) for calls in asked]
        self._replies.append(ChatResponse(AssistantMessage("done"), "stop", usage=usage))

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """The next reply."""
        return self._replies[sum(isinstance(one, ToolMessage) for one in request.messages) // TOOLS]

    @asynccontextmanager
    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatStream]:
        """The next reply at once."""
        async with stream_whole(await self.chat(request)) as stream:
            yield stream


GUARDS: dict[str, dict[str, Any]] = {
    "plain, again": {},
    "limits of everything but cost": {"limits": LIMITS},
    "limit of cost": {"limits": Limits(cost=1e9)},
    "a gate": {"tools": [tool(approval=lambda call, context: False)(by_hand.add)]},
    "a timeout declared": {"tools": [tool(timeout=60)(by_hand.add)]},
    "retries declared": {"tools": [tool(retry=2)(by_hand.add)]},
    "run_tools_if": {"run_tools_if": lambda response, turn: True},
    "max_result_chars": {"max_result_chars": 100_000},
    "max_concurrent_tools": {"max_concurrent_tools": 64},
    "a toolset": {"tools": [FunctionToolset([ADD])]},
    "pauses on failed surroundings, expiry": {"pause_on_environment_error": True, "pause_expires_in": 3_600},
}
EVERYTHING = "all of it"
ALL: dict[str, Any] = {
    "tools": [FunctionToolset([GUARDED])],
    "limits": LIMITS,
    "tool_timeout": 60,
    "max_result_chars": 100_000,
    "max_concurrent_tools": 64,
    "run_tools_if": lambda response, turn: True,
    "pause_on_environment_error": True,
    "pause_expires_in": 3_600,
}


def client(model: ChatModel, guards: dict[str, Any]) -> ChatClient:
    """A client with its guards."""
    return ChatClient(model, memory=InMemoryChatMemory(), **{"tools": [ADD], **guards})


async def block(one: ChatClient, turns: int) -> float:
    """Seconds a turn takes, each in a conversation of its own."""
    gc.collect()
    start = time.perf_counter()
    for number in range(turns):
        result = await one.invoke("hello", conversation_id=str(number))
        assert (result.status, result.tool_calls) == ("completed", ROUNDS * TOOLS)
    taken = (time.perf_counter() - start) / turns
    for number in range(turns):
        assert one.memory is not None
        await one.memory.clear(str(number))
    return taken


async def measure(name: str, model: ChatModel, ways: dict[str, dict[str, Any]], rounds: int, turns: int) -> None:
    """Print a line for each way: microseconds a turn takes, and its ratio to the plain one."""
    plain = client(model, {})
    clients = {way: client(model, guards) for way, guards in ways.items()}
    figures: list[float] = []
    ratios: dict[str, list[float]] = {way: [] for way in ways}
    await block(plain, turns)
    for one in clients.values():
        await block(one, turns)
    for number in range(rounds):
        for way, one in clients.items():
            pair = [plain, one] if number % 2 else [one, plain]  # who is second has a warmer machine
            taken = {id(each): await block(each, turns) for each in pair}
            figures.append(taken[id(plain)])
            ratios[way].append(taken[id(one)] / taken[id(plain)])
    print(f"{name:<44}{statistics.median(figures) * 1e6:>10.0f} µs")
    for way, measured in ratios.items():
        noise = statistics.stdev(measured) / len(measured) ** 0.5 if len(measured) > 1 else 0.0
        print(f"  {way:<42}{statistics.median(measured):>10.3f} ±{noise:.3f}")


async def run(rounds: int, turns: int, only: str, port: int) -> None:
    """Print the table."""
    ways = {way: guards for way, guards in {**GUARDS, EVERYTHING: ALL}.items() if only.lower() in way.lower()}
    over_http = {way: guards for way, guards in ways.items() if way in ("plain, again", EVERYTHING)}
    model = OpenAIChatModel("bench", api_key="sk-none", base_url=f"http://127.0.0.1:{port}/tools")
    print(f"{f'a turn of {ROUNDS} rounds × {TOOLS} tools':<44}{'':>13}; below, times the plain one")
    async with model:
        await measure("over HTTP", model, over_http, rounds, turns)
    await measure("with a model in the process", InstantModel(), ways, rounds, turns)


def main(argv: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it runs")
    parser.add_argument("--only", default="", help="guards whose name has this word in it")
    parser.add_argument("--rounds", type=int, default=60)
    given = parser.parse_args(argv)
    rounds, turns = (2, 2) if given.quick else (given.rounds, 20)
    with serving() as port:
        asyncio.run(run(rounds, turns, given.only, port))


if __name__ == "__main__":
    main()
