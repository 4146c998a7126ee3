"""An MCP server for tests, in a process of its own: `python -m tests.support.mcp_server [PORT]`."""

import os
import sys
from base64 import b64encode

import anyio
import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("tests", log_level="ERROR")
PNG = b"\x89PNG not really"


class Answer(BaseModel):
    yes: bool


@server.tool()
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def broken() -> str:
    """Fail."""
    raise ValueError("the disk is full")


@server.tool()
async def slow(path: str, context: Context) -> str:
    """Report progress, then wait until cancelled; leave a trace either way."""
    await context.report_progress(1, 2, "begun")
    try:
        await anyio.sleep_forever()
    except BaseException:
        with open(path, "w") as trace:
            trace.write("cancelled")
        raise
    return "never"


@server.tool()
async def steps(context: Context) -> str:
    """Report progress."""
    for number in range(3):
        await context.report_progress(number, 3, f"step {number}")
    return "done"


@server.tool()
async def ask(context: Context) -> str:
    """Ask the user."""
    answer = await context.elicit("Sure?", Answer)
    return str(answer)


@server.tool()
def picture() -> list[types.ContentBlock]:
    """A picture and a word."""
    data = b64encode(PNG).decode()
    return [
        types.TextContent(type="text", text="here"),
        types.ImageContent(type="image", data=data, mime_type="image/png"),
    ]


@server.tool()
def environment(name: str) -> str:
    """A variable of the server's environment."""
    return os.environ.get(name, "(not set)")


@server.tool()
def leave() -> str:
    """End the server."""
    os._exit(3)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
