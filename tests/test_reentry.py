"""Filters that ask again, readers that time out, turns that come in threes: the record stays what was seen."""

import asyncio
from collections.abc import Callable

import anyio
import pytest
from msgspec.structs import replace

from agentcore import (
    AssistantMessage,
    ChatClient,
    ChatRequest,
    ChatResponse,
    Filter,
    InMemoryChatMemory,
    MemoryFilter,
    ProviderError,
    ToolCall,
    ToolMessage,
    UserMessage,
    WindowedChatMemory,
    check_history,
    tool,
)
from agentcore.filters.base import ChatCall
from agentcore.pairing import INTERRUPTED_RESULT
from agentcore.testing import Reply, ScriptedModel

pytestmark = pytest.mark.asyncio

GET = ToolCall("c1", "get")


@tool
async def get() -> str:
    """Get."""
    return "sunny"


def broken() -> ProviderError:
    return ProviderError("reset", kind="network")


class Again(Filter):
    """Asks again when the answer is bad or fails."""

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        try:
            response = await call_next(request)
        except ProviderError:
            return await call_next(request)
        return await call_next(request) if response.text == "bad" else response


def texts(history: object) -> list[object]:
    return [(type(m).__name__[:4], m.content) for m in history]  # type: ignore[attr-defined]


async def test_asking_again_after_tools_stores_results_once() -> None:
    memory = InMemoryChatMemory()
    model = ScriptedModel([GET, "bad", "good"])
    client = ChatClient(model, filters=[Again()], memory=memory, tools=[get])
    assert (await client.invoke("hi", conversation_id="u")).text == "good"
    assert texts(await memory.get("u")) == [
        ("User", "hi"),
        ("Assi", None),
        ("Tool", "sunny"),
        ("Assi", "bad"),
        ("Assi", "good"),
    ]
    assert model.requests[2].messages == model.requests[1].messages


async def test_asking_again_at_once_stores_the_users_words_once() -> None:
    memory = InMemoryChatMemory()
    model = ScriptedModel(["bad", "bad", "good"])

    class Thrice(Again):
        async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
            response = await super().around_chat(request, call_next)
            return await call_next(request) if response.text == "bad" else response

    await ChatClient(model, filters=[Thrice()], memory=memory).invoke("hi", conversation_id="u")
    assert texts(await memory.get("u")) == [("User", "hi"), ("Assi", "bad"), ("Assi", "bad"), ("Assi", "good")]
    assert [list(request.messages) for request in model.requests] == [[UserMessage("hi")]] * 3


async def test_calls_of_a_reply_that_is_replaced_are_answered() -> None:
    class NoTools(Filter):
        async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
            response = await call_next(request)
            return await call_next(request) if response.message.tool_calls else response

    memory = InMemoryChatMemory()
    await ChatClient(ScriptedModel([GET, "text"]), filters=[NoTools()], memory=memory).invoke("hi", conversation_id="u")
    assert texts(await memory.get("u")) == [
        ("User", "hi"),
        ("Assi", None),
        ("Tool", INTERRUPTED_RESULT),
        ("Assi", "text"),
    ]


@pytest.mark.parametrize("script", [[GET], []], ids=["after-tools", "at-once"])
@pytest.mark.parametrize("outside", [True, False], ids=["outside-memory", "inside-memory"])
async def test_stream_asked_again_keeps_all_that_was_delivered(script: list[ToolCall], outside: bool) -> None:
    memory = InMemoryChatMemory()
    model = ScriptedModel([*script, Reply(text=["He", "l"], error=broken()), Reply(text=["Bon", "jour"])])
    filters = [Again(), MemoryFilter(memory)] if outside else [MemoryFilter(memory), Again()]
    seen = ""
    async with ChatClient(model, filters=filters, tools=[get]).stream("hi", conversation_id="u") as turn:
        async for piece in turn.text:
            seen += piece
    stored = await memory.get("u")
    assert seen == "HelBonjour"
    assert list(stored[-2:]) == [AssistantMessage("Hel", finish_reason="interrupted"), AssistantMessage("Bonjour")]
    assert [m for m in stored if isinstance(m, UserMessage)] == [UserMessage("hi")]
    assert check_history(stored) == []


async def test_reader_that_leaves_a_second_attempt_keeps_both() -> None:
    memory = InMemoryChatMemory()
    model = ScriptedModel(
        [Reply(text=["Hel"], error=broken()), Reply(text=["Bon", "jour"], wait_between=asyncio.Event().wait)]
    )
    seen = ""
    async with ChatClient(model, filters=[MemoryFilter(memory), Again()]).stream("hi", conversation_id="u") as turn:
        async for piece in turn.text:
            seen += piece
            if seen == "HelBon":
                break
    assert (await memory.get("u"))[-1] == AssistantMessage("HelBon", finish_reason="interrupted")


async def test_answer_of_a_filter_outside_the_memory_is_stored() -> None:
    class Canned(Filter):
        def __init__(self) -> None:
            self.replies = [AssistantMessage(None, (GET,)), AssistantMessage("done")]

        async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
            message = self.replies.pop(0)
            return ChatResponse(message, "tool_calls" if message.tool_calls else "stop")

    memory = InMemoryChatMemory()
    client = ChatClient(ScriptedModel([]), filters=[Canned()], memory=memory, tools=[get])
    result = await client.invoke("hi", conversation_id="u")
    assert texts(await memory.get("u")) == [("User", "hi"), ("Assi", None), ("Tool", "sunny"), ("Assi", "done")]
    assert result.messages == tuple(await memory.get("u"))


async def test_calls_put_in_place_of_the_models_are_the_ones_on_record() -> None:
    class Other(Filter):
        async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
            response = await call_next(request)
            if not response.message.tool_calls:
                return response
            return replace(response, message=AssistantMessage(None, (ToolCall("other", "get"),)))

    memory = InMemoryChatMemory()
    client = ChatClient(ScriptedModel([GET, "done"]), filters=[Other()], memory=memory, tools=[get])
    await client.invoke("hi", conversation_id="u")
    stored = await memory.get("u")
    assert check_history(stored) == []
    assert [m.tool_call_id for m in stored if isinstance(m, ToolMessage)] == ["c1", "other"]


@pytest.mark.parametrize("calls", [(GET, GET), (ToolCall("", "get"), ToolCall("", "get"))], ids=["same", "none"])
async def test_calls_of_a_careless_model_get_ids_of_their_own(calls: tuple[ToolCall, ...]) -> None:
    memory = InMemoryChatMemory()
    client = ChatClient(ScriptedModel([calls, "done"]), memory=memory, tools=[get])
    assert (await client.invoke("hi", conversation_id="u")).tool_calls == 2
    stored = await memory.get("u")
    assert check_history(stored) == []
    assert sum(isinstance(m, ToolMessage) for m in stored) == 2


async def test_windowed_external_loop_may_say_more_with_the_results() -> None:
    store = InMemoryChatMemory()
    client = ChatClient(ScriptedModel([GET, "ok"]), tools=[get], memory=WindowedChatMemory(store, max_messages=3))
    batch = await client.run_tools(await client.invoke_chat("hi", conversation_id="u"))
    await client.invoke_chat([*batch.messages, UserMessage("and?")], conversation_id="u")
    assert check_history(await store.get("u")) == []


async def test_open_calls_beyond_the_window_are_healed_in_the_store() -> None:
    store = InMemoryChatMemory()
    client = ChatClient(ScriptedModel([GET, "ok"]), tools=[get], memory=WindowedChatMemory(store, max_messages=2))
    await client.invoke_chat("hi", conversation_id="u")
    await client.invoke("never mind", conversation_id="u")
    assert check_history(await store.get("u")) == []


async def test_reader_that_times_out_reads_on() -> None:
    go_on = asyncio.Event()
    pieces: list[str] = []
    client = ChatClient(ScriptedModel([Reply(text=["a", "b"], wait_between=go_on.wait)]))
    async with client.stream("hi") as turn:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                async for piece in turn.text:
                    pieces.append(piece)
        go_on.set()
        async for piece in turn.text:
            pieces.append(piece)
        assert turn.result.text == "ab"
    assert pieces == ["a", "b"]


@pytest.mark.parametrize(
    "scope", [lambda: asyncio.timeout(0.05), lambda: anyio.move_on_after(0.05)], ids=["asyncio", "anyio"]
)
async def test_stream_left_by_a_scope_around_it_has_a_result(scope: Callable[[], object]) -> None:
    @tool
    async def hang() -> None:
        """Hang, and take a while to stop."""
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)

    memory = InMemoryChatMemory()
    client = ChatClient(ScriptedModel([ToolCall("c", "hang")]), tools=[hang], memory=memory)
    stream = client.stream("hi", conversation_id="u")

    async def read() -> None:
        async with stream as turn:
            async for _ in turn:
                pass

    context = scope()
    if isinstance(context, anyio.CancelScope):
        with context:
            await read()
    else:
        with pytest.raises(TimeoutError):
            async with context:  # type: ignore[attr-defined]
                await read()
    assert stream.result.status == "cancelled"
    assert check_history(await memory.get("u")) == []


async def test_third_turn_supersedes_the_second_that_still_waits() -> None:
    memory = InMemoryChatMemory()
    stopping, stopped, started = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> None:
        """Stop slowly."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await stopped.wait()

    model = ScriptedModel([ToolCall("1", "slow"), "third"])
    client = ChatClient(model, tools=[slow], memory=memory, on_busy="supersede")
    first = asyncio.ensure_future(client.invoke("one", conversation_id="u"))
    await started.wait()
    second = asyncio.ensure_future(client.invoke("two", conversation_id="u"))
    await stopping.wait()
    third = asyncio.ensure_future(client.invoke("three", conversation_id="u"))
    await asyncio.sleep(0)
    stopped.set()
    results = await asyncio.gather(first, second, third)
    assert [result.status for result in results] == ["cancelled", "cancelled", "completed"]
    assert results[2].text == "third"
    assert check_history(await memory.get("u")) == []


async def test_several_texts_are_several_messages() -> None:
    model = ScriptedModel(["x"])
    await ChatClient(model).invoke(["a", UserMessage("b")])
    assert list(model.requests[0].messages) == [UserMessage("a"), UserMessage("b")]
