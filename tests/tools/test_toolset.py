"""Toolsets: groups of tools that are opened with the client, offered every turn, and closed with it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agentcore import ChatClient, ConfigurationError, FunctionToolset, ToolCall, ToolDefinition, tool
from agentcore.testing import ScriptedModel
from agentcore.tools.toolset import HostedResource, Toolset

pytestmark = pytest.mark.asyncio


@tool
async def ping() -> str:
    """Ping."""
    return "pong"


class Resource:
    """A context that must be left by the task that entered it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.task: Any = None
        self.fails = False

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[str]:
        if self.fails:
            raise OSError("no such server")
        self.task = asyncio.current_task()
        self.log.append("in")
        try:
            yield "value"
        finally:
            assert asyncio.current_task() is self.task
            self.log.append("out")


async def test_tools_of_a_toolset_are_offered_and_run() -> None:
    resource = Resource()
    model = ScriptedModel([ToolCall("c1", "net_ping"), "done"])
    async with ChatClient(model, tools=[FunctionToolset([ping], prefix="net_", lifespan=resource.lifespan)]) as client:
        assert resource.log == ["in"]
        result = await client.invoke("go")
    assert [one.name for one in model.requests[0].tools] == ["net_ping"]
    assert (result.text, result.messages[2].content, resource.log) == ("done", "pong", ["in", "out"])
    assert ping.name == "ping"


async def test_toolset_is_opened_by_the_first_turn_and_may_be_opened_again() -> None:
    resource = Resource()
    client = ChatClient(ScriptedModel(["a", "b", "c"]), tools=[FunctionToolset([ping], lifespan=resource.lifespan)])
    assert resource.log == []
    await asyncio.gather(client.invoke("1"), client.invoke("2"))
    assert resource.log == ["in"]
    await client.aclose()
    await client.aclose()
    assert resource.log == ["in", "out"]
    await client.invoke("3")
    await client.aclose()
    assert resource.log == ["in", "out", "in", "out"]


async def test_lifespan_that_fails_is_the_error_and_is_tried_again() -> None:
    resource = Resource()
    resource.fails = True
    client = ChatClient(ScriptedModel(["a"]), tools=[FunctionToolset([ping], lifespan=resource.lifespan)])
    with pytest.raises(OSError, match="no such server"):
        await client.invoke("1")
    resource.fails = False
    assert (await client.invoke("1")).text == "a"
    await client.aclose()


async def test_cancelled_opener_leaves_the_opening_to_the_next() -> None:
    gate = asyncio.Event()

    @asynccontextmanager
    async def slow() -> AsyncIterator[int]:
        await gate.wait()
        yield 1

    resource = HostedResource(slow)
    first = asyncio.create_task(resource.open())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    gate.set()
    assert await resource.open() == 1
    await resource.aclose()


async def test_error_of_leaving_comes_out_of_aclose() -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[int]:
        yield 1
        raise OSError("cannot close")

    resource = HostedResource(broken)
    await resource.open()
    with pytest.raises(OSError, match="cannot close"):
        await resource.aclose()
    await resource.aclose()


def run_in_own_loop(work: Any) -> Any:
    return asyncio.run(work)


async def test_toolset_open_in_another_loop_says_so() -> None:
    resource = Resource()
    toolset = FunctionToolset([ping], lifespan=resource.lifespan)
    await toolset.open()
    with pytest.raises(ConfigurationError, match="open in another event loop"):
        await asyncio.to_thread(run_in_own_loop, toolset.open())
    await toolset.aclose()


async def test_names_must_differ_over_all_groups() -> None:
    client = ChatClient(ScriptedModel(["a"]), tools=[ping, FunctionToolset([ping])])
    with pytest.raises(ConfigurationError, match="two tools are named 'ping'"):
        await client.invoke("1")
    with pytest.raises(ConfigurationError, match="two tools are named 'ping'"):
        FunctionToolset([ping, ping])


async def test_tools_of_one_turn_stand_beside_the_clients() -> None:
    @tool
    async def only_now() -> str:
        return "now"

    model = ScriptedModel([ToolCall("c1", "only_now"), "done", "later"])
    client = ChatClient(model, tools=[ping])
    assert (await client.invoke("go", tools=[only_now])).text == "done"
    await client.invoke("go")
    assert [[one.name for one in request.tools] for request in model.requests] == [
        ["ping", "only_now"],
        ["ping", "only_now"],
        ["ping"],
    ]


async def test_tools_may_change_from_turn_to_turn() -> None:
    class Growing:
        def __init__(self) -> None:
            self.names = ["a"]

        async def open(self) -> None: ...

        async def tools(self) -> list[ToolDefinition]:
            return [ToolDefinition(name) for name in self.names]

        async def aclose(self) -> None: ...

    growing = Growing()
    assert isinstance(growing, Toolset)
    model = ScriptedModel(["1", "2"])
    client = ChatClient(model, tools=[growing])
    await client.invoke("x")
    growing.names.append("b")
    await client.invoke("x")
    assert [[one.name for one in request.tools] for request in model.requests] == [["a"], ["a", "b"]]


async def test_external_loop_knows_the_toolsets_too() -> None:
    model = ScriptedModel([ToolCall("c1", "x_ping")])
    client = ChatClient(model, tools=[FunctionToolset([ping], prefix="x_")])
    batch = await client.run_tools(await client.invoke_chat("go"))
    assert batch.messages[0].content == "pong"


async def test_prefix_goes_before_definitions_too() -> None:
    toolset = FunctionToolset([ToolDefinition("where", "Where?")], prefix="user_")
    assert [one.name for one in await toolset.tools()] == ["user_where"]
