"""The conformance suite finds out stores that break a promise, and says what it leaves out."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentcore.errors import AgentCoreError
from agentcore.memory.base import ConversationInfo, Record
from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.messages import Message, UserMessage
from agentcore.testing.store_conformance import ChatMemoryConformance

ROOT = Path(__file__).parents[2]
FOUND = (AssertionError, AgentCoreError, ValueError, pytest.fail.Exception)


class Torn(InMemoryChatMemory):
    """Appends one by one."""

    async def add(self, conversation_id: str, messages: Sequence[Message]) -> None:
        for message in messages:
            await super().add(conversation_id, [message])
            await asyncio.sleep(0)


class Shared(InMemoryChatMemory):
    """Hands out what it holds."""

    async def get(self, conversation_id: str) -> Sequence[Message]:
        conversation = self._conversations.get(conversation_id)
        return conversation.messages if conversation else []


class Late(InMemoryChatMemory):
    """Goes on with an append after its caller has given up."""

    async def add(self, conversation_id: str, messages: Sequence[Message]) -> None:
        async def later() -> None:
            for _ in range(20):
                await asyncio.sleep(0)
            await super(Late, self).add(conversation_id, messages)

        await asyncio.shield(asyncio.ensure_future(later()))


class Forgetful(InMemoryChatMemory):
    """Begins to count again after a clear."""

    async def clear(self, conversation_id: str) -> None:
        await super().clear(conversation_id)
        self._cleared.clear()


class Twice(InMemoryChatMemory):
    """Does not know an append again."""

    async def append(self, conversation_id: str, messages: Sequence[Message], *, turn_id: str, **other: Any) -> int:
        self.sent = getattr(self, "sent", 0) + 1
        return await super().append(conversation_id, messages, turn_id=f"{turn_id} {self.sent}", **other)


class Careless(InMemoryChatMemory):
    """Looks at no condition."""

    async def append(self, conversation_id: str, messages: Sequence[Message], **other: Any) -> int:
        return await super().append(conversation_id, messages, **{**other, "lease": None, "expected_version": None})


class Tail(InMemoryChatMemory):
    """Brings the system messages from within the tail twice."""

    async def get_tail(self, conversation_id: str, count: int) -> Sequence[Message]:
        system = [m for m in await self.get(conversation_id) if type(m).__name__ == "SystemMessage"]
        return (*system, *(await super().get_tail(conversation_id, count)))


class Crowded(InMemoryChatMemory):
    """Lets every turn in."""

    def lock_turn(self, conversation_id: str, **settings: Any) -> Any:
        self.turns = getattr(self, "turns", 0) + 1
        return super().lock_turn(f"{conversation_id} {self.turns}", **settings)


class Offsets(InMemoryChatMemory):
    """Pages by offset, which move when a conversation is added."""

    async def list_conversations(self, *, limit: int = 50, after: str | None = None, **settings: Any) -> Any:
        whole = await super().list_conversations(limit=1000, **settings)
        start = int(after or 0)
        page = whole.conversations[start : start + limit]
        more = start + limit < len(whole.conversations)
        return type(whole)(page, str(start + limit) if more else None)


class Generous(InMemoryChatMemory):
    """Gives a record to everybody who asks at once."""

    async def take_record(self, conversation_id: str, kind: str, key: str) -> Record | None:
        found = await self.get_record(conversation_id, kind, key)
        await asyncio.sleep(0)
        await super().take_record(conversation_id, kind, key)
        return found


class Anywhere(InMemoryChatMemory):
    """Forks in the middle of a turn."""

    async def fork(self, conversation_id: str, new_id: str, *, at: int | None = None) -> ConversationInfo:
        info = await super().fork(conversation_id, new_id)
        self._conversations[new_id].cut(at or info.version)
        return info


class Tame(InMemoryChatMemory):
    """Leaves a turn its lease when the conversation is cleared."""

    async def clear(self, conversation_id: str) -> None:
        held = self._held.get(conversation_id)
        await super().clear(conversation_id)
        if held is not None:
            self._held[conversation_id] = held


class Rounded(InMemoryChatMemory):
    """Loses what a text has that is not printable."""

    async def add(self, conversation_id: str, messages: Sequence[Message]) -> None:
        await super().add(
            conversation_id,
            [UserMessage(m.content.replace("\0", "")) if isinstance(m.content, str) else m for m in messages],
        )


class Slow(InMemoryChatMemory):
    """Gives an answer to whoever asks next."""

    async def get(self, conversation_id: str) -> Sequence[Message]:
        queue: asyncio.Queue[Any] = self.__dict__.setdefault("queue", asyncio.Queue())
        queue.put_nowait(await super().get(conversation_id))
        await asyncio.sleep(0)
        return await queue.get()


BROKEN: list[tuple[type[InMemoryChatMemory], str, dict[str, Any]]] = [
    (Torn, "test_append_with_something_that_is_no_message_stores_nothing", {"place": 2}),
    (Torn, "test_readers_never_see_half_an_append", {}),
    (Shared, "test_what_is_handed_out_cannot_change_what_is_held", {}),
    (Shared, "test_what_was_read_stays_as_it_was", {}),
    (Late, "test_cancelled_add_is_done_or_not_done", {"when": "while it waits"}),
    (Slow, "test_cancelled_read_leaves_the_next_one_its_own_answer", {"when": "while it waits"}),
    (Rounded, "test_message_reads_back_equal", {"value": lambda: UserMessage("a\0b")}),
    (Forgetful, "test_version_does_not_restart_after_clear", {}),
    (Twice, "test_same_append_sent_again_is_stored_once", {"later": 1}),
    (Twice, "test_same_append_sent_at_once_is_stored_once_and_all_are_told_so", {}),
    (Careless, "test_of_two_writers_who_read_the_same_version_one_wins", {"begun": True}),
    (Careless, "test_turn_that_is_over_can_write_no_more", {}),
    (Tame, "test_clearing_ends_the_lease", {}),
    (Tail, "test_tail_is_the_end_after_the_system_messages_from_before", {"count": 99}),
    (Crowded, "test_turns_of_one_handle_are_served_in_order", {}),
    (Crowded, "test_busy_conversation_refuses_who_does_not_wait", {}),
    (Offsets, "test_walk_by_beginning_is_exact_while_conversations_change", {"limit": 2}),
    (Generous, "test_of_many_who_take_a_record_one_gets_it", {}),
    (Anywhere, "test_middle_of_a_turn_is_no_place", {"offset": -1}),
]


@pytest.mark.asyncio
@pytest.mark.parametrize(("broken", "test", "arguments"), BROKEN, ids=[f"{one.__name__}: {t}" for one, t, _ in BROKEN])
async def test_broken_store_is_found_out(
    broken: type[InMemoryChatMemory], test: str, arguments: dict[str, Any]
) -> None:
    run = getattr(ChatMemoryConformance(), test)
    takes_other = "other" in run.__func__.__code__.co_varnames[: run.__func__.__code__.co_argcount]

    async def attempt(store: Any) -> None:
        await run(store=store, **({"other": store} if takes_other else {}), **arguments)

    await attempt(InMemoryChatMemory())
    with pytest.raises(FOUND):
        await attempt(broken())


SUITES = """
import pytest
from agentcore.testing.store_conformance import ChatMemoryConformance


class Plain:
    def __init__(self): self.held = {}
    async def get(self, name): return self.held.get(name, ())
    async def add(self, name, messages): self.held[name] = (*self.held.get(name, ()), *messages)
    async def clear(self, name): self.held.pop(name, None)


class TestPlain(ChatMemoryConformance):
    powers = {"TailReading"}

    @pytest.fixture
    def make(self):
        store = Plain()

        async def opened():
            return store

        return opened


class TestWithoutMake(ChatMemoryConformance):
    pass
"""


def test_what_is_left_out_is_told_and_what_must_be_there_is_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(SUITES)
    chosen = "test_appends_keep_order or test_tail_is or test_listing or holder_who_lost or unknown_conversation_is"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rsfE", "-p", "no:cacheprovider", "-k", chosen, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
        cwd=tmp_path,
    )
    assert "Plain does not satisfy ConversationListing (agentcore.memory.base)" in done.stdout
    assert "Plain does not satisfy Leasing (agentcore.memory.leases)" in done.stdout
    assert "Plain does not satisfy TailReading" in done.stdout
    assert "TestWithoutMake needs a fixture `make`" in done.stdout
    summary = done.stdout.splitlines()[-1]
    assert "2 passed" in summary, done.stdout


def test_other_testing_tools_need_no_pytest() -> None:
    program = "import sys; sys.modules['pytest'] = None; import agentcore.testing"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, cwd=ROOT)
