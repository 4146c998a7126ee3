"""Responses requests: what is sent for every message, part and setting, and that it is stable."""

import asyncio
import logging
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from agentcore.chat import ChatOptions, ChatRequest, PromptCache, ToolDefinition
from agentcore.codecs.dialect import Dialect
from agentcore.codecs.openai_responses import OpenAIResponsesCodec
from agentcore.errors import InvalidInputError, UnsupportedContentError
from agentcore.messages import (
    AssistantMessage,
    AudioPart,
    FilePart,
    ImagePart,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from tests.strategies import histories, whole_histories
from tests.support.responses_wire import CODEC, encode

HI = UserMessage("hi")
ADD = ToolDefinition("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
PNG = ImagePart(data=b"\x89PNG", media_type="image/png")
PDF = FilePart(data=b"%PDF", media_type="application/pdf", name="a.pdf")


def sent(*history: Message, **options: Any) -> list[dict[str, Any]]:
    return encode(*history, **options)["input"]


def round_of(call_id: str, *, args: dict[str, Any] | None = None, name: str = "add") -> list[Message]:
    return [AssistantMessage(None, (ToolCall(call_id, name, args or {}),)), ToolMessage(call_id, name, "3")]


# Messages


def test_texts_are_sent_where_they_stand() -> None:
    history = (
        SystemMessage("Be kind."),
        HI,
        AssistantMessage("Hello!"),
        SystemMessage("Be brief."),
        UserMessage("晴\n"),
    )
    assert sent(*history) == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hi"},
        {"type": "message", "content": "Hello!", "role": "assistant"},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "晴\n"},
    ]


def test_nothing_is_stored_and_no_earlier_response_is_named() -> None:
    body = encode(HI, AssistantMessage("Hello!"), HI)
    assert body["store"] is False
    assert not {"previous_response_id", "conversation", "instructions", "background"} & body.keys()


def test_tool_round_is_items_of_its_own() -> None:
    args = {"city": "北京", "n": None}
    history = [HI, AssistantMessage("Let me see.", (ToolCall("c1", "add", args),)), ToolMessage("c1", "add", "3")]
    assert sent(*history)[1:] == [
        {"type": "message", "content": "Let me see.", "role": "assistant"},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"city":"北京","n":null}'},
        {"type": "function_call_output", "call_id": "c1", "output": "3"},
    ]


def test_what_is_ours_alone_does_not_reach_the_wire() -> None:
    answer = AssistantMessage("x", (), "thoughts", "length", {"format": "anthropic", "blocks": [{"signature": "s"}]})
    result = ToolMessage("c1", "add", "boom", is_error=True, writes={"k": 1})
    items = sent(HI, answer, HI, round_of("c1")[0], result)
    assert items[1] == {"type": "message", "content": "x", "role": "assistant"}
    assert items[4] == {"type": "function_call_output", "call_id": "c1", "output": "boom"}


def test_arguments_that_were_broken_are_replayed_as_an_empty_object() -> None:
    broken = AssistantMessage(None, (ToolCall("c1", "add", {}, '{"a":'),))
    assert sent(HI, broken)[1]["arguments"] == "{}"


def test_empty_replies_are_left_out() -> None:
    history = (HI, AssistantMessage(None), AssistantMessage(""), AssistantMessage(None, reasoning="hm"), HI)
    assert [one["role"] for one in sent(*history)] == ["user", "user"]


def test_results_follow_their_calls_in_call_order_and_strays_are_left_out() -> None:
    batch = AssistantMessage(None, (ToolCall("c1", "f"), ToolCall("c2", "g"), ToolCall("c3", "h")))
    stray, second, first = ToolMessage("c0", "f", "stray"), ToolMessage("c2", "g", "two"), ToolMessage("c1", "f", "one")
    items = sent(SystemMessage("s"), stray, HI, batch, second, first, HI)
    assert [one.get("call_id") for one in items] == [None, None, "c1", "c2", "c3", "c1", "c2", "c3", None]
    assert [one["output"] for one in items[5:7]] == ["one", "two"]
    assert "interrupted" in items[7]["output"]


@pytest.mark.parametrize("history", [[], [AssistantMessage("")], [ToolMessage("c1", "f", "x")]], ids=str)
def test_nothing_to_send_is_said(history: list[Message]) -> None:
    with pytest.raises(InvalidInputError, match="nothing to send"):
        encode(*history)


def test_role_of_instructions_is_the_endpoints() -> None:
    assert sent(SystemMessage("s"), HI, dialect=Dialect(system_role="developer"))[0]["role"] == "developer"


# Parts


@pytest.mark.parametrize(
    ("part", "wire"),
    [
        (ImagePart(url="https://x/a.png"), {"type": "input_image", "image_url": "https://x/a.png", "detail": "auto"}),
        (
            ImagePart(data=b"\x89PNG", media_type="image/png", detail="low"),
            {"type": "input_image", "image_url": "data:image/png;base64,iVBORw==", "detail": "low"},
        ),
        (
            PDF,
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
        ),
        (
            FilePart(data=b"x", media_type="text/plain"),
            {"type": "input_file", "filename": "file", "file_data": "data:text/plain;base64,eA=="},
        ),
        (FilePart(url="https://x/a.pdf"), {"type": "input_file", "file_url": "https://x/a.pdf"}),
    ],
    ids=["image-url", "image-data", "pdf", "nameless-file", "file-url"],
)
def test_parts_are_sent_by_the_user_and_by_tools(part: Part, wire: dict[str, Any]) -> None:
    content = (TextPart("look"), part)
    call, result = AssistantMessage(None, (ToolCall("c1", "add"),)), ToolMessage("c1", "add", content)
    items = sent(UserMessage(content), call, result)
    assert items[0] == {"role": "user", "content": [{"type": "input_text", "text": "look"}, wire]}
    assert items[2]["output"] == [{"type": "input_text", "text": "look"}, wire]


@pytest.mark.parametrize(
    ("parts", "dialect", "content"),
    [
        ((), Dialect(), ""),
        ((TextPart("a"),), Dialect(), "a"),
        ((TextPart("a"), TextPart("b")), Dialect(images=False), "a\nb"),
        (
            (TextPart("a"), TextPart("b")),
            Dialect(),
            [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
        ),
    ],
    ids=["none", "one", "text-only-endpoint", "several"],
)
def test_parts_of_text_alone_are_text_where_they_can_be(parts: Any, dialect: Dialect, content: Any) -> None:
    assert sent(UserMessage(parts), dialect=dialect)[0]["content"] == content


UNSUPPORTED: list[tuple[Part, Dialect, str]] = [
    (AudioPart(data=b"RIFF", media_type="audio/wav"), Dialect(), r"audio \(audio/wav\)"),
    (AudioPart(url="https://x/a.wav"), Dialect(), r"audio \(by URL\)"),
    (PNG, Dialect(images=False), r"image \(image/png\)"),
    (PDF, Dialect(files=False), r"file \(application/pdf\)"),
]


@pytest.mark.parametrize(("part", "dialect", "what"), UNSUPPORTED, ids=["audio", "audio-url", "image", "file"])
def test_part_that_cannot_be_carried_is_named(part: Part, dialect: Dialect, what: str) -> None:
    with pytest.raises(UnsupportedContentError, match=rf"openai cannot carry {what} \(message 1, part 1\)"):
        encode(HI, UserMessage([TextPart("x"), part]), dialect=dialect)


def test_message_is_named_by_the_callers_own_count() -> None:
    batch = [AssistantMessage(None, (ToolCall("c1", "f"), ToolCall("c2", "f"))), HI]
    result = ToolMessage("c1", "f", [AudioPart(data=b"x", media_type="audio/wav")])
    with pytest.raises(UnsupportedContentError, match=r"\(message 2, part 0\)"):
        encode(*batch, result)


def test_check_lists_every_part_that_would_be_refused() -> None:
    audio = AudioPart(data=b"x", media_type="audio/wav")
    history = [UserMessage([PNG, audio]), *round_of("c1"), ToolMessage("c2", "f", [audio]), UserMessage([PDF])]
    lost = OpenAIResponsesCodec().check(history)
    assert [line.partition(";")[0] for line in lost] == [
        "openai cannot carry audio (audio/wav) (message 0, part 1)",
        "openai cannot carry audio (audio/wav) (message 3, part 0)",
    ]


def test_half_a_character_is_replaced_not_a_crash() -> None:
    items = sent(UserMessage("half \ud83d"), *round_of("c1", args={"x": "\ude00"}))
    assert items[0]["content"] == "half \ufffd"
    assert items[1]["arguments"] == '{"x":"\ufffd"}'


# Ids and names


def test_ids_the_endpoint_refuses_are_replaced_and_results_follow() -> None:
    items = sent(HI, *round_of("ä b"), *round_of("x" * 80), *round_of("c1"), *round_of("c1"))
    ids = [one["call_id"] for one in items[1:]]
    assert ids[::2] == ids[1::2]
    assert len(set(ids)) == 4
    assert ids[4] == "c1"
    assert all(len(one) <= 40 and one.isascii() for one in ids)


def test_names_are_made_legal_and_map_back() -> None:
    request = ChatRequest([HI, *round_of("c1", name="math.add")], (ToolDefinition("math.add"), ADD), ChatOptions())
    wire = asyncio.run(CODEC.encode(request, stream=False))
    assert wire.tool_names == {"math_add": "math.add"}
    body = encode(*request.messages, tools=request.tools, tool_choice="math.add")
    assert [one["name"] for one in (body["input"][1], *body["tools"], body["tool_choice"])] == [
        "math_add",
        "math_add",
        "add",
        "math_add",
    ]


# Tools


def test_tools_are_flat_and_say_that_they_are_not_strict() -> None:
    assert encode(HI, tools=[ADD, ToolDefinition("bare")])["tools"] == [
        {"type": "function", "name": "add", "description": "Add.", "parameters": ADD.parameters, "strict": False},
        {"type": "function", "name": "bare", "parameters": {"type": "object", "properties": {}}, "strict": False},
    ]


@pytest.mark.parametrize(
    ("schema", "dialect", "strict"),
    [
        (ADD.parameters | {"additionalProperties": False}, Dialect(), True),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, Dialect(), False),
        (ADD.parameters | {"additionalProperties": False}, Dialect(strict_tools=False), False),
    ],
    ids=["closed", "optional-property", "endpoint-without"],
)
def test_strict_is_claimed_only_where_the_schema_keeps_its_rules(schema: Any, dialect: Dialect, strict: bool) -> None:
    tool = encode(HI, tools=[ToolDefinition("add", "", schema, strict=True)], dialect=dialect)["tools"][0]
    assert tool["strict"] is strict


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ("add", {"type": "function", "name": "add"}),
    ],
)
def test_tool_choice_is_sent(choice: str, wire: Any) -> None:
    assert encode(HI, tools=[ADD], tool_choice=choice)["tool_choice"] == wire


def test_parallel_flag_is_sent_only_where_it_is_understood() -> None:
    assert encode(HI, tools=[ADD], parallel_tool_calls=False)["parallel_tool_calls"] is False
    muted = encode(HI, tools=[ADD], parallel_tool_calls=False, dialect=Dialect(parallel_flag=False))
    assert "parallel_tool_calls" not in muted


def test_settings_of_tools_are_not_sent_without_tools() -> None:
    assert (
        not {"tools", "tool_choice", "parallel_tool_calls"}
        & encode(HI, tool_choice="required", parallel_tool_calls=True).keys()
    )


# Settings


def test_settings_are_sent() -> None:
    body = encode(HI, max_tokens=5, temperature=0.5, top_p=0.9, metadata={"user": "u1"})
    assert {key: body[key] for key in body.keys() - {"input"}} == {
        "model": "gpt-4.1",
        "store": False,
        "max_output_tokens": 5,
        "temperature": 0.5,
        "top_p": 0.9,
        "metadata": {"user": "u1"},
    }


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"model": "gpt-5", "temperature": 0.5}, "temperature"),
        ({"model": "o4-mini", "top_p": 0.5}, "top_p"),
        ({"stop": ("a",)}, "stop"),
        ({"seed": 3}, "seed"),
        ({"reasoning_effort": "low", "dialect": Dialect(effort="none")}, "reasoning_effort"),
    ],
    ids=["temperature", "top_p", "stop", "seed", "effort"],
)
def test_setting_that_would_be_refused_is_left_out_and_the_log_says_so(
    options: Any, missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "agentcore.codecs"):
        body = encode(HI, **options)
    assert missing not in body
    assert [missing in record.getMessage() for record in caplog.records] == [True]


def test_sampling_settings_are_sent_where_the_model_does_not_reason() -> None:
    assert encode(HI, model="gpt-5.2", temperature=0.5, reasoning_effort="none")["temperature"] == 0.5


@pytest.mark.parametrize(
    ("summary", "options", "wire"),
    [
        (None, {}, None),
        (None, {"reasoning_effort": "low"}, {"effort": "low"}),
        (None, {"reasoning_effort": "max"}, {"effort": "xhigh"}),
        ("auto", {}, {"summary": "auto"}),
        ("detailed", {"reasoning_effort": "high"}, {"effort": "high", "summary": "detailed"}),
    ],
    ids=["nothing", "effort", "most", "summary", "both"],
)
def test_reasoning_is_asked_for(summary: Any, options: Any, wire: Any) -> None:
    codec = OpenAIResponsesCodec(reasoning_summary=summary)
    assert encode(HI, model="gpt-5", codec=codec, **options).get("reasoning") == wire


@pytest.mark.parametrize(
    ("options", "included"),
    [
        ({"model": "gpt-5"}, True),
        ({"model": "openai/o3"}, True),
        ({"model": "my-deployment", "reasoning_effort": "low"}, True),
        ({"model": "gpt-4.1"}, False),
        ({"model": "gpt-5-chat-latest"}, False),
        ({"model": "my-deployment", "reasoning_effort": "none"}, False),
    ],
    ids=lambda one: "-".join(one.values()) if isinstance(one, dict) else str(one),
)
def test_encrypted_reasoning_is_asked_of_models_that_reason(options: Any, included: bool) -> None:
    assert encode(HI, **options).get("include") == (["reasoning.encrypted_content"] if included else None)


class City(Struct):
    """A city."""

    name: str


def test_schema_of_the_answer_is_sent_under_strict_rules() -> None:
    form = encode(HI, response_format=City)["text"]["format"]
    assert (form["type"], form["name"], form["strict"]) == ("json_schema", "City", True)
    assert form["schema"]["additionalProperties"] is False


def test_loose_schema_of_the_answer_is_sent_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "name": "answer", "schema": schema}
    assert encode(HI, response_format=schema)["text"] == {"format": form}


@pytest.mark.parametrize(
    ("support", "wanted", "form", "told"),
    [
        ("json_schema", "json", {"type": "json_object"}, None),
        ("json_object", "json", {"type": "json_object"}, None),
        ("json_object", City, {"type": "json_object"}, "fits this JSON Schema"),
        ("none", City, None, "fits this JSON Schema"),
        ("none", "json", None, "one JSON value, and nothing else."),
    ],
    ids=["json", "json-object", "schema-told", "schema-told-alone", "json-told"],
)
def test_answer_in_json_is_asked_for_as_the_endpoint_can(support: Any, wanted: Any, form: Any, told: Any) -> None:
    body = encode(HI, response_format=wanted, dialect=Dialect(response_format=support))
    assert body.get("text") == (None if form is None else {"format": form})
    assert (told is None) == ("instructions" not in body)
    assert told is None or told in body["instructions"]


def test_prompt_cache_is_asked_for_in_openais_words() -> None:
    body = encode(HI, prompt_cache=PromptCache(key="k", ttl="24h"))
    assert (body["prompt_cache_key"], body["prompt_cache_retention"]) == ("k", "24h")


def test_stream_is_asked_for() -> None:
    assert encode(HI, stream=True)["stream"] is True
    assert "stream" not in encode(HI)


def test_extra_comes_last_and_stays_untouched() -> None:
    extra = {"store": True, "include": ["web_search_call.action.sources"], "tools": [{"type": "web_search"}]}
    body = encode(HI, model="gpt-5", tools=[ADD], extra=extra)
    assert {key: body[key] for key in extra} == extra


def test_model_is_left_out_where_there_is_none() -> None:
    assert "model" not in encode(HI, model=None)


# Stability and speed


def wire_bytes(history: list[Message], *, stream: bool = False) -> bytes | None:
    request = ChatRequest(history, (ADD,), ChatOptions(model="gpt-5"))
    try:
        return asyncio.run(CODEC.encode(request, stream=stream)).body
    except (InvalidInputError, UnsupportedContentError):
        return None


@given(histories, st.booleans())
@settings(max_examples=100, deadline=None)
def test_same_history_gives_the_same_bytes(history: list[Message], stream: bool) -> None:
    assert wire_bytes(history, stream=stream) == wire_bytes(list(history), stream=stream)


@given(whole_histories(max_turns=3), whole_histories(max_turns=1))
@settings(max_examples=100, deadline=None)
def test_more_history_leaves_the_bytes_before_it_as_they_were(history: list[Message], more: list[Message]) -> None:
    before, after = wire_bytes(history), wire_bytes([*history, *more])
    if before is not None and after is not None:
        shared = before[: before.index(b'],"store":false')]
        assert after.startswith(shared)


def test_encoding_takes_time_in_proportion() -> None:
    def seconds(turns: int) -> float:
        request = ChatRequest([HI, *round_of("c1"), AssistantMessage("3")] * turns)
        asyncio.run(CODEC.encode(request, stream=False))
        start = time.perf_counter()
        asyncio.run(CODEC.encode(request, stream=False))
        return time.perf_counter() - start

    small = min(seconds(200) for _ in range(5))
    large = min(seconds(2000) for _ in range(3))
    assert large < small * 40
