"""Whatever is done to them, SQLiteChatMemory and InMemoryChatMemory answer alike."""

import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agentcore.errors import AgentCoreError
from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.memory.sqlite import SQLiteChatMemory
from agentcore.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage

Store = InMemoryChatMemory | SQLiteChatMemory
Call = Callable[[Store], Awaitable[object]]

MESSAGES: list[list[Message]] = [
    [UserMessage("q")],
    [SystemMessage("s"), UserMessage("q")],
    [UserMessage("q"), AssistantMessage("a")],
    [AssistantMessage(None, (ToolCall("c", "f"),))],
    [ToolMessage("c", "f", "r"), AssistantMessage("a")],
    [AssistantMessage(None, (ToolCall("c", "f"),)), ToolMessage("c", "f", "r")],
    [],
]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Actions:
    """Random calls, but for clearing: the stores number differently what comes after it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.names = [f"c{n}" for n in range(4)]
        self.made = len(self.names)
        self.cursors: dict[int, str | None] = {}

    def fresh(self) -> str:
        self.made += 1
        return f"{self.chance.choice('cd')}{self.made}"

    def next(self) -> tuple[str, Call]:
        chance = self.chance
        name = chance.choice(self.names)
        kind, key = chance.choice(["pause", "note"]), chance.choice("xyz")
        match chance.choice(list(range(16)) + [0] * 8):
            case 0:
                messages, turn_id = chance.choice(MESSAGES), f"t{chance.randrange(30)}"
                position, expected = chance.choice([0, 0, 1, 2]), chance.choice([None, None, None, 0, 3])

                def append(store: Store) -> Awaitable[object]:
                    return store.append(name, messages, turn_id=turn_id, position=position, expected_version=expected)

                return f"append {name} {turn_id} {position} {expected} {messages}", append
            case 1:
                messages = chance.choice(MESSAGES)
                return f"add {name} {messages}", lambda store: store.add(name, messages)
            case 2:
                return f"get {name}", lambda store: store.get(name)
            case 3:
                count = chance.randrange(6)
                return f"tail {name} {count}", lambda store: store.get_tail(name, count)
            case 4:
                after, limit = chance.randrange(8), chance.choice([None, 0, 1, 3])
                return f"read {name} {after} {limit}", lambda store: store.read(name, after=after, limit=limit)
            case 5:
                return f"version {name}", lambda store: store.version(name)
            case 6:
                order, prefix = chance.choice(["updated", "created"]), chance.choice(["", "c", "d", "x"])
                limit, after = chance.choice([1, 2, 50]), chance.choice(list(self.cursors.values()) or [None])

                async def page(store: Store) -> object:
                    found = await store.list_conversations(limit=limit, after=after, order=order, prefix=prefix)
                    self.cursors[len(self.cursors)] = found.after
                    return found

                return f"list {limit} {after} {order} {prefix}", page
            case 7:
                return f"info {name}", lambda store: store.conversation_info(name)
            case 8:
                other, at = chance.choice([self.fresh(), chance.choice(self.names)]), chance.choice([None, 1, 2, 3, 4])
                if other not in self.names:
                    self.names.append(other)
                return f"fork {name} {other} {at}", lambda store: store.fork(name, other, at=at)
            case 9:
                to = chance.randrange(8)
                return f"rollback {name} {to}", lambda store: store.rollback(name, to=to)
            case 10 | 11:
                seq, if_absent = chance.choice([None, 1, 2, 3]), chance.random() < 0.5
                expires_in = chance.choice([None, 2.5])

                def put(store: Store) -> Awaitable[object]:
                    return store.put_record(
                        name, kind, key, f"[{self.made}]", seq=seq, if_absent=if_absent, expires_in=expires_in
                    )

                return f"put {name} {kind} {key} {seq} {if_absent} {expires_in}", put
            case 12:
                return f"get record {name} {kind} {key}", lambda store: store.get_record(name, kind, key)
            case 13:
                return f"take record {name} {kind} {key}", lambda store: store.take_record(name, kind, key)
            case 14:
                return f"list records {name} {kind}", lambda store: store.list_records(name, kind)
            case _:
                return f"version {name}", lambda store: store.version(name)


async def outcome(call: Call, store: Store) -> object:
    try:
        answer = await call(store)
    except AgentCoreError as error:
        return type(error), str(error)
    return list(answer) if isinstance(answer, tuple | list) else answer


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(6))
async def test_both_answer_alike(tmp_path: Path, seed: int) -> None:
    clock = Clock()
    actions, held = Actions(seed), InMemoryChatMemory(clock=clock)
    async with SQLiteChatMemory(tmp_path / "a.db", clock=clock, synchronous="NORMAL") as kept:
        log: list[str] = []
        for _ in range(400):
            clock.now += actions.chance.choice([0.0, 1.0])
            what, call = actions.next()
            log.append(what)
            expected, found = await outcome(call, held), await outcome(call, kept)
            assert found == expected, "\n".join(log[-10:])
        for name in actions.names:
            await held.clear(name)
            await kept.clear(name)
            assert await kept.get(name) == await held.get(name) == ()
            assert await kept.list_conversations() == await held.list_conversations()
