"""CacheFilter: what counts as the same, what is kept, and how a kept reply comes back."""

from typing import Any

import pytest

from agentcore import (
    AssistantMessage,
    ChatClient,
    ChatOptions,
    ConfigurationError,
    InMemoryChatMemory,
    MemoryFilter,
    ProviderError,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    Usage,
    check_history,
    tool,
)
from agentcore.filters.cache import CacheFilter, InMemoryReplyStore
from agentcore.filters.retrieval import RetrievalFilter
from agentcore.filters.structured import StructuredOutputFilter
from agentcore.testing import Reply, ScriptedModel
from tests.filters.test_retrieval_filter import Index

pytestmark = pytest.mark.asyncio


@tool
async def act() -> str:
    """Act."""
    return "done"


def client_of(script: list[Any], cache: CacheFilter | None = None, **settings: Any) -> tuple[ChatClient, ScriptedModel]:
    model = ScriptedModel(script)
    return ChatClient(model, filters=[cache or CacheFilter()], **settings), model


async def test_second_time_the_model_is_not_asked_and_the_conversation_goes_on_as_ever() -> None:
    memory = InMemoryChatMemory()
    usage = Usage(input_tokens=9, output_tokens=9)
    client, model = client_of([Reply(text="hello", reasoning="hm", usage=usage)], memory=memory)
    first = await client.invoke("hi", conversation_id="a")
    second = await client.invoke("hi", conversation_id="b")
    assert (second.message, second.finish_reason) == (first.message, first.finish_reason)
    assert (first.usage, second.usage) == (usage, Usage(input_tokens=0, output_tokens=0))
    assert model.calls == 1
    assert list(await memory.get("b")) == list(await memory.get("a"))


async def test_stream_is_given_a_kept_reply_as_events() -> None:
    memory = InMemoryChatMemory()
    client, _ = client_of([Reply(text="hello", reasoning="hm")], memory=memory)
    await client.invoke("hi", conversation_id="a")
    async with client.stream("hi", conversation_id="b") as turn:
        assert [event async for event in turn] == [ReasoningDelta("hm"), TextDelta("hello")]
    assert (await memory.get("b"))[-1] == AssistantMessage("hello", reasoning="hm")


async def test_same_words_after_another_history_are_another_request() -> None:
    client, model = client_of(["tea?", "fine, tea", "cake?", "fine, cake"], memory=InMemoryChatMemory())
    for conversation, question in (("a", "offer tea"), ("b", "offer cake")):
        await client.invoke(question, conversation_id=conversation)
        if conversation == "a":
            assert (await client.invoke("yes", conversation_id="a")).text == "fine, tea"
    assert (await client.invoke("yes", conversation_id="b")).text == "fine, cake"
    assert model.calls == 4


@pytest.mark.parametrize(
    "other",
    [
        {"options": ChatOptions(temperature=0.5)},
        {"options": ChatOptions(response_format=dict[str, int])},
        {"options": ChatOptions(extra={"x": 1})},
        {"system": "Be brief."},
        {"tools": [act]},
    ],
    ids=["temperature", "format", "extra", "system", "tools"],
)
async def test_what_changes_the_answer_makes_another_request(other: dict[str, Any]) -> None:
    cache = CacheFilter()
    await client_of(["one"], cache)[0].invoke("hi")
    assert (await client_of(["two"], cache, **other)[0].invoke("hi")).text == "two"
    assert (await client_of([], cache)[0].invoke("hi")).text == "one"


async def test_other_model_is_another_request() -> None:
    cache = CacheFilter()
    await client_of(["one"], cache)[0].invoke("hi")
    other = ChatClient(ScriptedModel(["two"], name="other"), filters=[cache])
    assert (await other.invoke("hi")).text == "two"


async def test_what_does_not_change_the_answer_makes_no_other_request() -> None:
    client, model = client_of(["one"])
    await client.invoke("hi")
    await client.invoke("hi", options=ChatOptions(timeout=3, metadata={"a": "b"}))
    assert model.calls == 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply(text="cut", finish_reason="length"),
        Reply(text="no", finish_reason="content_filter"),
        Reply(text="hm", finish_reason="other"),
        Reply(text="half \ud83d"),
    ],
    ids=["length", "refused", "other", "half-a-character"],
)
async def test_replies_that_are_not_whole_are_not_kept(reply: Reply) -> None:
    client, model = client_of([reply, "whole"])
    await client.invoke("hi")
    assert (await client.invoke("hi")).text == "whole"
    assert model.calls == 2


async def test_answer_is_kept_after_its_repair_and_not_before() -> None:
    cache = CacheFilter()
    model = ScriptedModel(["bad", "bad", '{"a":1}'])
    options = ChatOptions(response_format=dict[str, int])
    client = ChatClient(model, filters=[cache, StructuredOutputFilter(max_retries=1)], options=options)
    texts = [(await client.invoke("hi")).text for _ in range(1)]
    assert texts == ["bad"]
    texts = [(await client.invoke("hi")).text for _ in range(3)]
    assert (texts, model.calls) == (['{"a":1}'] * 3, 3)


async def test_errors_are_not_kept() -> None:
    client, _ = client_of([ProviderError("down", kind="server"), "up"])
    with pytest.raises(ProviderError):
        await client.invoke("hi")
    assert (await client.invoke("hi")).text == "up"


@pytest.mark.parametrize("kept", [False, True], ids=["not-asked-for", "asked-for"])
async def test_tool_calls_are_kept_only_when_asked_for_and_their_tools_run_each_time(kept: bool) -> None:
    ran: list[int] = []

    @tool
    async def count() -> str:
        """Count."""
        ran.append(1)
        return "done"

    call = ToolCall("c", "count")
    script = [call, "ok"] if kept else [call, "ok", call]
    memory = InMemoryChatMemory()
    client, model = client_of(script, CacheFilter(cache_tool_calls=kept), tools=[count], memory=memory)
    await client.invoke("hi", conversation_id="a")
    assert (await client.invoke("hi", conversation_id="b")).text == "ok"
    assert (len(ran), model.calls) == (2, len(script))
    assert check_history(await memory.get("b")) == []


async def test_scope_keeps_tenants_apart() -> None:
    client, model = client_of(["one", "two"], CacheFilter(scope="tenant"))
    texts = [(await client.invoke("hi", tool_context={"tenant": tenant})).text for tenant in ("a", "b", "a", "b")]
    assert (texts, model.calls) == (["one", "two", "one", "two"], 2)


async def test_old_replies_are_asked_for_anew_and_the_least_used_go_first() -> None:
    now = [0.0]
    store = InMemoryReplyStore(max_entries=2, clock=lambda: now[0])
    await store.put("a", b"1", 10)
    await store.put("b", b"2", None)
    assert await store.get("a") == b"1"
    await store.put("c", b"3", None)
    assert [await store.get(key) for key in "abc"] == [b"1", None, b"3"]
    now[0] = 10.0
    assert [await store.get(key) for key in "abc"] == [None, None, b"3"]


async def test_reply_that_cannot_be_read_is_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    class Garbled(InMemoryReplyStore):
        async def get(self, key: str) -> bytes | None:
            return b'{"message":1}'

    client, _model = client_of(["one"], CacheFilter(Garbled()))
    assert (await client.invoke("hi")).text == "one"
    assert "cannot be read" in caplog.text


async def test_request_that_cannot_be_told_apart_is_not_cached() -> None:
    client, _model = client_of(["one", "two"], options=ChatOptions(extra={"x": object()}))
    assert [(await client.invoke("hi")).text for _ in range(2)] == ["one", "two"]


async def test_model_without_a_name_is_always_asked() -> None:
    client, model = client_of(["one", "two"])
    model.name = None  # type: ignore[assignment]
    assert [(await client.invoke("hi")).text for _ in range(2)] == ["one", "two"]


async def test_orders_that_would_mix_answers_up_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="CacheFilter belongs inside the memory"):
        ChatClient(ScriptedModel([]), filters=[CacheFilter(), MemoryFilter(InMemoryChatMemory())])
    with pytest.raises(ConfigurationError, match="CacheFilter belongs inside RetrievalFilter"):
        ChatClient(ScriptedModel([]), filters=[CacheFilter(), RetrievalFilter(Index())])
    ChatClient(ScriptedModel([]), filters=[RetrievalFilter(Index()), CacheFilter()])
    with pytest.raises(ConfigurationError, match="max_entries=0"):
        InMemoryReplyStore(max_entries=0)
