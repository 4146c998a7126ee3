"""A process of its own on a SQLite file: python -m tests.support.sqlite_worker PATH WHAT [ARGUMENT …].

It says what it has done on stdout, line by line, and begins when a line comes on stdin.
"""

import asyncio
import os
import resource
import sys
import threading
from collections.abc import Callable
from typing import Any

from agentcore.errors import StoreError
from agentcore.memory import sqlite_log, sqlite_threads
from agentcore.memory.sqlite import SQLiteChatMemory
from agentcore.messages import AssistantMessage, UserMessage


def say(what: object) -> None:
    os.write(1, f"{what}\n".encode())  # whole lines, from whatever thread


async def append_alone(path: str, name: str, count: str) -> None:
    """Append to a conversation of its own and to one that all share."""
    async with SQLiteChatMemory(path) as memory:
        for number in range(int(count)):
            await memory.append(name, [UserMessage(f"{name} {number}")], turn_id=f"{name}-{number}", position=0)
            await memory.append("all", [UserMessage(f"{name} {number}")], turn_id=f"{name}-{number}", position=0)


async def append_same(path: str, name: str) -> None:
    """Append what the other processes append as well."""
    async with SQLiteChatMemory(path) as memory:
        for number in range(10):
            say(await memory.append("c", [UserMessage(str(number))], turn_id=f"t{number}", position=0))


async def take_turns(path: str, name: str, count: str) -> None:
    """Whole turns under the lock: nobody else's message may come between."""
    async with SQLiteChatMemory(path) as memory:
        for number in range(int(count)):
            turn_id = f"{name}-{number}"
            async with memory.lock_turn("c") as lease:
                await memory.append("c", [UserMessage(turn_id)], turn_id=turn_id, position=0, lease=lease)
                await memory.append("c", [AssistantMessage(turn_id)], turn_id=turn_id, position=1, lease=lease)


async def take_lease(path: str, name: str) -> None:
    async with SQLiteChatMemory(path) as memory:
        say(await memory.take_lease("c", 1000) is not None)


async def expect(path: str, name: str) -> None:
    """Append on the condition that nobody has."""
    async with SQLiteChatMemory(path) as memory:
        try:
            await memory.append("c", [UserMessage(name)], turn_id=name, position=0, expected_version=0)
            say("won")
        except Exception as error:
            say(f"{type(error).__name__} {getattr(error, 'version', None)}")


async def hang(path: str, point: str, after: str) -> None:
    """Append numbered messages, two a turn; say which were acknowledged; stop for ever at a point."""
    memory = SQLiteChatMemory(path)
    left = int(after)

    def pass_by(here: str) -> bool:
        nonlocal left
        if here == point:
            left -= 1
        return left >= 0

    def stop_here() -> None:
        say("here")
        threading.Event().wait()

    def around(function: Callable[..., Any], before: str, behind: str) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            if not pass_by(before):
                stop_here()
            result = function(*args, **kwargs)
            if not pass_by(behind):
                stop_here()
            return result

        return run

    sqlite_log.append = around(sqlite_log.append, "before the statements", "before the commit")
    sqlite_threads.tell = around(sqlite_threads.tell, "before the reply", "after the reply")
    for number in range(1000):
        if not pass_by("before an append" if number % 2 == 0 else "between two of a turn"):
            stop_here()
        turn_id, position = f"t{number // 2}", number % 2
        say(await memory.append("c", [UserMessage(str(number))], turn_id=turn_id, position=position))


async def leave(path: str, name: str) -> None:
    """Go without closing."""
    memory = SQLiteChatMemory(path)
    say(await memory.append("c", [UserMessage("a")], turn_id="t", position=0))
    say(len(await memory.get("c")))


async def outgrow(path: str, name: str) -> None:
    """Append until the system refuses to let the file grow; go on when it lets it grow again."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    async with SQLiteChatMemory(path) as memory:
        stored = 0
        try:
            while True:
                await memory.append("c", [UserMessage("x" * 5000)], turn_id=f"t{stored}", position=0)
                stored += 1
        except StoreError as error:
            say(error)
        say([stored, len(await memory.get("c"))])
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        say(await memory.append("c", [UserMessage("y")], turn_id=f"t{stored}", position=0))


async def read_and_write(path: str, name: str) -> None:
    """Read and write as somebody who may do no more than anybody, and say how it went."""
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    async with SQLiteChatMemory(path, busy_timeout=0.2) as memory:
        for call in (memory.get("c"), memory.add("c", [UserMessage("b")])):
            try:
                await call
                say("done")
            except StoreError as error:
                say(error)


if __name__ == "__main__":
    path, what, *arguments = sys.argv[1:]
    say("ready")
    sys.stdin.readline()
    asyncio.run(globals()[what](path, *arguments))
