"""Chat Completions requests: what is sent for every message, part and setting, and that it is stable."""

import asyncio
import json
import logging
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from agentcore.chat import ChatOptions, ChatRequest, ToolDefinition
from agentcore.codecs.dialect import Dialect
from agentcore.codecs.openai_chat import OpenAIChatCodec
from agentcore.errors import InvalidInputError, UnsupportedContentError
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
from tests.strategies import histories, whole_histories
from tests.support.openai_wire import encode, request

HI = UserMessage("hi")
ADD = ToolDefinition("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})


def messages(*history: Message, dialect: Dialect | None = None, **options: Any) -> Any:
    return request(*history, dialect=dialect or Dialect(), **options)["messages"]


def round_of(call_id: str, *, args: dict[str, Any] | None = None, name: str = "add") -> list[Message]:
    return [AssistantMessage(None, (ToolCall(call_id, name, args or {}),)), ToolMessage(call_id, name, "3")]


# Messages


def test_texts_are_sent_as_they_are() -> None:
    sent = messages(SystemMessage("Be kind."), HI, AssistantMessage("Hello!"), UserMessage('晴 "quoted"\n'))
    assert sent == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": '晴 "quoted"\n'},
    ]


def test_what_is_ours_alone_does_not_reach_the_wire() -> None:
    answer = AssistantMessage("x", (), "thoughts", "length", {"format": "anthropic", "blocks": [{"signature": "s"}]})
    result = ToolMessage("c1", "add", "boom", is_error=True, writes={"k": 1})
    sent = messages(HI, answer, HI, round_of("c1")[0], result)
    assert sent[1] == {"role": "assistant", "content": "x"}
    assert sent[4] == {"role": "tool", "tool_call_id": "c1", "content": "boom"}


@pytest.mark.parametrize(
    "answer",
    [
        AssistantMessage("x", reasoning=""),
        AssistantMessage("x", replay={}),
        AssistantMessage("x", finish_reason="length"),
    ],
    ids=["reasoning", "replay", "finish-reason"],
)
def test_empty_side_fields_do_not_reach_the_wire_either(answer: AssistantMessage) -> None:
    assert messages(HI, answer)[1] == {"role": "assistant", "content": "x"}


def test_tool_round_is_sent_with_its_arguments_as_text() -> None:
    args = {"text": 'Grüße "北京" \\ \n', "n": None}
    sent = messages(HI, *round_of("c1", args=args))
    assert sent[1]["content"] is None
    assert sent[1]["tool_calls"][0] | {"function": {}} == {"id": "c1", "type": "function", "function": {}}
    assert json.loads(sent[1]["tool_calls"][0]["function"]["arguments"]) == args
    assert sent[2] == {"role": "tool", "tool_call_id": "c1", "content": "3"}


def test_arguments_that_were_broken_are_replayed_as_an_empty_object() -> None:
    broken = AssistantMessage(None, (ToolCall("c1", "add", {}, '{"a":'),))
    assert messages(HI, broken)[1]["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize(("style", "content"), [("null", None), ("empty", ""), ("absent", "gone")])
def test_call_without_text_is_written_as_the_endpoint_wants(style: Any, content: Any) -> None:
    for said in (None, ""):
        message = AssistantMessage(said, (ToolCall("c1", "add"),))
        sent = messages(HI, message, dialect=Dialect(empty_content=style))[1]
        assert sent.get("content", "gone") == content


def test_empty_replies_are_left_out() -> None:
    sent = messages(HI, AssistantMessage(None), AssistantMessage(""), AssistantMessage(None, reasoning="hm"), HI)
    assert [one["role"] for one in sent] == ["user", "user"]


def test_results_follow_their_calls_in_call_order_and_strays_are_left_out() -> None:
    batch = AssistantMessage(None, (ToolCall("c1", "f"), ToolCall("c2", "g"), ToolCall("c3", "h")))
    stray, second, first = ToolMessage("c0", "f", "stray"), ToolMessage("c2", "g", "two"), ToolMessage("c1", "f", "one")
    sent = messages(SystemMessage("s"), stray, HI, batch, second, first, HI)
    assert [one.get("tool_call_id") for one in sent] == [None, None, None, "c1", "c2", "c3", None]
    assert [one["content"] for one in sent[3:5]] == ["one", "two"]
    assert "interrupted" in sent[5]["content"]


@pytest.mark.parametrize("history", [[], [AssistantMessage("")], [ToolMessage("c1", "f", "x")]], ids=str)
@pytest.mark.parametrize("form", [None, {"type": "object", "properties": {}}])
def test_nothing_to_send_is_said(history: list[Message], form: Any) -> None:
    with pytest.raises(InvalidInputError, match="nothing to send"):
        encode(*history, response_format=form, dialect=Dialect(response_format="json_object"))


def test_role_of_instructions_is_the_endpoints() -> None:
    assert messages(SystemMessage("s"), HI, dialect=Dialect(system_role="developer"))[0]["role"] == "developer"


# Parts


def test_user_parts_are_sent() -> None:
    content = (
        TextPart("look"),
        ImagePart(url="https://x/y.png", detail="low"),
        ImagePart(data=b"\x89PNG", media_type="image/png"),
        AudioPart(data=b"RIFF", media_type="audio/wav"),
        AudioPart(data=b"ID3", media_type="audio/mpeg"),
        FilePart(data=b"%PDF", media_type="application/pdf", name="a.pdf"),
    )
    assert messages(UserMessage(content))[0]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
    ]


@pytest.mark.parametrize(
    ("parts", "dialect", "content"),
    [
        ((), Dialect(), ""),
        ((TextPart("a"),), Dialect(), "a"),
        ((TextPart("a"), TextPart("b")), Dialect(), [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
        ((TextPart("a"), TextPart("b")), Dialect(images=False), "a\nb"),
    ],
    ids=["none", "one", "two", "two-for-a-text-endpoint"],
)
def test_parts_of_text_alone_are_text_where_they_can_be(parts: Any, dialect: Dialect, content: Any) -> None:
    assert messages(UserMessage(parts), dialect=dialect)[0]["content"] == content


@pytest.mark.parametrize(
    ("part", "dialect", "what"),
    [
        (ImagePart(url="https://x/y.png"), Dialect(images=False), r"image \(by URL\)"),
        (AudioPart(data=b"x", media_type="audio/wav"), Dialect(audio=False), r"audio \(audio/wav\)"),
        (AudioPart(data=b"x", media_type="audio/ogg"), Dialect(), r"audio \(audio/ogg\)"),
        (AudioPart(url="https://x/y.wav"), Dialect(), r"audio \(by URL\)"),
        (FilePart(data=b"x", media_type="application/pdf"), Dialect(files=False), r"file \(application/pdf\)"),
        (FilePart(url="https://x/y.pdf"), Dialect(), r"file \(by URL\)"),
    ],
)
def test_part_that_cannot_be_carried_is_named(part: Any, dialect: Dialect, what: str) -> None:
    with pytest.raises(UnsupportedContentError, match=rf"openai cannot carry {what} \(message 1\)"):
        messages(HI, UserMessage((part,)), dialect=dialect)


@pytest.mark.parametrize(
    ("parts", "content"), [(False, "a\nb"), (True, [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])]
)
def test_tool_content_is_text_unless_the_endpoint_takes_parts(parts: bool, content: Any) -> None:
    result = ToolMessage("c1", "add", (TextPart("a"), TextPart("b")))
    sent = messages(HI, round_of("c1")[0], result, dialect=Dialect(tool_content_parts=parts))
    assert sent[2]["content"] == content


def test_image_in_a_tool_result_is_named() -> None:
    result = ToolMessage("c1", "add", (ImagePart(data=b"x", media_type="image/png"),))
    with pytest.raises(UnsupportedContentError, match=r"image \(image/png\) in a tool result \(message 2\)"):
        messages(HI, round_of("c1")[0], result)


def test_check_lists_every_part_that_would_be_refused() -> None:
    picture = ImagePart(url="https://x/y.png")
    history = [
        HI,
        UserMessage((TextPart("t"), picture, picture)),
        round_of("c")[0],
        ToolMessage("c", "add", (picture,)),
    ]
    assert OpenAIChatCodec().check(history) == [
        "openai cannot carry image (by URL) in a tool result (message 3); convert it or use a provider that can"
    ]
    listed = OpenAIChatCodec("deepseek", Dialect(images=False)).check(history)
    assert [line.partition(";")[0] for line in listed] == [
        "deepseek cannot carry image (by URL) (message 1)",
        "deepseek cannot carry image (by URL) (message 1)",
        "deepseek cannot carry image (by URL) in a tool result (message 3)",
    ]


def test_half_a_character_is_replaced_not_a_crash() -> None:
    sent = messages(UserMessage("cut \ud83d"), *round_of("c1", args={"a\ud83d": "\ude00"}))
    assert sent[0]["content"] == "cut \ufffd"
    assert json.loads(sent[1]["tool_calls"][0]["function"]["arguments"]) == {"a\ufffd": "\ufffd"}


# Ids and names


def test_ids_the_endpoint_refuses_are_replaced_and_results_follow() -> None:
    long, legal = "fc_" + "1" * 50, "call_1"
    sent = messages(HI, *round_of(long), *round_of(legal), *round_of("ä b"))
    ids = [one["tool_calls"][0]["id"] for one in sent if "tool_calls" in one]
    assert ids == [one["tool_call_id"] for one in sent if "tool_call_id" in one]
    assert ids[1] == legal
    assert len(set(ids)) == 3
    assert all(len(one) <= 40 and one.isascii() for one in ids)


def test_mistral_gets_nine_letters_or_digits() -> None:
    dialect = Dialect(call_id=r"[a-zA-Z0-9]{9}", call_id_length=9)
    sent = messages(HI, *round_of("call_abc"), *round_of("abcdefghi"), dialect=dialect)
    first, second = (one["tool_calls"][0]["id"] for one in sent if "tool_calls" in one)
    assert len(first) == 9
    assert first.isalnum()
    assert second == "abcdefghi"


def test_id_used_again_by_a_later_batch_is_made_different() -> None:
    sent = messages(HI, *round_of("call_0"), HI, *round_of("call_0"))
    ids = [one["tool_calls"][0]["id"] for one in sent if "tool_calls" in one]
    assert ids[0] == "call_0"
    assert ids[1] != "call_0"
    assert [one["tool_call_id"] for one in sent if "tool_call_id" in one] == ids


def test_names_are_made_legal_and_map_back() -> None:
    dotted, plain = ToolDefinition("a.b"), ToolDefinition("a_b")
    wire = encode(HI, *round_of("c1", name="a.b"), tools=[dotted, plain], tool_choice="a.b")
    sent = json.loads(wire.body)
    first, second = (one["function"]["name"] for one in sent["tools"])
    assert second == "a_b"
    assert first not in ("a.b", "a_b")
    assert wire.tool_names == {first: "a.b"}
    assert sent["messages"][1]["tool_calls"][0]["function"]["name"] == first
    assert sent["tool_choice"] == {"type": "function", "function": {"name": first}}


# Reasoning


def test_reasoning_of_a_tool_round_goes_back_where_it_is_wanted() -> None:
    thought = AssistantMessage(None, (ToolCall("c1", "add"),), "thoughts")
    dialect = Dialect(replay_reasoning="reasoning_content")
    assert messages(HI, thought, dialect=dialect)[1]["reasoning_content"] == "thoughts"
    assert "reasoning_content" not in messages(HI, AssistantMessage("x", (), "thoughts"), dialect=dialect)[1]
    assert "thoughts" not in json.dumps(messages(HI, thought))


def test_own_details_go_back_and_foreign_ones_do_not() -> None:
    details = [{"type": "reasoning.text", "text": "r", "signature": "s"}]
    dialect = Dialect(replay_details=True)
    own = AssistantMessage("x", (), "r", None, {"format": "openai-chat", "reasoning_details": details})
    foreign = AssistantMessage("x", (), "r", None, {"format": "anthropic", "reasoning_details": details})
    assert messages(HI, own, dialect=dialect)[1]["reasoning_details"] == details
    assert messages(HI, foreign, dialect=dialect)[1] == {"role": "assistant", "content": "x"}
    assert messages(HI, own)[1] == {"role": "assistant", "content": "x"}


# Tools and settings


def test_tools_are_described() -> None:
    bare = ToolDefinition("now")
    assert request(HI, tools=[ADD, bare])["tools"] == [
        {"type": "function", "function": {"name": "add", "description": "Add.", "parameters": ADD.parameters}},
        {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
    ]


def test_settings_of_tools_are_not_sent_without_tools() -> None:
    assert set(request(HI, tool_choice="auto", parallel_tool_calls=False)) == {"model", "messages"}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        *((word, word) for word in ("auto", "none", "required")),
        ("add", {"type": "function", "function": {"name": "add"}}),
    ],
    ids=str,
)
def test_tool_choice_is_sent(choice: str, sent: Any) -> None:
    assert request(HI, tools=[ADD], tool_choice=choice)["tool_choice"] == sent


def test_parallel_flag_is_sent_only_where_it_is_understood() -> None:
    assert request(HI, tools=[ADD], parallel_tool_calls=False)["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in request(
        HI, tools=[ADD], parallel_tool_calls=False, dialect=Dialect(parallel_flag=False)
    )


NESTED = {"type": "object", "properties": {"day": {"type": "string"}}}
STRICT: list[tuple[str, dict[str, Any], bool]] = [
    ("all-required", {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, True),
    ("one-optional", {"type": "object", "properties": {"a": {"type": "string"}}, "required": []}, False),
    ("nested-optional", {"type": "object", "properties": {"when": NESTED}, "required": ["when"]}, False),
    ("free-mapping", {"type": "object", "properties": {"m": {"type": "object", "additionalProperties": {"type": "string"}}}, "required": ["m"]}, False),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "kept"), [s[1:] for s in STRICT], ids=[s[0] for s in STRICT])
def test_strict_is_claimed_only_for_schemas_that_keep_its_rules(schema: dict[str, Any], kept: bool) -> None:
    function = request(HI, tools=[ToolDefinition("f", "", schema, strict=True)])["tools"][0]["function"]
    assert function.get("strict", False) is kept
    assert function["parameters"] == (schema | {"additionalProperties": False} if kept else schema)
    form = request(HI, response_format=schema)["response_format"]["json_schema"]
    assert form.get("strict", False) is kept
    for tool, dialect in (
        (ToolDefinition("f", "", schema), Dialect()),
        (ToolDefinition("f", "", schema, strict=True), Dialect(strict_tools=False)),
    ):
        assert "strict" not in request(HI, tools=[tool], dialect=dialect)["tools"][0]["function"]


def test_settings_are_sent() -> None:
    sent = request(
        HI, max_tokens=9, temperature=0.0, top_p=0.5, stop=("a",), seed=0, metadata={"k": "v"}, reasoning_effort="low"
    )
    del sent["messages"]
    assert sent == {
        "model": "test-model", "max_tokens": 9, "temperature": 0.0, "top_p": 0.5, "stop": ["a"], "seed": 0,
        "metadata": {"k": "v"}, "reasoning_effort": "low",
    }  # fmt: skip


def test_model_is_left_out_where_there_is_none() -> None:
    assert "model" not in request(HI, model=None)


@pytest.mark.parametrize(
    ("model", "field"),
    [
        ("o1", "max_completion_tokens"), ("o4-mini", "max_completion_tokens"), ("gpt-5", "max_completion_tokens"),
        ("gpt-5-mini-2025-08-07", "max_completion_tokens"), ("openai/o3", "max_completion_tokens"),
        ("gpt-5-chat-latest", "max_tokens"), ("gpt-4o", "max_tokens"), ("o200k", "max_tokens"), ("llama3", "max_tokens"),
    ],
)  # fmt: skip
def test_limit_is_named_as_the_model_wants(model: str, field: str) -> None:
    sent = request(HI, model=model, max_tokens=5)
    assert {key for key in sent if key.startswith("max_")} == {field}
    fixed = request(HI, model=model, max_tokens=5, dialect=Dialect(max_tokens_field="max_tokens"))
    assert fixed["max_tokens"] == 5


def test_sampling_settings_are_left_out_for_reasoning_models_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "agentcore.codecs"):
        sent = request(HI, model="o4-mini", temperature=0.2, top_p=0.9, stop=("x",))
    assert set(sent) == {"model", "messages"}
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        f"o4-mini takes no {name}" for name in ("temperature", "top_p", "stop")
    ]


def test_sampling_settings_are_sent_where_the_model_does_not_reason() -> None:
    assert request(HI, model="gpt-5.2", temperature=0.2, reasoning_effort="none")["temperature"] == 0.2
    assert request(HI, model="o4-mini", extra={"temperature": 0.2})["temperature"] == 0.2


@pytest.mark.parametrize(
    ("style", "sent"),
    [
        ("reasoning_effort", {"reasoning_effort": "xhigh"}),
        ("reasoning", {"reasoning": {"effort": "xhigh"}}),
        ("none", {}),
    ],
)
def test_effort_goes_where_the_endpoint_wants_it(style: Any, sent: dict[str, Any]) -> None:
    body = request(HI, reasoning_effort="max", dialect=Dialect(effort=style))
    assert {key: value for key, value in body.items() if "reason" in key} == sent


# Structured output


class City(Struct):
    name: str


SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "title": "City"}
SYSTEM = SystemMessage("Be kind.")


def test_schema_is_sent_where_the_endpoint_has_them() -> None:
    for wanted in (SCHEMA, City):
        sent = request(HI, response_format=wanted)
        form = {"name": "City", "schema": SCHEMA | {"additionalProperties": False}, "strict": True}
        assert sent["response_format"] == {"type": "json_schema", "json_schema": form}
        assert len(sent["messages"]) == 1


def test_recursive_schema_is_strict_in_its_definitions_too() -> None:
    node = {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
        "required": ["children"],
    }
    form = request(HI, response_format=node | {"$defs": {"Node": node}})["response_format"]["json_schema"]
    assert form["strict"] is True
    assert form["schema"]["additionalProperties"] is form["schema"]["$defs"]["Node"]["additionalProperties"] is False


@pytest.mark.parametrize(("support", "form"), [("json_object", {"type": "json_object"}), ("none", None)])
@pytest.mark.parametrize("wanted", [SCHEMA, City], ids=["schema", "type"])
def test_schema_is_told_where_the_endpoint_has_none(support: Any, form: Any, wanted: Any) -> None:
    sent = request(HI, response_format=wanted, dialect=Dialect(response_format=support))
    assert sent.get("response_format") == form
    assert sent["messages"][0]["role"] == "system"
    assert '"required":["name"]' in sent["messages"][0]["content"]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_instruction_joins_the_system_message_that_is_there(role: Any) -> None:
    dialect = Dialect(response_format="none", system_role=role)
    sent = messages(SYSTEM, HI, response_format="json", dialect=dialect)
    assert [one["role"] for one in sent] == [role, "user"]
    assert sent[0]["content"] == "Be kind.\n\nAnswer with one JSON value, and nothing else."
    assert SYSTEM.content == "Be kind."


@pytest.mark.parametrize("support", ["json_schema", "json_object"])
def test_any_json_is_asked_for_natively(support: Any) -> None:
    sent = request(HI, response_format="json", dialect=Dialect(response_format=support))
    assert sent["response_format"] == {"type": "json_object"}
    assert len(sent["messages"]) == 1


# Streaming and extra


def test_stream_options_are_sent_only_with_a_stream() -> None:
    assert set(request(HI)) == {"model", "messages"}
    streamed = request(HI, stream=True)
    assert (streamed["stream"], streamed["stream_options"]) == (True, {"include_usage": True})
    assert "stream_options" not in request(HI, stream=True, dialect=Dialect(stream_usage=False))


def test_extra_comes_last_and_stays_untouched() -> None:
    extra = {"top_k": 5, "stream_options": {"include_usage": False}, "chat_template_kwargs": {"enable_thinking": False}}
    before = json.dumps(extra)
    sent = request(HI, tools=[ADD], stream=True, extra=extra)
    assert {key: sent[key] for key in extra} == extra
    assert sent["tools"]
    assert json.dumps(extra) == before


# Stability


@given(histories, st.booleans())
@settings(max_examples=100, deadline=None)
def test_same_history_gives_the_same_bytes(history: list[Message], stream: bool) -> None:
    try:
        first = encode(*history, tools=[ADD], stream=stream)
    except InvalidInputError:
        return
    assert encode(*history, tools=[ADD], stream=stream) == first


@given(whole_histories(max_turns=5))
@settings(max_examples=100, deadline=None)
def test_more_history_leaves_the_bytes_before_it_as_they_were(history: list[Message]) -> None:
    borders = [n for n in range(1, len(history)) if isinstance(history[n], UserMessage)]
    whole = encode(*history).body
    for border in borders:
        if not messages_of(history[:border]):
            continue
        shorter = encode(*history[:border]).body
        assert whole.startswith(shorter.removesuffix(b"]}"))


def messages_of(history: list[Message]) -> list[Message]:
    return [one for one in history if not isinstance(one, AssistantMessage) or one.content or one.tool_calls]


def test_encoding_takes_time_in_proportion() -> None:
    def seconds(turns: int) -> float:
        history = [
            one for n in range(turns) for one in (HI, *round_of(f"c{n}", args={"n": n}), AssistantMessage("done"))
        ]
        made = ChatRequest(history, (ADD,), ChatOptions(model="m"))
        best = []
        for _ in range(5):
            start = time.perf_counter()
            asyncio.run(OpenAIChatCodec().encode(made, stream=False))
            best.append(time.perf_counter() - start)
        return min(best)

    assert seconds(4000) < 40 * seconds(400)  # ten times the history; a square would take a hundred times


def test_part_that_cannot_be_carried_is_named_by_the_callers_count() -> None:
    history = [
        ToolMessage("lost", "f", "1"),
        UserMessage("a"),
        UserMessage((AudioPart(data=b"x", media_type="audio/x"),)),
    ]
    with pytest.raises(UnsupportedContentError, match=r"\(message 2\)"):
        messages(*history)


@pytest.mark.parametrize("media_type", ["Audio/WAV", "audio/wav; rate=16000"])
def test_type_of_audio_is_read_whatever_its_case_and_parameters(media_type: str) -> None:
    [message] = messages(UserMessage((AudioPart(data=b"x", media_type=media_type),)))
    assert message["content"] == [{"type": "input_audio", "input_audio": {"data": "eA==", "format": "wav"}}]
