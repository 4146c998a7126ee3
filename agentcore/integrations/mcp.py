"""MCP, both ways: the tools of a server for a client of ours, and our tools for anybody's client.

Needs the extra `mcp` (the official package). Source: Model Context Protocol specification, "Tools", "Progress",
"Elicitation".
"""

import logging
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import anyio
import msgspec

from agentcore.client import ChatClient
from agentcore.context import ToolContext
from agentcore.errors import ConfigurationError
from agentcore.messages import AudioPart, Content, FilePart, ImagePart, Part, TextPart, ToolCall
from agentcore.tools.errors import ToolError
from agentcore.tools.remote import RemoteTool
from agentcore.tools.tool import Tool
from agentcore.tools.toolset import HostedResource

if TYPE_CHECKING:
    from mcp import Client, types
    from mcp.server.lowlevel.server import Server

logger = logging.getLogger("agentcore.mcp")

_LOST = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, ConnectionError, EOFError)


class MCPConnectionLostError(ToolError):
    """The server went away while a call was under way; the next turn connects again."""


class MCPToolset:
    """The tools of an MCP server, as a toolset of a `ChatClient`.

    The connection is made before the first turn, kept until the client is closed, and made anew when the server went
    away. A call that is cancelled here is cancelled there; a tool's progress reaches a stream's reader as
    `ToolProgress`; what a server wants to ask the user is refused, and the model is told so.

    Args:
        server: an address (`https://host/mcp`), or a command and its arguments (`["python", "server.py"]`).
        prefix: put before every tool's name.
        env: environment of the command; the package passes on only a few variables by itself.
        cwd: directory of the command.
        http_client: your own `httpx2.AsyncClient` for an address: with your headers, for example a key.
        timeout: seconds a call may take; None for the client's default.
        only: names of the tools to offer; None is all.

    Raises:
        ConfigurationError: the package `mcp` is not installed, or there is nothing to connect to.
    """

    def __init__(
        self,
        server: str | Sequence[str],
        *,
        prefix: str = "",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        http_client: Any = None,
        timeout: float | None = None,
        only: Sequence[str] | None = None,
    ) -> None:
        if not server:
            raise ConfigurationError("an MCP server is an address or a command; got nothing")
        self._shown = server if isinstance(server, str) else server[0]
        self._prefix = prefix
        self._timeout = timeout
        self._only = None if only is None else frozenset(only)
        self._resource = HostedResource(_lifespan(server, env, cwd, http_client))
        self._tools: tuple[Tool, ...] | None = None

    def __repr__(self) -> str:
        return f"MCPToolset({self._shown})"

    async def open(self) -> None:
        """Connect, if there is no connection; the errors of connecting come out here."""
        await self._resource.open()

    async def tools(self) -> Sequence[Tool]:
        """The server's tools, asked for once a connection."""
        if self._tools is None:
            client = cast("Client", await self._resource.open())
            listed: list[types.Tool] = []
            cursor: str | None = None
            while True:
                page = await client.list_tools(cursor=cursor)
                listed += page.tools
                cursor = page.next_cursor
                if not cursor:
                    break
            self._tools = tuple(self._tool(one) for one in listed if self._only is None or one.name in self._only)
        return self._tools

    async def aclose(self) -> None:
        """Close the connection, and end the command."""
        self._tools = None
        await self._resource.aclose()

    def _tool(self, one: "types.Tool") -> Tool:
        async def call(args: dict[str, Any], context: ToolContext) -> Any:
            return await self._call(one.name, args, context)

        schema: dict[str, Any] = one.input_schema
        return RemoteTool(self._prefix + one.name, one.description or "", schema, call, timeout=self._timeout)

    async def _call(self, name: str, args: dict[str, Any], context: ToolContext) -> Content:
        from mcp import MCPError

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            await context.emit({"progress": progress, "total": total, "message": message})

        client = cast("Client", await self._resource.open())
        try:
            result = await client.call_tool(name, args, progress_callback=progressed)
        except _LOST as error:
            await self._lost(name)
            raise MCPConnectionLostError(_lost_words(name)) from error
        except MCPError as error:
            if self._is_closed(error):
                await self._lost(name)
                raise MCPConnectionLostError(_lost_words(name)) from error
            raise ToolError(f"{name}: {error}") from error
        content = content_of(result)
        if result.is_error:
            raise ToolError(content if isinstance(content, str) else " ".join(_texts(content)) or "the tool failed")
        return content

    @staticmethod
    def _is_closed(error: Exception) -> bool:
        return "connection closed" in str(error).lower()

    async def _lost(self, name: str) -> None:
        logger.warning("the MCP server %s went away during %s; it is connected to again when it is used", self, name)
        self._tools = None
        try:
            await self._resource.aclose()
        except (*_LOST, OSError, BaseExceptionGroup) as error:
            logger.debug("closing what was left of it: %r", error)


def _lost_words(name: str) -> str:
    return f"the connection to the server was lost during {name}; it may or may not have taken effect"


def _lifespan(
    server: str | Sequence[str], env: Mapping[str, str] | None, cwd: str | None, http_client: Any
) -> "Callable[[], AbstractAsyncContextManager[Client]]":
    try:
        from mcp import Client, StdioServerParameters
        from mcp.client.streamable_http import streamable_http_client
    except ImportError as error:
        raise ConfigurationError("MCP needs a package: pip install 'agentcore-async[mcp]'") from error

    @asynccontextmanager
    async def connected() -> "AsyncGenerator[Client]":
        if isinstance(server, str):
            target: Any = server if http_client is None else streamable_http_client(server, http_client=http_client)
        else:
            command, *arguments = server
            target = StdioServerParameters(
                command=command, args=arguments, env=dict(env) if env is not None else None, cwd=cwd
            )
        async with Client(target) as client:
            yield client

    return connected


def content_of(result: "types.CallToolResult") -> Content:
    """What a call brought, as content a model can read."""
    parts = [part for part in map(_part, result.content) if part is not None]
    if not parts:
        structured = result.structured_content
        return "" if structured is None else msgspec.json.encode(structured).decode()
    if all(isinstance(part, TextPart) for part in parts):
        return "\n".join(_texts(tuple(parts)))
    return tuple(parts)


def _texts(parts: Sequence[Part]) -> list[str]:
    return [part.text for part in parts if isinstance(part, TextPart)]


def _part(block: Any) -> Part | None:
    match block.type:
        case "text":
            return TextPart(block.text)
        case "image":
            return ImagePart(data=b64decode(block.data), media_type=block.mime_type)
        case "audio":
            return AudioPart(data=b64decode(block.data), media_type=block.mime_type)
        case "resource_link":
            return TextPart(f"{block.name}: {block.uri}")
        case "resource":
            resource = block.resource
            text = getattr(resource, "text", None)
            if text is not None:
                return TextPart(text)
            media_type = resource.mime_type or "application/octet-stream"
            return FilePart(data=b64decode(resource.blob), media_type=media_type, name=str(resource.uri))
        case _:
            return None


def mcp_server(client: ChatClient, *, name: str = "agentcore", instructions: str | None = None) -> "Server[Any]":
    """An MCP server that offers a client's tools, run as the client runs them: its filters, timeouts and limits.

    Serve it with the package's own means: over stdio with `serve_stdio(client)`, or as a Starlette app with
    `mcp_server(client).streamable_http_app()`. A tool that needs a person's consent is refused, since nobody is asked.

    Args:
        client: whose tools; it is not closed by the server.
        name: what the server calls itself.
        instructions: what the model of the other side is told of the server.

    Raises:
        ConfigurationError: the package `mcp` is not installed.
    """
    try:
        from mcp import types
        from mcp.server.lowlevel.server import Server
    except ImportError as error:
        raise ConfigurationError("MCP needs a package: pip install 'agentcore-async[mcp]'") from error

    async def list_tools(_context: Any, _params: Any) -> "types.ListToolsResult":
        offered = await client.tools()
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=one.name,
                    description=one.description or None,
                    input_schema=dict(one.parameters) or {"type": "object", "properties": {}},
                )
                for one in offered
                if isinstance(one, Tool)
            ]
        )

    async def call_tool(_context: Any, params: Any) -> "types.CallToolResult":
        call = ToolCall(uuid4().hex, params.name, dict(params.arguments or {}))
        batch = await client.run_tools([call])
        if batch.pending:
            text = f"{params.name} needs a person's consent, which cannot be asked for here; it was not run."
            return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
        [message] = batch.messages
        return types.CallToolResult(content=_blocks(message.content), is_error=message.is_error)

    return Server(name, instructions=instructions, on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_stdio(client: ChatClient, *, name: str = "agentcore", instructions: str | None = None) -> None:
    """Serve a client's tools over standard input and output until the input ends; see `mcp_server`."""
    server = mcp_server(client, name=name, instructions=instructions)
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def _blocks(content: Content) -> list[Any]:
    from mcp import types

    if isinstance(content, str):
        return [types.TextContent(type="text", text=content)]
    blocks: list[Any] = []
    for part in content:
        if isinstance(part, TextPart):
            blocks.append(types.TextContent(type="text", text=part.text))
        elif part.data is None:
            blocks.append(types.TextContent(type="text", text=part.url or ""))
        elif isinstance(part, ImagePart):
            data = b64encode(part.data).decode()
            blocks.append(types.ImageContent(type="image", data=data, mime_type=part.media_type or "image/png"))
        elif isinstance(part, AudioPart):
            data = b64encode(part.data).decode()
            blocks.append(types.AudioContent(type="audio", data=data, mime_type=part.media_type or "audio/wav"))
        else:
            resource = types.BlobResourceContents(
                uri=f"file:///{part.name or 'file'}", blob=b64encode(part.data).decode(), mime_type=part.media_type
            )
            blocks.append(types.EmbeddedResource(type="resource", resource=resource))
    return blocks
