"""Replay: what Anthropic signed or made itself goes back as it came, whatever lies between."""

import asyncio
import json
from typing import Any

import pytest
from msgspec import json as store
from msgspec.structs import replace

from agentcore.chat import ChatOptions, ChatRequest
from agentcore.codecs.anthropic_messages import AnthropicMessagesCodec
from agentcore.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from tests.support.anthropic_wire import call, decode, message, play, stream_of, text, thinking

Q, NEXT = UserMessage("q"), UserMessage("next")
REDACTED = {"type": "redacted_thinking", "data": "AAA="}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "fjord"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {"type": "web_search_result", "title": "Fjord", "url": "https://example.org", "encrypted_content": "A="}
    ],
}
CITED = text(
    "an inlet.", citations=[{"type": "web_search_result_location", "url": "https://example.org", "cited_text": "i"}]
)
RESULT = ToolMessage("toolu_1", "add", "3")


def sent_blocks(*messages: Message, at: int = 1, model: str = "claude-test") -> list[dict[str, Any]]:
    request = ChatRequest(messages, options=ChatOptions(model=model))
    body = json.loads(asyncio.run(AnthropicMessagesCodec().encode(request, stream=False)).body)
    return body["messages"][at]["content"]


def stored(reply: AssistantMessage) -> AssistantMessage:
    """The message as it comes back from a store."""
    return store.decode(store.encode(reply), type=AssistantMessage)


def replied(*blocks: Any, stop: str = "end_turn", **more: Any) -> AssistantMessage:
    body = message(*blocks, stop=stop, **more)
    decoder, _ = play(stream_of(body))
    assert decoder.response() == decode(body)
    return stored(decode(body).message)


MIXTURES = [
    pytest.param([thinking(), text("4")], id="thinking, text"),
    pytest.param([thinking(), text("Look."), call()], id="thinking, text, call"),
    pytest.param([thinking(), REDACTED, call()], id="thinking, redacted, call"),
    pytest.param([thinking(""), call()], id="thinking that is not shown"),
    pytest.param([thinking("a", "x"), text("One."), thinking("b", "y"), text("Two."), call()], id="interleaved"),
    pytest.param([SEARCH, FOUND, text("A fjord is "), CITED], id="server tool with citations"),
    pytest.param([text("I look."), SEARCH, FOUND, text("Done.")], id="text around a server tool"),
    pytest.param([CITED], id="citations alone"),
    pytest.param([text("a"), {"type": "novelty", "glow": [1, {"x": None}]}, text("b")], id="unknown block"),
    pytest.param([call(), text("after")], id="text after a call, nothing to keep"),
    pytest.param([thinking(), call(), text("after"), call("mul", {"b": 2}, "toolu_2")], id="text between calls"),
    pytest.param(
        [SEARCH, call(caller={"type": "code_execution_20250825", "tool_id": "srvtoolu_1"})], id="call made by code"
    ),
]


@pytest.mark.parametrize("blocks", MIXTURES)
def test_reply_goes_back_as_it_came(blocks: list[dict[str, Any]]) -> None:
    reply = replied(*blocks)
    results = [ToolMessage(one.id, one.name, "3") for one in reply.tool_calls]
    back = sent_blocks(Q, reply, *results, NEXT)
    if reply.replay is None:  # nothing to keep: text first, then calls
        blocks = sorted(blocks, key=lambda block: block["type"])
    assert back == blocks
    assert json.dumps(back) == json.dumps(blocks)  # key order too


def test_plain_reply_keeps_nothing() -> None:
    assert replied(text("Hi."), call(caller={"type": "direct"})).replay is None


def test_only_what_is_not_neutral_is_kept_when_it_comes_first() -> None:
    assert replied(thinking(), text("4"), call()).replay == {
        "format": "anthropic",
        "model": "claude-test",
        "blocks": [thinking()],
    }


def test_unsigned_thinking_is_readable_and_never_sent() -> None:
    reply = replied({"type": "thinking", "thinking": "hm", "signature": ""}, text("4"))
    assert (reply.reasoning, reply.replay) == ("hm", None)
    forged = replace(reply, replay={"format": "anthropic", "blocks": [{"type": "thinking", "thinking": "hm"}]})
    assert sent_blocks(Q, forged, NEXT) == [text("4")]


@pytest.mark.parametrize(
    "payload",
    [
        {"format": "gemini", "blocks": [thinking()]},
        {"format": "anthropic"},
        {"format": "anthropic", "blocks": None},
        {"format": "anthropic", "blocks": ["text", 3, None]},
        {"blocks": [thinking()]},
        {},
    ],
    ids=["foreign", "without blocks", "null blocks", "odd blocks", "without format", "empty"],
)
def test_payload_that_is_not_ours_is_ignored(payload: dict[str, Any]) -> None:
    assert sent_blocks(Q, AssistantMessage("4", replay=payload), NEXT) == [text("4")]


def test_edited_text_wins_over_the_kept_one() -> None:
    reply = replied(thinking("a", "x"), text("One."), thinking("b", "y"), text("Two."), call())
    edited = replace(reply, content="Instead.")
    assert sent_blocks(Q, edited, RESULT) == [thinking("a", "x"), thinking("b", "y"), text("Instead."), call()]


def test_removed_text_stays_removed() -> None:
    reply = replace(replied(text("I look."), SEARCH, FOUND, text("Done.")), content=None)
    assert sent_blocks(Q, reply, NEXT) == [SEARCH, FOUND]


def test_calls_that_the_kept_blocks_do_not_know_come_after_them() -> None:
    reply = replied(thinking("a", "x"), text("One."), thinking("b", "y"), call())
    other = replace(reply, tool_calls=(ToolCall("toolu_9", "mul", {"b": 2}),))
    assert sent_blocks(Q, other, ToolMessage("toolu_9", "mul", "4")) == [
        thinking("a", "x"),
        text("One."),
        thinking("b", "y"),
        call("mul", {"b": 2}, "toolu_9"),
    ]


def test_message_never_ends_with_thinking() -> None:
    cut = replied(thinking(), stop="max_tokens")
    assert cut.finish_reason == "length"
    body = sent_blocks(Q, cut, UserMessage("go on"), at=0)
    assert [block["text"] for block in body] == ["q", "go on"]


def test_paused_reply_is_sent_back_whole_to_be_continued() -> None:
    assert sent_blocks(Q, replied(text("I look."), SEARCH, stop="pause_turn")) == [text("I look."), SEARCH]


def test_paused_reply_and_its_continuation_are_one_message() -> None:
    paused, rest = replied(SEARCH, stop="pause_turn"), replied(FOUND, text("Done."))
    assert sent_blocks(Q, paused, rest, NEXT) == [SEARCH, FOUND, text("Done.")]


def test_server_tool_call_of_a_reply_that_was_not_continued_is_left_out() -> None:
    assert sent_blocks(Q, replied(text("I look."), SEARCH, stop="pause_turn"), NEXT) == [text("I look.")]


def test_paused_reply_of_a_server_tool_call_alone_disappears_when_it_was_not_continued() -> None:
    assert sent_blocks(Q, replied(SEARCH, stop="pause_turn"), NEXT, at=0) == [text("q"), text("next")]


def test_thinking_before_a_server_tool_call_that_was_left_out_goes_with_it() -> None:
    assert sent_blocks(Q, replied(text("I look."), thinking(), SEARCH, stop="pause_turn"), NEXT) == [text("I look.")]


def test_white_space_at_the_end_of_a_kept_text_goes_where_it_ends_the_request() -> None:
    cited = CITED | {"text": "Done. \n"}
    reply = replied(SEARCH, FOUND, cited)
    assert sent_blocks(Q, reply)[-1] == cited | {"text": "Done."}
    assert sent_blocks(Q, reply, NEXT)[-1] == cited


@pytest.mark.parametrize(
    ("made_by", "asked", "kept"),
    [
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5", True),
        ("claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4.5", True),
        ("claude-opus-5", "claude-opus-5-5", False),
        ("claude-sonnet-4-6", "claude-opus-4-6", False),
        ("glm-4", "deepseek-chat", True),
    ],
)
def test_thinking_goes_back_to_the_family_that_made_it_alone(made_by: str, asked: str, kept: bool) -> None:
    reply = replied(thinking(), text("4"), **{"model": made_by})
    assert sent_blocks(Q, reply, NEXT, model=asked) == ([thinking()] if kept else []) + [text("4")]


def test_conversation_that_comes_from_another_service_goes_on_here() -> None:
    history = [
        Q,
        AssistantMessage(
            "Let me add.",
            (ToolCall("call_A1b2", "add", {"a": 1}), ToolCall("call.3", "add", {}, "{'a': 1,}")),
            reasoning="plain thoughts",
            replay={"format": "openai-responses", "items": [{"type": "reasoning", "encrypted_content": "AAAA"}]},
        ),
        ToolMessage("call_A1b2", "add", "2"),
        ToolMessage("call.3", "add", "The arguments were not valid JSON.", is_error=True),
    ]
    blocks = sent_blocks(*history)
    assert [block["type"] for block in blocks] == ["text", "tool_use", "tool_use"]
    assert blocks[2]["input"] == {}
    assert "AAAA" not in json.dumps(blocks)
    reply = replied(thinking(), call("add", {"a": 5}, "toolu_5"), stop="tool_use")
    longer = [*history, reply, ToolMessage("toolu_5", "add", "6")]
    assert sent_blocks(*longer) == blocks
    assert sent_blocks(*longer, at=3) == [thinking(), call("add", {"a": 5}, "toolu_5")]
    assert stored(reply) == reply
