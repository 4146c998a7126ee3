"""The loop of a turn: what is called, what is stored, and how it ends."""

import asyncio

import pytest
from msgspec.structs import replace

from agentcore import (
    AssistantMessage,
    ChatClient,
    ChatOptions,
    ChatRequest,
    ChatResponse,
    InMemoryChatMemory,
    InvalidInputError,
    Limits,
    Message,
    ProviderError,
    ToolCall,
    ToolContext,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
    check_history,
    tool,
)
from agentcore.pairing import INTERRUPTED_RESULT
from agentcore.testing import Reply, ScriptedModel

pytestmark = pytest.mark.asyncio


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def boom() -> str:
    """Fail."""
    raise RuntimeError("kaput")


ADD = ToolCall("c1", "add", {"a": 1, "b": 2})


def failing(kind: str = "auth") -> ProviderError:
    return ProviderError("no", kind=kind)  # type: ignore[arg-type]


async def test_tool_round_is_stored_in_order() -> None:
    memory = InMemoryChatMemory()
    model = ScriptedModel([Reply(text="Let me see.", tool_calls=[ADD]), "3"])
    result = await ChatClient(model, tools=[add], memory=memory).invoke("1+2?", conversation_id="u1")
    expected = [
        UserMessage("1+2?"),
        AssistantMessage("Let me see.", (ADD,)),
        ToolMessage("c1", "add", "3"),
        AssistantMessage("3"),
    ]
    assert list(await memory.get("u1")) == expected
    assert list(result.messages) == expected
    assert (result.status, result.text, result.finish_reason) == ("completed", "3", "stop")
    assert (result.model_calls, result.tool_calls) == (2, 1)


async def test_model_sees_history_once_in_a_tool_loop() -> None:
    memory = InMemoryChatMemory()
    before = [UserMessage("a"), AssistantMessage("A")]
    await memory.add("u1", before)
    model = ScriptedModel([ADD, "B"])
    await ChatClient(model, tools=[add], memory=memory).invoke("b", conversation_id="u1")
    first, second = (list(request.messages) for request in model.requests)
    assert first == [*before, UserMessage("b")]
    assert second == [*first, AssistantMessage(None, (ADD,)), ToolMessage("c1", "add", "3")]


async def test_turn_without_conversation_leaves_nothing() -> None:
    memory = InMemoryChatMemory()
    model = ScriptedModel([ADD, "3", "?"])
    client = ChatClient(model, tools=[add], memory=memory)
    result = await client.invoke("my PIN is 1234")
    await client.invoke("what is my PIN?")
    assert [type(m).__name__ for m in result.messages] == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
        "AssistantMessage",
    ]
    assert list(model.requests[2].messages) == [UserMessage("what is my PIN?")]
    assert not memory._conversations


async def test_failing_model_call_leaves_the_history_untouched() -> None:
    memory = InMemoryChatMemory()
    client = ChatClient(ScriptedModel([failing(), "Noon."]), memory=memory)
    with pytest.raises(ProviderError):
        await client.invoke("delete everything", conversation_id="u1")
    assert list(await memory.get("u1")) == []
    await client.invoke("what time is it?", conversation_id="u1")
    assert list(await memory.get("u1")) == [UserMessage("what time is it?"), AssistantMessage("Noon.")]


async def test_results_of_tools_are_kept_when_the_next_model_call_fails() -> None:
    memory = InMemoryChatMemory()
    model = ScriptedModel([ADD, failing("server"), "3"])
    client = ChatClient(model, tools=[add], memory=memory)
    with pytest.raises(ProviderError):
        await client.invoke("1+2?", conversation_id="u1")
    assert list(await memory.get("u1")) == [
        UserMessage("1+2?"),
        AssistantMessage(None, (ADD,)),
        ToolMessage("c1", "add", "3"),
    ]
    result = await client.invoke("go on", conversation_id="u1")
    assert check_history(await memory.get("u1")) == []
    assert result.text == "3"


async def test_one_raising_tool_of_five_leaves_four_results() -> None:
    calls = [ToolCall(f"c{n}", "boom" if n == 2 else "add", {} if n == 2 else {"a": n, "b": 0}) for n in range(5)]
    result = await ChatClient(ScriptedModel([calls, "done"]), tools=[add, boom]).invoke("go")
    results = [m for m in result.messages if isinstance(m, ToolMessage)]
    assert [m.content for m in results if not m.is_error] == ["0", "1", "3", "4"]
    assert [m.is_error for m in results] == [False, False, True, False, False]
    assert "kaput" in str(results[2].content)


async def test_external_loop_stores_what_the_internal_one_stores() -> None:
    def script() -> ScriptedModel:
        return ScriptedModel([[ADD, ToolCall("c2", "boom")], ToolCall("c3", "add", {"a": 3, "b": 4}), "done"])

    internal, external = InMemoryChatMemory(), InMemoryChatMemory()
    await ChatClient(script(), tools=[add, boom], memory=internal).invoke("go", conversation_id="u1")

    client = ChatClient(script(), tools=[add, boom], memory=external)
    response = await client.invoke_chat("go", conversation_id="u1")
    while response.message.tool_calls:
        batch = await client.run_tools(response)
        response = await client.invoke_chat(batch.messages, conversation_id="u1")
    assert list(await external.get("u1")) == list(await internal.get("u1"))
    assert response.text == "done"


async def test_external_loop_may_repeat_a_failed_call_without_storing_results_twice() -> None:
    memory = InMemoryChatMemory()
    client = ChatClient(ScriptedModel([ADD, failing("server"), "3"]), tools=[add], memory=memory)
    response = await client.invoke_chat("1+2?", conversation_id="u1")
    batch = await client.run_tools(response)
    with pytest.raises(ProviderError):
        await client.invoke_chat(batch.messages, conversation_id="u1")
    await client.invoke_chat(batch.messages, conversation_id="u1")
    assert [m.content for m in await memory.get("u1") if isinstance(m, ToolMessage)] == ["3"]
    assert check_history(await memory.get("u1")) == []


async def test_writes_are_handed_back_and_seen_by_the_next_batch() -> None:
    @tool
    async def put(value: str) -> ToolResult:
        """Put."""
        return ToolResult("ok", writes={"slot": value})

    @tool
    async def read(context: ToolContext) -> str:
        """Read."""
        return f"{context['slot']} of {context['user_id']} in {context.conversation_id}"

    model = ScriptedModel(
        [[ToolCall("a", "put", {"value": "1"}), ToolCall("b", "put", {"value": "2"})], ToolCall("c", "read"), "ok"]
    )
    client = ChatClient(model, tools=[put, read], memory=InMemoryChatMemory())
    result = await client.invoke("go", conversation_id="u1", tool_context={"user_id": "kim"})
    assert dict(result.tool_context) == {"user_id": "kim", "conversation_id": "u1", "slot": "2"}
    assert result.messages[-2] == ToolMessage("c", "read", "2 of kim in u1")


async def test_usage_is_added_up_and_unknown_stays_unknown() -> None:
    known = Usage(input_tokens=3, output_tokens=1)
    model = ScriptedModel([Reply(tool_calls=[ADD], usage=known), Reply(text="3", usage=known)])
    assert (await ChatClient(model, tools=[add]).invoke("go")).usage == Usage(input_tokens=6, output_tokens=2)
    assert (await ChatClient(ScriptedModel(["x"])).invoke("go")).usage.input_tokens is None


@pytest.mark.parametrize(
    ("limits", "name", "model_calls"),
    [
        (Limits(model_calls=3), "model_calls", 3),
        (Limits(tool_calls=2), "tool_calls", 3),
        (Limits(tokens=25), "tokens", 3),
    ],
    ids=["model-calls", "tool-calls", "tokens"],
)
async def test_limit_ends_the_turn_with_its_name_and_a_whole_history(
    limits: Limits, name: str, model_calls: int
) -> None:
    memory = InMemoryChatMemory()
    reply = Reply(tool_calls=[ADD], usage=Usage(input_tokens=9, output_tokens=1))
    model = ScriptedModel([reply], repeat_last=True)
    client = ChatClient(model, tools=[add], memory=memory, limits=limits)
    result = await client.invoke("loop", conversation_id="u1")
    assert (result.status, result.limit, model.calls) == ("limit", name, model_calls)
    assert result.tool_calls == 2
    assert len(result.messages) == 7
    assert check_history(await memory.get("u1")) == []
    assert name.replace("_", " ") in str(result.messages[-1].content)


async def test_next_turn_works_after_a_limit() -> None:
    memory = InMemoryChatMemory()
    client = ChatClient(ScriptedModel([ADD, ADD, "ok"]), tools=[add], memory=memory)
    await client.invoke("loop", conversation_id="u1", limits=Limits(model_calls=2))
    result = await client.invoke("stop now", conversation_id="u1")
    assert result.text == "ok"
    assert check_history(await memory.get("u1")) == []


async def test_wall_clock_limit_stops_a_running_tool() -> None:
    stopped = asyncio.Event()

    @tool
    async def hang() -> None:
        """Hang."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    memory = InMemoryChatMemory()
    client = ChatClient(ScriptedModel([ToolCall("c1", "hang")]), tools=[hang], memory=memory)
    result = await client.invoke("go", conversation_id="u1", limits=Limits(seconds=0.3))
    assert (result.status, result.limit) == ("limit", "seconds")
    assert stopped.is_set()
    assert check_history(await memory.get("u1")) == []
    assert result.messages == tuple(await memory.get("u1"))


async def test_call_cut_by_the_output_limit_does_not_run() -> None:
    ran: list[str] = []

    @tool
    async def write(path: str) -> str:
        """Write."""
        ran.append(path)
        return "ok"

    cut = Reply(tool_calls=[ToolCall("c1", "write", {}, raw_arguments='{"path":"a')], finish_reason="length")
    memory = InMemoryChatMemory()
    model = ScriptedModel([cut, "next"])
    client = ChatClient(model, tools=[write], memory=memory)
    result = await client.invoke("go", conversation_id="u1")
    assert (result.status, result.limit, result.finish_reason) == ("limit", "max_tokens", "length")
    assert ran == []
    assert check_history(await memory.get("u1")) == []
    assert (await client.invoke("and?", conversation_id="u1")).text == "next"


async def test_call_with_unreadable_arguments_is_answered_not_run() -> None:
    broken = ToolCall("c1", "add", {}, raw_arguments="{'a': 1}")
    model = ScriptedModel([broken, "sorry"])
    result = await ChatClient(model, tools=[add]).invoke("go")
    answer = result.messages[2]
    assert isinstance(answer, ToolMessage)
    assert answer.is_error
    assert "{'a': 1}" in str(answer.content)


@pytest.mark.parametrize("choice", ["required", "add"])
async def test_forced_tool_is_forced_until_tools_have_run(choice: str) -> None:
    def obeys(request: ChatRequest) -> ToolCall | str:
        return "3" if request.options.tool_choice == "auto" else ToolCall("c1", "add", {"a": 1, "b": 2})

    model = ScriptedModel([obeys], repeat_last=True)
    client = ChatClient(model, tools=[add], options=ChatOptions(tool_choice=choice, temperature=0.5))
    result = await client.invoke("1+2?")
    assert (result.status, result.text) == ("completed", "3")
    assert [request.options.tool_choice for request in model.requests] == [choice, "auto"]
    assert [request.options.temperature for request in model.requests] == [0.5, 0.5]


async def test_forced_tool_that_waited_for_a_person_is_not_forced_again() -> None:
    @tool(approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    forced = ChatOptions(tool_choice="pay")
    model = ScriptedModel([ToolCall("c1", "pay", {"amount": 5}), "done"])
    client = ChatClient(model, tools=[pay], memory=InMemoryChatMemory(), options=forced)
    paused = await client.invoke("pay", conversation_id="u1")
    assert paused.pause is not None
    result = await client.resume("u1", paused.pause.calls[0].approve())
    assert result.text == "done"
    assert [request.options.tool_choice for request in model.requests] == ["pay", "auto"]


async def test_tools_that_are_kept_away_stay_away() -> None:
    model = ScriptedModel([ToolCall("c1", "add", {"a": 1, "b": 2}), "3"])
    await ChatClient(model, tools=[add], options=ChatOptions(tool_choice="none")).invoke("1+2?")
    assert [request.options.tool_choice for request in model.requests] == ["none", "none"]


async def test_unfinished_reply_is_sent_back_and_goes_on() -> None:
    class Pausing(ScriptedModel):
        def response_to(self, reply: Reply) -> ChatResponse:
            response = super().response_to(reply)
            return replace(response, raw_finish_reason="pause_turn") if reply.text == "searching" else response

    model = Pausing([Reply(text="searching", finish_reason="other"), "found"])
    result = await ChatClient(model).invoke("go")
    assert result.text == "found"
    assert list(model.requests[1].messages) == [UserMessage("go"), AssistantMessage("searching", finish_reason="other")]


async def test_cancelling_during_tools_keeps_what_finished() -> None:
    memory = InMemoryChatMemory()
    quick_done, cleaned = asyncio.Event(), asyncio.Event()

    @tool
    async def edit(path: str) -> str:
        """Edit."""
        if path == "a":
            quick_done.set()
            return "edited a"
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()
        return "never"

    calls = [ToolCall("c1", "edit", {"path": "a"}), ToolCall("c2", "edit", {"path": "b"})]
    model = ScriptedModel([Reply(text="Editing.", tool_calls=calls), "It was stopped."])
    client = ChatClient(model, tools=[edit], memory=memory)
    task = asyncio.create_task(client.invoke("edit it", conversation_id="u1"))
    await quick_done.wait()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned.is_set()
    stored = list(await memory.get("u1"))
    assert stored[2:] == [
        ToolMessage("c1", "edit", "edited a"),
        ToolMessage("c2", "edit", INTERRUPTED_RESULT, is_error=True),
    ]
    assert (await client.invoke("what happened?", conversation_id="u1")).text == "It was stopped."
    assert list(model.requests[1].messages) == [*stored, UserMessage("what happened?")]


async def test_cancelling_during_the_model_call_stores_nothing() -> None:
    memory = InMemoryChatMemory()
    started = asyncio.Event()

    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    client = ChatClient(ScriptedModel([Reply(text="x", wait_for=hang)]), memory=memory)
    task = asyncio.create_task(client.invoke("hi", conversation_id="u1"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(await memory.get("u1")) == []


async def test_history_that_broke_off_is_healed_and_the_healing_is_stored(caplog: pytest.LogCaptureFixture) -> None:
    memory = InMemoryChatMemory()
    calls = (ToolCall("c1", "f"), ToolCall("c2", "g"))
    await memory.add("u1", [UserMessage("go"), AssistantMessage(None, calls), ToolMessage("c1", "f", "ok")])
    model = ScriptedModel(["hi"])
    await ChatClient(model, memory=memory).invoke("hello again", conversation_id="u1")
    expected: list[Message] = [
        UserMessage("go"),
        AssistantMessage(None, calls),
        ToolMessage("c1", "f", "ok"),
        ToolMessage("c2", "g", INTERRUPTED_RESULT, is_error=True),
        UserMessage("hello again"),
    ]
    assert list(model.requests[0].messages) == expected
    assert list(await memory.get("u1")) == [*expected, AssistantMessage("hi")]
    assert "answered as interrupted: c2" in caplog.text


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "messages is empty"),
        ("", "message 0 is empty"),
        ([UserMessage("a"), UserMessage("  \n")], "message 1 is empty"),
        ([ToolMessage("c9", "f", "1")], "'c9' answers no open call"),
        ([UserMessage("a"), ToolMessage("c9", "f", "1")], "item 1: a tool result without a call"),
        ([UserMessage("a"), AssistantMessage(None, (ADD,))], "item 1: no result for call 'c1'"),
    ],
    ids=["nothing", "empty-text", "blank", "orphan", "late-orphan", "open-call"],
)
async def test_input_that_cannot_be_a_turn_is_refused(messages: list[Message], words: str) -> None:
    memory = InMemoryChatMemory()
    model = ScriptedModel(["x"])
    with pytest.raises(InvalidInputError, match=words):
        await ChatClient(model, memory=memory).invoke(messages, conversation_id="u1")
    assert model.calls == 0
    assert list(await memory.get("u1")) == []


async def test_results_of_a_batch_must_come_together() -> None:
    memory = InMemoryChatMemory()
    client = ChatClient(
        ScriptedModel([[ADD, ToolCall("c2", "add", {"a": 1, "b": 1})], "x"]), tools=[add], memory=memory
    )
    await client.invoke_chat("go", conversation_id="u1")
    with pytest.raises(InvalidInputError, match="no result was given for the open calls c2"):
        await client.invoke_chat([ToolMessage("c1", "add", "3")], conversation_id="u1")
    assert len(await memory.get("u1")) == 2
