"""Neutral histories as Anthropic requests: the rules of the service hold for every history."""

import json
from base64 import b64encode
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from agentcore.chat import ToolDefinition
from agentcore.codecs.anthropic_request import OPENING, SILENT_ERROR
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
from agentcore.pairing import INTERRUPTED_RESULT
from tests.support.anthropic_requests import ADD, CODEC, body, encode, histories, sendable
from tests.support.anthropic_wire import thinking

Q, A = UserMessage("q"), AssistantMessage("a")
C1, C2 = ToolCall("c1", "add", {"a": 1}), ToolCall("c2", "add", {"b": 2})
CALLS = AssistantMessage(None, (C1, C2))
R1, R2 = ToolMessage("c1", "add", "one"), ToolMessage("c2", "add", "two")


def shape(*messages: Message) -> list[tuple[str, list[Any]]]:
    """Role and, for each block, its text or its type."""
    return [(m["role"], [b.get("text", b["type"]) for b in m["content"]]) for m in body(*messages)["messages"]]


U_Q, A_A = ("user", ["q"]), ("assistant", ["a"])


@pytest.mark.parametrize(
    ("history", "sent"),
    [
        pytest.param([Q], [U_Q], id="a question"),
        pytest.param([UserMessage("1"), UserMessage("2")], [("user", ["1", "2"])], id="two user messages"),
        pytest.param([Q, A, AssistantMessage("b"), Q], [U_Q, ("assistant", ["a", "b"]), U_Q], id="two answers"),
        pytest.param(
            [Q, CALLS, R1, R2], [U_Q, ("assistant", ["tool_use"] * 2), ("user", ["tool_result"] * 2)], id="batch"
        ),
        pytest.param(
            [Q, CALLS, R1, R2, UserMessage("more")],
            [U_Q, ("assistant", ["tool_use"] * 2), ("user", ["tool_result", "tool_result", "more"])],
            id="results before the text that follows",
        ),
        pytest.param(
            [Q, CALLS, UserMessage("more"), R2, R1],
            [U_Q, ("assistant", ["tool_use"] * 2), ("user", ["tool_result", "tool_result", "more"])],
            id="results before the text in their way",
        ),
        pytest.param(
            [Q, AssistantMessage("", (C1,)), R1],
            [U_Q, ("assistant", ["tool_use"]), ("user", ["tool_result"])],
            id="no text",
        ),
        pytest.param(
            [Q, AssistantMessage("Look.", (C1,)), R1],
            [U_Q, ("assistant", ["Look.", "tool_use"]), ("user", ["tool_result"])],
            id="text before calls",
        ),
        pytest.param([A, Q], [("user", [OPENING]), A_A, U_Q], id="begins with the assistant"),
        pytest.param(
            [CALLS, R1, R2],
            [("user", [OPENING]), ("assistant", ["tool_use"] * 2), ("user", ["tool_result"] * 2)],
            id="begins with calls",
        ),
        pytest.param([Q, AssistantMessage(" \n"), Q], [("user", ["q", "q"])], id="blank answer"),
        pytest.param([Q, AssistantMessage(None), Q], [("user", ["q", "q"])], id="empty answer"),
        pytest.param(
            [Q, A, UserMessage(" \n"), A, Q], [U_Q, ("assistant", ["a", "a"]), U_Q], id="blank question inside"
        ),
        pytest.param([Q, UserMessage("  ")], [U_Q], id="blank message after a question"),
        pytest.param(
            [Q, CALLS, R1, R2, UserMessage("\t")],
            [U_Q, ("assistant", ["tool_use"] * 2), ("user", ["tool_result"] * 2)],
            id="blank message after results",
        ),
        pytest.param([UserMessage([TextPart(""), TextPart("x"), TextPart(" ")])], [("user", ["x"])], id="blank parts"),
        pytest.param([Q, AssistantMessage("Here: \n")], [U_Q, ("assistant", ["Here:"])], id="white space at the end"),
        pytest.param(
            [Q, AssistantMessage(" in:\n  "), Q], [U_Q, ("assistant", [" in:"]), U_Q], id="white space inside"
        ),
        pytest.param(
            [Q, AssistantMessage("4", reasoning="simple"), Q], [U_Q, ("assistant", ["4"]), U_Q], id="unsigned thought"
        ),
        pytest.param(
            [Q, AssistantMessage("4", replay={"format": "openai-responses", "blocks": [{"type": "thinking"}]}), Q],
            [U_Q, ("assistant", ["4"]), U_Q],
            id="foreign replay",
        ),
    ],
)
def test_history_is_put_in_the_order_the_service_wants(history: list[Message], sent: list[Any]) -> None:
    assert shape(*history) == sent


def test_system_texts_are_lifted_in_their_order_and_blank_ones_left_out() -> None:
    sent = body(SystemMessage("One."), Q, SystemMessage(" "), A, SystemMessage("Two."), Q)
    assert sent["system"] == "One.\n\nTwo."
    assert [m["role"] for m in sent["messages"]] == ["user", "assistant", "user"]


def test_a_request_without_system_text_has_no_system() -> None:
    assert "system" not in body(Q)


@pytest.mark.parametrize(
    "history",
    [[], [SystemMessage("s")], [UserMessage(" ")], [UserMessage([])], [Q, A, UserMessage(" \n")], [A, UserMessage("")]],
    ids=["none", "system alone", "blank", "no parts", "blank after an answer", "blank after a greeting"],
)
def test_nothing_new_is_refused_before_anything_is_sent(history: list[Message]) -> None:
    with pytest.raises(InvalidInputError, match="empty"):
        body(*history)


def test_unanswered_call_is_answered_as_interrupted_before_the_next_text() -> None:
    sent = body(Q, AssistantMessage("Editing.", (C1,)), UserMessage("what happened?"))["messages"]
    assert sent[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": INTERRUPTED_RESULT, "is_error": True},
        {"type": "text", "text": "what happened?"},
    ]


def test_arguments_that_never_parsed_are_sent_as_an_empty_object() -> None:
    broken = AssistantMessage(None, (ToolCall("c1", "add", {}, "{'q': 1,}"),))
    assert body(Q, broken, R1)["messages"][1]["content"] == [
        {"type": "tool_use", "id": "c1", "name": "add", "input": {}}
    ]


@pytest.mark.parametrize(
    ("result", "sent"),
    [
        pytest.param(ToolMessage("c1", "add", "3"), {"content": "3"}, id="text"),
        pytest.param(ToolMessage("c1", "add", ""), {}, id="empty"),
        pytest.param(ToolMessage("c1", "add", " \n"), {}, id="blank"),
        pytest.param(ToolMessage("c1", "add", []), {}, id="no parts"),
        pytest.param(ToolMessage("c1", "add", "no", is_error=True), {"content": "no", "is_error": True}, id="error"),
        pytest.param(
            ToolMessage("c1", "add", "", is_error=True), {"content": SILENT_ERROR, "is_error": True}, id="silent error"
        ),
        pytest.param(
            ToolMessage("c1", "add", [TextPart("see"), ImagePart(url="https://x/y.png")]),
            {
                "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
                ]
            },
            id="image",
        ),
        pytest.param(
            ToolMessage("c1", "add", [ImagePart(url="https://x/y.png")], is_error=True),
            {
                "content": [
                    {"type": "text", "text": "The tool failed:"},
                    {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
                ]
            },
            id="error with an image",
        ),
        pytest.param(ToolMessage("c1", "add", "3", writes={"k": 1}), {"content": "3"}, id="writes stay here"),
    ],
)
def test_tool_result_takes_the_form_the_service_accepts(result: ToolMessage, sent: dict[str, Any]) -> None:
    blocks = body(Q, AssistantMessage(None, (C1,)), result)["messages"][2]["content"]
    assert blocks == [{"type": "tool_result", "tool_use_id": "c1", **sent}]


PDF, PNG = b"%PDF-1.7", b"\x89PNG"


@pytest.mark.parametrize(
    ("part", "block"),
    [
        pytest.param(
            ImagePart(url="https://x/y.png"),
            {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
            id="image url",
        ),
        pytest.param(
            ImagePart(data=PNG, media_type="image/png"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64encode(PNG).decode()}},
            id="image data",
        ),
        pytest.param(
            ImagePart(data=PNG, media_type="image/jpg"),
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/jpeg", "data": b64encode(PNG).decode()},
            },
            id="jpg is jpeg",
        ),
        pytest.param(
            ImagePart(url="data:image/png;base64,AAAA"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
            id="image in a data url",
        ),
        pytest.param(
            FilePart(url="https://x/y.pdf", name="y"),
            {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}, "title": "y"},
            id="pdf url",
        ),
        pytest.param(
            FilePart(data=PDF, media_type="application/pdf"),
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": b64encode(PDF).decode()},
            },
            id="pdf data",
        ),
        pytest.param(
            FilePart(data="晴 22°C".encode(), media_type="text/markdown; charset=utf-8", name="n.md"),
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "晴 22°C"},
                "title": "n.md",
            },
            id="text file",
        ),
    ],
)
def test_part_becomes_a_block(part: Any, block: dict[str, Any]) -> None:
    assert body(UserMessage([TextPart("Look:"), part]))["messages"][0]["content"][1] == block


UNSUPPORTED = [
    pytest.param(AudioPart(data=b"x", media_type="audio/wav"), "audio", id="audio"),
    pytest.param(ImagePart(data=b"x", media_type="image/bmp"), "image/bmp", id="bitmap"),
    pytest.param(ImagePart(url="data:image/svg+xml,<svg/>"), "data: URL", id="data url that is not base64"),
    pytest.param(FilePart(data=b"PK", media_type="application/zip"), "application/zip", id="archive"),
    pytest.param(FilePart(url="https://x/y.txt", media_type="text/plain"), "text/plain", id="text by its url"),
    pytest.param(FilePart(data=b"\xff\xfe", media_type="text/plain"), "UTF-8", id="text that is not utf-8"),
]


@pytest.mark.parametrize(("part", "named"), UNSUPPORTED)
def test_part_that_cannot_be_carried_is_refused_by_name_and_place(part: Any, named: str) -> None:
    with pytest.raises(UnsupportedContentError, match=r"anthropic cannot carry .*\(message 1, part 0\)") as caught:
        body(SystemMessage("s"), UserMessage([part]))
    assert named in str(caught.value)


@pytest.mark.parametrize(("part", "named"), UNSUPPORTED)
def test_check_tells_of_a_part_that_cannot_be_carried(part: Any, named: str) -> None:
    history = [Q, AssistantMessage(None, (C1,)), ToolMessage("c1", "add", [TextPart("t"), part]), UserMessage([part])]
    lines = CODEC.check(history)
    assert ["(message 2, part 1)" in lines[0], "(message 3, part 0)" in lines[1]] == [True, True]
    assert all(named in line for line in lines)


def test_place_of_a_refused_part_is_told_by_the_callers_count() -> None:
    history = [Q, AssistantMessage(None, (C1,)), UserMessage([AudioPart(url="https://x/y.wav")])]
    with pytest.raises(UnsupportedContentError, match="message 2"):  # healing put a result before it
        body(*history)


def test_check_of_a_whole_history_is_empty() -> None:
    assert CODEC.check([SystemMessage("s"), Q, CALLS, R1, R2, A, UserMessage(" ")]) == []


@pytest.mark.parametrize("call_id", ["call.1:x", "é", "x" * 200, "with space"])
def test_illegal_call_id_is_made_legal_on_both_sides(call_id: str) -> None:
    sent = body(Q, AssistantMessage(None, (ToolCall(call_id, "add"),)), ToolMessage(call_id, "add", "3"))["messages"]
    given_id = sent[1]["content"][0]["id"]
    assert given_id.replace("_", "").isalnum()
    assert given_id.isascii()
    assert len(given_id) <= 64
    assert sent[2]["content"][0]["tool_use_id"] == given_id


def test_call_ids_used_again_in_a_later_batch_are_told_apart() -> None:
    one = AssistantMessage(None, (C1,))
    sent = body(Q, one, R1, A, Q, one, ToolMessage("c1", "add", "later"))["messages"]
    first, second = sent[1]["content"][0]["id"], sent[5]["content"][0]["id"]
    assert first != second
    assert (sent[2]["content"][0]["tool_use_id"], sent[6]["content"][0]["tool_use_id"]) == (first, second)


def test_illegal_tool_name_is_made_legal_and_mapped_back() -> None:
    tool = ToolDefinition("math.add", "Add.")
    wire = encode(Q, AssistantMessage(None, (ToolCall("c1", "math.add"),)), R1, tools=(tool,), tool_choice="math.add")
    sent = json.loads(wire.body)
    name = sent["tools"][0]["name"]
    assert name == sent["messages"][1]["content"][0]["name"] == sent["tool_choice"]["name"] == "math_add"
    assert wire.tool_names == {"math_add": "math.add"}
    reply = json.dumps(
        {"content": [{"type": "tool_use", "id": "t", "name": name, "input": {}}], "stop_reason": "tool_use"}
    )
    assert CODEC.decode(reply.encode(), wire).message.tool_calls[0].name == "math.add"


def test_tool_is_described_with_an_object_schema() -> None:
    bare = ToolDefinition("now")
    assert body(Q, tools=(ADD, bare))["tools"] == [
        {
            "name": "add",
            "description": "Add.",
            "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
        },
        {"name": "now", "input_schema": {"type": "object"}},
    ]


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({}, None),
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "none"}, {"type": "none"}),
        ({"tool_choice": "required"}, {"type": "any"}),
        ({"tool_choice": "add"}, {"type": "tool", "name": "add"}),
        ({"parallel_tool_calls": True}, None),
        ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
        ({"tool_choice": "none", "parallel_tool_calls": False}, {"type": "none"}),
        ({"tool_choice": "required", "parallel_tool_calls": False}, {"type": "any", "disable_parallel_tool_use": True}),
    ],
    ids=str,
)
def test_tool_choice_in_the_words_of_the_service(options: dict[str, Any], sent: Any) -> None:
    assert body(Q, tools=(ADD,), **options).get("tool_choice") == sent


def test_tool_choice_is_not_sent_without_tools() -> None:
    sent = body(Q, tool_choice="required", parallel_tool_calls=False)
    assert "tool_choice" not in sent
    assert "tools" not in sent


def test_lone_surrogates_do_not_stop_a_request() -> None:
    assert body(UserMessage("a\ud800b"))["messages"][0]["content"][0]["text"] == "a\ufffdb"


def test_stream_is_asked_for_only_when_it_is_wanted() -> None:
    assert (body(Q, stream=True)["stream"], "stream" in body(Q)) == (True, False)


# ---- every history


@given(histories)
@settings(deadline=None)
def test_every_history_keeps_the_rules_of_the_service(history: list[Message]) -> None:
    sent = sendable(history)
    if sent is None:
        return
    wire = sent["messages"]
    assert [m["role"] for m in wire] == ["user", "assistant"] * (len(wire) // 2) + ["user"] * (len(wire) % 2)
    used: set[str] = set()
    for position, message in enumerate(wire):
        blocks = message["content"]
        kinds = [b["type"] for b in blocks]
        assert blocks
        assert all(b["text"].strip() for b in blocks if b["type"] == "text")
        assert all(b["signature"] for b in blocks if b["type"] == "thinking")
        results = [b for b in blocks if b["type"] == "tool_result"]
        assert kinds[: len(results)] == ["tool_result"] * len(results)  # first of all
        assert all(b.get("content") for b in results if b.get("is_error"))
        if message["role"] == "user":
            asked = [b["id"] for b in wire[position - 1]["content"] if b["type"] == "tool_use"] if position else []
            assert sorted(b["tool_use_id"] for b in results) == sorted(asked)
        else:
            calls = [b["id"] for b in blocks if b["type"] == "tool_use"]
            assert len(calls) == len(set(calls))
            assert not used & set(calls)
            used.update(calls)
            assert not calls or position < len(wire) - 1
            assert kinds[-1] not in ("thinking", "redacted_thinking")
    if wire[-1]["role"] == "assistant" and wire[-1]["content"][-1]["type"] == "text":
        assert wire[-1]["content"][-1]["text"] == wire[-1]["content"][-1]["text"].rstrip()


@given(histories)
@settings(deadline=None)
def test_encoding_is_deterministic(history: list[Message]) -> None:
    assert sendable(history) == sendable(list(history))


PLAIN = st.lists(
    st.one_of(
        st.just([Q]),
        st.just([A]),
        st.just([UserMessage("white ")]),
        st.just([AssistantMessage("white \n")]),
        st.just([AssistantMessage("t", (C1, C2)), R1, R2]),
        st.just([AssistantMessage(None, (ToolCall("c.1", "math.add"),)), ToolMessage("c.1", "math.add", "")]),
        st.just([AssistantMessage("t", (C1,), replay={"format": "anthropic", "blocks": [thinking()]}), R1]),
        st.just([AssistantMessage(" "), UserMessage(" ")]),
    ),
    max_size=8,
)


@given(PLAIN, PLAIN)
@settings(deadline=None)
def test_appending_leaves_the_bytes_before_as_they_were(
    before: list[list[Message]], after: list[list[Message]]
) -> None:
    history = [UserMessage("start"), *(m for turn in before for m in turn)]
    longer = [*history, *(m for turn in after for m in turn), UserMessage("end")]
    if isinstance(history[-1], UserMessage) and history[-1].content == " ":
        history.append(Q)
        longer.insert(len(history) - 1, Q)
    tools = (ADD, ToolDefinition("math.add"))
    short = encode(*history, tools=tools).body.split(b'"messages":', 1)[1].split(b'}],"tools"', 1)[0]
    long = encode(*longer, tools=tools).body.split(b'"messages":', 1)[1]
    assert long.startswith(short.removesuffix(b"]"))  # the last content may grow at its end, and nothing else
