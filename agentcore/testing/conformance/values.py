"""Whatever a message holds reads back equal, and is sent to a model as the same bytes again."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from agentcore.messages import (
    AssistantMessage,
    AudioPart,
    FilePart,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentcore.testing.conformance.setting import Conformance, needs


def _call(args: dict[str, Any]) -> Message:
    return AssistantMessage(None, (ToolCall("c1", "f", args),))


VALUES: dict[str, Callable[[], Message]] = {
    "empty text": lambda: UserMessage(""),
    "no text at all": lambda: AssistantMessage(None),
    "null character": lambda: UserMessage("a\u0000b"),
    "text that looks like an escape": lambda: UserMessage("\\u0000 \\ud83d \\\\u0000 \\uDE00"),
    "lone surrogates": lambda: UserMessage("\ud83d a \ude00 b \ude00\ud83d"),
    "surrogates that are no pair": lambda: UserMessage("\ud83d\ude00"),
    "characters of four bytes": lambda: UserMessage("🌤 👩‍👩‍👧 \U0010ffff"),
    "whitespace and control characters": lambda: UserMessage(" \t\r\n\u2028\u0085\ufeff\x7f\x1b "),
    "five megabytes": lambda: UserMessage("x" * 5_000_000),
    "parts of all kinds": lambda: UserMessage(
        (
            TextPart("t"),
            ImagePart(data=b"\x00\xff", media_type="image/png", detail="low"),
            ImagePart(url="https://example.com/i.png"),
            AudioPart(url="https://example.com/a.wav"),
            AudioPart(data=b"RIFF", media_type="audio/wav"),
            FilePart(data=b"%PDF", media_type="application/pdf", name="ü.pdf"),
            FilePart(url="https://example.com/f.pdf"),
        )
    ),
    "order of keys": lambda: _call({"b": 1, "a": 2, "": 3, "c": {"z": 1, "y": 2}}),
    "keys of all kinds": lambda: _call(
        {"": 1, "a b": 2, "\u0000": 3, "half \ud83d": 4, "🌤": {"é": 5, "$": 6, "a.b": 7}}
    ),
    "floats that are whole, and ints": lambda: _call({"a": [1.0, 1, 0.1, -0.0, 1e300, 5e-324]}),
    "large numbers": lambda: _call({"a": [2**53 + 1, -(2**63), 2**64 - 1, 10**40, -(10**40)]}),
    "values of all kinds": lambda: _call({"a": [None, True, False, "", [], {}, [[{"b": "\u0000\ud83d"}]]]}),
    "arguments that were no object": lambda: AssistantMessage(None, (ToolCall("c1", "f", {}, "{oops \u0000"),)),
    "replay, reasoning and finish reason": lambda: AssistantMessage(
        "t", (), "thoughts", "length", {"format": "anthropic", "blocks": [{"signature": "s==", "type": "thinking"}]}
    ),
    "result with parts": lambda: ToolMessage("c1", "f", (TextPart("1"), ImagePart(url="https://example.com/i.png"))),
    "result that is an error, with writes": lambda: ToolMessage("c1", "f", "no", is_error=True, writes={"k": [1, 2.0]}),
    "system message": lambda: SystemMessage("now"),
}


class Values(Conformance):
    """Tests of what a store makes of the contents of messages."""

    @needs()
    @pytest.mark.parametrize("value", VALUES.values(), ids=list(VALUES))
    async def test_message_reads_back_equal(self, store: Any, value: Callable[[], Message]) -> None:
        await store.add("u1", [value(), value()])
        for message in await store.get("u1"):
            assert message == value()
            assert repr(message) == repr(value())  # 1.0 == 1, and dicts are equal in whatever order
            assert _bytes(message) == _bytes(value())

    @needs("MessageLog")
    @pytest.mark.parametrize("value", VALUES.values(), ids=list(VALUES))
    async def test_append_of_a_message_is_known_again(self, store: Any, value: Callable[[], Message]) -> None:
        version = await store.append("u1", [value()], turn_id="t1", position=0)
        assert await store.append("u1", [value()], turn_id="t1", position=0) == version
        [record] = await store.read("u1")
        assert repr(record.message) == repr(value())


def _bytes(message: Message) -> bytes | None:
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:  # lone surrogates
        return None
