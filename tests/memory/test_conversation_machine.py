"""Conversations under everything that can happen to them, in random order, beside a plain model of what is in them.

Whole turns of a client: tool rounds, failing models and tools, cancellation, streams left early, windows, pauses, forks,
rollbacks, clears, restarts. After each step the store holds what the model says, and every codec can send it.

AGENTCORE_MACHINE_EXAMPLES=2000 runs that many random examples a store; otherwise there are a few, the same each time.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from agentcore import ChatClient, InvokeResult, Pause, PauseError, TextDelta, tool
from agentcore.chat import ChatOptions, ChatRequest
from agentcore.codecs.anthropic_messages import AnthropicMessagesCodec
from agentcore.codecs.gemini import GeminiCodec
from agentcore.codecs.openai_chat import OpenAIChatCodec
from agentcore.codecs.openai_responses import OpenAIResponsesCodec
from agentcore.context import ToolContext
from agentcore.errors import InvalidInputError
from agentcore.memory.history import ABANDONED_RESULT
from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.memory.sqlite import SQLiteChatMemory
from agentcore.memory.windowed import WindowedChatMemory
from agentcore.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
    check_history,
)
from agentcore.pairing import INTERRUPTED_RESULT, heal, interrupted_result, unanswered_calls
from agentcore.testing import Reply, ScriptedModel
from agentcore.testing.conformance.setting import CANCELLATIONS, cancelled_at

EXAMPLES = int(os.environ.get("AGENTCORE_MACHINE_EXAMPLES", "0"))
WINDOW = 6
CODECS = [OpenAIChatCodec(), AnthropicMessagesCodec(), OpenAIResponsesCodec(), GeminiCodec()]
OPTIONS = ChatOptions(model="m")


class ModelDownError(Exception):
    """What a model that fails raises here."""


async def breathe() -> None:
    await asyncio.sleep(0)


@tool
async def echo(n: int) -> str:
    """Say it again."""
    return f"echo {n}"


@tool
async def slow(n: int) -> str:
    """Take a while."""
    for _ in range(3):
        await asyncio.sleep(0)
    return f"slow {n}"


@tool
async def boom(n: int) -> str:
    """Fail."""
    raise ValueError(f"boom {n}")


@tool(approval=True)
async def ask(n: int) -> str:
    """Need a person's consent."""
    return f"asked {n}"


TOOLS = [echo, slow, boom, ask]


def result_of(call: ToolCall) -> ToolMessage:
    """What the tool answers when it runs to its end."""
    n = call.args["n"]
    if call.name == "boom":
        return ToolMessage(call.id, call.name, f"ValueError: boom {n}", is_error=True)
    return ToolMessage(call.id, call.name, f"{'asked' if call.name == 'ask' else call.name} {n}")


class Plan(NamedTuple):
    """What a turn's model will say: rounds of calls by tool name, then an answer; or a failure at some model call."""

    rounds: tuple[tuple[str, ...], ...]
    fails_at: int | None

    def replies(self, number: int) -> list[Reply]:
        replies: list[Reply] = []
        for index in range(len(self.rounds) + 1):
            names = self.rounds[index] if index < len(self.rounds) else ()
            # Ids that come again in every batch, as some services give them.
            calls = tuple(ToolCall(f"c{place}", name, {"n": number}) for place, name in enumerate(names))
            text = [f"{number}.{index}", " and", " so on"]
            failed = index == self.fails_at
            replies.append(
                Reply(
                    text=text,
                    tool_calls=() if failed else calls,
                    error=ModelDownError("down") if failed else None,
                    wait_for=breathe,
                    wait_between=breathe,
                )
            )
            if failed:
                break
        return replies

    def messages(self, text: str, number: int, streamed: bool) -> tuple[list[Message], str]:
        """What the turn adds, and how it ends."""
        return play(self.replies(number), [UserMessage(text)], streamed)


def play(replies: Sequence[Reply], due: Sequence[Message], streamed: bool) -> tuple[list[Message], str]:
    added: list[Message] = []
    pending = list(due)
    for reply in replies:
        text = "".join(reply.pieces())
        if reply.error is not None:
            if streamed:  # what a reader was given is kept
                added += [*pending, AssistantMessage(text, finish_reason="interrupted")]
            return added, "failed"
        added += [*pending, AssistantMessage(text, tuple(reply.tool_calls))]
        pending = []
        if any(call.name == "ask" for call in reply.tool_calls):
            return added, "paused"
        added += [result_of(call) for call in reply.tool_calls]
    return added, "completed"


plans = st.builds(
    Plan,
    st.lists(
        st.lists(st.sampled_from(["echo", "slow", "boom", "ask", "echo"]), min_size=1, max_size=3).map(tuple),
        max_size=2,
    ).map(tuple),
    st.sampled_from([None, None, None, 0, 1, 2]),
)
names = st.integers(0, 3).map(lambda number: f"c{number}")
steps = st.integers(1, 30)


class Expected:
    """What a conversation holds: its messages, where turns have ended, and what waits."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.ends: set[int] = set()  # how many messages there were
        self.pause_at: int | None = None
        self.pause: Pause | None = None  # open
        self.pause_used = False
        self.paused_with: list[Reply] = []  # how the model will go on
        self.version = 0

    def lead(self) -> list[Message]:
        """What the next turn says first, about calls that were left open."""
        calls = unanswered_calls(self.messages)
        if calls:
            self.pause = None
        if self.pause_at == len(self.messages) and not self.pause_used:
            return [ToolMessage(call.id, call.name, ABANDONED_RESULT, is_error=True) for call in calls]
        return [interrupted_result(call) for call in calls]

    def end_turn(self, added: Sequence[Message]) -> None:
        self.messages += added
        if self.messages and not unanswered_calls(self.messages):
            self.ends.add(len(self.messages))

    def places(self) -> set[int]:
        return {one for one in (*self.ends, self.pause_at) if one is not None and 0 < one <= len(self.messages)}

    def cut(self, length: int) -> None:
        del self.messages[length:]
        self.ends = {end for end in self.ends if end <= length}
        if self.pause_at is not None and self.pause_at > length:
            self.pause_at = self.pause = None

    def copy(self) -> "Expected":
        other = Expected()
        other.messages, other.ends = list(self.messages), set(self.ends)
        other.pause_at, other.pause, other.paused_with = self.pause_at, self.pause, list(self.paused_with)
        other.pause_used = self.pause_used
        return other


def accounts_for(added: Sequence[Message], planned: Sequence[Message]) -> bool:
    """Whether a turn that was stopped somewhere may have stored this much of what it would have."""
    if len(added) > len(planned):
        return False
    for index, (found, whole) in enumerate(zip(added, planned, strict=False)):
        if found == whole:
            continue
        if isinstance(found, ToolMessage) and isinstance(whole, ToolMessage):
            if (found.tool_call_id, found.content) == (whole.tool_call_id, INTERRUPTED_RESULT):
                continue
        elif isinstance(found, AssistantMessage) and isinstance(whole, AssistantMessage) and index + 1 == len(added):
            begun = (whole.content or "").startswith(found.content or "")
            if begun and not found.tool_calls and found.finish_reason == "interrupted":
                continue
        return False
    return True


class Machine(RuleBasedStateMachine):
    """Conversations over a store that `make` opens, again after each restart."""

    make: Callable[[], Any]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.store: Any = self.make()
        self.expected: dict[str, Expected] = {}
        self.numbers = count(1)
        self.touched: set[str] = set()

    def teardown(self) -> None:
        self.run(self.forget())
        self.runner.close()

    async def forget(self) -> None:
        for name in self.expected:
            await self.store.clear(name)
        await self.close()

    async def close(self) -> None:
        if hasattr(self.store, "aclose"):
            await self.store.aclose()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def of(self, name: str) -> Expected:
        self.touched.add(name)
        return self.expected.setdefault(name, Expected())

    def client(self, replies: Sequence[Reply], windowed: bool = False) -> tuple[ChatClient, ScriptedModel]:
        model = ScriptedModel(list(replies))
        memory = WindowedChatMemory(self.store, max_messages=WINDOW) if windowed else self.store
        return ChatClient(model, tools=TOOLS, memory=memory), model

    def check_requests(self, model: ScriptedModel, before: Sequence[Message], windowed: bool) -> None:
        """What the model was sent: whole, and, without a window, all there was."""
        for request in model.requests:
            assert check_history(request.messages) == []
        if model.requests and not windowed:
            sent = list(model.requests[0].messages)
            assert sent == list(heal([*before, *sent[len(before) :]])[0])

    async def adopt(self, name: str, planned: Sequence[Message], *, may_leave_open: bool = False) -> list[Message]:
        """After a turn was stopped: see that what it left is part of what it would have left, and go on from there."""
        one = self.of(name)
        found = list(await self.store.get(name))
        before = len(one.messages)
        assert found[:before] == one.messages
        added = found[before:]
        # A turn that was to pause may have been stopped on its way there.
        planned = [*planned, *(interrupted_result(call) for call in unanswered_calls(planned))]
        assert accounts_for(added, planned), (added, planned)
        one.end_turn(added)
        pause = await self.client([])[0].open_pause(name)
        calls = unanswered_calls(one.messages)
        if pause is not None and (one.pause is None or pause.id != one.pause.id):
            assert {waiting.call.name for waiting in pause.calls} == {"ask"}
            one.pause_at, one.pause_used = len(one.messages), False
        assert not calls or pause is not None or may_leave_open
        one.pause = pause
        return added

    # Turns

    @rule(name=names, plan=plans, windowed=st.booleans())
    def turn(self, name: str, plan: Plan, windowed: bool) -> None:
        async def run() -> None:
            one, number = self.of(name), next(self.numbers)
            before = list(one.messages)
            planned, end = plan.messages(f"say {number}", number, streamed=False)
            lead = one.lead()
            client, model = self.client(plan.replies(number), windowed)
            try:
                result = await client.invoke(f"say {number}", conversation_id=name)
            except ModelDownError:
                assert end == "failed"
            else:
                self.take(one, result, end, [*lead, *planned])
                if end == "paused":
                    one.paused_with = plan.replies(number)[model.calls :]
            self.check_requests(model, before, windowed)
            one.end_turn([*lead, *planned] if planned else [])
            if end == "paused":
                one.pause_at, one.pause_used = len(one.messages), False

        self.run(run())

    def take(self, one: Expected, result: InvokeResult, end: str, planned: Sequence[Message]) -> None:
        assert result.status == end
        assert list(result.messages) == list(planned)
        one.pause = result.pause or one.pause

    @rule(name=names, plan=plans, windowed=st.booleans(), leaves_after=st.sampled_from([None, None, *range(9)]))
    def streamed_turn(self, name: str, plan: Plan, windowed: bool, leaves_after: int | None) -> None:
        async def run() -> None:
            one, number = self.of(name), next(self.numbers)
            planned, end = plan.messages(f"say {number}", number, streamed=True)
            paused_before = one.pause
            planned = [*one.lead(), *planned]
            client, model = self.client(plan.replies(number), windowed)
            seen, left = "", False
            try:
                async with client.stream(f"say {number}", conversation_id=name) as stream:
                    events = 0
                    async for event in stream:
                        seen += event.text if isinstance(event, TextDelta) else ""
                        events += 1
                        if leaves_after is not None and events > leaves_after:
                            left = True
                            break
            except ModelDownError:
                assert end == "failed"
            if not left:
                one.end_turn(planned)
                if end != "failed":
                    one.pause = stream.result.pause
                if end == "paused":
                    one.pause_at, one.pause_used = len(one.messages), False
                    one.paused_with = plan.replies(number)[model.calls :]
                return
            one.pause = paused_before
            added = await self.adopt(name, planned)
            one.paused_with = plan.replies(number)[model.calls :]
            text = "".join(m.content or "" for m in added if isinstance(m, AssistantMessage))
            assert text.startswith(seen)

        self.run(run())

    @rule(name=names, plan=plans, step=steps, when=st.sampled_from(CANCELLATIONS))
    def cancelled_turn(self, name: str, plan: Plan, step: int, when: str) -> None:
        async def run() -> None:
            one, number = self.of(name), next(self.numbers)
            planned, _ = plan.messages(f"say {number}", number, streamed=False)
            paused_before = one.pause
            planned = [*one.lead(), *planned]
            one.pause = paused_before
            client, model = self.client(plan.replies(number))
            with suppress(ModelDownError):
                await cancelled_at(client.invoke(f"say {number}", conversation_id=name), step, when)
            before = one.pause_at
            # Calls that an earlier turn had left open stay so, if this one came to nothing.
            was_open = bool(unanswered_calls(one.messages))
            added = await self.adopt(name, planned, may_leave_open=was_open)
            assert added or was_open or not unanswered_calls(one.messages)
            if one.pause_at != before:
                one.paused_with = plan.replies(number)[model.calls :]

        self.run(run())

    @rule(name=names, plan=plans)
    def external_loop(self, name: str, plan: Plan) -> None:
        """The caller runs the tools, and may give up in between."""

        async def run() -> None:
            one, number = self.of(name), next(self.numbers)
            lead = one.lead()
            replies = plan.replies(number)
            client, _ = self.client(replies)
            delta: Sequence[Message] = [UserMessage(f"say {number}")]
            for reply in replies:
                planned = AssistantMessage("".join(reply.pieces()), tuple(reply.tool_calls))
                try:
                    response = await client.invoke_chat(delta, conversation_id=name)
                except ModelDownError:
                    # Results of tools that ran are facts, and stored although the model failed.
                    one.end_turn([m for m in delta if isinstance(m, ToolMessage)])
                    return
                assert response.message == planned
                one.end_turn([*lead, *delta, planned])
                lead = []
                batch = await client.run_tools(response)
                if batch.pending:
                    assert "ask" in {call.name for call in reply.tool_calls}
                    return
                delta = batch.messages
                assert list(delta) == [result_of(call) for call in reply.tool_calls]

        self.run(run())

    @rule(name=names, plan=plans, other=plans)
    def two_turns_at_once(self, name: str, plan: Plan, other: Plan) -> None:
        """The second one waits for the first, and is answered on what that left."""

        async def run() -> None:
            one = self.of(name)
            turns = [(each, next(self.numbers)) for each in (plan, other)]

            async def turn(each: Plan, number: int) -> tuple[Pause | None, int]:
                client, model = self.client(each.replies(number))
                try:
                    result = await client.invoke(f"say {number}", conversation_id=name)
                except ModelDownError:
                    return None, model.calls
                return result.pause, model.calls

            outcomes = await asyncio.gather(*(turn(*each) for each in turns))
            for (each, number), (pause, calls) in zip(turns, outcomes, strict=True):
                planned, end = each.messages(f"say {number}", number, streamed=False)
                lead = one.lead()
                one.end_turn([*lead, *planned] if planned else [])
                assert (pause is not None) == (end == "paused")
                if pause is not None:
                    one.pause, one.pause_at, one.pause_used = pause, len(one.messages), False
                    one.paused_with = each.replies(number)[calls:]

        self.run(run())

    # Pauses

    @rule(name=names, approve=st.booleans(), step=st.sampled_from([None, None, None, *range(1, 25)]))
    def resume(self, name: str, approve: bool, step: int | None) -> None:
        async def run() -> None:
            one = self.of(name)
            client, model = self.client(one.paused_with)
            if one.pause is None:
                with pytest.raises(PauseError):
                    await client.resume(name, [])
                return
            waiting = {waits.call.id for waits in one.pause.calls}
            decisions = [w.approve() if approve else w.reply("the person's words") for w in one.pause.calls]
            results = [
                ToolMessage(call.id, call.name, "the person's words")
                if call.id in waiting and not approve
                else result_of(call)
                for call in unanswered_calls(one.messages)
            ]
            planned, end = play(one.paused_with, (), streamed=False)
            planned = [*results, *planned]
            resumed = one.pause
            if step is not None:
                with suppress(ModelDownError):
                    await cancelled_at(client.resume(name, decisions), step, "while it waits")
                await self.adopt(name, planned, may_leave_open=True)
                if one.pause is None:
                    one.pause_used = True
                elif one.pause.id != resumed.id:
                    one.paused_with = one.paused_with[model.calls :]
                return
            one.pause, one.pause_used = None, True
            try:
                result = await client.resume(name, decisions)
            except ModelDownError:
                assert end == "failed"
            else:
                self.take(one, result, end, planned)
            one.end_turn(planned)
            if end == "paused":
                one.pause_at, one.pause_used = len(one.messages), False
                one.paused_with = one.paused_with[model.calls :]
            with pytest.raises(PauseError):  # a decision that comes again
                await client.resume(name, decisions)

        self.run(run())

    # What becomes of conversations

    @rule(name=names, new_name=names, place=st.integers(0, 30), everything=st.booleans())
    def fork(self, name: str, new_name: str, place: int, everything: bool) -> None:
        async def run() -> None:
            source, other = self.of(name), self.of(new_name)
            length = len(source.messages) if everything else place % (len(source.messages) + 1)
            records = await self.store.read(name)
            at = None if everything else records[length - 1].seq if length else 0
            allowed = bool(source.messages) and not other.messages and (everything or length in source.places())
            if not allowed:
                with pytest.raises(InvalidInputError):
                    await self.store.fork(name, new_name, at=at)
                return
            if length == source.pause_at != len(source.messages) and source.pause_used:
                return  # the results may be on record, if no later batch has written over them
            info = await self.store.fork(name, new_name, at=at)
            assert (info.parent_id, info.parent_seq) == (name, records[length - 1].seq)
            copied = source.copy()
            copied.cut(length)
            copied.version = other.version
            self.expected[new_name] = copied

        self.run(run())

    @rule(name=names, place=st.integers(0, 30))
    def rollback(self, name: str, place: int) -> None:
        async def run() -> None:
            one = self.of(name)
            length = place % (len(one.messages) + 1)
            records = await self.store.read(name)
            to = records[length - 1].seq if length else 0
            if length and length not in one.places():
                with pytest.raises(InvalidInputError):
                    await self.store.rollback(name, to=to)
                return
            await self.store.rollback(name, to=to)
            one.cut(length)

        self.run(run())

    @rule(name=names)
    def clear(self, name: str) -> None:
        async def run() -> None:
            one = self.of(name)
            await self.client([])[0].conversation(name).reset()
            one.cut(0)

        self.run(run())

    @rule()
    def restart(self) -> None:
        async def run() -> None:
            await self.close()
            self.store = self.make()

        self.run(run())
        self.touched.update(self.expected)

    # After each step

    @invariant()
    def store_holds_what_it_should(self) -> None:
        touched, self.touched = self.touched, set()
        for name in sorted(touched):
            self.run(self.check(name))

    async def check(self, name: str) -> None:
        one = self.expected[name]
        stored = await self.store.get(name)
        assert list(stored) == one.messages, name
        records = await self.store.read(name)
        assert [record.message for record in records] == one.messages
        places = [(record.turn_id, record.position) for record in records]
        assert len(set(places)) == len(places)
        version = await self.store.version(name)
        assert version >= max(one.version, records[-1].seq if records else 0)
        one.version = version
        assert await self.client([])[0].open_pause(name) == one.pause
        question = UserMessage("and now?")
        windowed = WindowedChatMemory(self.store, max_messages=WINDOW)
        for view in (stored, await windowed.view(name, [question])):
            healed, _ = heal([*view, question])
            assert check_history(healed) == []
            for codec in CODECS:
                wire = await codec.encode(ChatRequest(healed, (), OPTIONS, ToolContext()), stream=False)
                assert b"and now?" in wire.body


def run_machine(make: Callable[[], Any], examples: int, length: int) -> None:
    class Here(Machine):
        pass

    Here.make = staticmethod(make)  # type: ignore[assignment]
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=EXAMPLES or examples,
            stateful_step_count=50 if EXAMPLES else length,
            derandomize=not EXAMPLES,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


pytestmark = pytest.mark.timeout(100_000 if EXAMPLES else 120)


def test_conversations_in_memory() -> None:
    store: dict[str, InMemoryChatMemory] = {}

    def make() -> InMemoryChatMemory:  # nothing outlives the object, so it is handed around
        return store.setdefault("one", InMemoryChatMemory())

    run_machine(make, 60, 25)


def test_conversations_in_a_sqlite_file(tmp_path: Path) -> None:
    run_machine(lambda: SQLiteChatMemory(tmp_path / "a.db", synchronous="NORMAL"), 12, 20)


def test_conversations_in_postgres(postgres_dsn: str) -> None:
    from agentcore.memory.postgres import PostgresChatMemory

    run_machine(lambda: PostgresChatMemory(postgres_dsn, pool_size=2), 4, 15)


def test_conversations_in_redis(redis_url: str, namespace: str) -> None:
    from agentcore.memory.redis import RedisChatMemory

    run_machine(lambda: RedisChatMemory(redis_url, namespace=namespace), 6, 15)
