"""ToolSearchFilter and its index: what is shown when, and what is found by which words."""

from collections.abc import Sequence
from typing import Any

import pytest

from agentcore import (
    ChatClient,
    ChatOptions,
    ChatRequest,
    ConfigurationError,
    InMemoryChatMemory,
    MemoryFilter,
    ToolCall,
    ToolDefinition,
    ToolSchema,
    tool,
)
from agentcore.filters.tool_index import KeywordToolIndex, words
from agentcore.filters.tool_search import ToolSearchFilter
from agentcore.testing import ScriptedModel

pytestmark = pytest.mark.asyncio


@tool
async def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


@tool
async def send_mail(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


@tool
async def get_time() -> str:
    """The time."""
    return "noon"


TOOLS = [get_weather, send_mail, get_time]


def shown(request: ChatRequest) -> list[str]:
    return [one.name for one in request.tools]


def searching(query: str, call_id: str = "s") -> ToolCall:
    return ToolCall(call_id, "search_tools", {"query": query})


async def test_found_tools_are_offered_from_the_next_call_on_and_run() -> None:
    script = [searching("weather"), ToolCall("w", "get_weather", {"city": "Oslo"}), "Rain."]
    model, memory = ScriptedModel(script), InMemoryChatMemory()
    client = ChatClient(model, tools=TOOLS, memory=memory, filters=[ToolSearchFilter(always=["get_time"])])
    result = await client.invoke("weather in Oslo?", conversation_id="u")
    assert [shown(request) for request in model.requests] == [
        ["get_time", "search_tools"],
        ["get_time", "search_tools", "get_weather"],
        ["get_time", "search_tools", "get_weather"],
    ]
    assert [m.content for m in result.messages if m.content][-2:] == ["rain in Oslo", "Rain."]
    assert "get_weather" in str((await memory.get("u"))[2].content)


async def test_searches_of_one_batch_and_of_later_turns_add_up() -> None:
    script = [[searching("weather", "1"), searching("mail", "2")], "ok", "later"]
    model = ScriptedModel(script)
    client = ChatClient(model, tools=TOOLS, memory=InMemoryChatMemory(), filters=[ToolSearchFilter()])
    await client.invoke("x", conversation_id="u")
    async with client.stream("y", conversation_id="u") as turn:
        async for _ in turn:
            pass
    assert shown(model.requests[1]) == ["search_tools", "get_weather", "send_mail"]
    assert shown(model.requests[2]) == ["search_tools", "get_weather", "send_mail"]


async def test_turn_without_a_memory_remembers_what_it_found() -> None:
    model = ScriptedModel([searching("mail"), "ok", "new"])
    client = ChatClient(model, tools=TOOLS, filters=[ToolSearchFilter()])
    await client.invoke("x")
    await client.invoke("y")
    assert [shown(request)[1:] for request in model.requests] == [[], ["send_mail"], []]


async def test_search_that_finds_nothing_says_so() -> None:
    model = ScriptedModel([searching("quantum"), "ok"])
    result = await ChatClient(model, tools=TOOLS, filters=[ToolSearchFilter()]).invoke("x")
    assert "No tool fits" in str(result.messages[2].content)
    assert shown(model.requests[1]) == ["search_tools"]


async def test_tool_that_has_to_be_called_is_shown() -> None:
    model = ScriptedModel(["ok"])
    client = ChatClient(model, tools=TOOLS, filters=[ToolSearchFilter()])
    await client.invoke("x", options=ChatOptions(tool_choice="send_mail"))
    assert shown(model.requests[0]) == ["search_tools", "send_mail"]


async def test_single_model_call_is_shown_all() -> None:
    model = ScriptedModel(["ok"])
    await ChatClient(model, tools=TOOLS, filters=[ToolSearchFilter()]).invoke_chat("x")
    assert shown(model.requests[0]) == [one.name for one in TOOLS]


async def test_index_is_made_once_for_the_same_tools_and_kept_for_a_few() -> None:
    made: list[int] = []

    def counting(tools: Sequence[ToolSchema]) -> KeywordToolIndex:
        made.append(len(tools))
        return KeywordToolIndex(tools)

    client = ChatClient(
        ScriptedModel(["ok"], repeat_last=True), tools=TOOLS, filters=[ToolSearchFilter(index=counting)]
    )
    await client.invoke("x")
    await client.invoke("y")
    assert made == [3]
    extra = [ToolDefinition(f"t{number}") for number in range(17)]
    for one in extra:
        await client.invoke("x", tools=[one])
    await client.invoke("x")
    assert made == [3, *[4] * 17, 3]


async def test_index_of_ones_own_may_find_only_what_is_there() -> None:
    class Semantic:
        async def search(self, query: str, limit: int) -> Sequence[str]:
            return ["gone", "send_mail"]

    model = ScriptedModel([searching("anything"), "ok"])
    await ChatClient(model, tools=TOOLS, filters=[ToolSearchFilter(index=lambda _: Semantic())]).invoke("x")
    assert shown(model.requests[1]) == ["search_tools", "send_mail"]


async def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="limit=0"):
        ToolSearchFilter(limit=0)
    with pytest.raises(ConfigurationError, match="ToolSearchFilter belongs inside the memory"):
        ChatClient(ScriptedModel([]), filters=[ToolSearchFilter(), MemoryFilter(InMemoryChatMemory())])
    with pytest.raises(ConfigurationError, match="another name"):
        await ChatClient(ScriptedModel([]), tools=TOOLS, filters=[ToolSearchFilter(name="get_time")]).invoke("x")


CATALOGUE: list[Any] = [
    ToolDefinition("getWeatherForecast", "Tells how it will be outside."),
    ToolDefinition("create_invoices", "Writes a bill.", {"properties": {"customer": {"description": "who pays"}}}),
    ToolDefinition("查询天气", "查询城市的天气预报"),
    ToolDefinition("send_mail", "Sends a letter; not for invoices, never for an invoice."),
    ToolDefinition("HTTPServer", "Serves pages.", {"properties": {"port": True}}),
    ToolDefinition("日程", "カレンダーに予定を追加する"),
]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("weather", "getWeatherForecast"),
        ("FORECASTS", "getWeatherForecast"),
        ("invoice", "create_invoices"),
        ("who pays", "create_invoices"),
        ("customers", "create_invoices"),
        ("明天天气怎么样", "查询天气"),
        ("予定", "日程"),
        ("http port", "HTTPServer"),
        ("letters", "send_mail"),
    ],
)
async def test_best_tool_comes_first(query: str, best: str) -> None:
    assert (await KeywordToolIndex(CATALOGUE).search(query, 3))[0] == best


async def test_index_of_nothing_and_query_of_nothing_find_nothing() -> None:
    assert await KeywordToolIndex([]).search("weather", 3) == []
    assert await KeywordToolIndex(CATALOGUE).search("…", 3) == []
    assert len(await KeywordToolIndex(CATALOGUE).search("weather invoice mail", 2)) == 2


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("getHTTPCode", ["get", "http", "code"]),
        ("list_all-items2", ["list", "all", "items2"]),
        ("glass classes is", ["glass", "classe", "is"]),
        ("天", ["天"]),
        ("PDF文件转换", ["pdf", "文件", "件转", "转换"]),
        ("Größe", ["größe".casefold()]),
    ],
)
async def test_words_of_a_text(text: str, found: list[str]) -> None:
    assert list(words(text)) == found
