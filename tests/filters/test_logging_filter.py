"""LoggingFilter: what a record holds at each grain, and what it never holds."""

import asyncio
import logging

import pytest

from agentcore import ChatClient, InMemoryChatMemory, MemoryFilter, ProviderError, ToolCall, Usage, tool
from agentcore.filters.logging import LoggingFilter
from agentcore.testing import Reply, ScriptedModel

pytestmark = pytest.mark.asyncio

SECRET = "my card is 4111"


@tool
async def charge(card: str) -> str:
    """Charge a card."""
    return f"charged {card}"


@tool
async def fail() -> str:
    """Fail."""
    raise ValueError(SECRET)


def records(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [vars(record) for record in caplog.records if record.name == "agentcore.turns"]


async def test_turn_model_calls_and_tools_are_logged_with_their_figures(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    usage = Usage(input_tokens=7, output_tokens=3)
    script = [Reply(tool_calls=[ToolCall("c", "charge", {"card": "4111"})], usage=usage), Reply(text="ok", usage=usage)]
    client = ChatClient(ScriptedModel(script), tools=[charge], filters=[LoggingFilter()], memory=InMemoryChatMemory())
    result = await client.invoke(SECRET, conversation_id="u")
    made = records(caplog)
    assert [one["event"] for one in made] == ["model_call", "tool_call", "model_call", "turn"]
    assert {one["conversation_id"] for one in made} == {"u"}
    assert {one["turn_id"] for one in made} == {result.turn_id}
    assert [one["tool_names"] for one in made] == [["charge"], ["charge"], [], ["charge"]]
    turn = made[-1]
    assert (turn["status"], turn["input_tokens"], turn["output_tokens"], turn["model_calls"]) == ("completed", 14, 6, 2)
    assert (made[0]["model"], made[0]["finish_reason"]) == ("scripted", "tool_calls")
    assert all(isinstance(one["duration"], float) for one in made)


async def test_what_was_said_is_in_no_record(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    script = [ToolCall("c", "charge", {"card": "4111"}), ToolCall("d", "fail"), "4111 it is"]
    await ChatClient(ScriptedModel(script), tools=[charge, fail], filters=[LoggingFilter()]).invoke(SECRET)
    assert len(records(caplog)) == 6
    assert "4111" not in str(records(caplog))


async def test_content_that_is_asked_for_goes_through_the_redactor(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    logs = LoggingFilter(log_content=True, redact=lambda text: text.replace("4111", "####"))
    script = [ToolCall("c", "charge", {"card": "4111"}), "4111 it is"]
    await ChatClient(ScriptedModel(script), tools=[charge], filters=[logs]).invoke(SECRET)
    made = records(caplog)
    assert "4111" not in str(made)
    assert (made[-1]["input"], made[-1]["output"]) == ("my card is ####", "#### it is")
    assert (made[1]["input"], made[1]["output"]) == ("{'card': '####'}", "charged ####")


async def test_failures_are_warnings_that_name_the_kind_alone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    client = ChatClient(
        ScriptedModel([ToolCall("d", "fail"), ProviderError(SECRET, kind="quota")]),
        tools=[fail],
        filters=[LoggingFilter()],
    )
    with pytest.raises(ProviderError):
        await client.invoke("x")
    assert [(one["event"], one["levelname"], one.get("error")) for one in records(caplog)] == [
        ("model_call", "INFO", None),
        ("tool_call", "WARNING", None),
        ("model_call", "WARNING", "quota"),
        ("turn", "WARNING", "quota"),
    ]
    assert SECRET not in str([(one["message"], one.get("error")) for one in records(caplog)])


@pytest.mark.parametrize("outside", [True, False], ids=["outside-memory", "inside-memory"])
async def test_outside_the_memory_it_sees_the_delta_and_inside_the_whole(
    outside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    logs, memory = LoggingFilter(log_content=True), MemoryFilter(InMemoryChatMemory())
    client = ChatClient(ScriptedModel(["a", "b"]), filters=[logs, memory] if outside else [memory, logs])
    await client.invoke("one", conversation_id="u")
    await client.invoke("two", conversation_id="u")
    seen = [one["input"] for one in records(caplog) if one["event"] == "model_call"]
    assert seen == ["one", "two" if outside else "one\na\ntwo"]


async def test_streamed_turn_is_logged_alike(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with ChatClient(ScriptedModel(["hi"]), filters=[LoggingFilter()]).stream("x") as turn:
        async for _ in turn:
            pass
    assert [(one["event"], one.get("status")) for one in records(caplog)] == [
        ("model_call", None),
        ("turn", "completed"),
    ]


async def test_reader_that_leaves_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    reply = Reply(text=["a", "b"], wait_between=asyncio.Event().wait)
    async with ChatClient(ScriptedModel([reply]), filters=[LoggingFilter()]).stream("x") as turn:
        async for _ in turn:
            break
    assert [one["error"] for one in records(caplog)][-1:] == ["CancelledError"]


async def test_logger_that_is_silent_gets_nothing(caplog: pytest.LogCaptureFixture) -> None:
    quiet = logging.getLogger("agentcore.turns.quiet")
    quiet.setLevel(logging.ERROR)
    await ChatClient(ScriptedModel(["hi"]), filters=[LoggingFilter(logger=quiet)]).invoke("x")
    assert caplog.records == []
