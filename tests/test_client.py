"""ChatClient: concurrency of turns, options, the stateful face, and what it refuses."""

import asyncio

import pytest
from msgspec.structs import replace

from agentcore import (
    AssistantMessage,
    ChatClient,
    ChatOptions,
    ChatRequest,
    ChatResponse,
    ConfigurationError,
    ConversationBusyError,
    Filter,
    InMemoryChatMemory,
    InvalidInputError,
    Limits,
    MemoryFilter,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    WindowedChatMemory,
    tool,
)
from agentcore.filters.base import ChatCall
from agentcore.providers import presets
from agentcore.testing import Reply, ScriptedModel

pytestmark = pytest.mark.asyncio


async def test_two_turns_of_one_conversation_do_not_interleave() -> None:
    memory = InMemoryChatMemory()
    gate = asyncio.Event()
    model = ScriptedModel([Reply(text="a", wait_for=gate.wait), "b"])
    client = ChatClient(model, memory=memory)
    first = asyncio.create_task(client.invoke("A?", conversation_id="u1"))
    await asyncio.sleep(0)
    second = asyncio.create_task(client.invoke("B?", conversation_id="u1"))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, second)
    expected = [UserMessage("A?"), AssistantMessage("a"), UserMessage("B?")]
    assert list(model.requests[1].messages) == expected
    assert list(await memory.get("u1")) == [*expected, AssistantMessage("b")]


async def test_two_clients_on_one_store_keep_turns_apart() -> None:
    memory = InMemoryChatMemory()
    gate = asyncio.Event()
    one = ChatClient(ScriptedModel([Reply(text="a", wait_for=gate.wait)]), memory=memory)
    other = ChatClient(ScriptedModel(["b"]), memory=WindowedChatMemory(memory, max_messages=10))
    first = asyncio.create_task(one.invoke("A?", conversation_id="u1"))
    await asyncio.sleep(0)
    second = asyncio.create_task(other.invoke("B?", conversation_id="u1"))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, second)
    assert [m.content for m in await memory.get("u1")] == ["A?", "a", "B?", "b"]


async def test_a_hundred_conversations_do_not_wait_for_each_other() -> None:
    arrived = 0
    everybody = asyncio.Event()

    async def meet() -> None:
        nonlocal arrived
        arrived += 1
        if arrived == 100:
            everybody.set()
        await everybody.wait()

    model = ScriptedModel([Reply(text="ok", wait_for=meet)], repeat_last=True)
    client = ChatClient(model, memory=InMemoryChatMemory())
    results = await asyncio.gather(*(client.invoke("hi", conversation_id=f"u{n}") for n in range(100)))
    assert {result.text for result in results} == {"ok"}
    assert not asyncio.all_tasks() - {asyncio.current_task()}


async def test_busy_conversation_is_refused_when_asked_and_nothing_is_stored() -> None:
    memory = InMemoryChatMemory()
    gate = asyncio.Event()
    client = ChatClient(ScriptedModel([Reply(text="a", wait_for=gate.wait)]), memory=memory, on_busy="reject")
    first = asyncio.create_task(client.invoke("A?", conversation_id="u1"))
    await asyncio.sleep(0)
    with pytest.raises(ConversationBusyError):
        await client.invoke("B?", conversation_id="u1")
    gate.set()
    await first
    assert [m.content for m in await memory.get("u1")] == ["A?", "a"]


async def test_superseding_turn_ends_the_running_one_as_cancelled() -> None:
    memory = InMemoryChatMemory()
    started = asyncio.Event()

    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    client = ChatClient(ScriptedModel([Reply(text="a", wait_for=hang), "b"]), memory=memory, on_busy="supersede")
    first = asyncio.create_task(client.invoke("A?", conversation_id="u1"))
    await started.wait()
    second = await client.invoke("B?", conversation_id="u1")
    assert (await first).status == "cancelled"
    assert second.status == "completed"
    assert [m.content for m in await memory.get("u1")] == ["B?", "b"]


async def test_system_text_is_sent_and_never_stored() -> None:
    memory = InMemoryChatMemory()
    model = ScriptedModel(["a", "b"])
    client = ChatClient(model, memory=memory, system="Be brief.")
    await client.invoke("1", conversation_id="u1")
    await client.invoke("2", conversation_id="u1")
    assert list(model.requests[1].messages) == [
        SystemMessage("Be brief."),
        UserMessage("1"),
        AssistantMessage("a"),
        UserMessage("2"),
    ]
    assert not any(isinstance(m, SystemMessage) for m in await memory.get("u1"))


async def test_options_of_a_call_win_over_the_clients() -> None:
    model = ScriptedModel(["x"], repeat_last=True)
    client = ChatClient(model, options=ChatOptions(temperature=0.1, max_tokens=5, extra={"a": 1, "b": 1}))
    call = ChatOptions(temperature=0.0, extra={"b": 2})
    await client.invoke("hi", options=call)
    await client.invoke_chat("hi", options=call)
    async with client.stream("hi", options=call) as turn:
        async for _ in turn:
            pass
    expected = ChatOptions(temperature=0.0, max_tokens=5, extra={"a": 1, "b": 2})
    assert [request.options for request in model.requests] == [expected] * 3


async def test_windowed_memory_limits_what_the_model_sees_and_keeps_the_store_whole() -> None:
    store = InMemoryChatMemory()
    model = ScriptedModel(["ok"], repeat_last=True)
    client = ChatClient(model, memory=WindowedChatMemory(store, max_messages=5))
    for number in range(10):
        await client.invoke(f"q{number}", conversation_id="u1")
    assert [m.content for m in model.requests[-1].messages] == ["q7", "ok", "q8", "ok", "q9"]
    assert len(await store.get("u1")) == 20
    assert len(await client.conversation("u1").history()) == 20


async def test_conversation_is_the_same_without_the_id() -> None:
    client = ChatClient(ScriptedModel(["a", "b", "c"]), memory=InMemoryChatMemory())
    conversation = client.conversation("u1")
    assert (await conversation.send("1")).text == "a"
    async with conversation.stream("2") as turn:
        assert "".join([piece async for piece in turn.text]) == "b"
    assert [m.content for m in await conversation.history()] == ["1", "a", "2", "b"]
    await conversation.reset()
    assert list(await conversation.history()) == []
    await conversation.send("3")
    assert [m.content for m in await conversation.history()] == ["3", "c"]


async def test_conversation_needs_a_memory() -> None:
    with pytest.raises(ConfigurationError, match="no memory"):
        ChatClient(ScriptedModel([])).conversation("u1")


async def test_empty_conversation_id_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="conversation_id is empty"):
        await ChatClient(ScriptedModel(["x"]), memory=InMemoryChatMemory()).invoke("hi", conversation_id="")


async def test_two_tools_of_one_name_are_refused_at_once() -> None:
    @tool(name="search")
    async def one() -> str:
        """One."""
        return ""

    @tool(name="search")
    async def two() -> str:
        """Two."""
        return ""

    with pytest.raises(ConfigurationError, match="search") as caught:
        ChatClient(ScriptedModel([]), tools=[one, two])
    assert caught.value.kind == "invalid_request"


async def test_two_memories_are_refused() -> None:
    memory = InMemoryChatMemory()
    with pytest.raises(ConfigurationError, match="two memories"):
        ChatClient(ScriptedModel([]), memory=memory, filters=[MemoryFilter(memory)])


async def test_describe_shows_the_onion() -> None:
    @tool
    async def now() -> str:
        """Now."""
        return ""

    text = ChatClient(ScriptedModel([]), tools=[now]).describe()
    assert "MemoryFilter: turn, chat" in text
    assert "tools: now" in text


async def test_closing_a_client_closes_its_model_and_twice_is_harmless() -> None:
    class Closing(ScriptedModel):
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1

    model = Closing([])
    async with ChatClient(model) as client:
        pass
    await client.aclose()
    assert model.closed == 2


async def test_model_may_be_a_string(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-x")
    async with ChatClient("anthropic:claude-haiku-4-5") as client:
        assert "claude-haiku-4-5" in client.describe()
    with pytest.raises(ConfigurationError, match="the services are"):
        ChatClient("nowhere:x")


async def test_run_tools_takes_a_response_a_message_or_calls() -> None:
    @tool
    async def now() -> str:
        """Now."""
        return "12:00"

    calls = (ToolCall("c1", "now"),)
    message = AssistantMessage(None, calls)
    client = ChatClient(ScriptedModel([]), tools=[now])
    for given in (calls, message, ChatResponse(message, "tool_calls")):
        batch = await client.run_tools(given, tool_context={"user_id": "kim"})
        assert batch.messages == (ToolMessage("c1", "now", "12:00"),)
        assert dict(batch.tool_context) == {"user_id": "kim"}


async def test_conversation_stream_and_send_take_options() -> None:
    model = ScriptedModel(["x"], repeat_last=True)
    conversation = ChatClient(model, memory=InMemoryChatMemory()).conversation("u1")
    options, limits = ChatOptions(max_tokens=3), Limits(model_calls=1)
    await conversation.send("a", options=options, limits=limits, tool_context={"a": 1})
    async with conversation.stream("b", options=options, limits=limits, tool_context={"a": 1}) as turn:
        async for _ in turn:
            pass
    assert [request.options.max_tokens for request in model.requests] == [3, 3]
    assert turn.result.tool_context["a"] == 1


async def test_turn_may_name_another_model_and_the_history_goes_with_it() -> None:
    usual, other, memory = ScriptedModel(["a", "c"]), ScriptedModel(["b"]), InMemoryChatMemory()
    client = ChatClient(usual, memory=memory, options=ChatOptions(model="usual", temperature=0.5))
    await client.invoke("A?", conversation_id="u1")
    assert (await client.invoke("B?", conversation_id="u1", model=other)).text == "b"
    assert (await client.invoke("C?", conversation_id="u1")).text == "c"
    assert [m.content for m in other.requests[0].messages] == ["A?", "a", "B?"]
    assert (other.requests[0].options.model, other.requests[0].options.temperature) == (None, 0.5)
    assert [m.content for m in usual.requests[1].messages] == ["A?", "a", "B?", "b", "C?"]


async def test_every_way_to_call_takes_another_model() -> None:
    usual, other = ScriptedModel([]), ScriptedModel(["1", "2", "3", "4", "5"])
    client = ChatClient(usual, memory=InMemoryChatMemory())
    async with client.stream("?", model=other) as turn:
        assert "".join([text async for text in turn.text]) == "1"
    assert (await client.invoke_chat("?", model=other)).text == "2"
    conversation = client.conversation("u1")
    assert (await conversation.send("?", model=other)).text == "3"
    async with conversation.stream("?", model=other) as turn:
        assert "".join([text async for text in turn.text]) == "4"
    assert (await client.invoke("?", model=other, options=ChatOptions(model="m2"))).text == "5"
    assert other.requests[-1].options.model == "m2"


async def test_filter_may_route_a_call_to_another_model() -> None:
    class Router(Filter):
        async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
            return await call_next(replace(request, model=large) if len(request.messages) > 1 else request)

    small, large = ScriptedModel(["s"]), ScriptedModel(["l"])
    client = ChatClient(small, filters=[MemoryFilter(InMemoryChatMemory()), Router()])
    assert (await client.invoke("1", conversation_id="u1")).text == "s"
    assert (await client.invoke("2", conversation_id="u1")).text == "l"


async def test_model_string_of_a_call_is_made_once_and_closed_with_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ScriptedModel] = []
    closed: list[ScriptedModel] = []

    class Closing(ScriptedModel):
        async def aclose(self) -> None:
            closed.append(self)

    def make(name: str) -> ScriptedModel:
        assert name == "openai:gpt-5-mini"
        made.append(Closing(["a", "b"]))
        return made[-1]

    monkeypatch.setattr(presets, "chat_model", make)
    async with ChatClient(ScriptedModel([])) as client:
        assert (await client.invoke("?", model="openai:gpt-5-mini")).text == "a"
        assert (await client.invoke("?", model="openai:gpt-5-mini")).text == "b"
    assert len(made) == 1
    assert closed == made
