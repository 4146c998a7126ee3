"""Neutral to Gemini: what is sent, that the package's own types take it, and that earlier bytes stay."""

import asyncio
import json
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from agentcore.chat import ChatOptions, ChatRequest, ToolDefinition
from agentcore.codecs.gemini import GeminiCodec
from agentcore.codecs.gemini_replay import SKIP_VALIDATION
from agentcore.errors import ConfigurationError, InvalidInputError, UnsupportedContentError
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
from tests.support.gemini_wire import CODEC, body, call, decode, encode

HI = UserMessage("hi")
ADD = ToolDefinition(
    "math.add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
)
BARE = ToolDefinition("bare")


class City(msgspec.Struct):
    name: str


def round_(*ids: str, content: Any = "3", is_error: bool = False, signature: Any = None) -> list[Message]:
    calls = tuple(ToolCall(one, "add", {"a": 1}) for one in ids)
    return [AssistantMessage(None, calls), *(ToolMessage(one, "add", content, is_error) for one in ids)]


def test_conversation_becomes_contents_of_two_roles() -> None:
    sent = encode(SystemMessage("Be kind."), HI, AssistantMessage("Hello."), UserMessage("More"), SystemMessage("Now."))
    assert sent == {
        "systemInstruction": {"parts": [{"text": "Be kind.\n\nNow."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [{"text": "Hello."}]},
            {"role": "user", "parts": [{"text": "More"}]},
        ],
    }


def test_result_goes_under_the_name_of_its_call() -> None:
    calls = (ToolCall("c1", "math.add", {}), ToolCall("c2", "sub", {}))
    contents = encode(
        HI, AssistantMessage(None, calls), ToolMessage("c1", "", "3"), ToolMessage("c2", "other.one", "4")
    )
    assert [part["functionResponse"]["name"] for part in contents["contents"][2]["parts"]] == ["math_add", "sub"]


def test_names_that_do_not_begin_with_a_letter_are_mapped_there_and_back() -> None:
    tools = (ToolDefinition("3d-print"), ToolDefinition("_ok"))
    request = ChatRequest([HI], tools, ChatOptions(model="gemini-3-pro", tool_choice="3d-print"))
    wire = asyncio.run(CODEC.encode(request, stream=False))
    sent = json.loads(wire.body)
    assert [one["name"] for one in sent["tools"][0]["functionDeclarations"]] == ["_3d-print", "_ok"]
    assert sent["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"] == ["_3d-print"]
    assert decode(body(call(name="_3d-print")), wire=wire).message.tool_calls[0].name == "3d-print"


def test_results_of_a_batch_stand_in_one_content_in_call_order() -> None:
    contents = encode(HI, *round_("c1", "c2"), UserMessage("And?"))["contents"]
    assert [one["role"] for one in contents] == ["user", "model", "user"]
    assert contents[1]["parts"] == [
        {"functionCall": {"name": "add", "args": {"a": 1}}, "thoughtSignature": SKIP_VALIDATION},
        {"functionCall": {"name": "add", "args": {"a": 1}}},
    ]
    result = {"functionResponse": {"name": "add", "response": {"output": "3"}}}
    assert contents[2]["parts"] == [result, result, {"text": "And?"}]


@pytest.mark.parametrize(
    ("model", "signed"),
    [
        ("gemini-2.5-flash", False),
        ("gemini-3-pro-preview", True),
        ("models/gemini-4-argon", True),
        ("gemini-flash-latest", True),
        ("models/gemini-flash-lite-latest", True),
        ("gemini-1.5-pro-latest", False),
        ("tuned", False),
    ],
)
def test_calls_from_elsewhere_carry_the_stand_in_where_signatures_are_checked(model: str, signed: bool) -> None:
    parts = encode(HI, *round_("c1"), model=model)["contents"][1]["parts"]
    assert ("thoughtSignature" in parts[0]) == signed


def test_error_result_is_told_as_an_error() -> None:
    parts = encode(HI, *round_("c1", content="kaput", is_error=True))["contents"][2]["parts"]
    assert parts[0]["functionResponse"]["response"] == {"error": "kaput"}


def test_history_that_begins_with_the_model_gets_a_user_in_front() -> None:
    contents = encode(AssistantMessage("Hello."), HI)["contents"]
    assert [one["role"] for one in contents] == ["user", "model", "user"]


@pytest.mark.parametrize("messages", [[], [SystemMessage("s")], [UserMessage("")], [AssistantMessage("")]], ids=str)
def test_nothing_to_send_is_refused(messages: list[Message]) -> None:
    with pytest.raises(InvalidInputError, match="nothing to send"):
        encode(*messages)


def test_tools_are_declared_with_their_schema_under_legal_names() -> None:
    sent = encode(HI, tools=(ADD, BARE), tool_choice="math.add")
    assert sent["tools"] == [
        {
            "functionDeclarations": [
                {"name": "math_add", "description": "Add.", "parametersJsonSchema": ADD.parameters},
                {"name": "bare"},
            ]
        }
    ]
    assert sent["toolConfig"] == {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["math_add"]}}


@pytest.mark.parametrize(("choice", "mode"), [("auto", "AUTO"), ("none", "NONE"), ("required", "ANY")])
def test_tool_choice_is_a_mode(choice: str, mode: str) -> None:
    assert encode(HI, tools=(BARE,), tool_choice=choice)["toolConfig"] == {"functionCallingConfig": {"mode": mode}}


@pytest.mark.parametrize(
    ("options", "config"),
    [
        (
            {"max_tokens": 5, "temperature": 0.0, "top_p": 0.9, "seed": 3, "stop": ("a", "b")},
            {"temperature": 0.0, "topP": 0.9, "maxOutputTokens": 5, "seed": 3, "stopSequences": ["a", "b"]},
        ),
        ({"stop": tuple("abcdefg")}, {"stopSequences": ["a", "b", "c", "d", "e"]}),
        ({"reasoning_effort": "high"}, {"thinkingConfig": {"thinkingLevel": "high", "includeThoughts": True}}),
        ({"reasoning_effort": "none"}, {"thinkingConfig": {"thinkingLevel": "low"}}),
        ({"reasoning_effort": "none", "model": "gemini-3-flash"}, {"thinkingConfig": {"thinkingLevel": "minimal"}}),
        ({"reasoning_effort": "medium"}, {"thinkingConfig": {"thinkingLevel": "high", "includeThoughts": True}}),
        (
            {"reasoning_effort": "medium", "model": "gemini-3.1-pro"},
            {"thinkingConfig": {"thinkingLevel": "medium", "includeThoughts": True}},
        ),
        (
            {"reasoning_effort": "medium", "model": "gemini-3-flash"},
            {"thinkingConfig": {"thinkingLevel": "medium", "includeThoughts": True}},
        ),
        ({"reasoning_effort": "none", "model": "gemini-pro-latest"}, {"thinkingConfig": {"thinkingLevel": "low"}}),
        ({"reasoning_effort": "max"}, {"thinkingConfig": {"thinkingLevel": "high", "includeThoughts": True}}),
        (
            {"reasoning_effort": "low", "model": "gemini-2.5-flash"},
            {"thinkingConfig": {"thinkingBudget": 1024, "includeThoughts": True}},
        ),
        ({"reasoning_effort": "none", "model": "gemini-2.5-flash"}, {"thinkingConfig": {"thinkingBudget": 0}}),
        ({"reasoning_effort": "none", "model": "gemini-2.5-pro"}, {"thinkingConfig": {"thinkingBudget": 128}}),
        ({"reasoning_effort": "low", "model": "gemini-2.0-flash"}, None),
        ({"metadata": {"user": "u"}}, None),
        ({"response_format": "json"}, {"responseMimeType": "application/json"}),
        (
            {"response_format": {"type": "object"}},
            {"responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}},
        ),
        (
            {"extra": {"generationConfig": {"responseLogprobs": True}}, "temperature": 0.5},
            {"temperature": 0.5, "responseLogprobs": True},
        ),
    ],
    ids=str,
)
def test_settings_are_put_in_the_services_words(options: dict[str, Any], config: Any) -> None:
    assert encode(HI, **options).get("generationConfig") == config


def test_json_answer_beside_tools_is_asked_for_in_words_where_the_service_takes_one_of_them() -> None:
    old = encode(HI, tools=(BARE,), response_format=City, model="gemini-2.5-flash")
    assert "fits this JSON Schema" in old["systemInstruction"]["parts"][0]["text"]
    assert "generationConfig" not in old
    new = encode(HI, tools=(BARE,), response_format=City)
    assert new["generationConfig"]["responseMimeType"] == "application/json"


def test_extra_is_merged_object_by_object() -> None:
    extra = {"safetySettings": [1], "systemInstruction": {"role": "user"}}
    sent = encode(SystemMessage("s"), HI, extra=extra)
    assert sent["safetySettings"] == [1]
    assert sent["systemInstruction"] == {"parts": [{"text": "s"}], "role": "user"}


def test_tools_of_the_service_stand_beside_ours() -> None:
    search = {"googleSearch": {}}
    extra = {"tools": [search], "toolConfig": {"includeServerSideToolInvocations": True}}
    sent = encode(HI, tools=(BARE,), tool_choice="auto", extra=extra)
    assert sent["tools"] == [{"functionDeclarations": [{"name": "bare"}]}, search]
    assert sent["toolConfig"] == {"functionCallingConfig": {"mode": "AUTO"}, "includeServerSideToolInvocations": True}
    assert extra["tools"] == [search]
    assert encode(HI, extra=extra)["tools"] == [search]
    check(sent)


def path_of(model: str | None, *, stream: bool) -> str:
    request = ChatRequest([HI], (), ChatOptions(model=model))
    return asyncio.run(CODEC.encode(request, stream=stream)).path


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-3-pro", "/models/gemini-3-pro"),
        ("models/gemini-3-pro", "/models/gemini-3-pro"),
        ("tunedModels/mine", "/tunedModels/mine"),
        ("a b?c", "/models/a%20b%3Fc"),
    ],
)
def test_model_is_part_of_the_path(model: str, path: str) -> None:
    assert path_of(model, stream=False) == f"{path}:generateContent"
    assert path_of(model, stream=True) == f"{path}:streamGenerateContent?alt=sse"


def test_request_without_a_model_says_so() -> None:
    with pytest.raises(ConfigurationError, match="name one"):
        path_of(None, stream=False)


@pytest.mark.parametrize(
    ("part", "wire"),
    [
        (TextPart("x"), {"text": "x"}),
        (ImagePart(data=b"ab", media_type="image/png"), {"inlineData": {"mimeType": "image/png", "data": "YWI="}}),
        (AudioPart(data=b"ab", media_type="audio/wav"), {"inlineData": {"mimeType": "audio/wav", "data": "YWI="}}),
        (
            FilePart(data=b"ab", media_type="application/pdf"),
            {"inlineData": {"mimeType": "application/pdf", "data": "YWI="}},
        ),
        (ImagePart(url="https://x/a.png?b"), {"fileData": {"mimeType": "image/png", "fileUri": "https://x/a.png?b"}}),
        (ImagePart(url="https://x/a"), {"fileData": {"mimeType": "image/jpeg", "fileUri": "https://x/a"}}),
        (FilePart(url="https://youtu.be/x"), {"fileData": {"fileUri": "https://youtu.be/x"}}),
        (FilePart(url="gs://b/a.pdf"), {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://b/a.pdf"}}),
        (ImagePart(url="data:image/png;base64,YWI="), {"inlineData": {"mimeType": "image/png", "data": "YWI="}}),
    ],
    ids=str,
)
def test_every_part_of_a_user_is_carried(part: Any, wire: Any) -> None:
    assert encode(UserMessage([TextPart("see"), part]))["contents"][0]["parts"] == [{"text": "see"}, wire]


def test_data_url_that_is_not_base64_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedContentError, match=r"gemini cannot carry image \(by URL\) \(message 0"):
        encode(UserMessage([ImagePart(url="data:image/svg+xml,<svg/>")]))


def test_results_carry_pictures_only_where_the_model_reads_them() -> None:
    picture = [TextPart("a map"), ImagePart(data=b"ab", media_type="image/png")]
    [result] = encode(HI, *round_("c1", content=picture))["contents"][2]["parts"]
    assert result["functionResponse"] == {
        "name": "add",
        "response": {"output": "a map"},
        "parts": [{"inlineData": {"mimeType": "image/png", "data": "YWI="}}],
    }
    with pytest.raises(UnsupportedContentError, match=r"image \(image/png\) in a tool result \(message 2"):
        encode(HI, *round_("c1", content=picture), model="gemini-2.5-pro")
    by_url = [ImagePart(url="https://x/a.png")]
    with pytest.raises(UnsupportedContentError, match=r"by URL\) in a tool result"):
        encode(HI, *round_("c1", content=by_url))
    assert CODEC.check([HI, *round_("c1", content=by_url)]) == [
        "gemini cannot carry image (by URL) in a tool result (message 2); convert it or use a provider that can"
    ]


@pytest.mark.parametrize(
    "part",
    [
        AudioPart(data=b"ab", media_type="audio/wav"),
        ImagePart(data=b"ab", media_type="image/tiff"),
        FilePart(data=b"ab", media_type="application/zip"),
        FilePart(url="https://x/a.pdf"),
    ],
    ids=str,
)
def test_kinds_that_no_result_may_hold_are_refused_and_reported(part: Any) -> None:
    history = [HI, *round_("c1", content=[TextPart("x"), part])]
    with pytest.raises(UnsupportedContentError, match=r"in a tool result \(message 2\)"):
        encode(*history)
    assert len(CODEC.check(history)) == 1


@pytest.mark.parametrize(
    "part",
    [
        FilePart(data=b"ab", media_type="application/pdf"),
        FilePart(data=b"ab", media_type="text/plain; charset=utf-8"),
        ImagePart(data=b"ab", media_type="IMAGE/WEBP"),
        ImagePart(url="data:image/png;base64,YWI="),
    ],
    ids=str,
)
def test_kinds_that_a_result_may_hold_are_sent_by_their_bytes(part: Any) -> None:
    history = [HI, *round_("c1", content=[part])]
    [result] = encode(*history)["contents"][2]["parts"]
    [sent] = result["functionResponse"]["parts"]
    assert sent["inlineData"]["data"] == "YWI="
    assert CODEC.check(history) == []


def test_losses_of_users_parts_are_reported() -> None:
    lost = UserMessage([TextPart("x"), ImagePart(url="data:image/svg+xml,<svg/>"), ImagePart(url="https://x/a.png")])
    assert CODEC.check([HI, lost]) == [
        "gemini cannot carry image (by URL) (message 1); convert it or use a provider that can"
    ]


def sendable(history: list[Message], **options: Any) -> Any:
    """The body of a history, or None where there is nothing to send or something that cannot be carried."""
    try:
        return encode(*history, tools=(ADD, BARE), **options)
    except (InvalidInputError, UnsupportedContentError):
        return None


def check(sent: dict[str, Any]) -> None:
    """Every key is one that the service's own package knows."""
    types = pytest.importorskip("google.genai.types")
    for content in sent["contents"]:
        for part in content["parts"]:
            assert len(part.keys() - {"thoughtSignature", "thought"}) == 1
        # The package holds signatures as bytes; ours may be any text.
        bare = [{key: value for key, value in part.items() if key != "thoughtSignature"} for part in content["parts"]]
        types.Content.model_validate({**content, "parts": bare})
    if "systemInstruction" in sent:
        types.Content.model_validate(sent["systemInstruction"])
    for one in sent.get("tools", []):
        types.Tool.model_validate(one)
    if "toolConfig" in sent:
        types.ToolConfig.model_validate(sent["toolConfig"])
    if "generationConfig" in sent:
        types.GenerationConfig.model_validate(sent["generationConfig"])
    known = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
    assert set(sent) <= known


@pytest.mark.parametrize(
    "change",
    [
        {"contents": [{"role": "user", "parts": [{"novelty": 1}]}]},
        {"contents": [{"role": "user", "novelty": 1, "parts": [{"text": "x"}]}]},
        {"tools": [{"functionDeclarations": [{"name": "x", "novelty": 1}]}]},
        {"generationConfig": {"max_words": 1}},
        {"toolConfig": {"functionCallingConfig": {"mode": "AUTO", "novelty": 1}}},
        {"novelty": 1},
    ],
    ids=str,
)
def test_comparison_refuses_what_the_package_does_not_know(change: dict[str, Any]) -> None:
    good = encode(HI)
    check(good)
    with pytest.raises((ValueError, AssertionError)):
        check(good | change)


@given(histories)
@settings(max_examples=100, deadline=None)
def test_request_of_every_history_fits_the_types(history: list[Message]) -> None:
    sent = sendable(history)
    if sent is not None:
        check(sent)


@pytest.mark.parametrize("model", ["gemini-2.0-flash", "gemini-2.5-pro", "gemini-3-pro", "other"])
@pytest.mark.parametrize("effort", [None, "none", "minimal", "low", "medium", "high", "xhigh", "max"])
def test_request_with_every_setting_fits_the_types(model: str, effort: Any) -> None:
    options: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "seed": 1, "stop": ("a",), "max_tokens": 5}
    for form in (None, "json", City, list[City]):
        check(sendable([HI], model=model, reasoning_effort=effort, response_format=form, **options))


@given(whole_histories(), st.integers(0, 12))
@settings(max_examples=100, deadline=None)
def test_appending_leaves_the_earlier_bytes_as_they_were(history: list[Message], cut: int) -> None:
    """Whole messages of the shorter history stand unchanged, or only grow by further parts, in the longer one."""
    short, whole = sendable(history[:cut]), sendable(history)
    if short is None or whole is None or any(isinstance(m, SystemMessage) for m in history[cut:]):
        return
    if cut < len(history) and isinstance(history[cut], ToolMessage):
        return  # cut within a batch: healing answered what came later
    before, after = short["contents"], whole["contents"]
    assert after[: len(before) - 1] == before[:-1]
    last = before[-1]["parts"]
    assert after[len(before) - 1]["parts"][: len(last)] == last


def test_same_history_gives_the_same_bytes() -> None:
    request = ChatRequest([HI, *round_("c1")], (ADD,), ChatOptions(model="gemini-3-pro"))
    first, second = (asyncio.run(GeminiCodec().encode(request, stream=False)) for _ in range(2))
    assert first == second
    assert json.loads(first.body)


def test_part_that_cannot_be_carried_is_named_by_the_callers_count() -> None:
    history = [ToolMessage("lost", "f", "1"), HI, UserMessage([ImagePart(url="data:image/svg+xml,<svg/>")])]
    with pytest.raises(UnsupportedContentError, match=r"\(message 2\)"):
        encode(*history)
