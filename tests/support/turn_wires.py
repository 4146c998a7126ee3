"""The four wire formats behind one face, for tests that hold the same conversation over each of them.

python -m tests.support.turn_wires replay FORMAT FILE    # an exported turn again, in a process without a network
"""

import asyncio
import json
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import httpx

from agentcore import (
    AnthropicChatModel,
    ChatClient,
    GeminiChatModel,
    OpenAIChatModel,
    OpenAIResponsesModel,
    ToolResult,
    WindowedChatMemory,
    tool,
)
from agentcore.chat import ChatModel
from agentcore.testing import TurnDocument, TurnTape, replay_turn
from tests.support import anthropic_wire, gemini_wire, openai_wire, responses_wire
from tests.support.loopback import Reply, reply, sse

Call = tuple[str, str, dict[str, Any]]
"""Id, name and arguments."""


class Wire(NamedTuple):
    """A wire format.

    `model` is made with an address and a client; `whole` and `streamed` are the bytes of a reply of a text and calls.
    """

    model: Callable[[str, httpx.AsyncClient], ChatModel]
    whole: Callable[[str, Sequence[Call]], bytes]
    streamed: Callable[[str, Sequence[Call]], bytes]

    def reply(self, text: str = "", calls: Sequence[Call] = (), *, streamed: bool = False) -> Reply:
        """What a server sends."""
        return sse(self.streamed(text, calls)) if streamed else reply(self.whole(text, calls))


def _openai_whole(text: str, calls: Sequence[Call]) -> bytes:
    made = [openai_wire.call(json.dumps(args), call_id, name) for call_id, name, args in calls]
    message = {"content": text or None, **({"tool_calls": made} if made else {})}
    return openai_wire.body(message, "tool_calls" if calls else "stop")


def _openai_streamed(text: str, calls: Sequence[Call]) -> bytes:
    parts = [
        {"tool_calls": [openai_wire.part(index, id=call_id, name=name, arguments=json.dumps(args))]}
        for index, (call_id, name, args) in enumerate(calls)
    ]
    pieces = [{"content": text[at : at + 3]} for at in range(0, len(text), 3)]
    return openai_wire.stream(*pieces, *parts, finish="tool_calls" if calls else "stop")


def _anthropic_whole(text: str, calls: Sequence[Call]) -> bytes:
    said = [anthropic_wire.text(text)] if text else []
    made = [anthropic_wire.call(name, args, call_id) for call_id, name, args in calls]
    return anthropic_wire.message(anthropic_wire.thinking(), *said, *made, stop="tool_use" if calls else "end_turn")


def _responses_items(text: str, calls: Sequence[Call]) -> list[dict[str, Any]]:
    made = [responses_wire.call(json.dumps(args), call_id, name, f"fc_{call_id}") for call_id, name, args in calls]
    return [responses_wire.reasoning("hm"), *([responses_wire.text(text)] if text else []), *made]


def _gemini_parts(text: str, calls: Sequence[Call]) -> list[dict[str, Any]]:
    # Gemini gives no call ids: ours are made of the turn's.
    made = [gemini_wire.call(args, name, "c2ln") for _, name, args in calls]
    return [*([gemini_wire.text(text)] if text else []), *made]


WIRES: Mapping[str, Wire] = {
    "chat completions": Wire(
        lambda url, client: OpenAIChatModel("m", api_key="sk-very-secret", base_url=f"{url}/v1", http_client=client),
        _openai_whole,
        _openai_streamed,
    ),
    "anthropic": Wire(
        lambda url, client: AnthropicChatModel("m", api_key="sk-very-secret", base_url=url, http_client=client),
        _anthropic_whole,
        lambda text, calls: anthropic_wire.stream_of(_anthropic_whole(text, calls)),
    ),
    "responses": Wire(
        lambda url, client: OpenAIResponsesModel(
            "m", api_key="sk-very-secret", base_url=f"{url}/v1", http_client=client
        ),
        lambda text, calls: responses_wire.body(*_responses_items(text, calls)),
        lambda text, calls: responses_wire.stream_of(*_responses_items(text, calls)),
    ),
    "gemini": Wire(
        lambda url, client: GeminiChatModel("m", api_key="sk-very-secret", base_url=url, http_client=client),
        lambda text, calls: gemini_wire.body(*_gemini_parts(text, calls)),
        lambda text, calls: gemini_wire.stream_of(*_gemini_parts(text, calls)),
    ),
}


class Shop:
    """Tools that note what they did, so that a test can see that a replay did nothing."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def tools(self) -> list[Any]:
        """The tools."""

        @tool
        async def look(city: str) -> ToolResult:
            """Look out of the window."""
            self.done.append(f"look {city}")
            return ToolResult({"sky": "grau", "city": city}, writes={"seen": city})

        @tool
        async def fail(why: str) -> str:
            """Fail."""
            self.done.append(f"fail {why}")
            raise ValueError(why)

        @tool(approval=lambda call, _: f"{call.args['amount']} leave the till")
        async def pay(amount: int) -> str:
            """Pay."""
            self.done.append(f"pay {amount}")
            return f"paid {amount}"

        return [look, fail, pay]


def client_of(wire: Wire, url: str, tape: TurnTape, shop: Shop) -> ChatClient:
    """The client, as a program would make it for both a recording and a replay."""
    return ChatClient(
        wire.model(url, tape.http_client),
        tools=tape.tools(shop.tools()),
        memory=WindowedChatMemory(tape.memory, max_turns=2),
        filters=[tape.filter],
        system="Be brief.",
    )


async def _replay(name: str, file: str) -> None:
    document = await TurnDocument.load(file)
    shop = Shop()
    turn = await replay_turn(document, lambda tape: client_of(WIRES[name], "http://nowhere.invalid", tape, shop))
    assert not shop.done
    assert turn.messages == tuple(one.message for one in document.messages)
    print(turn.result.text)


def _no_network(*_: object) -> None:
    raise AssertionError("a replay went to the network")


if __name__ == "__main__":
    _, _, name, file = sys.argv
    socket.socket.connect = _no_network  # type: ignore[method-assign,assignment]
    socket.getaddrinfo = _no_network  # type: ignore[assignment]
    asyncio.run(_replay(name, file))
