"""Responses streams: events left out, told twice, told without places, or broken off."""

from typing import Any

import pytest

from agentcore.chat import ChatResponse
from agentcore.codecs.openai_responses import OpenAIResponsesCodec
from agentcore.codecs.openai_responses_items import MAX_ITEMS
from agentcore.errors import DecodeError, ProviderError
from agentcore.events import ReasoningDelta, TextDelta, ToolCallDelta
from agentcore.messages import AssistantMessage, ToolCall
from tests.support.responses_wire import (
    CODEC,
    WIRE,
    added,
    begin,
    body,
    call,
    decode,
    delta,
    done,
    end,
    event,
    play,
    played,
    reasoning,
    refusal,
    said,
    stream_of,
    text,
    thought,
)

ADD = ToolCall("call_1", "add", {"a": 1})
HELLO = AssistantMessage("Hello")
ARGUMENTS = "response.function_call_arguments"
HOLLOW = call("", status="in_progress")
SILENT = end(status="completed", output=[])


def piece(words: Any, item_id: Any = "fc_1", index: Any = 0, **fields: Any) -> bytes:
    return event(f"{ARGUMENTS}.delta", item_id=item_id, output_index=index, delta=words, **fields)


def whole_arguments(words: Any, item_id: Any = "fc_1", index: Any = 0, **fields: Any) -> bytes:
    return event(f"{ARGUMENTS}.done", item_id=item_id, output_index=index, arguments=words, **fields)


def test_events_are_delivered_as_they_come() -> None:
    decoder = CODEC.stream_decoder(WIRE)
    told = [
        list(decoder.feed(data))
        for data in (
            begin(),
            added(reasoning(status="in_progress")),
            event("response.reasoning_summary_text.delta", item_id="rs_1", output_index=0, summary_index=0, delta="hm"),
            done(reasoning("hm")),
            added(text(), 1),
            delta("Hel", index=1),
            delta("lo", index=1),
            added({**HOLLOW}, 2),
            piece('{"a"', index=2),
            piece(":1}", index=2),
            done(call(), 2),
            end(reasoning("hm"), text("Hello"), call()),
        )
    ]
    assert told == [
        [],
        [],
        [ReasoningDelta("hm")],
        [],
        [],
        [TextDelta("Hel")],
        [TextDelta("lo")],
        [ToolCallDelta(0, "call_1", "add", "")],
        [ToolCallDelta(0, "call_1", "add", '{"a"')],
        [ToolCallDelta(0, "call_1", "add", ":1}")],
        [],
        [],
    ]
    assert decoder.done
    assert decoder.text == "Hello"
    assert decoder.response() == decode(body(reasoning("hm"), text("Hello"), call()))


# Text

LLAMA = [
    event("response.created", response={"id": "resp_1", "object": "response", "status": "in_progress"}),
    event("response.output_item.added", item=text(status="in_progress")),
    event("response.content_part.added", item_id="msg_1", part={"type": "output_text", "text": ""}),
    event("response.output_text.delta", item_id="msg_1", delta="Hel"),
    event("response.output_text.delta", item_id="msg_1", delta="lo"),
    event("response.output_text.done", item_id="msg_1", text="Hello"),
    event("response.content_part.done", item_id="msg_1", part={"type": "output_text", "text": "Hello"}),
    event("response.output_item.done", item=text("Hello")),
    event("response.completed", response={"id": "resp_1", "status": "completed", "output": [text("Hello")]}),
]
TEXTS: list[tuple[str, list[bytes]]] = [
    ("llama.cpp", LLAMA),
    ("no-opening", [delta("Hel"), delta("lo"), end(text("Hello"))]),
    ("no-opening-no-place", [delta("Hel", None, None), delta("lo", None, None), SILENT]),
    ("no-deltas", [added(text()), done(text("Hello")), end(text("Hello"))]),
    ("text-at-its-end", [added(text()), event("response.output_text.done", item_id="msg_1", text="Hello"), SILENT]),
    ("end-alone", [end(text("Hello"))]),
    ("empty-output-at-the-end", [added(text()), delta("Hello"), done(text("Hello")), SILENT]),
    ("no-output-at-the-end", [added(text()), delta("Hello"), event("response.completed", response={"id": "r"})]),
    ("null-response-at-the-end", [added(text()), delta("Hello"), event("response.completed", response=None)]),
    ("no-response-at-the-end", [added(text()), delta("Hello"), event("response.completed")]),
    ("last-deltas-missing", [added(text()), delta("Hel"), done(text("Hello")), end(text("Hello"))]),
    ("last-deltas-missing-until-the-end", [added(text()), delta("Hel"), end(text("Hello"))]),
    ("other-id-at-the-end", [added(text()), delta("Hello"), end(text("Hello", item_id="msg_9"))]),
    ("delta-of-another-id", [added(text()), delta("Hello", "msg_9"), done(text("Hello")), SILENT]),
    ("deltas-of-changing-ids", [added(text()), delta("Hel", "a"), delta("lo", "b"), done(text("Hello")), SILENT]),
    ("opening-told-twice", [added(text()), added(text()), delta("Hello"), done(text("Hello")), SILENT]),
    ("end-of-item-told-twice", [added(text()), delta("Hello"), done(text("Hello")), done(text("Hello")), SILENT]),
    ("parts", [added(text()), delta("Hel"), delta("lo"), done(text("Hel", "lo")), end(text("Hel", "lo"))]),
    ("wrapped-delta", [added(text()), delta({"type": "text", "text": "Hello"}), SILENT]),
    ("odd-deltas", [added(text()), delta(None), delta(3), delta(""), delta("Hello"), SILENT]),
    ("no-event-names", [event("response.output_text.delta", named=False, delta="Hello"), end(text("Hello"))]),
    ("names-alone", [b'event: response.output_text.delta\ndata: {"delta":"Hello"}\n\n', SILENT]),
    ("done-instead-of-completed", [delta("Hello"), event("response.done", response={"id": "r"})]),
    ("openais-other-end", [delta("Hello"), b"data: [DONE]\n\n"]),
    ("both-ends", [delta("Hello"), SILENT, b"data: [DONE]\n\n"]),
    ("keep-alives", [b": ping\n\n", event("keepalive", sequence_number=1), delta("Hello"), b":\n\n", SILENT]),
    ("blank-data", [b"data: \n\n", delta("Hello"), b"data:\n\n", SILENT]),
    (
        "unknown-events",
        [
            added(text()),
            event("response.hologram.delta", delta=["x"], item_id=3),
            event("response.output_text.annotation.added", annotation={"type": "url_citation"}, item_id="msg_1"),
            event("response.web_search_call.searching", item_id="ws_1", output_index=7),
            event(None, hello="x"),
            event(None, type=3, delta="x"),
            event(None, type=[], delta="x", item_id="msg_1", output_index=0),
            delta("Hello"),
            SILENT,
        ],
    ),
    (
        "events-without-blank-lines",
        [delta("Hel").rstrip() + b"\n", delta("lo").rstrip() + b"\n", end(text("Hello"))],
    ),
    ("last-event-without-its-blank-line", [delta("Hello"), end(text("Hello")).rstrip()]),
    ("crlf", [delta("Hello").replace(b"\n", b"\r\n"), end(text("Hello")).replace(b"\n", b"\r\n")]),
]


@pytest.mark.parametrize("parts", [row[1] for row in TEXTS], ids=[row[0] for row in TEXTS])
def test_text_is_read_whatever_is_left_out(parts: list[bytes]) -> None:
    data = b"".join(parts)
    events, ended = play(data)
    assert isinstance(ended, ChatResponse), ended
    assert ended.message == HELLO
    assert said(events) == "Hello"
    assert play(data, range(len(data))) == (events, ended)


def test_what_was_delivered_stays_where_the_end_tells_another_text() -> None:
    events, ended = play(b"".join([added(text()), delta("Hello"), done(text("Goodbye")), end(text("Goodbye"))]))
    assert said(events) == ended.message.content == "Hello"  # type: ignore[union-attr]


def test_two_messages_are_kept_apart_when_told_in_turns() -> None:
    parts = [added(text()), added(text(item_id="msg_2"), 1), delta("a"), delta("b", "msg_2", 1), delta("c")]
    reply = played(b"".join([*parts, done(text("ac")), done(text("bd", item_id="msg_2"), 1), SILENT]))
    assert reply.text == "abcd"


def test_end_brings_what_was_not_told_at_all() -> None:
    parts = [added(reasoning()), done(reasoning("hm")), end(reasoning("hm"), text("Hello"), call())]
    events, ended = play(b"".join(parts))
    assert said(events) == "Hello"
    assert ended == decode(body(reasoning("hm"), text("Hello"), call()))


@pytest.mark.parametrize(
    "parts",
    [
        [delta("No", kind="response.refusal.delta"), delta(".", kind="response.refusal.delta"), SILENT],
        [added(text()), event("response.refusal.done", item_id="msg_1", refusal="No."), SILENT],
        [added(text()), done(text(refusal("No."))), SILENT],
        [end(text(refusal("No.")))],
    ],
    ids=["deltas", "done", "item", "end"],
)
def test_refusal_is_readable_and_told_from_an_answer(parts: list[bytes]) -> None:
    events, ended = play(b"".join(parts))
    assert isinstance(ended, ChatResponse)
    assert said(events) == ended.text == "No."
    assert ended.finish_reason == ended.message.finish_reason == "content_filter"


# Reasoning

SUMMARY = "response.reasoning_summary_text.delta"


def summary(words: Any, index: Any = 0, kind: str = SUMMARY, item_id: Any = "rs_1", **fields: Any) -> bytes:
    return event(kind, item_id=item_id, output_index=0, summary_index=index, delta=words, **fields)


THOUGHTS: list[tuple[str, list[bytes]]] = [
    ("summary", [added(reasoning()), summary("a"), summary("b"), summary("c", 1)]),
    (
        "parts-without-number",
        [
            added(reasoning()),
            event("response.reasoning_summary_part.added", item_id="rs_1"),
            summary("a", None),
            summary("b", None),
            event("response.reasoning_summary_part.added", item_id="rs_1"),
            summary("c", None),
        ],
    ),
    (
        "text",
        [
            added(reasoning()),
            *(
                event("response.reasoning_text.delta", item_id="rs_1", content_index=n, delta=one)
                for one, n in (("ab", 0), ("c", 1))
            ),
        ],
    ),
    ("old-names", [summary("ab", kind="response.reasoning_summary.delta"), summary({"text": "c"}, 1)]),
    ("no-opening", [summary("ab"), summary("c", 1)]),
    ("no-deltas", [added(reasoning()), done(reasoning("ab", "c"))]),
    ("last-deltas-missing", [added(reasoning()), summary("ab"), done(reasoning("ab", "c"))]),
    (
        "copied-into-both-fields",
        [
            summary("ab"),
            summary("ab", kind="response.reasoning_text.delta", content_index=0),
            summary("c", 1),
            summary("c", 1, kind="response.reasoning_text.delta", content_index=1),
        ],
    ),
    (
        "last-part-announced-but-not-told",
        [summary("ab"), event("response.reasoning_summary_part.added", item_id="rs_1"), done(reasoning("ab", "c"))],
    ),
    ("end-of-text-alone", [event("response.reasoning_text.done", item_id="rs_1", text="ab\n\nc")]),
    ("two-items", [summary("ab"), done(reasoning("ab")), summary("c", item_id="rs_2"), done(reasoning("c"))]),
]


@pytest.mark.parametrize("parts", [row[1] for row in THOUGHTS], ids=[row[0] for row in THOUGHTS])
def test_reasoning_is_read_part_by_part(parts: list[bytes]) -> None:
    events, ended = play(b"".join([*parts, delta("4", index=1), SILENT]))
    assert isinstance(ended, ChatResponse), ended
    assert thought(events) == ended.message.reasoning == "ab\n\nc"
    assert ended.text == "4"


def test_encrypted_reasoning_is_taken_from_the_finished_item() -> None:
    parts = [added(reasoning(encrypted="half")), done(reasoning(encrypted="whole")), done(text("4"), 1), SILENT]
    replay = played(b"".join(parts)).message.replay
    assert replay is not None
    assert [item["encrypted_content"] for item in replay["items"]] == ["whole"]


def test_reasoning_of_a_stream_that_does_not_finish_its_items_is_taken_from_the_end() -> None:
    parts = [added(reasoning(encrypted="half")), delta("4", index=1), end(reasoning(encrypted="whole"), text("4"))]
    replay = played(b"".join(parts)).message.replay
    assert replay is not None
    assert [item["encrypted_content"] for item in replay["items"]] == ["whole"]


# Calls

CALLS: list[tuple[str, list[bytes]]] = [
    (
        "llama.cpp",
        [
            event("response.output_item.added", item=HOLLOW),
            event(f"{ARGUMENTS}.delta", item_id="fc_1", delta='{"a"'),
            event(f"{ARGUMENTS}.delta", item_id="fc_1", delta=":1}"),
            event("response.output_item.done", item=call()),
            end(call()),
        ],
    ),
    ("no-end-of-item", [added(HOLLOW), piece('{"a":1}'), SILENT]),
    ("no-deltas", [added(HOLLOW), done(call()), end(call())]),
    ("arguments-at-their-end", [added(HOLLOW), whole_arguments('{"a":1}'), end(call())]),
    ("no-opening", [done(call()), end(call())]),
    ("end-alone", [end(call())]),
    ("whole-at-the-opening", [added(call()), done(call()), SILENT]),
    (  # LM Studio
        "empty-at-the-end-of-the-item",
        [added(HOLLOW), whole_arguments('{"a":1}'), done(call("{}")), end(call("{}"))],
    ),
    ("blank-at-the-end-of-the-item", [added(HOLLOW), piece('{"a":1}'), done(call("")), end(call(""))]),
    ("last-piece-at-the-end-of-the-item", [added(HOLLOW), piece('{"a"'), piece(":1}"), done(call(":1}")), SILENT]),
    ("name-at-the-end", [added(call("", name="")), piece('{"a":1}'), done(call()), SILENT]),
    ("name-at-the-opening-alone", [added(HOLLOW), piece('{"a":1}'), done(call(name="")), end(call(name=""))]),
    ("name-with-the-arguments", [whole_arguments('{"a":1}', name="add", call_id="call_1"), SILENT]),
    ("other-call-id-at-the-end", [added(HOLLOW), piece('{"a":1}'), done(call()), end(call(call_id="call_9"))]),
    ("delta-of-another-id", [added(HOLLOW), piece('{"a":1}', "fc_9"), done(call()), SILENT]),
    ("delta-of-another-id-without-place", [added(HOLLOW), piece('{"a":1}', "fc_9", None), done(call()), SILENT]),
    ("other-id-at-the-end-of-the-item", [added(HOLLOW), piece('{"a":1}'), done(call(item_id="fc_9"), None), SILENT]),
    ("object", [added(call({})), done(call({"a": 1})), SILENT]),
    ("object-delta", [added(HOLLOW), piece({"a": 1}), SILENT]),
    ("encoded-twice", [added(HOLLOW), piece('"{\\"a\\"'), piece(':1}"'), SILENT]),
    ("told-twice", [added(HOLLOW), piece('{"a":1}'), done(call()), done(call()), end(call())]),
    (  # a router that forgets the call in its summary
        "end-with-an-empty-message",
        [added(HOLLOW), piece('{"a":1}'), whole_arguments('{"a":1}'), end(text({"type": "text", "text": ""}))],
    ),
    ("call-id-late", [added(call("", call_id=None, item_id=None)), piece('{"a":1}', None), done(call()), SILENT]),
]


@pytest.mark.parametrize("parts", [row[1] for row in CALLS], ids=[row[0] for row in CALLS])
def test_call_is_read_whatever_is_left_out(parts: list[bytes]) -> None:
    data = b"".join(parts)
    events, ended = play(data)
    assert isinstance(ended, ChatResponse), ended
    assert ended.message == AssistantMessage(None, (ADD,))
    assert ended.finish_reason == "tool_calls"
    assert play(data, range(len(data))) == (events, ended)


TWO = AssistantMessage(None, (ADD, ToolCall("call_2", "add", {"a": 2})))
SECOND = call('{"a":2}', "call_2", item_id="fc_2")
HOLLOW_SECOND = call("", "call_2", item_id="fc_2")
SEVERAL: list[tuple[str, list[bytes]]] = [
    (
        "in-turns",
        [
            added(HOLLOW),
            added(HOLLOW_SECOND, 1),
            piece('{"a"'),
            piece('{"a":', "fc_2", 1),
            piece(":1}"),
            piece("2}", "fc_2", 1),
            done(call()),
            done(SECOND, 1),
            end(call(), SECOND),
        ],
    ),
    (
        "by-id-alone",
        [
            added(HOLLOW, None),
            added(HOLLOW_SECOND, None),
            piece('{"a":2}', "fc_2", None),
            piece('{"a":1}', "fc_1", None),
            SILENT,
        ],
    ),
    (
        "index-always-zero",
        [added(HOLLOW), added(HOLLOW_SECOND), piece('{"a":2}', "fc_2"), piece('{"a":1}'), SILENT],
    ),
    (
        "id-always-the-same",
        [
            added({**HOLLOW, "id": "fc"}),
            added({**HOLLOW_SECOND, "id": "fc"}, 1),
            piece('{"a":2}', "fc", 1),
            piece('{"a":1}', "fc", 0),
            done({**call(), "id": "fc"}),
            done({**SECOND, "id": "fc"}, 1),
            SILENT,
        ],
    ),
    ("finished-items-alone", [done(call(), None), done(SECOND, None), SILENT]),
    ("finished-items-of-one-id", [done({**call(), "id": ""}, None), done({**SECOND, "id": ""}, None), SILENT]),
    ("finished-items-of-one-id-2", [done({**call(), "id": "x"}, None), done({**SECOND, "id": "x"}, None), SILENT]),
    ("one-after-the-other-without-id", [
        added({**HOLLOW, "id": None}, None), piece('{"a":1}', None, None), done({**call(), "id": None}, None),
        added({**HOLLOW_SECOND, "id": None}, None), piece('{"a":2}', None, None), done({**SECOND, "id": None}, None),
        SILENT,
    ]),
    ("second-at-the-end-alone", [added(HOLLOW), piece('{"a":1}'), done(call()), end(call(), SECOND)]),
    ("other-ids-at-the-end", [
        done(call()), done(SECOND, 1), end(call(call_id="x", item_id="y"), {**SECOND, "call_id": "z", "id": "w"}),
    ]),
]  # fmt: skip


@pytest.mark.parametrize("parts", [row[1] for row in SEVERAL], ids=[row[0] for row in SEVERAL])
def test_calls_are_not_mixed_up(parts: list[bytes]) -> None:
    assert played(b"".join(parts)).message == TWO


def test_calls_without_openings_are_told_by_their_ids() -> None:
    parts = [piece('{"a":1}', "fc_1", None), piece('{"a":2}', "fc_2", None)]
    finished = [done(call(), None), done(SECOND, None)]
    assert played(b"".join([*parts, *finished, SILENT])).message == TWO


def test_piece_of_one_of_several_calls_is_an_error_not_a_guess() -> None:
    parts = [added({**HOLLOW, "id": None}, None), added({**HOLLOW_SECOND, "id": None}, None), piece("{", None, None)]
    ended = play(b"".join(parts))[1]
    assert isinstance(ended, DecodeError)
    assert "which of several tool calls" in str(ended)


def test_two_calls_that_say_the_same_are_two() -> None:
    reply = played(b"".join([done(call(), 0), done(call(call_id="call_2", item_id="fc_2"), 1), SILENT]))
    assert reply.message.tool_calls == (ADD, ToolCall("call_2", "add", {"a": 1}))


def test_arguments_that_came_whole_are_delivered_once() -> None:
    for parts in ([added(HOLLOW), done(call())], [added(HOLLOW), whole_arguments('{"a":1}'), done(call())]):
        events = play(b"".join([*parts, end(call())]))[0]
        assert "".join([one.arguments for one in events if isinstance(one, ToolCallDelta)]) == '{"a":1}'


def test_arguments_that_can_be_read_win_over_those_that_cannot() -> None:
    assert played(b"".join([added(HOLLOW), piece('{"a'), done(call()), SILENT])).message.tool_calls == (ADD,)
    broken = played(b"".join([added(HOLLOW), piece('{"a'), done(call("{}")), SILENT])).message.tool_calls[0]
    assert (broken.args, broken.raw_arguments) == ({}, '{"a')


def test_custom_tool_call_is_a_call_of_one_text() -> None:
    item = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "run", "input": "a = 1"}
    parts = [added({**item, "input": ""}), event("response.custom_tool_call_input.delta", item_id="ctc_1", delta="a")]
    reply = played(b"".join([*parts, done(item), end(item)]))
    assert reply == decode(body(item))
    assert reply.message.tool_calls == (ToolCall("call_1", "run", {"input": "a = 1"}),)


# Ends and errors


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (stream_of(text("Hello")), None),
        (begin() + delta("Hello") + done(text("Hello")), "network"),
        (begin() + delta("Hello"), "network"),
        (begin(), "network"),
        (b"", "network"),
        (delta("Hello") + end(text("Hello"))[:-40], "network"),
        (b"data: [DONE]\n\n", "decode"),
        (SILENT, None),
        (event("response.completed", response={"id": "r"}), "decode"),
    ],
    ids=["end", "item-alone", "deltas", "head", "nothing", "half", "done-alone", "empty", "end-without-output"],
)
def test_stream_is_whole_when_its_end_was_announced(data: bytes, kind: str | None) -> None:
    events, ended = play(data)
    if kind is None:
        assert isinstance(ended, ChatResponse)
    else:
        assert isinstance(ended, ProviderError)
        assert (ended.kind, ended.retryable, ended.partial_text) == (kind, True, said(events))


FAILURES: list[tuple[str, bytes, str, str]] = [
    ("event", event("error", code="rate_limit_exceeded", message="Slow down.", param=None), "rate_limit", "Slow down."),
    ("nested", event("error", error={"type": "server_error", "message": "Oops."}), "server", "Oops."),
    ("older-name", event("response.error", error={"message": "No such model"}), "not_found", "No such model"),
    ("bare", b'data: {"error":{"message":"Overloaded","type":"overloaded_error"}}\n\n', "overloaded", "Overloaded"),
    ("name-alone", b'event: error\ndata: {"message":"Overloaded"}\n\n', "overloaded", "Overloaded"),
    ("plain-text", b"event: error\ndata: Overloaded\n\n", "overloaded", "Overloaded"),
    ("between-the-events", b'{"error":{"code":503,"message":"gone"}}\n\n', "overloaded", "gone"),
    (
        "failed",
        event("response.failed", response={"status": "failed", "error": {"code": "server_error", "message": "Oops."}}),
        "server",
        "Oops.",
    ),
    ("failed-silently", event("response.failed", response={}), "server", "failed"),
    ("cancelled", event("response.cancelled", response={}), "server", "cancelled"),
    ("not-json", b"data: {\x00\n\n", "decode", "not JSON"),
    ("not-an-object", b"data: 3\n\n", "decode", "unexpected shape"),
]


@pytest.mark.parametrize(("data", "kind", "words"), [row[1:] for row in FAILURES], ids=[row[0] for row in FAILURES])
def test_error_in_mid_stream_costs_no_event_before_it(data: bytes, kind: str, words: str) -> None:
    events, ended = play(begin() + delta("Hello") + data + delta("never"))
    assert said(events) == "Hello"
    assert isinstance(ended, ProviderError)
    assert (ended.kind, ended.provider, ended.partial_text) == (kind, "openai", "Hello")
    assert words in str(ended)


def test_decoder_stays_at_its_error() -> None:
    decoder = CODEC.stream_decoder(WIRE)
    decoder.feed(FAILURES[0][1])
    assert decoder.feed(delta("x")) == ()
    assert decoder.finish() == ()
    with pytest.raises(ProviderError, match="Slow down"):
        decoder.response()


def test_nothing_is_read_after_the_end() -> None:
    decoder = CODEC.stream_decoder(WIRE)
    events = decoder.feed(delta("Hello") + end(text("Hello")) + delta("more"))
    assert list(events) == [TextDelta("Hello")]
    assert decoder.feed(delta("more")) == ()
    assert decoder.response().text == "Hello"


def test_error_instead_of_a_stream_is_read() -> None:
    ended = play(b'{"error":{"code":400,"message":"request (9 tokens) exceeds the available context size"}}')[1]
    assert isinstance(ended, ProviderError)
    assert ended.kind == "context_length"


def test_items_beyond_the_cap_are_an_error_not_a_full_memory() -> None:
    parts = [added(text(item_id=f"msg_{n}"), n) for n in range(MAX_ITEMS + 1)]
    ended = play(b"".join(parts))[1]
    assert isinstance(ended, DecodeError)
    assert f"more than {MAX_ITEMS}" in str(ended)


def test_event_over_the_cap_is_an_error_not_a_full_memory() -> None:
    ended = play(delta("x" * 2000), codec=OpenAIResponsesCodec(max_event_bytes=1000))[1]
    assert isinstance(ended, DecodeError)
    assert "1000" in str(ended)


# Characters


@pytest.mark.parametrize("pieces", [["sun \ud83d", "\ude00!"], ["sun ", "\ud83d", "\ude00", "!"]], ids=["end", "alone"])
def test_character_cut_between_its_two_escapes_is_put_together(pieces: list[str]) -> None:
    parts = [added(text()), *map(delta, pieces)]
    for last in (SILENT, done(text("sun 😀!")) + end(text("sun 😀!"))):
        events, ended = play(b"".join([*parts, last]))
        assert said(events) == ended.message.content == "sun 😀!"  # type: ignore[union-attr]


def test_half_a_character_at_the_end_is_replaced() -> None:
    parts = [summary("r\ud83d"), delta("x\ud83d", index=1), SILENT]
    events, ended = play(b"".join(parts))
    assert said(events) == ended.message.content == "x\ufffd"  # type: ignore[union-attr]
    assert thought(events) == ended.message.reasoning == "r\ufffd"  # type: ignore[union-attr]


def test_half_of_a_character_that_the_end_of_the_item_completes() -> None:
    events, ended = play(b"".join([added(text()), delta("x\ud83d"), done(text("x😀")), SILENT]))
    assert said(events) == ended.message.content == "x😀"  # type: ignore[union-attr]


def test_half_characters_in_arguments_and_side_fields_are_put_together_or_replaced() -> None:
    parts = [added(call("", "call_\ud83d")), piece('{"a":"\ud83d'), piece('\ude00"}'), end(id="r\ud83d", output=[])]
    ended = played(b"".join(parts))
    assert ended.message.tool_calls[0].args == {"a": "😀"}
    repr(ended).encode()
