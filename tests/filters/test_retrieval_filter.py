"""RetrievalFilter: shown to the model at one place, stored nowhere, reachable afterwards."""

from collections.abc import Sequence

import pytest

from agentcore import (
    ChatClient,
    ChatRequest,
    ConfigurationError,
    ImagePart,
    InMemoryChatMemory,
    MemoryFilter,
    ToolCall,
    ToolContext,
    UserMessage,
    tool,
)
from agentcore.filters.retrieval import Passage, Retrieval, RetrievalFilter
from agentcore.testing import ScriptedModel

pytestmark = pytest.mark.asyncio

WARRANTY = Passage("Two years.", "terms.pdf", 0.9)


class Index:
    def __init__(self, *passages: Passage) -> None:
        self.passages = passages
        self.asked: list[tuple[str, object]] = []

    async def retrieve(self, query: str, context: ToolContext) -> Sequence[Passage]:
        self.asked.append((query, context.get("user_id")))
        return self.passages


@tool
async def look() -> str:
    """Look."""
    return "seen"


@pytest.mark.parametrize("streamed", [False, True], ids=["invoke", "stream"])
async def test_passages_are_seen_by_the_model_and_not_stored(streamed: bool) -> None:
    memory, model, index = InMemoryChatMemory(), ScriptedModel(["old", "two"]), Index(WARRANTY)
    client = ChatClient(model, memory=memory, filters=[RetrievalFilter(index)])
    await client.invoke("hi", conversation_id="u")
    context = {"user_id": "kim"}
    if streamed:
        async with client.stream("warranty?", conversation_id="u", tool_context=context) as turn:
            async for _ in turn:
                pass
        result = turn.result
    else:
        result = await client.invoke("warranty?", conversation_id="u", tool_context=context)
    *before, shown, question = model.requests[1].messages
    assert [m.content for m in before] == ["hi", "old"]
    assert "[1] terms.pdf\nTwo years." in str(shown.content)
    assert question == UserMessage("warranty?")
    assert [m.content for m in await memory.get("u")] == ["hi", "old", "warranty?", "two"]
    assert result.tool_context["retrieval"] == Retrieval("warranty?", (WARRANTY,))
    assert index.asked[-1] == ("warranty?", "kim")


async def test_turn_with_tools_asks_once_and_keeps_the_prefix() -> None:
    model, index = ScriptedModel([ToolCall("c", "look"), "two"]), Index(WARRANTY)
    client = ChatClient(model, tools=[look], memory=InMemoryChatMemory(), filters=[RetrievalFilter(index)])
    result = await client.invoke("warranty?", conversation_id="u")
    first, second = (list(request.messages) for request in model.requests)
    assert second[: len(first)] == first
    assert len(index.asked) == 1
    assert result.tool_context["retrieval"].passages == (WARRANTY,)


async def test_nothing_is_put_in_when_nothing_is_found() -> None:
    model = ScriptedModel(["?"])
    result = await ChatClient(model, filters=[RetrievalFilter(Index())]).invoke("warranty?")
    assert list(model.requests[0].messages) == [UserMessage("warranty?")]
    assert result.tool_context["retrieval"].passages == ()


async def test_sources_of_an_earlier_turn_are_not_taken_for_this_ones() -> None:
    model, index = ScriptedModel(["a", "b"]), Index(WARRANTY)
    client = ChatClient(model, filters=[RetrievalFilter(index)])
    first = await client.invoke("one")
    second = await client.invoke("two", tool_context=first.tool_context)
    assert second.tool_context["retrieval"].query == "two"
    assert [query for query, _ in index.asked] == ["one", "two"]


async def test_passages_that_do_not_fit_are_left_out() -> None:
    found = [WARRANTY, Passage("far", score=0.1), Passage("unscored"), Passage("fifth", score=0.8)]
    client = ChatClient(ScriptedModel(["x"]), filters=[RetrievalFilter(Index(*found), limit=2, min_score=0.5)])
    result = await client.invoke("warranty?")
    assert [one.text for one in result.tool_context["retrieval"].passages] == ["Two years.", "unscored"]


async def test_question_without_words_is_not_looked_for() -> None:
    index = Index(WARRANTY)
    client = ChatClient(ScriptedModel(["a cat"]), filters=[RetrievalFilter(index)])
    await client.invoke([UserMessage([ImagePart(url="https://example.com/cat.png")])])
    assert index.asked == []


async def test_retriever_that_fails_fails_the_turn_and_leaves_nothing() -> None:
    class Broken:
        async def retrieve(self, query: str, context: ToolContext) -> Sequence[Passage]:
            raise ConnectionError("index is down")

    memory, model = InMemoryChatMemory(), ScriptedModel([])
    with pytest.raises(ConnectionError):
        await ChatClient(model, memory=memory, filters=[RetrievalFilter(Broken())]).invoke("x", conversation_id="u")
    assert (model.calls, list(await memory.get("u"))) == (0, [])


async def test_own_query_and_own_rendering() -> None:
    model, index = ScriptedModel(["x"]), Index(WARRANTY)
    retrieval = RetrievalFilter(
        index, query=lambda messages: f"{len(messages)} messages", render=lambda passages: passages[0].text
    )
    await ChatClient(model, filters=[retrieval]).invoke("warranty?")
    assert index.asked[0][0] == "1 messages"
    assert [m.content for m in model.requests[0].messages] == ["Two years.", "warranty?"]


async def test_outside_the_memory_it_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="RetrievalFilter belongs inside the memory"):
        ChatClient(ScriptedModel([]), filters=[RetrievalFilter(Index()), MemoryFilter(InMemoryChatMemory())])
    with pytest.raises(ConfigurationError, match="limit=0"):
        RetrievalFilter(Index(), limit=0)


async def test_call_outside_of_any_turn_is_shown_passages_too() -> None:
    model = ScriptedModel(["two"])
    await RetrievalFilter(Index(WARRANTY)).around_chat(ChatRequest([UserMessage("warranty?")]), model.chat)
    assert len(model.requests[0].messages) == 2
    assert model.requests[0].context["retrieval"].passages == (WARRANTY,)
