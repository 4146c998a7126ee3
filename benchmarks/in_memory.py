"""InMemoryChatMemory: bytes a message beside a plain list of dicts, and the cost of a turn as the history grows.

python -m benchmarks.in_memory [--quick] [--rounds N]
"""

import argparse
import asyncio
import gc
import json
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from agentcore import ChatClient, InMemoryChatMemory, Message, WindowedChatMemory
from agentcore.testing import ScriptedModel

SIZES = (10, 1_000, 10_000)
WINDOW = 50
MEMORY_AIM = 0.5

_decode = msgspec.json.Decoder(Message).decode


def turn_of_text(number: int) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": f"question {number}"},
        {"role": "assistant", "content": f"answer {number}: yes."},
    ]


def turn_with_tool(number: int) -> list[dict[str, Any]]:
    call = {"id": f"call_{number}", "name": "get_weather", "args": {"city": f"city {number}"}}
    return [
        {"role": "user", "content": f"question {number}"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "name": "get_weather", "content": f"sunny, {number} °C"},
        {"role": "assistant", "content": f"answer {number}: yes."},
    ]


def lines(turn: Callable[[int], list[dict[str, Any]]], count: int, padding: int) -> list[list[bytes]]:
    """Turns of a conversation as JSON, so that each way makes all its objects itself."""
    turns: list[list[bytes]] = []
    made = 0
    while made < count:
        messages = turn(made)
        for one in messages:
            if one["content"]:
                one["content"] += "." * padding
        turns.append([json.dumps(one, ensure_ascii=False).encode() for one in messages])
        made += len(messages)
    return turns


def as_dicts(turns: Sequence[Sequence[bytes]]) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for turn in turns:
        kept.extend(json.loads(line) for line in turn)
    return kept


async def as_store(turns: Sequence[Sequence[bytes]]) -> InMemoryChatMemory:
    """As turns append: each in one piece, with its turn id, position and time."""
    store = InMemoryChatMemory()
    for number, turn in enumerate(turns):
        await store.append("c", [_decode(line) for line in turn], turn_id=f"{number:032x}", position=0)
    return store


async def bytes_a_message(turns: list[list[bytes]], ways: str) -> float:
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = as_dicts(turns) if ways == "dicts" else await as_store(turns)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept
    return (after - before) / sum(map(len, turns))


async def print_memory(count: int) -> None:
    print(f"bytes a message at {count:,} messages                   agentcore      dicts    ratio    aim")
    for name, turn in (("text", turn_of_text), ("tool rounds", turn_with_tool)):
        for padding in (0, 200):
            turns = lines(turn, count, padding)
            ours, dicts = await bytes_a_message(turns, "store"), await bytes_a_message(turns, "dicts")
            label = f"{name}, {padding + 15} characters each"
            print(f"  {label:<46} {ours:>10.0f} {dicts:>10.0f} {ours / dicts:>8.2f} {MEMORY_AIM:>6}")


async def a_turn(store: Any, turns: int) -> float:
    model = ScriptedModel(["an answer"], repeat_last=True)
    client = ChatClient(model, memory=store)
    times: list[float] = []
    for _ in range(turns):
        start = time.perf_counter()
        await client.invoke("and now?", conversation_id="c")
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


async def print_turns(rounds: int, quick: bool) -> None:
    print(f"\nµs a turn, without network                          windowed ({WINDOW})        whole history")
    sizes = SIZES[:2] if quick else SIZES
    stores = {size: await as_store(lines(turn_of_text, size, 100)) for size in sizes}
    figures: dict[tuple[int, bool], list[float]] = {
        (size, windowed): [] for size in sizes for windowed in (True, False)
    }
    for _ in range(rounds):
        for size, windowed in figures:
            store = stores[size]
            seen = WindowedChatMemory(store, max_messages=WINDOW) if windowed else store
            figures[size, windowed].append(await a_turn(seen, 20))
            await store.rollback("c", to=size)  # so that each round finds what the first found
    for size in sizes:
        cells = []
        for windowed in (True, False):
            each = figures[size, windowed]
            noise = 100 * statistics.stdev(each) / statistics.median(each) if len(each) > 1 else 0
            cells.append(f"{statistics.median(each):>12.0f} ±{noise:.0f} %")
        print(f"  {f'at {size:,} messages':<46} {'     '.join(cells)}")


async def main(args: argparse.Namespace) -> None:
    await print_memory(1_000 if args.quick else 10_000)
    await print_turns(2 if args.quick else args.rounds, args.quick)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small and noisy: to see that it works")
    parser.add_argument("--rounds", type=int, default=15)
    asyncio.run(main(parser.parse_args()))
