"""A process that writes to a store as its parent says: `python -m tests.support.store_worker URL WHAT …`."""

import asyncio
import json
import random
import sys
from typing import Any

from agentcore.errors import AgentCoreError, LeaseLostError
from agentcore.memory.leases import LeasedTurns
from agentcore.memory.urls import chat_memory
from agentcore.messages import AssistantMessage, UserMessage


def say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def hammer(store: Any, name: str, turns: int, lease_seconds: float) -> None:
    """Turns of two appends on three conversations; some stall past their lease, some repeat what was done."""
    chance = random.Random(name)
    acknowledged: list[str] = []
    stale = repeats = 0

    async def worker(number: int) -> None:
        nonlocal stale, repeats
        locks = LeasedTurns(store, seconds=lease_seconds)
        for turn in range(turns):
            conversation, turn_id = f"c{chance.randrange(3)}", f"{name}-{number}-{turn}"
            async with locks.lock_turn(conversation, supersede=lambda: None) as lease:
                for position, message in enumerate((UserMessage(turn_id), AssistantMessage(turn_id))):
                    if chance.random() < 0.06:
                        other = await store.take_lease(conversation, 5.0, steal=True)  # somebody takes over
                        await store.release_lease(other)
                    send = {"turn_id": turn_id, "position": position, "lease": lease}
                    try:
                        await store.append(conversation, [message], **send)
                        if chance.random() < 0.2:
                            repeats += 1
                            await store.append(conversation, [message], **send)
                    except LeaseLostError:
                        stale += 1
                        break
                    acknowledged.append(f"{turn_id}/{position}")

    await asyncio.gather(*(worker(number) for number in range(6)))
    say(acknowledged=acknowledged, stale=stale, repeats=repeats)


async def main(url: str, what: str, *arguments: str) -> None:
    store: Any = chat_memory(url)
    try:
        if what == "hammer":
            name, turns, lease_seconds = arguments
            await hammer(store, name, int(turns), float(lease_seconds))
        elif what == "open":
            await store.add("c", [UserMessage("hi")])
            say(version=await store.version("c"))
        else:
            raise SystemExit(f"what is {what}?")
    except AgentCoreError as error:
        say(error=str(error))
    finally:
        await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
