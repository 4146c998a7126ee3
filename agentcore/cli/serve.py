"""`agentcore serve`: the conversations on a page in the browser, for whoever sits at this machine."""

import asyncio
import gc
import math
import signal
import socket as sockets
import sys
import threading
import webbrowser
from collections.abc import Coroutine, Generator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from secrets import token_urlsafe
from types import FrameType
from typing import Any

from agentcore.chat import ChatModel, ChatOptions
from agentcore.cli.local_server import MODEL_NAME
from agentcore.cli.sample_tools import CHAT_TOOLS
from agentcore.client import ChatClient
from agentcore.errors import ConfigurationError
from agentcore.filters.base import Filter
from agentcore.limits import Limits
from agentcore.memory.base import ChatMemory

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.routing import BaseRoute, Mount

    from agentcore.web.authorize import allow_everyone
    from agentcore.web.gate import LOCAL_NAMES, Gate, is_loopback
    from agentcore.web.openai_endpoint import openai_routes
    from agentcore.web.page import page_routes
    from agentcore.web.routes import ChatRoutes, chat_routes
    from agentcore.web.vercel import vercel_routes
except ModuleNotFoundError as _error:
    if (_error.name or "").startswith("agentcore"):
        raise
    raise ConfigurationError(
        f"`agentcore serve` needs a package that is not installed ({_error.name}): pip install 'agentcore-async[serve]'"
    ) from _error

_SHORTEST_TOKEN = 16
_LONGER_THAN_TURNS = 10.0  # seconds that connections have beyond the grace of the turns that they carry


async def serve(
    model: ChatModel,
    *,
    memory: ChatMemory,
    socket: sockets.socket,
    host: str,
    token: str | None = None,
    grace: float = 10.0,
    system: str | None = None,
    with_tools: bool = True,
    options: ChatOptions | None = None,
    filters: Sequence[Filter] = (),
    open_browser: bool = False,
) -> None:
    """Serve the page, and the same conversations to programs, until the process is told to end.

    Args:
        model: what answers.
        memory: where the conversations are.
        socket: where the server listens; see `listening`.
        host: as the user said it. One that other machines may reach is not served without a token: one is made then.
        token: what lets a browser in.
        grace: seconds that running turns have when the server ends.
        system: instructions to the model.
        with_tools: offer the sample tools.
        options: settings of every model call.
        filters: the onion.
        open_browser: open the page.

    Raises:
        ConfigurationError: the token is too short to keep anybody out.
    """
    if token is not None and len(token) < _SHORTEST_TOKEN:
        raise ConfigurationError(f"the token has {len(token)} characters; give it at least {_SHORTEST_TOKEN}")
    local = is_loopback(host)
    if not local and token is None:
        token = token_urlsafe(24)
    client = ChatClient(
        model,
        tools=CHAT_TOOLS if with_tools else (),
        memory=memory,
        system=system,
        options=options,
        filters=filters,
        limits=_limits(model),
    )
    chat = chat_routes(client, authorize=allow_everyone, grace=grace, show_details=True)
    app = Gate(
        _app(chat, getattr(model, "name", "chat")), names=LOCAL_NAMES | {host.lower()} if local else None, token=token
    )
    config = uvicorn.Config(
        app,
        log_level="warning",
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=math.ceil(grace + _LONGER_THAN_TURNS),
    )
    address = _address(host, socket, token)
    server = _Server(config)
    async with asyncio.TaskGroup() as tasks:
        telling = tasks.create_task(_tell(server, address, local=local, open_browser=open_browser))
        await server.serve(sockets=[socket])
        telling.cancel()


def _app(chat: ChatRoutes, model_name: str) -> Starlette:
    routes: list[BaseRoute] = [*openai_routes(chat, model_name=model_name).routes, *vercel_routes(chat).routes]
    if _has_ag_ui():
        from agentcore.web.ag_ui import ag_ui_routes

        routes.extend(ag_ui_routes(chat, path="/ag-ui").routes)
    page = page_routes(chat, title=f"agentcore · {model_name}")
    return Starlette(routes=[*routes, Mount("/", page)], lifespan=chat.lifespan)


def _has_ag_ui() -> bool:
    return find_spec("ag_ui") is not None


class _Server(uvicorn.Server):
    """Says when it answers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.answers = asyncio.Event()

    async def startup(self, sockets: list[sockets.socket] | None = None) -> None:
        await super().startup(sockets)
        _spare_the_event_loop()
        self.answers.set()


def _spare_the_event_loop() -> None:
    """Keep the garbage collector from holding up the streams.

    A collection of the oldest generation walks over every object there is while nothing else runs. With a thousand
    streams at once that is some 300 ms, during which none of them moves. What was imported stays for ever, so it is
    taken out of what is walked over, and the oldest generation is looked at a hundred times less often: 99 of 100
    times the loop is then late by less than 40 ms. Cycles of ordinary turns are found in the younger generations.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 10, 1_000)


async def _tell(server: _Server, address: str, *, local: bool, open_browser: bool) -> None:
    await server.answers.wait()
    print(address, flush=True)
    if not local:
        print(
            "Whoever has this address may use it. It is not encrypted: put TLS before it where you do not trust the "
            "network.",
            file=sys.stderr,
        )
    ag_ui = ", AG-UI at /ag-ui" if _has_ag_ui() else ""
    print(f"For programs: OpenAI's API at /v1, the AI SDK's at /api/chat{ag_ui}.", file=sys.stderr)
    print("Ctrl-C ends the server.", file=sys.stderr, flush=True)
    if open_browser:
        # A thread of its own: some browsers come back only when they are closed.
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


@contextmanager
def listening(host: str, port: int) -> Generator[sockets.socket]:
    """A listening socket for the length of the block.

    Args:
        host: an address of this machine, or a name of one.
        port: 0 for any that is free.

    Raises:
        ConfigurationError: there is no such address here, or the port is taken.
    """
    try:
        family, _, _, _, place = sockets.getaddrinfo(host, port, type=sockets.SOCK_STREAM, flags=sockets.AI_PASSIVE)[0]
        listener = sockets.create_server(place[:2], family=family, backlog=2048)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another with --host and --port "
            "(--port 0 takes a free one)"
        ) from error
    with listener:
        yield listener


def until_told_to_end(work: Coroutine[Any, Any, None]) -> int:
    """Run until SIGTERM or Ctrl-C, which is how a server ends: everything is closed, and the exit status is 0."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)  # whoever listens to that: the server, or asyncio before and after it

    before = signal.signal(signal.SIGTERM, end)
    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        return 0
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def _limits(model: ChatModel) -> Limits:
    """No bound on the cost, which makes it known, where prices are: the extra `prices`, and a model that has one."""
    priced = find_spec("genai_prices") is not None and getattr(model, "name", MODEL_NAME) != MODEL_NAME
    return Limits(cost=math.inf) if priced else Limits()


def _address(host: str, socket: sockets.socket, token: str | None) -> str:
    shown, port = socket.getsockname()[:2]
    if host == "localhost":
        shown = host
    elif shown in ("0.0.0.0", "::"):  # noqa: S104 - everywhere: by this machine's name
        shown = sockets.gethostname()
    name = f"[{shown}]" if ":" in shown else shown
    return f"http://{name}:{port}/" + (f"?token={token}" if token is not None else "")
