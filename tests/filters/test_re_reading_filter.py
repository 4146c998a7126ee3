"""ReReadingFilter: asked twice, stored once."""

import pytest

from agentcore import (
    ChatClient,
    ConfigurationError,
    ImagePart,
    InMemoryChatMemory,
    MemoryFilter,
    TextPart,
    ToolCall,
    UserMessage,
    tool,
)
from agentcore.filters.re_reading import ReReadingFilter
from agentcore.filters.retrieval import Passage, RetrievalFilter
from agentcore.testing import ScriptedModel
from tests.filters.test_retrieval_filter import Index

pytestmark = pytest.mark.asyncio

TWICE = "why?\nRead the question again: why?"


@tool
async def act() -> str:
    """Act."""
    return "done"


async def test_question_is_asked_twice_in_every_call_of_the_turn_and_stored_once() -> None:
    memory, model = InMemoryChatMemory(), ScriptedModel(["hello", ToolCall("c", "act"), "so"])
    client = ChatClient(model, tools=[act], memory=memory, filters=[ReReadingFilter()])
    await client.invoke("hi", conversation_id="u")
    async with client.stream("why?", conversation_id="u") as turn:
        async for _ in turn:
            pass
    assert [[m.content for m in request.messages] for request in model.requests[1:]] == [
        ["hi", "hello", TWICE],
        ["hi", "hello", TWICE, None, "done"],
    ]
    assert [m.content for m in await memory.get("u")] == ["hi", "hello", "why?", None, "done", "so"]


async def test_pictures_are_shown_once() -> None:
    model, picture = ScriptedModel(["a cat"]), ImagePart(url="https://example.com/cat.png")
    await ChatClient(model, filters=[ReReadingFilter()]).invoke([UserMessage([TextPart("why?"), picture])])
    assert model.requests[0].messages == [UserMessage([picture, TextPart(TWICE)])]


async def test_question_without_words_is_left_as_it_is() -> None:
    model, picture = ScriptedModel(["a cat"]), UserMessage([ImagePart(url="https://example.com/cat.png")])
    await ChatClient(model, filters=[ReReadingFilter()]).invoke([picture])
    assert list(model.requests[0].messages) == [picture]


async def test_passages_are_not_repeated() -> None:
    model, index = ScriptedModel(["so"]), Index(Passage("Because."))
    await ChatClient(model, filters=[RetrievalFilter(index), ReReadingFilter(template="{question} {question}")]).invoke(
        "why?"
    )
    assert index.asked[0][0] == "why?"
    assert [str(m.content).count("why?") for m in model.requests[0].messages] == [0, 2]
    assert str(model.requests[0].messages[0].content).count("Because.") == 1


async def test_wrong_orders_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="ReReadingFilter belongs inside the memory"):
        ChatClient(ScriptedModel([]), filters=[ReReadingFilter(), MemoryFilter(InMemoryChatMemory())])
    with pytest.raises(ConfigurationError, match="ReReadingFilter belongs inside RetrievalFilter"):
        ChatClient(ScriptedModel([]), filters=[ReReadingFilter(), RetrievalFilter(Index())])
