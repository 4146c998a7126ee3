"""The filters that ship: a turn with each of them beside the same turn without, interleaved, medians.

python -m benchmarks.filters [--quick] [--only WORD] [--rounds N]

The model answers at once, from memory, so what is measured is the library alone: a turn of one call on a conversation
of two messages, and a stream of 100 deltas.
"""

import argparse
import asyncio
import logging
import statistics
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec

from agentcore import (
    AssistantMessage,
    ChatClient,
    ChatOptions,
    ChatRequest,
    ChatResponse,
    Filter,
    InMemoryChatMemory,
    TextDelta,
    ToolContext,
    ToolDefinition,
    Usage,
)
from agentcore.chat import ChatStream
from agentcore.events import StreamEvent
from agentcore.filters.cache import CacheFilter
from agentcore.filters.input_guard import InputGuard
from agentcore.filters.logging import LoggingFilter
from agentcore.filters.output_guard import OutputGuard
from agentcore.filters.rate_limit import RateLimitFilter
from agentcore.filters.re_reading import ReReadingFilter
from agentcore.filters.redacting import RedactingFilter
from agentcore.filters.retrieval import Passage, RetrievalFilter
from agentcore.filters.retry import RetryFilter
from agentcore.filters.structured import StructuredOutputFilter
from agentcore.filters.tool_search import ToolSearchFilter
from agentcore.filters.usage import UsageFilter

DELTAS = 100


class Answer(msgspec.Struct):
    """What is asked for where a type is asked for."""

    text: str


PIECES = ['{"text":"', *["word "] * (DELTAS - 2), '"}']
RESPONSE = ChatResponse(
    AssistantMessage("".join(PIECES)), "stop", usage=Usage(input_tokens=100, output_tokens=DELTAS), model="instant"
)
PASSAGES = [Passage("a passage of some length " * 10, "source", 0.9)] * 5
TOOLS = [ToolDefinition(f"tool_{number}", f"Does the {number}th thing with care.") for number in range(100)]


class InstantStream:
    """One network read a delta, as services send them."""

    response = RESPONSE

    async def __aiter__(self) -> AsyncIterator[StreamEvent]:
        for piece in PIECES:
            yield TextDelta(piece)


class InstantModel:
    """Answers at once."""

    name = "instant"

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """The answer."""
        return RESPONSE

    @asynccontextmanager
    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatStream]:
        """The answer in pieces."""
        yield InstantStream()


class InstantIndex:
    """Finds the same five passages at once."""

    async def retrieve(self, query: str, context: ToolContext) -> Sequence[Passage]:
        """The passages."""
        return PASSAGES


def silent() -> logging.Logger:
    """A logger that takes records and writes nothing."""
    logger = logging.Logger("bench", logging.INFO)
    logger.addHandler(logging.NullHandler())
    return logger


FILTERS: dict[str, Callable[[], Filter]] = {
    "LoggingFilter": lambda: LoggingFilter(logger=silent()),
    "InputGuard": lambda: InputGuard(lambda messages: None),
    "RateLimitFilter": lambda: RateLimitFilter(1e9, burst=1_000_000),
    "RedactingFilter, one pattern": lambda: RedactingFilter([r"[\w.]+@[\w.]+\w"]),
    "RedactingFilter, five patterns": lambda: RedactingFilter([rf"{letter}\d{{4,16}}" for letter in "abcde"]),
    "RetrievalFilter, five passages": lambda: RetrievalFilter(InstantIndex()),
    "ReReadingFilter": ReReadingFilter,
    "StructuredOutputFilter": StructuredOutputFilter,
    "OutputGuard": lambda: OutputGuard(lambda text: None),
    "RetryFilter": RetryFilter,
    "CacheFilter, hit": CacheFilter,
    "CacheFilter, miss": lambda: CacheFilter(ttl=0),
    "UsageFilter": lambda: UsageFilter(lambda record: None),
    "ToolSearchFilter, 100 tools": ToolSearchFilter,
}


async def seconds_of(client: ChatClient, *, streamed: bool, typed: bool, turns: int) -> float:
    """Seconds a turn takes, in conversations of their own that begin with the same two messages."""
    options = ChatOptions(response_format=Answer) if typed else None
    for number in range(turns):
        await client.invoke("before", conversation_id=str(number))
    start = time.perf_counter()
    for number in range(turns):
        if streamed:
            async with client.stream("a question", conversation_id=str(number), options=options) as turn:
                async for _ in turn:
                    pass
        else:
            await client.invoke("a question", conversation_id=str(number), options=options)
    return (time.perf_counter() - start) / turns


async def measure(name: str, rounds: int, turns: int) -> None:
    """Print one line."""
    make, typed = FILTERS[name], name.startswith("Structured")
    tools = TOOLS if name.startswith("ToolSearch") else ()
    cells = [f"{name:<34}"]
    for streamed in (False, True):
        figures: dict[bool, list[float]] = {False: [], True: []}
        one = make()  # for all rounds: what it keeps is warm, as in a service
        for _ in range(rounds + 1):
            for with_it in figures:
                filters = [one] if with_it else []
                client = ChatClient(InstantModel(), memory=InMemoryChatMemory(), filters=filters, tools=tools)
                figures[with_it].append(await seconds_of(client, streamed=streamed, typed=typed, turns=turns))
        plain, ours = (statistics.median(figures[key][1:]) * 1e6 for key in (False, True))
        differences = [(b - a) * 1e6 for a, b in zip(figures[False][1:], figures[True][1:], strict=True)]
        cost = statistics.median(differences)
        noise = statistics.stdev(differences) if len(differences) > 1 else 0.0
        cells.append(f"{plain:>8.1f} {ours:>8.1f} {cost:>+8.1f} ±{noise:<6.1f}")
    print(" | ".join(cells))


async def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it runs")
    parser.add_argument("--only", default="", help="filters whose name has this word in it")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    rounds, turns = (1, 5) if given.quick else (given.rounds, 200)
    head = f"{'without':>8} {'with':>8} {'cost':>8} {'noise':<7}"
    print(f"{'µs a turn':<34} | {head} | {head} (stream of {DELTAS} deltas)")
    for name in FILTERS:
        if given.only.lower() in name.lower():
            await measure(name, rounds, turns)


if __name__ == "__main__":
    asyncio.run(main())
