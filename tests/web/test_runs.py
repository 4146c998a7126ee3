"""Runs without a server: bounded buffers, slow readers, shutting down."""

import asyncio
import traceback
from contextlib import suppress
from typing import Any

import pytest

from agentcore import (
    ChatClient,
    ConfigurationError,
    InMemoryChatMemory,
    InvalidInputError,
    TextDelta,
    ToolCall,
    ToolContext,
    check_history,
    tool,
)
from agentcore.testing import Reply, ScriptedModel
from agentcore.web import Behind, Run, Runs, ShuttingDownError

pytestmark = pytest.mark.asyncio

PIECES = [f"{number:03}" + "." * 897 for number in range(100)]  # with what an event takes beside its text, 1,000 bytes


def a_client(*script: Any, **settings: Any) -> ChatClient:
    return ChatClient(ScriptedModel(script), memory=InMemoryChatMemory(), **settings)


async def settle() -> None:
    """Let every task that can go on go on."""
    for _ in range(1_000):
        await asyncio.sleep(0)


async def read(run: Run, after: int = 0) -> str:
    parts: list[str] = []
    async for batch in run.follow(after):
        parts += [one.event.text for one in batch if isinstance(one.event, TextDelta)]
    return "".join(parts)


async def test_run_nobody_follows_keeps_its_newest_events() -> None:
    async with Runs(a_client(Reply(text=PIECES)), max_kept_bytes=10_000) as runs:
        run = runs.start("hi", conversation_id="c")
        assert (await run.finished()).text == "".join(PIECES)
        batches = [batch async for batch in run.follow()]
    events = [one for batch in batches for one in batch]
    assert events[0] == (90, Behind(90))
    assert [one.number for one in events[1:]] == list(range(91, 101))


async def test_slow_reader_holds_the_turn_back_and_misses_nothing() -> None:
    taken = 0

    async def piece() -> None:
        nonlocal taken
        taken += 1

    async with Runs(a_client(Reply(text=PIECES, wait_between=piece)), max_kept_bytes=10_000) as runs:
        run = runs.start("hi", conversation_id="c")
        follow = run.follow()
        parts: list[str] = []
        async for batch in follow:
            parts += [one.event.text for one in batch if isinstance(one.event, TextDelta)]
            await settle()  # as long as it likes: the model is not asked for more than the buffers hold
            assert taken <= len(parts) + 10 + 16 + 2
        assert parts == PIECES


async def test_reader_that_leaves_sets_the_turn_free() -> None:
    async with Runs(a_client(Reply(text=PIECES)), max_kept_bytes=10_000) as runs:
        run = runs.start("hi", conversation_id="c")
        follow = run.follow()
        await anext(follow)
        await settle()
        assert not run.is_finished
        await follow.aclose()
        assert (await run.finished()).text == "".join(PIECES)


async def test_slower_of_two_readers_is_told_what_it_missed() -> None:
    async with Runs(a_client(Reply(text=PIECES)), max_kept_bytes=10_000) as runs:
        run = runs.start("hi", conversation_id="c")
        slow = run.follow()
        begin = await anext(slow)
        assert await read(run) == "".join(PIECES)
        rest = [one async for batch in slow for one in batch]
        assert rest[0].event == Behind(rest[1].number - begin[-1].number - 1)
        assert rest[-1].number == 100


async def test_follower_that_knows_more_than_there_is_waits_for_what_comes() -> None:
    gate = asyncio.Event()
    async with Runs(a_client(Reply(text=["a", "b"], wait_between=gate.wait))) as runs:
        run = runs.start("hi", conversation_id="c")
        await run.began()
        reading = asyncio.create_task(read(run, after=1_000))
        await settle()
        gate.set()
        assert await reading == "b"


async def test_cancelled_before_it_began_leaves_nothing() -> None:
    client = a_client("never", "next")
    async with Runs(client) as runs:
        run = runs.start("hi", conversation_id="c")
        run.cancel()
        assert (await run.finished()).status == "cancelled"
        assert (await runs.start("again", conversation_id="c").finished()).status == "completed"


async def test_shutting_down_refuses_new_turns_and_gives_running_ones_their_time() -> None:
    gate, model = asyncio.Event(), Reply(text=["a", "b"])
    client = a_client(Reply(text=["a", "b"], wait_between=gate.wait), model)
    async with Runs(client, grace=60) as runs:
        run = runs.start("hi", conversation_id="c")
        await run.began()
        runs.begin_shut_down()
        with pytest.raises(ShuttingDownError):
            runs.start("hi", conversation_id="d")
        with pytest.raises(ShuttingDownError):
            runs.resume("c", [])
        gate.set()
        assert (await run.finished()).text == "ab"


async def test_turn_that_outlasts_the_grace_time_ends_as_interrupted() -> None:
    never = asyncio.Event()
    client = a_client(Reply(text=["a", "b"], wait_between=never.wait))
    async with Runs(client, grace=0) as runs:
        run = runs.start("hi", conversation_id="c")
        await run.began()
    assert run.result.status == "cancelled"
    messages = await client.conversation("c").history()
    assert check_history(messages) == []
    assert [getattr(one, "finish_reason", None) for one in messages] == [None, "interrupted"]
    assert len(asyncio.all_tasks()) == 1
    with pytest.raises(ShuttingDownError):
        runs.start("hi", conversation_id="c")


async def test_runs_that_are_not_open_say_how() -> None:
    with pytest.raises(ConfigurationError, match="lifespan"):
        Runs(a_client("hi")).start("hi", conversation_id="c")


async def test_error_of_a_turn_is_raised_to_each_who_asks() -> None:
    async with Runs(a_client(ZeroDivisionError("inside"))) as runs:
        run = runs.start("hi", conversation_id="c")
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await run.finished()
        assert [batch async for batch in run.follow()] == []


async def test_finished_runs_are_forgotten_after_a_while() -> None:
    now = 0.0
    async with Runs(a_client("a", "b"), keep_finished=60, clock=lambda: now) as runs:
        run = runs.start("hi", conversation_id="c")
        with pytest.raises(RuntimeError, match="not finished"):
            _ = run.result
        await run.finished()
        now = 59.0
        assert runs.find(run.id) is run
        now = 61.0
        assert runs.find(run.id) is None


async def test_entering_twice_is_refused() -> None:
    async with Runs(a_client()) as runs:
        with pytest.raises(RuntimeError, match="open already"):
            await runs.__aenter__()


async def test_finished_runs_are_kept_within_a_bound_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcore.web.runs._KEPT_BYTES", 30_000)
    client = ChatClient(ScriptedModel([Reply(text=["x" * 5_000])], repeat_last=True))
    async with Runs(client) as runs:
        ended = [runs.start("hi", conversation_id=None) for _ in range(5)]
        for run in ended:
            await run.finished()
        assert [runs.find(run.id) is run for run in ended] == [False, False, False, True, True]
        assert ended[0].result.text == "x" * 5_000  # for those who have it already
        said = runs.start("y" * 31_000, conversation_id=None)
        await said.finished()
        assert [runs.find(run.id) for run in (*ended, said)] == [None] * 6


async def test_reader_that_has_joined_and_read_nothing_misses_nothing() -> None:
    async with Runs(a_client(Reply(text=PIECES)), max_kept_bytes=10_000) as runs:
        run = runs.start("hi", conversation_id="c")
        with run.joined() as batches:
            await settle()
            assert not run.is_finished
            parts = [one.event async for batch in batches for one in batch]
    assert [part.text for part in parts if isinstance(part, TextDelta)] == PIECES


async def test_run_goes_on_for_the_last_who_attends() -> None:
    gate = asyncio.Event()
    async with Runs(a_client(Reply(text=["a", "b"], wait_between=gate.wait)), on_disconnect="cancel") as runs:
        run = runs.start("hi", conversation_id="c")
        with run.attended():
            with run.joined():
                await run.began()
            await settle()
            assert not run.is_finished
        assert (await run.finished()).status == "cancelled"


async def test_key_of_another_request_is_refused() -> None:
    async with Runs(a_client("a")) as runs:
        run = runs.start("hi", conversation_id="c", key="k")
        with pytest.raises(InvalidInputError, match="another"):
            runs.start("something else", conversation_id="c", key="k")
        with pytest.raises(InvalidInputError, match="another"):
            runs.resume("c", [], key="k")
        await run.finished()


async def test_run_that_failed_and_left_nothing_is_begun_anew_by_its_key() -> None:
    now = 0.0
    client = a_client(ZeroDivisionError("first"), "second")
    async with Runs(client, clock=lambda: now) as runs:
        failed = runs.start("hi", conversation_id="c", key="k")
        assert runs.start("hi", conversation_id="c", key="k") is failed  # it may succeed yet
        with pytest.raises(ZeroDivisionError):
            await failed.finished()
        now = 30.0
        again = runs.start("hi", conversation_id="c", key="k")
        assert (await again.finished()).text == "second"
        now = 61.0  # the first one is forgotten, and not the key that is the second's now
        assert runs.find(failed.id) is None
        assert runs.start("hi", conversation_id="c", key="k") is again


async def test_run_that_failed_after_something_was_stored_is_not_begun_anew() -> None:
    client = a_client(Reply(text=["so ", "far"], error=ZeroDivisionError("broken")), "never")
    async with Runs(client) as runs:
        failed = runs.start("hi", conversation_id="c", key="k")
        with pytest.raises(ZeroDivisionError):
            await failed.finished()
        assert len(await client.conversation("c").history()) == 2
        assert runs.start("hi", conversation_id="c", key="k") is failed


async def test_run_that_was_cut_off_is_an_error_to_those_who_ask_and_no_cancellation() -> None:
    asked = asyncio.Event()

    async def never() -> None:
        asked.set()
        await asyncio.Event().wait()

    run = Run(None, cancel_alone=False, max_kept=1_000)
    driving = asyncio.create_task(run.drive(a_client(Reply(text="a", wait_for=never)).stream("hi")))
    await asked.wait()
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    with pytest.raises(ShuttingDownError):
        _ = run.result


async def test_error_does_not_grow_with_those_who_ask() -> None:
    async with Runs(a_client(ZeroDivisionError("inside"))) as runs:
        run = runs.start("hi", conversation_id="c")
        lengths: list[int] = []
        for _ in range(3):
            with pytest.raises(ZeroDivisionError) as caught:
                await run.finished()
            lengths.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert lengths[0] == lengths[1] == lengths[2]


async def test_turn_that_does_not_end_though_it_was_cancelled_is_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("agentcore.web.runs._END_SECONDS", 0.01)
    working, gate = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Work, and do not stop."""
        working.set()
        while not gate.is_set():
            with suppress(asyncio.CancelledError):
                await gate.wait()
        return "late"

    async with Runs(a_client(ToolCall("c1", "stubborn"), "never", tools=[stubborn])) as runs:
        run = runs.start("hi", conversation_id="c")
        await working.wait()
        await runs.shut_down(grace=0)
        assert "1 turns have not ended" in caplog.text
        gate.set()
        assert (await run.finished()).status == "cancelled"


async def test_what_cannot_be_told_as_json_does_not_end_the_turn() -> None:
    class Odd:
        def __str__(self) -> str:
            raise ZeroDivisionError("inside")

    @tool
    async def work(context: ToolContext) -> str:
        """Work."""
        await context.emit({"odd": Odd()})
        return "worked"

    async with Runs(a_client(ToolCall("c1", "work"), "Done.", tools=[work])) as runs:
        assert (await runs.start("\ud800", conversation_id="c").finished()).text == "Done."
