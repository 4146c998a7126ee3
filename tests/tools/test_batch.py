"""A batch of calls: together, in order, each failure an answer of its own."""

import asyncio
import contextvars
import functools
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import permutations
from typing import Any

import anyio
import hypothesis.strategies as st
import pytest
from anyio import CapacityLimiter
from hypothesis import given, settings

from agentcore import (
    ChatClient,
    Filter,
    InMemoryChatMemory,
    Limits,
    ToolCall,
    ToolContext,
    ToolError,
    ToolMessage,
    ToolRequest,
    ToolResult,
    TransientToolError,
    check_history,
    tool,
)
from agentcore.errors import ConfigurationError
from agentcore.events import ToolFinished, ToolStarted
from agentcore.testing import ScriptedModel
from agentcore.tools.runner import ToolRunner
from agentcore.tools.tool import Tool, ToolSource

pytestmark = pytest.mark.asyncio


async def run(calls: list[ToolCall], *tools: ToolSource, context: dict[str, Any] | None = None, **settings: Any) -> Any:
    client = ChatClient(ScriptedModel([]), tools=tools, **settings)
    return await client.run_tools(calls, tool_context=context)


async def one(function: ToolSource, args: dict[str, Any] | None = None, **settings: Any) -> ToolMessage:
    made = function if isinstance(function, Tool) else Tool(function)
    batch = await run([ToolCall("c1", made.name, args or {})], made, **settings)
    return batch.messages[0]


async def now() -> str:
    """Tell the time."""
    return "12:00"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("bad two"), "ValueError: bad two"),
        (TimeoutError(), "TimeoutError"),
        (KeyError("x"), "KeyError: 'x'"),
        (ToolError("plain words"), "plain words"),
        (ToolError(), "ToolError"),
        (RuntimeError("\ud83d"), "RuntimeError: \ufffd"),
        (asyncio.CancelledError(), "CancelledError: something inside the tool cancelled it."),
        (asyncio.InvalidStateError(), "InvalidStateError"),
        (ExceptionGroup("many", [ValueError("x")]), "ValueError: x"),
    ],
    ids=repr,
)
async def test_raising_tool_is_an_answer_and_the_others_go_on(error: BaseException, words: str) -> None:
    async def boom() -> str:
        """Fail."""
        raise error

    batch = await run([ToolCall("c1", "now"), ToolCall("c2", "boom"), ToolCall("c3", "now")], now, boom)
    assert [(m.tool_call_id, m.is_error) for m in batch.messages] == [("c1", False), ("c2", True), ("c3", False)]
    assert words in batch.messages[1].content


async def test_cause_of_a_failure_is_told() -> None:
    async def boom() -> str:
        """Fail."""
        try:
            raise OSError("disk full")
        except OSError as error:
            raise RuntimeError("not saved") from error

    assert (await one(boom)).content == "RuntimeError: not saved (caused by OSError: disk full)"


async def test_unknown_tool_is_told_which_there_are() -> None:
    batch = await run([ToolCall("c1", "shell", {"cmd": "ls"}), ToolCall("c2", "now")], now, Tool(now, name="run"))
    assert batch.messages[0].is_error
    assert all(word in batch.messages[0].content for word in ("'shell'", "now", "run"))
    assert batch.messages[1].content == "12:00"
    assert "none" in (await run([ToolCall("c1", "x")])).messages[0].content


async def test_unreadable_arguments_are_quoted_and_not_run() -> None:
    ran: list[int] = []

    async def f() -> None:
        """Run."""
        ran.append(1)

    batch = await run(
        [ToolCall("c1", "f", {}, raw_arguments="{'q': 1,}"), ToolCall("c2", "f", {}, raw_arguments="")], f
    )
    assert "{'q': 1,}" in batch.messages[0].content
    assert "JSON object was expected" in batch.messages[0].content
    assert "(nothing)" in batch.messages[1].content
    assert ran == []


async def test_missing_argument_is_answered_in_words() -> None:
    async def book(room: str, day: str) -> str:
        """Book."""
        return "ok"

    message = await one(book, {"room": "A"})
    assert message.is_error
    assert "day" in message.content
    assert "positional" not in message.content


async def test_awaitables_of_every_make_are_awaited() -> None:
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    class Caller:
        async def __call__(self, b: int) -> int:
            return b

    def lazy(b: int) -> Awaitable[int]:
        """Sync, but returns a coroutine."""
        return add(0, b)

    calls = [ToolCall("1", "p", {"b": 2}), ToolCall("2", "o", {"b": 2}), ToolCall("3", "l", {"b": 2})]
    batch = await run(calls, Tool(functools.partial(add, 1), name="p"), Tool(Caller(), name="o"), Tool(lazy, name="l"))
    assert [m.content for m in batch.messages] == ["3", "2", "2"]


async def test_async_timeout_stops_the_tool_and_the_turn_goes_on() -> None:
    cleaned = asyncio.Event()

    @tool(timeout=0.02)
    async def hang() -> None:
        """Hang."""
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    batch = await run([ToolCall("c1", "hang"), ToolCall("c2", "now")], hang, now)
    assert batch.messages[0].is_error
    assert batch.messages[0].content == "hang timed out after 0.02 s."
    assert batch.messages[1].content == "12:00"
    assert cleaned.is_set()


async def test_client_timeout_holds_for_tools_without_their_own() -> None:
    async def hang() -> None:
        """Hang."""
        await asyncio.Event().wait()

    assert "timed out after 0.01 s" in (await one(hang, tool_timeout=0.01)).content
    assert "timed out after 0.02 s" in (await one(tool(timeout=0.02)(hang), tool_timeout=0.01)).content


async def test_sync_tool_that_cannot_be_stopped_is_abandoned_and_its_late_result_dropped() -> None:
    release, ended = threading.Event(), threading.Event()

    @tool(timeout=0.02)
    def hang() -> ToolResult:
        """Hang."""
        release.wait(5)
        ended.set()
        return ToolResult("late", writes={"x": 1})

    batch = await run([ToolCall("c1", "hang")], hang)
    assert "timed out after 0.02 s" in batch.messages[0].content
    assert "abandoned" in batch.messages[0].content
    release.set()
    await anyio.to_thread.run_sync(ended.wait)
    assert "x" not in batch.tool_context


async def test_sync_tools_do_not_block_the_loop() -> None:
    release = threading.Event()

    def block() -> str:
        """Wait until the loop lets go, which it only can if it is not blocked."""
        return "ok" if release.wait(5) else "blocked"

    async def let_go() -> str:
        """Let go."""
        release.set()
        return "ok"

    batch = await run([ToolCall("1", "block"), ToolCall("2", "block"), ToolCall("3", "let_go")], block, let_go)
    assert [m.content for m in batch.messages] == ["ok", "ok", "ok"]


async def test_many_sync_tools_never_starve_async_ones() -> None:
    release = threading.Event()
    running, most = 0, 0
    lock = threading.Lock()

    def block() -> str:
        """Block."""
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        release.wait(5)
        with lock:
            running -= 1
        return "ok"

    async def free() -> str:
        """Free the others."""
        release.set()
        return "free"

    calls = [ToolCall(str(n), "block") for n in range(60)] + [ToolCall("free", "free")]
    batch = await run(calls, block, free, max_tool_threads=4)
    assert batch.messages[-1].content == "free"
    assert {m.content for m in batch.messages[:-1]} == {"ok"}
    assert most <= 4


TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


async def test_context_variables_reach_async_and_sync_tools() -> None:
    async def read_async() -> str:
        """Read."""
        return TENANT.get()

    def read_sync() -> str:
        """Read."""
        return TENANT.get()

    TENANT.set("acme")
    batch = await run([ToolCall("1", "read_async"), ToolCall("2", "read_sync")], read_async, read_sync)
    assert [m.content for m in batch.messages] == ["acme", "acme"]


async def test_transient_failure_is_tried_again_only_when_declared() -> None:
    keys: list[str] = []
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def flaky(context: ToolContext) -> str:
        """Fail twice."""
        keys.append(context.call_key)
        if len(keys) < 3:
            raise TransientToolError("try later")
        return "ok"

    async def attempt(retry: int) -> ToolMessage:
        keys.clear()
        runner = ToolRunner(
            compose=lambda run: run,
            reducers={},
            timeout=None,
            max_concurrency=None,
            max_result_chars=None,
            threads=CapacityLimiter(1),
            sleep=sleep,
        )
        one = Tool(flaky, retry=retry)
        return (
            await runner.run_batch([ToolCall("c1", "flaky")], [one], ToolContext({}, turn_id="t"), None, {})
        ).messages[0]

    assert (await attempt(2)).content == "ok"
    assert (keys, waits) == (["t:c1"] * 3, [0.1, 0.2])
    assert await attempt(1) == ToolMessage("c1", "flaky", "try later", is_error=True)
    assert len(keys) == 2
    assert (await attempt(0)).is_error
    assert len(keys) == 1


async def test_serial_tools_run_one_after_another() -> None:
    log: list[str] = []

    @tool(serial=True)
    async def step(name: str) -> str:
        """Step."""
        log.append(f"{name} in")
        await asyncio.sleep(0)
        log.append(f"{name} out")
        return name

    batch = await run([ToolCall(n, "step", {"name": n}) for n in "abc"], step)
    assert log == ["a in", "a out", "b in", "b out", "c in", "c out"]
    assert [m.content for m in batch.messages] == ["a", "b", "c"]


async def test_number_of_tools_at_once_can_be_bounded() -> None:
    running, most = 0, 0

    async def count() -> None:
        """Count."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await run([ToolCall(str(n), "count") for n in range(9)], count, max_concurrent_tools=2)
    assert most == 2


@settings(max_examples=24, deadline=None)
@given(st.sampled_from(list(permutations(range(4)))))
async def test_writes_are_folded_in_call_order_whoever_finishes_first(order: tuple[int, ...]) -> None:
    gates = [asyncio.Event() for _ in order]

    async def put(number: int) -> ToolResult:
        """Put."""
        position = order.index(number)
        await gates[position].wait()
        if position + 1 < len(gates):
            gates[position + 1].set()
        return ToolResult(number, writes={"last": number, "all": [number]})

    gates[0].set()
    calls = [ToolCall(str(n), "put", {"number": n}) for n in range(4)]
    batch = await run(calls, put, reducers={"all": lambda old, new: (old or []) + new})
    assert batch.tool_context["last"] == 3
    assert batch.tool_context["all"] == [0, 1, 2, 3]
    assert [m.writes["last"] for m in batch.messages] == [0, 1, 2, 3]


async def test_failed_tool_writes_nothing() -> None:
    class Veto(Filter):
        async def around_tool(
            self, request: ToolRequest, call_next: Callable[..., Awaitable[ToolMessage]]
        ) -> ToolMessage:
            from msgspec.structs import replace

            return replace(await call_next(request), is_error=True)

    async def put() -> ToolResult:
        """Put."""
        return ToolResult("ok", writes={"x": 1})

    batch = await run([ToolCall("1", "put")], put, filters=[Veto()])
    assert "x" not in batch.tool_context


async def test_tools_of_a_batch_see_one_snapshot_and_their_own_key() -> None:
    async def put(context: ToolContext) -> ToolResult:
        """Put."""
        return ToolResult(
            f"{context.get('x')} {context.call_id} {context.call_key.endswith(':' + context.call_id)}", writes={"x": 1}
        )

    batch = await run([ToolCall("a", "put"), ToolCall("b", "put")], put, context={"x": 0})
    assert [m.content for m in batch.messages] == ["0 a True", "0 b True"]


async def test_failing_filter_is_the_answer_to_its_call_alone() -> None:
    class Broken(Filter):
        async def around_tool(
            self, request: ToolRequest, call_next: Callable[..., Awaitable[ToolMessage]]
        ) -> ToolMessage:
            if request.call.id == "2":
                raise ValueError("filter is broken")
            return await call_next(request)

    batch = await run([ToolCall("1", "now"), ToolCall("2", "now"), ToolCall("3", "now")], now, filters=[Broken()])
    assert [m.is_error for m in batch.messages] == [False, True, False]
    assert "filter is broken" in batch.messages[1].content


async def test_cancellation_is_no_tool_error_and_waits_for_clean_up() -> None:
    cleaned: list[str] = []
    started = asyncio.Event()

    class Careless(Filter):
        async def around_tool(
            self, request: ToolRequest, call_next: Callable[..., Awaitable[ToolMessage]]
        ) -> ToolMessage:
            try:
                return await call_next(request)
            except Exception as error:
                return ToolMessage(request.call.id, request.call.name, str(error), is_error=True)

    async def slow(name: str) -> None:
        """Wait."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(name)

    calls = [ToolCall("1", "slow", {"name": "a"}), ToolCall("2", "slow", {"name": "b"})]
    task = asyncio.create_task(run(calls, slow, filters=[Careless()]))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(cleaned) == ["a", "b"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("count", [1, 2], ids=["alone", "in-a-batch"])
async def test_exit_comes_out_as_it_is(count: int) -> None:
    class LeaveError(BaseException):
        pass

    async def leave() -> None:
        """Leave."""
        raise LeaveError

    with pytest.raises(LeaveError):
        await run([ToolCall(str(n), "leave") for n in range(count)], leave)


async def test_direct_results_are_the_answer_and_the_model_is_not_asked_again() -> None:
    shown = Tool(now, name="shown", return_direct=True)
    model = ScriptedModel([[ToolCall("1", "shown"), ToolCall("2", "shown")], "never"])
    result = await ChatClient(model, tools=[shown]).invoke("go")
    assert (result.status, result.text, model.calls) == ("completed", "12:00\n12:00", 1)


async def test_direct_is_the_whole_batch_or_nothing() -> None:
    shown = Tool(now, name="shown", return_direct=True)
    model = ScriptedModel([[ToolCall("1", "shown"), ToolCall("2", "now")], ToolCall("3", "shown", {"x": 1}), "done"])
    result = await ChatClient(model, tools=[shown, now], limits=Limits(model_calls=5)).invoke("go")
    assert (result.text, model.calls) == ("done", 3)


async def test_long_result_is_cut_with_a_mark() -> None:
    async def long() -> str:
        """Long."""
        return "x" * 1000

    assert "900 of 1000 characters cut" in (await one(long, max_result_chars=100)).content


async def test_unpresentable_result_says_that_the_tool_ran() -> None:
    async def odd() -> object:
        """Odd."""
        return object()

    message = await one(odd)
    assert message.is_error
    assert "the tool ran" in message.content


async def test_no_calls_is_an_empty_batch() -> None:
    assert (await run([])).messages == ()


class Around(Filter):
    def __init__(self, answer: Callable[[ToolRequest, ToolMessage], Any]) -> None:
        self.answer = answer

    async def around_tool(self, request: ToolRequest, call_next: Callable[..., Awaitable[ToolMessage]]) -> ToolMessage:
        return self.answer(request, await call_next(request))


@pytest.mark.parametrize("odd", [None, "text", ToolResult("x")], ids=lambda odd: type(odd).__name__)
async def test_filter_that_answers_with_something_else_is_an_error_of_its_call(odd: Any) -> None:
    swap = Around(lambda request, message: odd if request.call.id == "2" else message)
    batch = await run([ToolCall("1", "now"), ToolCall("2", "now")], now, filters=[swap])
    assert [m.is_error for m in batch.messages] == [False, True]
    assert type(odd).__name__ in batch.messages[1].content
    assert batch.messages[1].tool_call_id == "2"


async def test_answer_of_a_filter_belongs_to_its_call_whatever_id_it_bears() -> None:
    made = Around(lambda request, message: ToolMessage("", "now", "cached"))
    batch = await run([ToolCall("1", "now"), ToolCall("2", "now")], now, filters=[made])
    assert [(m.tool_call_id, m.content) for m in batch.messages] == [("1", "cached"), ("2", "cached")]


async def test_cancellation_that_a_filter_lets_out_is_the_answer_to_its_call() -> None:
    def cancel(request: ToolRequest, message: ToolMessage) -> ToolMessage:
        raise asyncio.CancelledError

    batch = await run([ToolCall("1", "now")], now, filters=[Around(cancel)])
    assert (batch.messages[0].is_error, batch.messages[0].tool_call_id) == (True, "1")
    assert "cancelled" in batch.messages[0].content


async def test_filter_sees_a_failure_as_an_answer() -> None:
    seen: list[bool] = []

    async def boom() -> None:
        """Fail."""
        raise ValueError("x")

    def look(request: ToolRequest, message: ToolMessage) -> ToolMessage:
        seen.append(message.is_error)
        return message

    await run(
        [ToolCall("1", "boom"), ToolCall("2", "nowhere"), ToolCall("3", "now")], boom, now, filters=[Around(look)]
    )
    assert seen == [True, True, False]


async def test_every_started_tool_of_a_stream_finishes_also_when_a_filter_fails() -> None:
    def broken(request: ToolRequest, message: ToolMessage) -> ToolMessage:
        raise ValueError("filter is broken")

    model = ScriptedModel([[ToolCall("1", "now"), ToolCall("2", "now")], "done"])
    events: list[tuple[str, str]] = []
    async with ChatClient(model, tools=[now], filters=[Around(broken)]).stream("go") as turn:
        async for event in turn:
            if isinstance(event, ToolStarted):
                events.append(("started", event.call.id))
            elif isinstance(event, ToolFinished):
                assert "filter is broken" in event.message.content
                events.append(("finished", event.message.tool_call_id))
    assert sorted(events) == [("finished", "1"), ("finished", "2"), ("started", "1"), ("started", "2")]


async def test_calls_that_share_an_id_keep_their_own_answers() -> None:
    async def echo(text: str) -> str:
        """Echo."""
        return text

    batch = await run([ToolCall("1", "echo", {"text": "a"}), ToolCall("1", "echo", {"text": "b"})], echo)
    assert [m.content for m in batch.messages] == ["a", "b"]


async def test_serial_tools_count_among_those_that_run_at_once() -> None:
    running, most = 0, 0

    async def count() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    free, serial = Tool(count, name="free"), Tool(count, name="serial", serial=True)
    calls = [ToolCall(str(n), "serial" if n % 2 else "free") for n in range(8)]
    batch = await run(calls, free, serial, max_concurrent_tools=1)
    assert most == 1
    assert [m.tool_call_id for m in batch.messages] == [str(n) for n in range(8)]


@pytest.mark.parametrize("bound", [0, -1])
async def test_bound_that_lets_nothing_run_is_refused(bound: int) -> None:
    with pytest.raises(ConfigurationError, match="none at all"):
        ChatClient(ScriptedModel([]), max_concurrent_tools=bound)


async def test_writes_that_are_no_mapping_are_an_error() -> None:
    async def put() -> ToolResult:
        """Put."""
        return ToolResult("ok", writes=[("x", 1)])  # type: ignore[arg-type]

    message = await one(put)
    assert message.is_error
    assert "writes are a list, not a mapping" in message.content


async def test_result_that_cannot_be_shown_writes_nothing() -> None:
    async def put() -> ToolResult:
        """Put."""
        return ToolResult(object(), writes={"x": 1})

    batch = await run([ToolCall("1", "put")], put)
    assert batch.messages[0].is_error
    assert "x" not in batch.tool_context


async def test_timed_out_tool_writes_nothing_even_if_it_answers() -> None:
    @tool(timeout=0.01)
    async def stubborn() -> ToolResult:
        """Answer the cancellation."""
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return ToolResult("late", writes={"x": 1})

    batch = await run([ToolCall("1", "stubborn")], stubborn)
    assert "timed out" in batch.messages[0].content
    assert "x" not in batch.tool_context


async def test_long_failure_is_cut_with_a_mark() -> None:
    async def boom() -> None:
        """Fail."""
        raise ValueError("x" * 1000)

    content = (await one(boom, max_result_chars=100)).content
    assert "characters cut" in content
    assert len(content) < 200


async def test_long_unreadable_arguments_are_quoted_in_part() -> None:
    batch = await run([ToolCall("1", "now", {}, raw_arguments="{" * 2000)], now)
    assert "(2000 characters)" in batch.messages[0].content
    assert len(batch.messages[0].content) < 700


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_context_variable_a_tool_sets_stays_its_own(kind: str) -> None:
    async def set_async() -> None:
        TENANT.set("changed")

    def set_sync() -> None:
        TENANT.set("changed")

    TENANT.set("acme")
    await one(set_async if kind == "async" else set_sync)
    assert TENANT.get() == "acme"


async def test_cancelled_turn_does_not_wait_for_a_sync_tool_and_drops_what_it_brings() -> None:
    started, release = threading.Event(), threading.Event()
    memory = InMemoryChatMemory()

    def block() -> ToolResult:
        """Block."""
        started.set()
        release.wait(5)
        return ToolResult("late", writes={"x": 1})

    client = ChatClient(ScriptedModel([ToolCall("1", "block")]), tools=[block], memory=memory)
    task = asyncio.create_task(client.invoke("go", conversation_id="u1"))
    assert await anyio.to_thread.run_sync(started.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    stored = await memory.get("u1")
    release.set()
    assert await memory.get("u1") == stored
    assert "late" not in str(stored)
    assert check_history(stored) == []


async def test_turn_goes_on_after_every_kind_of_failure() -> None:
    @tool(timeout=0.01)
    async def hang() -> None:
        """Hang."""
        await asyncio.Event().wait()

    async def odd() -> object:
        """Odd."""
        return object()

    async def boom() -> None:
        """Fail."""
        raise TimeoutError

    calls = [
        ToolCall("1", "hang"),
        ToolCall("2", "odd"),
        ToolCall("3", "boom"),
        ToolCall("4", "nowhere"),
        ToolCall("5", "now", {"x": 1}),
        ToolCall("6", "now", {}, raw_arguments="["),
        ToolCall("7", "now"),
    ]
    memory = InMemoryChatMemory()
    client = ChatClient(ScriptedModel([calls, "done"]), tools=[hang, odd, boom, now], memory=memory)
    result = await client.invoke("go", conversation_id="u1")
    assert (result.status, result.text) == ("completed", "done")
    answers = [m for m in await memory.get("u1") if isinstance(m, ToolMessage)]
    assert [(m.tool_call_id, m.is_error, bool(m.content)) for m in answers] == [
        *((str(n), True, True) for n in range(1, 7)),
        ("7", False, True),
    ]


async def test_batch_of_nothing_is_no_direct_answer() -> None:
    assert not (await run([], Tool(now, return_direct=True))).return_direct
