"""`agentcore`: talk to a model in the terminal or on a page, or watch the demo."""

import argparse
import asyncio
import io
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

from agentcore.chat import ChatOptions
from agentcore.cli.answer_after_tools import AnswerAfterTools
from agentcore.cli.chat import chat, new_conversation_id
from agentcore.cli.local_model import INSTALL, LocalModelError, local_model_available, serve_local_model
from agentcore.cli.local_server import MODEL_NAME
from agentcore.cli.store import VARIABLE, default_url, opened_store
from agentcore.errors import AgentCoreError, ConfigurationError
from agentcore.filters.base import Filter
from agentcore.providers.anthropic import AnthropicChatModel
from agentcore.providers.http_model import HTTPChatModel
from agentcore.providers.openai import OpenAIChatModel
from agentcore.providers.presets import chat_model

DEFAULT_OPENAI = "openai:gpt-5-mini"
LOCAL_MAX_TOKENS = 256  # the tiny model would else repeat itself for minutes
_MEMORY = (
    "where conversations are kept: sqlite:///path, postgresql://…, redis://… or memory: "
    f"(a file in your data directory, or ${VARIABLE})"
)
TOKEN_VARIABLE = "AGENTCORE_TOKEN"  # noqa: S105 - its name
DEFAULT_ANTHROPIC = "anthropic:claude-haiku-4-5"


class NoModelError(Exception):
    """Nobody said which model to talk to."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    args = _parser().parse_args(argv)
    try:
        if args.command == "version":
            from agentcore import __version__

            print(__version__)
            return 0
        if args.command == "demo":
            from agentcore.cli.demo import demo

            return asyncio.run(demo())
        if args.command == "history":
            return asyncio.run(_history(args))
        if args.command == "serve":
            from agentcore.cli.serve import until_told_to_end

            return until_told_to_end(_serve(args))
        return asyncio.run(_chat(args))
    except KeyboardInterrupt:
        return 130
    except (AgentCoreError, LocalModelError, NoModelError) as error:
        print(f"agentcore: {error}", file=sys.stderr)
        return 2


def run() -> None:
    """The console script."""
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a model writes what a terminal's encoding may not have
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has left (`agentcore chat … | head`). Python flushes once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    sys.exit(status)


def _tokens(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: 0 to 65535")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 3600")
    return seconds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agentcore", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    talk = commands.add_parser("chat", help="talk to a model; it keeps the conversation and has a few tools")
    _add_setup(talk)
    talk.add_argument(
        "--conversation", metavar="ID", help="go on with this conversation; a new one is begun if it is not said"
    )
    talk.add_argument("--once", metavar="TEXT", action="append", help="say this and end; may be given several times")
    page = commands.add_parser("serve", help="the same on a page in the browser (extra: serve)")
    _add_setup(page)
    page.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (127.0.0.1: this machine alone); any other wants a token, and prints one",
    )
    page.add_argument("--port", type=_port, default=8000, help="port to listen on (8000); 0 takes a free one")
    page.add_argument(
        "--token", help=f"what a browser has to bring to be let in; better as ${TOKEN_VARIABLE}, which nobody else sees"
    )
    page.add_argument(
        "--grace", type=_seconds, default=10.0, help="seconds that a running answer gets when the server is ended (10)"
    )
    page.add_argument("--open", action="store_true", help="open the page in the browser")
    kept = commands.add_parser("history", help="the conversations that are kept")
    kept.add_argument("--memory", metavar="URL", help=_MEMORY)
    actions = kept.add_subparsers(dest="action", required=True)
    listing = actions.add_parser("list", help="one line a conversation, newest first")
    listing.add_argument("--limit", type=_tokens, default=50, help="lines at most (50)")
    listing.add_argument("--prefix", default="", help="only ids that begin with this")
    for name, help_ in (
        ("show", "a conversation to read"),
        ("export", "a conversation as JSON lines"),
        ("delete", "forget a conversation"),
    ):
        actions.add_parser(name, help=help_).add_argument("conversation", metavar="ID")
    commands.add_parser("demo", help="a conversation with the local model that checks itself")
    commands.add_parser("version", help="print the version")
    return parser


def _add_setup(command: argparse.ArgumentParser) -> None:
    """What a conversation needs, wherever it is held."""
    command.add_argument("--model", help="service:model, for example openai:gpt-5-mini or ollama:llama3.2")
    command.add_argument("--base-url", help="address of a compatible endpoint")
    command.add_argument("--api-key-env", metavar="NAME", help="environment variable that holds the key")
    command.add_argument("--local", action="store_true", help="a small model on this machine")
    command.add_argument(
        "--format", choices=["openai", "anthropic"], default="openai", help="wire format to the local model"
    )
    command.add_argument("--system", help="instructions to the model")
    command.add_argument("--max-tokens", type=_tokens, help="longest answer (local model: 256)")
    command.add_argument("--no-tools", action="store_true", help="leave the sample tools out")
    command.add_argument("--memory", metavar="URL", help=_MEMORY)


async def _history(args: argparse.Namespace) -> int:
    from agentcore.cli import history

    url = args.memory or default_url()
    if args.action == "list":
        return await history.list_conversations(url, limit=args.limit, prefix=args.prefix)
    action = {"show": history.show, "export": history.export, "delete": history.delete}[args.action]
    return await action(url, args.conversation)


async def _chat(args: argparse.Namespace) -> int:
    async with AsyncExitStack() as stack:
        model = await _model(args, stack)
        memory = await stack.enter_async_context(opened_store(args.memory or default_url()))
        return await chat(
            model,
            memory=memory,
            conversation_id=args.conversation or new_conversation_id(),
            system=args.system,
            said=args.once,
            with_tools=not args.no_tools,
            options=_options(args, model),
            filters=_filters(model),
        )


async def _serve(args: argparse.Namespace) -> None:
    from agentcore.cli.serve import listening, serve

    with listening(args.host, args.port) as socket:  # before a model is started for nothing
        async with AsyncExitStack() as stack:
            model = await _model(args, stack)
            memory = await stack.enter_async_context(opened_store(args.memory or default_url()))
            await serve(
                model,
                memory=memory,
                socket=socket,
                host=args.host,
                token=args.token or os.environ.get(TOKEN_VARIABLE),
                grace=args.grace,
                system=args.system,
                with_tools=not args.no_tools,
                options=_options(args, model),
                filters=_filters(model),
                open_browser=args.open,
            )


def _options(args: argparse.Namespace, model: HTTPChatModel) -> ChatOptions:
    return ChatOptions(max_tokens=args.max_tokens or (LOCAL_MAX_TOKENS if model.name == MODEL_NAME else None))


def _filters(model: HTTPChatModel) -> Sequence[Filter]:
    return [AnswerAfterTools()] if model.name == MODEL_NAME else []


async def _model(args: argparse.Namespace, stack: AsyncExitStack) -> HTTPChatModel:
    """The model that the arguments and the environment name, closed with the stack.

    Raises:
        NoModelError: none is named, and none is on this machine.
    """
    model = await _chosen(args, stack)
    if model is None:
        raise NoModelError(
            "no model. Set OPENAI_API_KEY or ANTHROPIC_API_KEY, or say --model service:model.\n"
            f"For a small model on this machine: {INSTALL}"
        )
    return await stack.enter_async_context(model)


async def _chosen(args: argparse.Namespace, stack: AsyncExitStack) -> HTTPChatModel | None:
    key = os.environ.get(args.api_key_env) if args.api_key_env else None
    if args.api_key_env and not key:
        raise ConfigurationError(f"the environment variable {args.api_key_env} is not set")
    if key and not (args.model or args.base_url):
        raise ConfigurationError("--api-key-env says which key, not for which service; say --model or --base-url too")
    if args.model:
        return chat_model(args.model, base_url=args.base_url, api_key=key)
    if args.base_url:
        return OpenAIChatModel("default", base_url=args.base_url, api_key=key)
    if not args.local:
        if os.environ.get("OPENAI_API_KEY"):
            return chat_model(DEFAULT_OPENAI)
        if os.environ.get("ANTHROPIC_API_KEY"):
            return chat_model(DEFAULT_ANTHROPIC)
    if not args.local and not local_model_available():
        return None
    server = await stack.enter_async_context(serve_local_model())
    print(f"[{server.model} on this machine: a tiny model, it talks nonsense at times]", file=sys.stderr, flush=True)
    if args.format == "anthropic":
        return AnthropicChatModel(server.model, base_url=server.url)
    return OpenAIChatModel(server.model, base_url=f"{server.url}/v1")
