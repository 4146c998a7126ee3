"""The onion: order, short cuts, re-entry, and what an unused grain costs."""

import pytest
from msgspec.structs import replace

from agentcore import (
    AssistantMessage,
    ChatClient,
    ChatRequest,
    ChatResponse,
    Filter,
    InMemoryChatMemory,
    InvokeResult,
    MemoryFilter,
    ProviderError,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolRequest,
    TurnRequest,
    UserMessage,
    tool,
)
from agentcore.filters.base import ChatCall, ToolRun, TurnCall, compose, overridden
from agentcore.testing import Reply, ScriptedModel

pytestmark = pytest.mark.asyncio


@tool
async def ping() -> str:
    """Ping."""
    return "pong"


class Trace(Filter):
    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        self.log.append(f"{self.name} chat in")
        response = await call_next(request)
        self.log.append(f"{self.name} chat out")
        return response

    async def around_tool(self, request: ToolRequest, call_next: ToolRun) -> ToolMessage:
        self.log.append(f"{self.name} tool in")
        message = await call_next(request)
        self.log.append(f"{self.name} tool out")
        return message

    async def around_turn(self, request: TurnRequest, call_next: TurnCall) -> InvokeResult:
        self.log.append(f"{self.name} turn in")
        result = await call_next(request)
        self.log.append(f"{self.name} turn out")
        return result


@pytest.mark.parametrize("streamed", [False, True], ids=["invoke", "stream"])
async def test_first_filter_is_outermost_at_every_grain(streamed: bool) -> None:
    log: list[str] = []
    client = ChatClient(
        ScriptedModel([ToolCall("c", "ping"), "done"]), tools=[ping], filters=[Trace("A", log), Trace("B", log)]
    )
    if streamed:
        async with client.stream("go") as turn:
            async for _ in turn:
                pass
    else:
        await client.invoke("go")
    chat = ["A chat in", "B chat in", "B chat out", "A chat out"]
    tools = ["A tool in", "B tool in", "B tool out", "A tool out"]
    assert log == ["A turn in", "B turn in", *chat, *tools, *chat, "B turn out", "A turn out"]


async def test_filter_outside_memory_sees_the_delta_and_inside_the_whole() -> None:
    class See(Filter):
        def __init__(self) -> None:
            self.seen: list[int] = []

        async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
            self.seen.append(len(request.messages))
            return await call_next(request)

    outside, inside = See(), See()
    client = ChatClient(ScriptedModel(["a", "b"]), filters=[outside, MemoryFilter(InMemoryChatMemory()), inside])
    await client.invoke("1", conversation_id="u1")
    await client.invoke("2", conversation_id="u1")
    assert outside.seen == [1, 1]
    assert inside.seen == [1, 3]


async def test_short_cut_answers_without_the_model_and_is_stored() -> None:
    class Canned(Filter):
        async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
            return ChatResponse(AssistantMessage("canned"), "stop")

    memory = InMemoryChatMemory()
    model = ScriptedModel([])
    client = ChatClient(model, filters=[MemoryFilter(memory), Canned()])
    assert (await client.invoke("hi", conversation_id="u1")).text == "canned"
    assert list(await memory.get("u1")) == [UserMessage("hi"), AssistantMessage("canned")]


async def test_retrying_filter_runs_only_what_lies_inside_and_stores_once() -> None:
    log: list[str] = []

    class Again(Filter):
        async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
            try:
                return await call_next(request)
            except ProviderError:
                return await call_next(request)

    memory = InMemoryChatMemory()
    model = ScriptedModel([ProviderError("x", kind="server"), "ok"])
    client = ChatClient(model, memory=memory, filters=[Trace("A", log), Again(), Trace("B", log)])
    await client.invoke("hi", conversation_id="u1")
    assert [line for line in log if "chat in" in line] == ["A chat in", "B chat in", "B chat in"]
    assert list(await memory.get("u1")) == [UserMessage("hi"), AssistantMessage("ok")]


async def test_tool_filter_may_answer_in_the_tools_place() -> None:
    class Deny(Filter):
        async def around_tool(self, request: ToolRequest, call_next: ToolRun) -> ToolMessage:
            return ToolMessage(request.call.id, request.call.name, "denied", is_error=True)

    result = await ChatClient(ScriptedModel([ToolCall("c", "ping"), "ok"]), tools=[ping], filters=[Deny()]).invoke("x")
    assert result.messages[2] == ToolMessage("c", "ping", "denied", is_error=True)


async def test_rewritten_results_reach_the_model_and_the_store_keeps_the_facts() -> None:
    class Redact(Filter):
        async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
            messages = [replace(m, content="[redacted]") if isinstance(m, ToolMessage) else m for m in request.messages]
            return await call_next(replace(request, messages=messages))

    memory = InMemoryChatMemory()
    model = ScriptedModel([ToolCall("c", "ping"), "ok"])
    await ChatClient(model, tools=[ping], memory=memory, filters=[Redact()]).invoke("x", conversation_id="u1")
    assert model.requests[1].messages[-1] == ToolMessage("c", "ping", "[redacted]")
    assert (await memory.get("u1"))[2] == ToolMessage("c", "ping", "pong")


async def test_repair_by_asking_again_is_stored_as_it_happened() -> None:
    class AskAgain(Filter):
        async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
            response = await call_next(request)
            if response.text == "bad":
                response = await call_next(replace(request, messages=[UserMessage("not like that")]))
            return response

    memory = InMemoryChatMemory()
    await ChatClient(ScriptedModel(["bad", "good"]), memory=memory, filters=[AskAgain()]).invoke(
        "x", conversation_id="u1"
    )
    assert [m.content for m in await memory.get("u1")] == ["x", "bad", "not like that", "good"]


@pytest.mark.parametrize("named", [None, "Be long."], ids=["left-alone", "replaced"])
async def test_filter_sees_the_instructions_and_may_replace_them(named: str | None) -> None:
    seen: list[str | None] = []

    class Instruct(Filter):
        async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
            seen.append(request.system)
            return await call_next(request if named is None else replace(request, system=named))

    model = ScriptedModel(["a", "b"])
    client = ChatClient(model, system="Be brief.", filters=[Instruct()])
    await client.invoke("x")
    await client.invoke_chat("x")
    assert seen == ["Be brief."] * 2
    for request in model.requests:
        assert list(request.messages) == [SystemMessage(named or "Be brief."), UserMessage("x")]


async def test_grain_that_is_not_overridden_is_not_in_the_chain() -> None:
    class OnlyTool(Filter):
        async def around_tool(self, request: ToolRequest, call_next: ToolRun) -> ToolMessage:
            return await call_next(request)

    one = OnlyTool()
    assert overridden([one], "around_chat") == []
    assert len(overridden([one], "around_tool")) == 1


async def test_compose_of_nothing_is_the_innermost() -> None:
    async def inner(request: int) -> int:
        return request + 1

    assert compose([], inner) is inner
    assert await compose([lambda request, call_next: call_next(request * 2)], inner)(3) == 7


async def test_own_call_of_a_filter_is_neither_stored_nor_streamed() -> None:
    model = ScriptedModel([Reply(text="summary"), "answer"])

    class Summarise(Filter):
        async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
            await model.chat(ChatRequest([UserMessage("summarise")]))
            return await call_next(request)

    memory = InMemoryChatMemory()
    client = ChatClient(model, memory=memory, filters=[Summarise()])
    async with client.stream("hi", conversation_id="u1") as turn:
        assert [piece async for piece in turn.text] == ["answer"]
    assert [m.content for m in await memory.get("u1")] == ["hi", "answer"]
