"""An ASGI app on a real server of this machine, in this event loop; and a reader of its server-sent events."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any, NamedTuple

import httpx
import uvicorn


class _Server(uvicorn.Server):
    def capture_signals(self) -> Any:
        return nullcontext()  # the signals of a test run are pytest's

    @property
    def port(self) -> int:
        return self.servers[0].sockets[0].getsockname()[1]


@asynccontextmanager
async def serving(app: Any) -> AsyncGenerator[str]:
    """Serve an app for the length of the block; gives its address."""
    async with running_server(app) as server:
        yield f"http://127.0.0.1:{server.port}"


@asynccontextmanager
async def running_server(app: Any) -> AsyncGenerator[_Server]:
    """The same with the server itself, whose connections can be counted."""
    config = uvicorn.Config(app, port=0, log_level="warning", lifespan="on", timeout_graceful_shutdown=10)
    server = _Server(config)
    started = asyncio.Event()
    startup = server.startup

    async def and_say_so(*args: Any, **kwargs: Any) -> None:
        await startup(*args, **kwargs)
        started.set()

    server.startup = and_say_so
    async with asyncio.TaskGroup() as tasks:
        serve = tasks.create_task(server.serve())
        waiting = tasks.create_task(started.wait())
        await asyncio.wait({serve, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not started.is_set():
            raise RuntimeError("the server did not start; see its log")
        try:
            yield server
        finally:
            server.should_exit = True
            await asyncio.wait({serve})  # a test that failed must not cut the server's end short


class Sent(NamedTuple):
    """A server-sent event."""

    id: str | None
    event: str | None
    data: Any


async def sent_events(response: httpx.Response) -> AsyncIterator[Sent]:
    """The events of a response as they come."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if not line and fields:
            yield Sent(fields.get("id"), fields.get("event"), json.loads(fields["data"]))
            fields = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
