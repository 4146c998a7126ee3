"""Processes that run turns and are killed in the middle: what was acknowledged is there, once, and the next turn works.

    python -m tests.memory.crashes --kills 200 [--store sqlite|postgres|redis] [--seed N]

A child runs turns on one conversation and stops at a named point, which it tells; then it is killed with SIGKILL, never
by the clock. What its tools did is counted in a file of its own: how often each call was begun, and how often it came to
its end. After each kill the parent looks at what is stored, goes on with the conversation, and looks again: whether the
turn crashed, was being resumed, or was asking the model again, no call is begun twice.
"""

import argparse
import asyncio
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agentcore import (
    ChatClient,
    EnvironmentToolError,
    PauseError,
    ProviderError,
    TextDelta,
    ToolFinished,
    tool,
)
from agentcore.chat import ChatRequest
from agentcore.filters.retry import RetryFilter
from agentcore.memory.history import ABANDONED_RESULT
from agentcore.memory.urls import chat_memory
from agentcore.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage, check_history
from agentcore.pairing import INTERRUPTED_RESULT
from agentcore.providers.retries import RetryPolicy
from agentcore.testing import Reply, ScriptedModel

ROOT = Path(__file__).parents[2]
NAME = "c"
APPENDS = 3
"""Of one turn: question and calls, results, answer."""


class Point(NamedTuple):
    """Where a child stops: in which of its turns, and at what.

    `place` is that of the append in its turn, of the call in its batch, or of the piece in its answer.
    """

    what: str
    turn: int = 0
    place: int = 0

    def __str__(self) -> str:
        return f"{self.what}, turn {self.turn}, {self.place}"


PLACES = {
    "before append": APPENDS,
    "after commit, before reply": APPENDS,
    "between appends": 2,
    "in the batch": 2,
    "in a batch of one": 1,
    "around a resumption": 4,
    "in a resumed batch": 2,
    "in a mended batch": 2,
    "mid-stream": 3,
    "in a retry": 2,
}
KINDS = {
    "in a batch of one": "one",
    "around a resumption": "pay",
    "in a resumed batch": "pay",
    "in a mended batch": "mail",
}
"""What the turn that is to be killed asks for; others ask for `work`."""


# The child


def say(what: str) -> None:
    os.write(1, f"{what}\n".encode())


def stop_here() -> None:
    """Tell it, and wait for the end."""
    say("here")
    threading.Event().wait()


class _Stopping:
    """Put before a store's class: stops around an append, and tells which ones were acknowledged."""

    point: Point
    turn: int
    stored: int

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, turn_id: str, position: int, **conditions: Any
    ) -> int:
        here = self.turn == self.point.turn and self.stored == self.point.place
        if here and self.point.what == "before append":
            stop_here()
        add: Any = super().append  # type: ignore[misc]
        version: int = await add(conversation_id, messages, turn_id=turn_id, position=position, **conditions)
        if here and self.point.what == "after commit, before reply":
            stop_here()
        self.stored += 1
        say(f"stored {version} {len(messages)}")
        return version

    async def take_record(self, conversation_id: str, kind: str, key: str) -> Any:
        take: Any = super().take_record  # type: ignore[misc]
        taken = await take(conversation_id, kind, key)
        if kind == "pause_ticket" and self.point == ("around a resumption", self.turn, 1):
            stop_here()
        return taken

    async def put_record(self, conversation_id: str, kind: str, key: str, body: str, **details: Any) -> Any:
        put: Any = super().put_record  # type: ignore[misc]
        done = await put(conversation_id, kind, key, body, **details)
        if kind == "pause" and "resumed" in body and self.point == ("around a resumption", self.turn, 2):
            stop_here()
        return done


class Effects:
    """What tools have done, in a file of its own: how often each call ran, begun and finished."""

    def __init__(self, path: str) -> None:
        self.path = path
        with closing(self._open()) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS effect (call TEXT PRIMARY KEY, begun INT, finished INT)")

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        return connection

    def count(self, call: str, column: str) -> None:
        with closing(self._open()) as connection:
            connection.execute("INSERT OR IGNORE INTO effect VALUES (?, 0, 0)", (call,))
            connection.execute(f"UPDATE effect SET {column} = {column} + 1 WHERE call = ?", (call,))

    def counts(self) -> dict[str, tuple[int, int]]:
        with closing(self._open()) as connection:
            return {call: (begun, done) for call, begun, done in connection.execute("SELECT * FROM effect")}


class Tools:
    """Tools whose calls are counted; all but those before `stop_at` of the chosen turn hang."""

    def __init__(self, effects: Effects, stop_turn: str = "", stop_at: int = 0) -> None:
        self.effects = effects
        self.stop_turn, self.stop_at = stop_turn, stop_at
        self.mended = False
        self.stop_mended = False

    async def run(self, n: str, place: int) -> str:
        call = f"{n} {place}"
        self.effects.count(call, "begun")
        if n == self.stop_turn and place > self.stop_at:
            await asyncio.Event().wait()
        self.effects.count(call, "finished")
        return f"did {call}"

    def all(self) -> list[Any]:
        @tool
        async def work(n: str, place: int) -> str:
            return await self.run(n, place)

        @tool(approval=True)
        async def pay(n: str, place: int) -> str:
            return await self.run(n, place)

        @tool
        async def one(n: str, place: int) -> str:
            return await self.run(n, place)

        @tool
        async def mail(n: str, place: int) -> str:
            if place == 1 and not self.mended:
                raise EnvironmentToolError("no password")
            if place == 1 and self.stop_mended:
                self.effects.count(f"{n} {place}", "begun")
                stop_here()
            return await self.run(n, place)

        return [work, pay, one, mail]


def calls(n: str, name: str) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(f"call{place}", name, {"n": n, "place": place}) for place in range(1 if name == "one" else 3))


def reply_to(request: ChatRequest) -> Any:
    """The model: asks for three calls, then answers."""
    last = request.messages[-1]
    if isinstance(last, UserMessage):
        n, name = str(last.content).split()
        return Reply(text=f"working on {n}", tool_calls=calls(n, name))
    [n] = [str(m.content).split()[0] for m in request.messages if isinstance(m, UserMessage)][-1:]
    return Reply(text=["the answer ", f"to {n} ", "is yes"])


def turn_of(n: str, name: str = "work") -> list[Message]:
    """All that a turn stores."""
    asked = calls(n, name)
    results = [ToolMessage(call.id, name, f"did {n} {place}") for place, call in enumerate(asked)]
    if name == "mail":  # which has to wait for its surroundings, and is stored when it could be sent
        results.append(results.pop(1))
    return [
        UserMessage(f"{n} {name}"),
        AssistantMessage(f"working on {n}", asked),
        *results,
        AssistantMessage(f"the answer to {n} is yes"),
    ]


async def child(url: str, effects: str, name: str, what: str, turn: int, place: int) -> None:
    point = Point(what, turn, place)
    store: Any = chat_memory(url)
    store.__class__ = type("Stopping", (_Stopping, type(store)), {})
    store.point = point
    batch = what in ("in the batch", "in a resumed batch")
    tools = Tools(Effects(effects), f"{name}.{turn}" if batch else "", place)
    tools.stop_mended = point == ("in a mended batch", turn, 1)
    failures = iter([ProviderError("too busy", kind="overloaded", provider="test", retryable=True)])

    def stop_between(appends: int) -> None:
        if (what, place + 1) == ("between appends", appends) and (store.turn, store.stored) == (turn, appends):
            stop_here()

    def answer(request: ChatRequest) -> Any:
        stop_between(2)
        after_tools = isinstance(request.messages[-1], ToolMessage)
        if after_tools and store.turn == turn:
            if (what, place) == ("around a resumption", 3):
                stop_here()
            if what == "in a retry":
                for failure in failures:
                    return failure
                if place == 0:
                    stop_here()
        return reply_to(request)

    def before_tools(_response: Any, _turn: Any) -> bool:
        stop_between(1)
        return True

    client = ChatClient(
        ScriptedModel([answer], repeat_last=True),
        tools=tools.all(),
        memory=store,
        on_busy="supersede",
        run_tools_if=before_tools,
        pause_on_environment_error=True,
        filters=[RetryFilter(RetryPolicy(initial=0.0))],
    )
    for number in range(turn + 1):
        store.turn, store.stored = number, 0
        n = f"{name}.{number}"
        here = number == turn
        kind = KINDS.get(what, "work") if here else "work"
        if kind in ("pay", "mail"):
            result = await client.invoke(f"{n} {kind}", conversation_id=NAME)
            assert result.pause is not None
            say(f"paused {n}")
            if point == ("around a resumption", number, 0):
                stop_here()
            tools.mended = True
            waiting = result.pause.calls
            opening: Any = client.resume_stream(
                NAME, [one.retry() if kind == "mail" else one.approve() for one in waiting]
            )
        else:
            opening = client.stream(f"{n} {kind}", conversation_id=NAME)
        finished = pieces = 0
        async with opening as stream:
            async for event in stream:
                if isinstance(event, ToolFinished):
                    finished += 1
                    first = what in ("in a batch of one", "in a mended batch") and finished == 1
                    if here and (first or (batch and finished == place + 1)):
                        stop_here()
                elif isinstance(event, TextDelta) and finished:
                    pieces += 1
                    mid_stream = (what == "mid-stream" and pieces == place + 1) or (what == "in a retry" and place == 1)
                    if here and mid_stream:
                        stop_here()
        say(f"done {n}")
    raise AssertionError(f"{point} was never reached")


async def hammer(url: str, effects: str, name: str, count: int) -> None:
    """Whole turns in a conversation that others use at the same time."""
    async with AsyncExitStack() as stack:
        store: Any = chat_memory(url)
        stack.push_async_callback(store.aclose)
        client = ChatClient(
            ScriptedModel([reply_to], repeat_last=True), tools=Tools(Effects(effects)).all(), memory=store
        )
        say("ready")
        sys.stdin.readline()
        for number in range(count):
            result = await client.invoke(f"{name}.{number} work", conversation_id=NAME)
            assert result.status == "completed"
            assert list(result.messages) == turn_of(f"{name}.{number}")


# The parent


def start(*arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.memory.crashes", *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


class Trial:
    """One conversation, the plain list of what must be in it, and the children that are killed over it."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.effects = Effects(str(directory / "effects.db"))
        self.expected: list[Message] = []
        self.number = 0
        self.kills = 0

    async def kill_at(self, point: Point) -> None:
        """Start a child, kill it at a point, and see what it left."""
        self.number += 1
        name = f"n{self.number}"
        told: list[str] = []
        with start("child", self.url, self.effects.path, name, *point) as process:
            try:
                assert process.stdout is not None
                while (line := process.stdout.readline()) != "here\n":
                    assert line, f"the child ended before it came to: {point}"
                    told.append(line.strip())
            finally:
                process.kill()
        self.kills += 1
        await self.check(point, name, told)

    async def check(self, point: Point, name: str, told: Sequence[str]) -> None:
        store: Any = chat_memory(self.url)
        try:
            for number in range(point.turn):
                self.expected += turn_of(f"{name}.{number}")
            n = f"{name}.{point.turn}"
            kind = KINDS.get(point.what, "work")
            planned = turn_of(n, kind)
            records = await store.read(NAME)
            stored = [record.message for record in records]
            begun = stored[len(self.expected) :]
            assert stored[: len(self.expected)] == self.expected, point
            assert begun == planned[: len(begun)], (point, begun)  # so nothing is there twice either
            places = [(record.turn_id, record.position) for record in records]
            assert len(set(places)) == len(places)
            acknowledged = max((int(line.split()[1]) for line in told if line.startswith("stored")), default=0)
            assert not acknowledged or records[-1].seq >= acknowledged, (point, told)
            assert len(begun) == _left_by(point), (point, begun)
            model = ScriptedModel([reply_to], repeat_last=True)
            client = ChatClient(  # the dead hold their place for a while, and do not answer
                model, tools=Tools(self.effects).all(), memory=store, on_busy="supersede", busy_timeout=0.1
            )
            if point == ("around a resumption", point.turn, 0):
                pause = await client.open_pause(NAME)
                assert pause is not None
                result = await client.resume(NAME, [one.approve() for one in pause.calls])
                assert result.status == "completed"
                begun = planned
            elif kind in ("pay", "mail"):
                await self.check_used_up(client)
            self.number += 1
            following = f"n{self.number}.0"
            result = await client.invoke(f"{following} work", conversation_id=NAME)
            assert result.status == "completed"
            self.expected += [*begun, *_answers(point, n, begun), *turn_of(following)]
            assert list(await store.get(NAME)) == self.expected, point
            assert check_history(self.expected) == []
            assert all(check_history(request.messages) == [] for request in model.requests)
            self.check_effects(self.expected)
        finally:
            await store.aclose()

    async def check_used_up(self, client: ChatClient) -> None:
        """A pause whose batch may have begun is not resumed again: its calls would run twice."""
        with pytest.raises(PauseError) as caught:
            await client.resume(NAME, [])
        assert caught.value.reason in ("resumed", "expired")

    def check_effects(self, stored: Sequence[Message]) -> None:
        """No call ran twice, and what the history tells of finished calls is what happened."""
        counts = self.effects.counts()
        assert all(begun == 1 and finished <= 1 for begun, finished in counts.values()), counts
        told = {str(m.content)[4:] for m in stored if isinstance(m, ToolMessage) and str(m.content).startswith("did ")}
        assert told <= {call for call, (_, finished) in counts.items() if finished}


def _left_by(point: Point) -> int:
    """How many messages of its turn a child leaves that is killed there."""
    after = {0: 0, 1: 2, 2: 5, 3: 6}  # by appends done
    match point.what:
        case "before append":
            return after[point.place]
        case "after commit, before reply" | "between appends":
            return after[point.place + 1]
        case "mid-stream" | "in a retry":
            return after[2]
        case "around a resumption":
            return after[2] if point.place == 3 else after[1]
        case "in a mended batch":
            return 4  # the results of the calls that had not failed are there
        case _:
            return after[1]


def _answers(point: Point, n: str, begun: Sequence[Message]) -> list[Message]:
    """How the next turn answers the calls that were left open: with the results on record, else as interrupted."""
    asked = next((message for message in begun if isinstance(message, AssistantMessage)), None)
    answered = {message.tool_call_id for message in begun if isinstance(message, ToolMessage)}
    if asked is None:
        return []
    match point.what:
        case "before append":  # of the results, so all calls had come to their end
            done = set(range(3))
        case "in the batch" | "in a resumed batch":
            done = set(range(point.place + 1))
        case "in a batch of one":
            done = {0}
        case "in a mended batch":
            done = {1} if point.place == 0 else set[int]()
        case _:
            done = set[int]()
    # Taken up, but not marked as such yet: nothing can have run.
    untouched = point == ("around a resumption", point.turn, 1)
    otherwise = ABANDONED_RESULT if untouched else INTERRUPTED_RESULT
    return [
        ToolMessage(call.id, call.name, f"did {n} {place}")
        if place in done
        else ToolMessage(call.id, call.name, otherwise, is_error=True)
        for place, call in enumerate(asked.tool_calls)
        if call.id not in answered
    ]


async def hammered(url: str, directory: Path, workers: int, count: int) -> None:
    """Let processes use one conversation at once; see that each turn is whole and none is missing."""
    effects = Effects(str(directory / "effects.db"))
    with ExitStack() as stack:
        processes = [
            stack.enter_context(start("hammer", url, effects.path, f"w{number}", count)) for number in range(workers)
        ]
        stack.callback(lambda: [process.kill() for process in processes])
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in processes:
            process.communicate(timeout=100)
            assert process.returncode == 0
    store: Any = chat_memory(url)
    try:
        stored = list(await store.get(NAME))
    finally:
        await store.aclose()
    turns = [str(message.content).split()[0] for message in stored if isinstance(message, UserMessage)]
    assert stored == [message for n in turns for message in turn_of(n)]
    assert sorted(turns) == sorted(f"w{worker}.{number}" for worker in range(workers) for number in range(count))
    assert set(effects.counts().values()) == {(1, 1)}
    assert len(effects.counts()) == 3 * workers * count


def random_point(chance: random.Random) -> Point:
    what = chance.choice(list(PLACES))
    return Point(what, chance.randrange(3), chance.randrange(PLACES[what]))


async def _kill(url: str, directory: Path, kills: int, seed: int) -> None:
    trial, chance = Trial(url, directory), random.Random(seed)
    for _ in range(kills):
        await trial.kill_at(random_point(chance))
    print(f"{trial.kills} kills, {len(trial.expected)} messages: none missing, none doubled, no call run twice")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--store", choices=["sqlite", "postgres", "redis"], default="sqlite")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    from tests.support.servers import postgres_server, redis_server

    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = f"sqlite:///{directory}/conversations.db"
        if args.store == "postgres":
            url = stack.enter_context(postgres_server()).dsn
        elif args.store == "redis":
            url = stack.enter_context(redis_server()).url
        asyncio.run(_kill(url, directory, args.kills, args.seed))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["child", url, effects, name, what, turn, place]:
            asyncio.run(child(url, effects, name, what, int(turn), int(place)))
        case ["hammer", url, effects, name, count]:
            asyncio.run(hammer(url, effects, name, int(count)))
        case _:
            main()
