"""MCP against real server processes: listing, calling, progress, cancellation, loss, and the way back."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agentcore import (
    ChatClient,
    ConfigurationError,
    ImagePart,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolProgress,
    tool,
)
from agentcore.testing import ScriptedModel

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters

from agentcore.integrations.mcp import MCPToolset, mcp_server
from tests.support.mcp_server import PNG

pytestmark = pytest.mark.asyncio

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "tests.support.mcp_server"]


def toolset(**settings: Any) -> MCPToolset:
    return MCPToolset(COMMAND, cwd=str(ROOT), **settings)


async def called(name: str, args: dict[str, Any], one: MCPToolset) -> ToolMessage:
    async with ChatClient(ScriptedModel([]), tools=[one]) as client:
        batch = await client.run_tools([ToolCall("c1", name, args)])
    return batch.messages[0]


async def test_servers_tools_are_offered_with_their_schema_and_run_in_a_turn() -> None:
    model = ScriptedModel([ToolCall("c1", "calc_add", {"a": 2, "b": 3}), "five"])
    async with ChatClient(model, tools=[toolset(prefix="calc_", only=["add"])]) as client:
        result = await client.invoke("2+3?")
    assert (result.text, result.messages[2].content) == ("five", "5")
    [shown] = model.requests[0].tools
    assert (shown.name, shown.description) == ("calc_add", "Add two numbers.")
    assert shown.parameters["required"] == ["a"]


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("broken", {}, "Error executing tool broken"),
        ("add", {"a": "many"}, "a"),
        ("ask", {}, "licit"),
    ],
    ids=["raises", "bad-arguments", "asks-the-user"],
)
async def test_failure_there_is_an_error_the_model_can_read(name: str, args: dict[str, Any], words: str) -> None:
    message = await called(name, args, toolset())
    assert message.is_error
    assert words in str(message.content)


async def test_pictures_come_as_parts() -> None:
    message = await called("picture", {}, toolset())
    assert message.content == (TextPart("here"), ImagePart(data=PNG, media_type="image/png"))


async def test_progress_reaches_the_reader() -> None:
    model = ScriptedModel([ToolCall("c1", "steps"), "done"])
    async with ChatClient(model, tools=[toolset()]) as client, client.stream("go") as turn:
        told = [event.data async for event in turn if isinstance(event, ToolProgress)]
    assert [one["message"] for one in told] == ["step 0", "step 1", "step 2"]
    assert told[0]["total"] == 3


async def test_cancelled_call_is_cancelled_there(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    model = ScriptedModel([ToolCall("c1", "slow", {"path": str(trace)})])
    async with ChatClient(model, tools=[toolset()]) as client:
        async with client.stream("go") as turn:
            async for event in turn:
                if isinstance(event, ToolProgress):
                    break
        batch = await client.run_tools([ToolCall("c2", "add", {"a": 1})])  # the connection is still good
        assert batch.messages[0].content == "2"
    assert trace.read_text() == "cancelled"


async def test_server_that_goes_away_is_told_and_connected_to_again() -> None:
    async with ChatClient(ScriptedModel([]), tools=[toolset()]) as client:
        batch = await client.run_tools([ToolCall("c1", "leave")])
        assert batch.messages[0].is_error
        assert "was lost during leave; it may or may not" in str(batch.messages[0].content)
        batch = await client.run_tools([ToolCall("c2", "add", {"a": 1})])
        assert batch.messages[0].content == "2"


async def test_environment_of_the_command_is_what_was_given() -> None:
    message = await called("environment", {"name": "GREETING"}, toolset(env={"GREETING": "hello"}))
    assert message.content == "hello"


async def test_command_that_does_not_start_is_the_error_of_the_turn() -> None:
    client = ChatClient(ScriptedModel([]), tools=[MCPToolset(["/no/such/program"])])
    with pytest.raises(OSError, match="no/such/program"):
        await client.invoke("hi")
    await client.aclose()


@pytest.fixture
def address() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([*COMMAND, str(port)], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        while True:
            assert process.poll() is None
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


async def test_server_over_http_works_alike(address: str) -> None:
    async with ChatClient(ScriptedModel([]), tools=[MCPToolset(address)]) as client:
        calls = [ToolCall(f"c{n}", "add", {"a": n}) for n in range(5)]
        batch = await client.run_tools(calls)
    assert [message.content for message in batch.messages] == ["1", "2", "3", "4", "5"]


SERVE = """
import asyncio
from agentcore import ChatClient, tool
from agentcore.integrations.mcp import serve_stdio
from agentcore.testing import ScriptedModel

@tool
async def greet(name: str) -> str:
    "Greet somebody."
    return f"hello {name}"

@tool(approval=True)
async def pay() -> str:
    return "paid"

@tool
async def fail() -> str:
    raise ValueError("kaput")

asyncio.run(serve_stdio(ChatClient(ScriptedModel([]), tools=[greet, pay, fail]), name="ours"))
"""


@asynccontextmanager
async def ours() -> AsyncGenerator[Client]:
    async with Client(StdioServerParameters(command=sys.executable, args=["-c", SERVE], cwd=str(ROOT))) as client:
        yield client


async def test_our_tools_are_served_to_anybodys_client() -> None:
    async with ours() as client:
        listed = await client.list_tools()
        assert [one.name for one in listed.tools] == ["greet", "pay", "fail"]
        assert listed.tools[0].description == "Greet somebody."
        result = await client.call_tool("greet", {"name": "Kim"})
        assert (result.content[0].text, result.is_error) == ("hello Kim", False)  # type: ignore[union-attr]
        refused = await client.call_tool("pay", {})
        assert "needs a person's consent" in refused.content[0].text  # type: ignore[union-attr]
        failed = await client.call_tool("fail", {})
        assert (failed.is_error, "kaput" in failed.content[0].text) == (True, True)  # type: ignore[union-attr]


async def test_there_and_back_again() -> None:
    @tool
    async def double(n: int) -> int:
        return 2 * n

    server = mcp_server(ChatClient(ScriptedModel([]), tools=[double]))
    async with Client(server) as client:
        result = await client.call_tool("double", {"n": 21})
    assert result.content[0].text == "42"  # type: ignore[union-attr]


async def test_nothing_to_connect_to_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="got nothing"):
        MCPToolset("")
    assert repr(MCPToolset("https://host/mcp")) == "MCPToolset(https://host/mcp)"


async def test_many_turns_share_one_connection() -> None:
    script: list[Any] = [item for n in range(5) for item in (ToolCall(f"c{n}", "add", {"a": n}), f"answer {n}")]
    async with ChatClient(ScriptedModel(script), tools=[toolset()]) as client:
        for n in range(5):
            assert (await client.invoke("go")).text == f"answer {n}"
        results = await asyncio.gather(*(client.run_tools([ToolCall("c", "add", {"a": n})]) for n in range(10)))
    assert [one.messages[0].content for one in results] == [str(n + 1) for n in range(10)]
