"""What a Responses reply keeps for its service, what goes back, and to whom."""

import asyncio
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore.chat import ChatOptions, ChatRequest
from agentcore.codecs.anthropic_messages import AnthropicMessagesCodec
from agentcore.codecs.base import Codec, WireRequest
from agentcore.codecs.dialect import Dialect
from agentcore.codecs.openai_chat import OpenAIChatCodec
from agentcore.codecs.openai_responses import OpenAIResponsesCodec
from agentcore.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage, check_history
from tests.support.responses_wire import CODEC, body, call, decode, encode, played, reasoning, refusal, stream_of, text

HI = UserMessage("hi")
SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "x", "queries": ["x"]},
}
ADD = {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"a":1}'}
HELLO = {"type": "message", "content": "Hello", "role": "assistant"}


def kept(item_id: str = "rs_1", *summary: str) -> dict[str, Any]:
    parts = [{"type": "summary_text", "text": one} for one in summary]
    return {"type": "reasoning", "id": item_id, "summary": parts, "encrypted_content": "gAAA"}


def sent_back(message: AssistantMessage, **options: Any) -> list[Any]:
    """The items of a reply in the next request, without the results of its calls."""
    results = [ToolMessage(one.id, one.name, "3") for one in message.tool_calls]
    items = encode(HI, message, *results, **{"model": "gpt-5", **options})["input"][1:]
    return [item for item in items if item.get("type") != "function_call_output"]


REPLIES: list[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]] = [
    ("text", [text("Hello")], [HELLO]),
    ("call", [call()], [ADD]),
    ("reasoning-and-text", [reasoning("hm"), text("Hello")], [kept("rs_1", "hm"), HELLO]),
    ("reasoning-and-call", [reasoning(), call()], [kept(), ADD]),
    ("all-three", [reasoning(), text("Hello"), call()], [kept(), HELLO, ADD]),
    (
        "reasoning-before-each",
        [reasoning(), text("Hello"), reasoning(item_id="rs_2"), call()],
        [kept(), HELLO, kept("rs_2"), ADD],
    ),
    (
        "reasoning-between-calls",
        [call(), reasoning(), call("{}", "call_2")],
        [ADD, kept(), ADD | {"call_id": "call_2", "arguments": "{}"}],
    ),
    ("call-before-text", [reasoning(), call(), text("Hello")], [kept(), ADD, HELLO]),
    ("own-tool", [reasoning(), SEARCH, text("Hello")], [kept(), SEARCH, HELLO]),
    ("own-tool-after-text", [text("Hello"), SEARCH, call()], [HELLO, SEARCH, ADD]),
    ("own-tool-not-finished", [text("Hello"), SEARCH | {"status": "in_progress"}], [HELLO]),
    (
        "phases",
        [text("Hel", phase="commentary"), reasoning(), text("lo", phase="final_answer", item_id="msg_2")],
        [
            HELLO | {"content": "Hel", "phase": "commentary"},
            kept(),
            HELLO | {"content": "lo", "phase": "final_answer"},
        ],
    ),
    ("two-messages-in-order", [reasoning(), text("Hel"), text("lo")], [kept(), HELLO | {"content": "Hel"}, HELLO | {"content": "lo"}]),
    ("refusal", [reasoning(), text(refusal("Hello"))], [kept(), HELLO]),
    ("tool-that-we-cannot-answer", [{"type": "computer_call", "id": "c", "call_id": "x"}, text("Hello")], [HELLO]),
    ("reasoning-that-cannot-be-looked-up", [reasoning("hm", encrypted=None), text("Hello")], [HELLO]),
    ("reasoning-that-nothing-follows", [text("Hello"), reasoning()], [HELLO]),
    ("reasoning-alone", [reasoning()], []),
    ("reasoning-without-id", [reasoning(item_id=None), text("Hello")], [{k: v for k, v in kept().items() if k != "id"}, HELLO]),
    ("reasoning-with-readable-text", [reasoning(content=[{"type": "reasoning_text", "text": "x"}]), text("Hello")], [kept(), HELLO]),
]  # fmt: skip


@pytest.mark.parametrize(("items", "back"), [row[1:] for row in REPLIES], ids=[row[0] for row in REPLIES])
def test_reply_goes_back_in_its_order_and_without_ids_to_look_up(items: Any, back: Any) -> None:
    message = decode(body(*items)).message
    assert sent_back(message) == back
    assert sent_back(played(stream_of(*items)).message) == back
    stored = json.loads(json.dumps(message.replay))
    assert stored == message.replay


def test_payload_of_a_plain_reply_is_none_and_what_stands_in_front_is_kept_by_itself() -> None:
    assert decode(body(text("Hello"), call())).message.replay is None
    replay = decode(body(reasoning(), text("Hello"), call())).message.replay
    assert replay == {"format": "openai-responses", "origin": "openai", "model": "gpt-5", "items": [kept()]}


PAYLOADS: list[tuple[str, Any]] = [
    ("another-format", {"format": "anthropic", "blocks": [{"type": "thinking", "thinking": "t", "signature": "s"}]}),
    ("another-origin", {"format": "openai-responses", "origin": "azure", "items": [kept()]}),
    ("no-origin", {"format": "openai-responses", "items": [kept()]}),
    ("another-model", {"format": "openai-responses", "origin": "openai", "model": "o3", "items": [kept()]}),
    ("no-items", {"format": "openai-responses", "origin": "openai"}),
    ("odd-items", {"format": "openai-responses", "origin": "openai", "items": [None, "x", {}, {"type": 3}]}),
    ("empty", {}),
]


@pytest.mark.parametrize("payload", [row[1] for row in PAYLOADS], ids=[row[0] for row in PAYLOADS])
def test_payload_that_is_not_for_this_model_is_ignored(payload: dict[str, Any]) -> None:
    assert sent_back(AssistantMessage("Hello", (ToolCall("call_1", "add", {"a": 1}),), replay=payload)) == [HELLO, ADD]


@pytest.mark.parametrize(
    ("made_by", "asked", "goes"),
    [("openai", "openai", True), ("openai", "openai-responses", True), ("azure", "openai", False)],
)
def test_encrypted_reasoning_goes_back_to_the_service_that_made_it_alone(made_by: str, asked: str, goes: bool) -> None:
    message = decode(body(reasoning(), text("Hello")), OpenAIResponsesCodec(made_by)).message
    assert (kept() in sent_back(message, codec=OpenAIResponsesCodec(asked))) is goes


def test_edited_text_wins_over_the_kept_one() -> None:
    payload = decode(body(text("Hel"), SEARCH, text("lo"), call())).message.replay
    call_ = (ToolCall("call_1", "add", {"a": 1}),)
    assert sent_back(AssistantMessage("Hello", call_, replay=payload))[0] == HELLO | {"content": "Hel"}
    edited = sent_back(AssistantMessage("Goodbye", call_, replay=payload))
    assert edited == [SEARCH, HELLO | {"content": "Goodbye"}, ADD]
    assert sent_back(AssistantMessage(None, call_, replay=payload)) == [SEARCH, ADD]


def test_calls_that_were_removed_or_added_are_sent_as_the_message_has_them() -> None:
    payload = decode(body(call(), reasoning(), call("{}", "call_2"))).message.replay
    added = AssistantMessage(None, (ToolCall("call_1", "add", {"a": 1}), ToolCall("call_3", "add")), replay=payload)
    assert [item.get("call_id", item["type"]) for item in sent_back(added)] == ["call_1", "reasoning", "call_3"]
    assert sent_back(AssistantMessage("Hello", replay=payload)) == [kept(), HELLO]


def test_ids_of_kept_calls_are_made_legal_like_all_others() -> None:
    message = decode(body(reasoning(), text("a"), reasoning(item_id="rs_2"), call(call_id="x" * 80))).message
    items = encode(HI, message, ToolMessage("x" * 80, "add", "3"), model="gpt-5")["input"]
    assert items[-2]["call_id"] == items[-1]["call_id"] != "x" * 80


def test_readable_reasoning_of_a_tool_round_goes_back_where_it_is_wanted() -> None:
    wanted = Dialect(replay_reasoning="reasoning")
    message = AssistantMessage(None, (ToolCall("call_1", "add", {"a": 1}),), "hm")
    thought = sent_back(message, dialect=wanted)[0]
    assert thought.pop("id").startswith("rs_")
    assert thought == {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    assert sent_back(AssistantMessage("Hello", reasoning="hm"), dialect=wanted) == [HELLO]
    assert sent_back(message) == [ADD]


def test_reply_that_was_cut_while_it_reasoned_leaves_nothing_to_send() -> None:
    cut = decode(body(reasoning("hm"), status="incomplete", incomplete_details={"reason": "max_output_tokens"}))
    assert (cut.finish_reason, cut.text) == ("length", "")
    assert [item["role"] for item in encode(HI, cut.message, HI, model="gpt-5")["input"]] == ["user", "user"]


# A conversation that moves

ANTHROPIC = json.dumps(
    {
        "id": "msg",
        "model": "claude",
        "stop_reason": "tool_use",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "text", "text": "Look."},
            {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}},
        ],
    }
).encode()
CHAT = json.dumps(
    {
        "id": "r",
        "model": "m",
        "choices": [
            {
                "finish_reason": "tool_calls",
                "message": {
                    "content": "Look.",
                    "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}],
                    "tool_calls": [{"id": "call_1", "function": {"name": "add", "arguments": '{"a":1}'}}],
                },
            }
        ],
    }
).encode()
SERVICES: dict[str, tuple[Codec, bytes, str]] = {
    "chat": (OpenAIChatCodec("openrouter", Dialect(replay_details=True)), CHAT, "x"),
    "anthropic": (AnthropicMessagesCodec(), ANTHROPIC, "c2ln"),
    "responses": (CODEC, body(reasoning("hm"), text("Look."), call()), "gAAA"),
}


def wire_of(service: str, history: list[Message]) -> WireRequest:
    codec = SERVICES[service][0]
    return asyncio.run(codec.encode(ChatRequest(history, (), ChatOptions(model="gpt-5")), stream=False))


def answer(service: str, history: list[Message]) -> None:
    codec, data, _ = SERVICES[service]
    message = codec.decode(data, wire_of(service, history)).message
    history += [message, *(ToolMessage(one.id, one.name, "3") for one in message.tool_calls)]


@pytest.mark.parametrize("path", list(itertools.product(SERVICES, repeat=3)), ids="-".join)
def test_conversation_moves_between_services_at_any_message(path: tuple[str, ...]) -> None:
    history: list[Message] = [HI]
    for service in path:
        answer(service, history)
        assert check_history(history) == []
    for service, (_, _, secret) in SERVICES.items():
        sent = wire_of(service, history).body.decode()
        assert sent.count("Look.") == 3
        assert sent.count(f'"{secret}"') == path.count(service)
        for other, (_, _, foreign) in SERVICES.items():
            assert other == service or f'"{foreign}"' not in sent


@given(st.lists(st.sampled_from(list(SERVICES)), min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_moving_on_leaves_the_bytes_before_as_they_were(path: list[str]) -> None:
    history: list[Message] = [HI]
    before = wire_of("responses", history).body
    for service in path:
        answer(service, history)
        after = wire_of("responses", history).body
        assert after.startswith(before[: before.index(b'],"store":false')])
        before = after
