"""The conversation in the terminal: streamed, kept, stoppable."""

import asyncio
import signal
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from datetime import UTC, datetime
from secrets import token_hex

from agentcore.chat import ChatModel, ChatOptions
from agentcore.cli.sample_tools import CHAT_TOOLS
from agentcore.client import ChatClient, Conversation
from agentcore.errors import AgentCoreError
from agentcore.events import TextDelta, ToolFinished, ToolStarted
from agentcore.exchange import InvokeResult
from agentcore.filters.base import Filter
from agentcore.memory.base import ChatMemory
from agentcore.messages import ToolCall, text_of
from agentcore.pause import Decision, PendingCall
from agentcore.stream import TurnStream

_SHOWN = 200


async def chat(
    model: ChatModel,
    *,
    memory: ChatMemory,
    conversation_id: str,
    system: str | None = None,
    said: Sequence[str] | None = None,
    with_tools: bool = True,
    options: ChatOptions | None = None,
    filters: Sequence[Filter] = (),
) -> int:
    """Talk until the input ends, or say what is in `said` and end; returns the exit status.

    Ctrl-C stops the running answer and keeps the conversation; Ctrl-D ends.
    """
    tools = CHAT_TOOLS if with_tools else ()
    client = ChatClient(model, tools=tools, memory=memory, system=system, options=options, filters=filters)
    conversation = client.conversation(conversation_id)
    if said is not None:
        ok = True
        for text in said:
            print(f"> {text}", flush=True)
            ok = await _turn(conversation, text, ask=False) and ok
        return 0 if ok else 1
    print(f"[conversation {conversation_id}; go on with it later by --conversation {conversation_id}]", file=sys.stderr)
    print("Say something; Ctrl-C stops an answer, Ctrl-D ends.", file=sys.stderr)
    while (text := _read()) is not None:
        if text.strip():
            await _turn(conversation, text, ask=sys.stdin.isatty())  # the next line of a pipe is no answer
    return 0


def new_conversation_id() -> str:
    """An id that tells when the conversation began, and that no other one has."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{token_hex(2)}"


def _read(prompt: str = "> ") -> str | None:
    """The next line, or None at the end of the input and at Ctrl-C.

    It holds up the event loop, on which nothing runs between turns: a thread that waits in `input` cannot be
    interrupted, and a program that was told to end would wait for one more line.
    """
    with _own_ctrl_c():
        try:
            return input(prompt)
        except (EOFError, KeyboardInterrupt):
            print()
            return None


@contextmanager
def _own_ctrl_c() -> Generator[None]:
    """Ctrl-C raises where the program is: asyncio's own handler would only ask the waiting task to stop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def _turn(conversation: Conversation, text: str, *, ask: bool) -> bool:
    try:
        result = await _streamed(conversation.stream(text))
        while result.pause is not None:
            decisions = [_decided(one, ask=ask) for one in result.pause.calls]
            result = await _streamed(conversation.resume_stream(decisions))
    except AgentCoreError as error:
        print(f"\n[{error}]", file=sys.stderr, flush=True)
        return False
    if result.status != "completed":
        print(f"[{result.status}{f': {result.limit}' if result.limit else ''}]", file=sys.stderr, flush=True)
    return True


async def _streamed(stream: AbstractAsyncContextManager[TurnStream]) -> InvokeResult:
    async with stream as turn:
        restore = _stop_with_ctrl_c(turn)
        try:
            await _show(turn)
        finally:
            restore()
    return turn.result


def _decided(pending: PendingCall, *, ask: bool) -> Decision:
    """The user's decision on a call, asked for while the turn is paused: nothing runs, and nothing holds its place."""
    print(_dim(f"[{_in_words(pending.call)} waits for you. {pending.reason}]"), flush=True)
    if not ask:
        return pending.reject("nobody is there to agree to it")
    answer = (_read("Run it? [y/N, or why not] ") or "").strip()
    if answer.lower() in ("y", "yes"):
        return pending.approve()
    return pending.reject("" if answer.lower() in ("n", "no") else answer)


async def _show(turn: TurnStream) -> None:
    async for event in turn:
        match event:
            case TextDelta():
                print(event.text, end="", flush=True)
            case ToolStarted():
                print(_dim(f"[{_in_words(event.call)}]"), flush=True)
            case ToolFinished():
                shown = text_of(event.message.content)
                print(_dim(f"[→ {shown[:_SHOWN]}{'…' if len(shown) > _SHOWN else ''}]"), flush=True)
            case _:
                pass
    print(flush=True)


def _in_words(call: ToolCall) -> str:
    return f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.args.items())})"


def _dim(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m" if sys.stdout.isatty() else text


def _stop_with_ctrl_c(turn: TurnStream) -> "Restore":
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError, RuntimeError, ValueError):  # no signal handlers here: Ctrl-C ends the program
        loop.add_signal_handler(signal.SIGINT, turn.cancel)
        return Restore(loop)
    return Restore(None)


class Restore:
    """Gives Ctrl-C back to Python."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop

    def __call__(self) -> None:
        if self._loop is not None:
            self._loop.remove_signal_handler(signal.SIGINT)
