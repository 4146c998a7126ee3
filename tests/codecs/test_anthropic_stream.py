"""Streams of Anthropic replies: what is delivered, what the whole is, and what a broken one costs."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from agentcore.codecs.anthropic_messages import AnthropicMessagesCodec
from agentcore.codecs.anthropic_stream import MAX_BLOCKS
from agentcore.codecs.base import WireRequest
from agentcore.errors import DecodeError, ProviderError
from agentcore.events import ReasoningDelta, StreamEvent, TextDelta, ToolCallDelta
from agentcore.messages import ToolCall
from agentcore.usage import Usage
from tests.support.anthropic_wire import (
    WIRE,
    call,
    decode,
    delta,
    ended,
    event,
    message,
    opened,
    play,
    said,
    start,
    stopped,
    stream_of,
    text,
    thinking,
)

HELLO = start() + opened(0, text("")) + said(0, "Hel") + said(0, "lo")
PING = event("ping")


def told(events: list[StreamEvent]) -> list[Any]:
    """Text as it is, thoughts in brackets, calls as (index, arguments)."""
    return [
        e.text
        if isinstance(e, TextDelta)
        else f"[{e.text}]"
        if isinstance(e, ReasoningDelta)
        else (e.index, e.arguments)
        for e in events
    ]


def test_text_is_delivered_as_it_comes() -> None:
    decoder, events = play(HELLO + stopped(0) + ended())
    assert told(events) == ["Hel", "lo"]
    assert decoder.response().text == decoder.text == "Hello"
    assert decoder.response().usage == Usage(input_tokens=5, output_tokens=3)


def test_each_read_delivers_what_it_completes() -> None:
    decoder = AnthropicMessagesCodec().stream_decoder(WIRE)
    assert decoder.feed(start() + opened(0, text("")) + said(0, "Hel")[:-1]) == []
    assert told(list(decoder.feed(b"\n"))) == ["Hel"]
    assert not decoder.done
    assert told(list(decoder.feed(said(0, "lo") + stopped(0) + ended()))) == ["lo"]
    assert decoder.done
    assert decoder.finish() == []


def test_thoughts_are_delivered_apart() -> None:
    body = message(thinking("hmhm"), text("4"))
    decoder, events = play(stream_of(body))
    assert told(events) == ["[hmh]", "[m]", "4"]
    assert decoder.response() == decode(body)


def test_call_is_delivered_as_it_is_written() -> None:
    decoder, events = play(
        start()
        + opened(0, call())
        + delta(0, type="input_json_delta", partial_json="")
        + delta(0, type="input_json_delta", partial_json='{"a":1,')
        + delta(0, type="input_json_delta", partial_json='"b":2}')
        + stopped(0)
        + ended("tool_use")
    )
    assert events == [
        ToolCallDelta(0, "toolu_1", "add", ""),
        ToolCallDelta(0, "toolu_1", "add", '{"a":1,'),
        ToolCallDelta(0, "toolu_1", "add", '"b":2}'),
    ]
    assert decoder.response().message.tool_calls == (ToolCall("toolu_1", "add", {"a": 1, "b": 2}),)
    assert decoder.response().finish_reason == "tool_calls"


def test_tool_names_are_mapped_back_in_events_and_response() -> None:
    wire = WireRequest("/v1/messages", b"", {"math_add": "math.add"})
    decoder, events = play(start() + opened(0, call("math_add")) + stopped(0) + ended("tool_use"), wire=wire)
    assert events == [ToolCallDelta(0, "toolu_1", "math.add", "")]
    assert decoder.response().message.tool_calls[0].name == "math.add"


@pytest.mark.parametrize(
    ("stream", "args", "arguments"),
    [
        pytest.param(opened(0, call()) + stopped(0), {}, "", id="no delta at all"),
        pytest.param(
            opened(0, {"type": "tool_use", "id": "t", "name": "add"}) + stopped(0), {}, "", id="start without input"
        ),
        pytest.param(opened(0, call(args={"a": 1})) + stopped(0), {"a": 1}, '{"a":1}', id="input whole at the start"),
        pytest.param(opened(0, call(args={"a": 1})), {"a": 1}, '{"a":1}', id="input whole, block never stopped"),
        pytest.param(
            opened(0, call(args={"a": 1})) + delta(0, type="input_json_delta", partial_json='{"a":1}') + stopped(0),
            {"a": 1},
            '{"a":1}',
            id="input whole and in pieces",
        ),
        pytest.param(
            opened(0, call()) + delta(0, type="input_json_delta", partial_json='"{\\"a\\":1}"') + stopped(0),
            {"a": 1},
            '"{\\"a\\":1}"',
            id="encoded twice",
        ),
    ],
)
def test_arguments_come_in_any_of_the_known_ways(stream: bytes, args: dict[str, Any], arguments: str) -> None:
    decoder, events = play(start() + stream + ended("tool_use"))
    assert decoder.response().message.tool_calls[0].args == args
    assert "".join(e.arguments for e in events if isinstance(e, ToolCallDelta)) == arguments


def test_overlapping_blocks_are_kept_apart_by_their_index() -> None:
    second = {"type": "tool_use", "id": "t2", "name": "get_time"}
    decoder, events = play(
        start()
        + opened(0, {"type": "tool_use", "id": "t1", "name": "get_weather"})
        + delta(0, type="input_json_delta", partial_json='{"city":')
        + opened(1, second)
        + delta(1, type="input_json_delta", partial_json='{"city":"Rome"}')
        + delta(0, type="input_json_delta", partial_json='"Paris"}')
        + stopped(0)
        + stopped(1)
        + ended("tool_use")
    )
    assert decoder.response().message.tool_calls == (
        ToolCall("t1", "get_weather", {"city": "Paris"}),
        ToolCall("t2", "get_time", {"city": "Rome"}),
    )
    assert [one[0] for one in told(events)] == [0, 0, 1, 1, 0]


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(HELLO + stopped(0) + opened(0, call()) + stopped(0), id="every block has index 0"),
        pytest.param(start() + said(0, "Hello") + opened(1, call()), id="no start of the text"),
        pytest.param(
            start()
            + event("content_block_start", content_block=text(""))
            + event("content_block_delta", delta={"type": "text_delta", "text": "Hello"})
            + event("content_block_start", content_block=call()),
            id="no index",
        ),
        pytest.param(start() + opened(0, text("Hel")) + said(0, "lo") + opened(1, call()), id="text at the start"),
        pytest.param(start() + opened(1, text("")) + said(1, "Hello") + opened(2, call()), id="index from 1"),
        pytest.param(
            start() + opened(0, thinking("", "")) + said(0, "Hello") + opened(1, call()), id="text in a thought"
        ),
        pytest.param(start(content=[text("Hello"), call()]), id="all in the first event"),
        pytest.param(
            start(content=[text("Hello"), call()]) + opened(0, text("")) + said(0, "Hello") + opened(1, call()),
            id="in the first event and again",
        ),
    ],
)
def test_blocks_of_a_careless_server_are_told_apart(stream: bytes) -> None:
    decoder, events = play(stream + ended("tool_use"))
    response = decoder.response()
    assert (response.text, response.message.tool_calls) == ("Hello", (ToolCall("toolu_1", "add"),))
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "Hello"
    assert [e for e in events if isinstance(e, ToolCallDelta)] == [ToolCallDelta(0, "toolu_1", "add", "")]


def test_blocks_that_share_their_indexes_keep_the_order_of_their_coming() -> None:
    blocks = [thinking("a", "x"), call(), thinking("b", "y"), call("now", {}, "toolu_2")]
    starts = b"".join(opened(position % 2, block) for position, block in enumerate(blocks))
    decoder, events = play(start() + starts + ended("tool_use"))
    assert decoder.response() == decode(
        message(*blocks, stop="tool_use", usage={"input_tokens": 5, "output_tokens": 3})
    )
    assert told(events) == ["[a]", (0, ""), "[b]", (1, "")]


@pytest.mark.parametrize(
    "noise",
    [
        PING,
        b": comment\n\n",
        b"event: ping\ndata:\n\n",
        event("content_block_hint", index=0, hint=1),
        event("content_block_hint", delta="a text", index={}),
        b"event: glow\ndata: {}\n\n",
        delta(0, type="sparkle_delta", sparkle=True),
        event("content_block_delta", index=0),
        event("content_block_delta", index=9, delta={"type": "input_json_delta", "partial_json": "{"}),
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": None}),
        event("content_block_delta", index=0, delta={}),
        event("content_block_start", index=5, content_block=None),
        event("content_block_stop", index=7),
        event("message_delta", delta={"stop_reason": None}, usage=None),
        event("message_start", message=None),
    ],
    ids=lambda noise: noise.decode()[:60],
)
def test_what_says_nothing_is_passed_over(noise: bytes) -> None:
    decoder, events = play(
        start() + noise + opened(0, text("")) + said(0, "Hel") + noise + said(0, "lo") + noise + ended()
    )
    assert (told(events), decoder.response().text) == (["Hel", "lo"], "Hello")


def test_server_tool_input_is_no_call_of_ours() -> None:
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": "x"}}
    body = message(search, {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}, text("found"))
    decoder, events = play(stream_of(body))
    assert told(events) == ["fou", "nd"]
    assert decoder.response() == decode(body)


def test_citations_belong_to_their_text() -> None:
    body = message(text("Grass is green.", citations=[{"type": "char_location", "cited_text": "green"}]))
    decoder, _ = play(stream_of(body))
    assert decoder.response() == decode(body)
    assert decoder.response().message.replay is not None


def test_signature_in_pieces_is_put_together() -> None:
    decoder, _ = play(
        start()
        + opened(0, thinking("", ""))
        + delta(0, type="thinking_delta", thinking="Need data.")
        + delta(0, type="signature_delta", signature="c2ln")
        + delta(0, type="signature_delta", signature="LTM=")
        + stopped(0)
        + opened(1, call())
        + stopped(1)
        + ended("tool_use")
    )
    replay = decoder.response().message.replay
    assert replay is not None
    assert replay["blocks"] == [thinking("Need data.", "c2lnLTM=")]


def test_limit_inside_a_call_keeps_the_raw_text_and_no_arguments() -> None:
    raw = '{"steps":["a","b'
    decoder, _ = play(
        start() + opened(0, call("plan")) + delta(0, type="input_json_delta", partial_json=raw) + ended("max_tokens")
    )
    response = decoder.response()
    assert response.finish_reason == response.message.finish_reason == "length"
    assert response.message.tool_calls == (ToolCall("toolu_1", "plan", {}, raw),)


@pytest.mark.parametrize(
    ("first", "last", "neutral"),
    [
        pytest.param(
            {"input_tokens": 33, "output_tokens": 1}, {"output_tokens": 5}, (33, 5, None, None), id="output alone"
        ),
        pytest.param(
            {"input_tokens": 9100, "output_tokens": 0},
            {
                "input_tokens": 20,
                "output_tokens": 311,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 9075,
            },
            (9095, 311, 9075, 0),
            id="corrected",
        ),
        pytest.param(
            {"input_tokens": 1, "cache_read_input_tokens": 212, "output_tokens": 0},
            {"output_tokens": 9, "input_tokens": None},
            (213, 9, 212, None),
            id="null corrects nothing",
        ),
    ],
)
def test_later_figures_win_field_by_field(
    first: dict[str, Any], last: dict[str, Any], neutral: tuple[Any, ...]
) -> None:
    usage = play(start(usage=first) + opened(0, text("ok")) + ended(**last))[0].response().usage
    assert (usage.input_tokens, usage.output_tokens, usage.cached_input_tokens, usage.cache_write_tokens) == neutral


# ---- ends

OVERLOADED = event("error", error={"type": "overloaded_error", "message": "Overloaded"})


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        pytest.param(OVERLOADED, "overloaded", True, id="named event"),
        pytest.param(OVERLOADED.split(b"\n", 1)[1], "overloaded", True, id="event without a name"),
        pytest.param(
            b'data: {"error":{"message":"x","type":"rate_limit_error"}}\n\n', "rate_limit", True, id="no type"
        ),
        pytest.param(b"event: error\ndata: upstream closed\n\n", "server", True, id="plain text"),
        pytest.param(
            event("error", error={"type": "invalid_request_error", "message": "no"}),
            "invalid_request",
            False,
            id="final",
        ),
    ],
)
def test_error_in_mid_stream_comes_after_what_was_delivered(error: bytes, kind: str, retryable: bool) -> None:
    decoder = AnthropicMessagesCodec().stream_decoder(WIRE)
    assert told(list(decoder.feed(HELLO + error + said(0, "never")))) == ["Hel", "lo"]
    assert decoder.error is not None
    assert (decoder.error.kind, decoder.error.retryable, decoder.error.partial_text) == (kind, retryable, "Hello")
    assert (list(decoder.feed(said(0, "never"))), list(decoder.finish())) == ([], [])
    with pytest.raises(ProviderError) as caught:
        decoder.response()
    assert caught.value is decoder.error


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\n\n", id="blank"),
        pytest.param(b": keep alive\n\n", id="comments alone"),
        pytest.param(HELLO, id="no end announced"),
        pytest.param(HELLO + stopped(0), id="block ended, message not"),
        pytest.param(HELLO + ended()[:40], id="cut inside the end"),
        pytest.param(HELLO + said(0, "more")[:-20], id="cut inside an event"),
        pytest.param(start(stop_reason="end_turn"), id="a stop reason in the first event announces nothing"),
    ],
)
def test_stream_closed_before_its_end_is_a_network_error(stream: bytes) -> None:
    decoder, events = play(stream)
    assert decoder.error is not None
    assert (decoder.error.kind, decoder.error.retryable) == ("network", True)
    assert "closed before the end of the stream" in str(decoder.error)
    assert decoder.error.partial_text == "".join(e.text for e in events if isinstance(e, TextDelta))
    with pytest.raises(ProviderError):
        decoder.response()


def test_response_asked_for_before_the_end_is_refused() -> None:
    decoder = AnthropicMessagesCodec().stream_decoder(WIRE)
    decoder.feed(HELLO)
    with pytest.raises(ProviderError, match="closed before"):
        decoder.response()


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(ended(), id="both"),
        pytest.param(event("message_stop"), id="message_stop alone"),
        pytest.param(event("message_delta", delta={"stop_reason": "end_turn"}), id="stop reason alone"),
        pytest.param(b"data: [DONE]\n\n", id="done"),
        pytest.param(ended() + b"data: [DONE]\n\n", id="done after the end"),
        pytest.param(ended() + OVERLOADED, id="whatever follows the end"),
        pytest.param(ended().rstrip(), id="no blank line at the end"),
        pytest.param(ended()[:-20], id="cut inside message_stop"),
        pytest.param(
            event("message_delta", delta={"stop_reason": "end_turn"})
            + event("message_delta", delta={"stop_reason": None}),
            id="a delta without a reason after it",
        ),
        pytest.param(ended().replace(b"\n", b"\r\n"), id="line ends of another kind"),
    ],
)
def test_announced_end_is_enough(end: bytes) -> None:
    decoder, _ = play(HELLO + end)
    assert decoder.error is None
    assert decoder.done
    response = decoder.response()
    assert (response.text, response.finish_reason) == ("Hello", "stop")


def test_end_of_nothing_is_a_decode_error() -> None:
    decoder, _ = play(event("message_stop"))
    with pytest.raises(DecodeError, match="no message") as caught:
        decoder.response()
    assert (caught.value.retryable, caught.value.provider) == (True, "anthropic")


@pytest.mark.parametrize(
    ("broken", "said_so"),
    [
        (b"data: {nonsense\n\n", "not JSON"),
        (b"data: [1]\n\n", "shape"),
        (event("content_block_delta", index=0, delta="text"), "shape"),
        (opened(1, {"type": "tool_use", "id": "t"}) + ended(), "without a name"),
        (event("message_start", message={"content": 7}), "not a list"),
        (b"".join(opened(i, text("")) for i in range(MAX_BLOCKS)), "blocks"),
    ],
    ids=["no json", "no object", "delta a text", "call without a name", "content a number", "too many blocks"],
)
def test_stream_that_cannot_be_read_is_a_decode_error(broken: bytes, said_so: str) -> None:
    decoder = AnthropicMessagesCodec().stream_decoder(WIRE)
    decoder.feed(HELLO + broken)
    if decoder.error is None:
        with pytest.raises(DecodeError):
            decoder.response()
    assert isinstance(decoder.error, DecodeError)
    assert said_so in str(decoder.error)
    assert (decoder.error.partial_text, decoder.error.provider) == ("Hello", "anthropic")


def test_event_above_the_cap_is_refused() -> None:
    decoder = AnthropicMessagesCodec(max_event_bytes=1000).stream_decoder(WIRE)
    decoder.feed(HELLO)
    decoder.feed(b"data: " + b"x" * 2000)
    assert isinstance(decoder.error, DecodeError)
    assert decoder.error.partial_text == "Hello"


# ---- what is not a stream


def cuts(data: bytes) -> list[list[bytes]]:
    return [[data[:i], data[i:]] for i in range(len(data) + 1)]


def one_by_one(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


@pytest.mark.parametrize("lead", [b"", b"\xef\xbb\xbf", b"\n\n  "], ids=["bare", "byte order mark", "white space"])
def test_plain_body_in_place_of_a_stream_is_read(lead: bytes) -> None:
    body = message(thinking(), text("Hi."), call(args={"a": 1}), stop="tool_use")
    for pieces in ([lead + body], one_by_one(lead + body)):
        decoder, events = play(pieces)
        assert decoder.response() == decode(body)
        assert told(events) == ["[hm]", "Hi.", (0, '{"a":1}')]
        assert decoder.done


def test_page_of_a_proxy_in_place_of_a_stream_is_a_decode_error() -> None:
    decoder, _ = play(b"<html><body>504</body></html>")
    assert isinstance(decoder.error, DecodeError)
    assert "HTML" in str(decoder.error)


def test_error_body_in_place_of_a_stream_is_that_error() -> None:
    decoder, _ = play(b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}')
    assert decoder.error is not None
    assert decoder.error.kind == "overloaded"


# ---- cuts

REPLIES: dict[str, Callable[[], bytes]] = {
    "text": lambda: message(text("Hällo, 晴れ 😀!")),
    "thinking and calls": lambda: message(
        thinking("Überlegung"),
        text("Look."),
        call(args={"city": "北京", "n": [1, 2.5]}),
        call("now", {}, "toolu_2"),
        stop="tool_use",
    ),
    "server tools": lambda: message(
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"x": 1}]},
        text("A fjord."),
        text("Cited.", citations=[{"cited_text": "x"}]),
        usage={"input_tokens": 2, "cache_read_input_tokens": 3, "output_tokens": 4},
    ),
    "cut": lambda: message(text("Plan:"), call("plan", {"steps": ["a"]}), stop="max_tokens"),
    "paused": lambda: message(
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, stop="pause_turn"
    ),
}


@pytest.mark.parametrize("name", REPLIES)
def test_stream_cut_at_any_byte_says_the_same(name: str) -> None:
    body = REPLIES[name]()
    stream = stream_of(body, size=7)
    whole, events = play(stream)
    assert whole.response() == decode(body)
    for pieces in [*cuts(stream), one_by_one(stream), one_by_one(stream.replace(b"\n", b"\r\n"))]:
        decoder, delivered = play(pieces)
        assert delivered == events
        assert decoder.response() == whole.response()


@pytest.mark.parametrize("name", REPLIES)
def test_stream_that_breaks_at_any_byte_keeps_what_was_delivered(name: str) -> None:
    stream = stream_of(REPLIES[name](), size=7)
    _, whole = play(stream)
    for end in range(len(stream)):
        decoder, events = play(stream[:end])
        assert events == whole[: len(events)]
        assert decoder.text == "".join(e.text for e in events if isinstance(e, TextDelta))
        if decoder.error is not None:
            assert (decoder.error.kind, decoder.error.retryable) == ("network", True)


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        (["\\ud83d", "\\ude00"], "😀"),
        (["a\\ud83d\\ude00", "b"], "a😀b"),
        (["a\\ud83d", "b"], "a\ufffdb"),
        (["\\ude00", "x"], "\ufffdx"),
        (["end\\ud83d"], "end\ufffd"),
        (["\\ud83d", "plain", "\\ude00"], "\ufffdplain\ufffd"),
    ],
)
def test_characters_cut_in_halves_are_put_together(pieces: list[str], whole: str) -> None:
    halves = b"".join(said(0, "PIECE").replace(b"PIECE", piece.encode()) for piece in pieces)
    decoder, events = play(start() + opened(0, text("")) + halves + ended())
    assert decoder.response().text == "".join(e.text for e in events if isinstance(e, TextDelta)) == whole


def test_raw_payloads_are_kept_on_request() -> None:
    decoder, _ = play(HELLO + ended(), codec=AnthropicMessagesCodec(keep_raw=True))
    raw = decoder.response().raw
    assert raw is not None
    assert [json.loads(line)["type"] for line in raw.splitlines()][-2:] == ["message_delta", "message_stop"]


def test_arguments_for_a_block_that_is_no_call_are_not_lost_in_silence() -> None:
    stray = delta(0, type="input_json_delta", partial_json='{"a":1}')
    decoder, _ = play(start() + opened(1, call()) + stray + stopped(1) + ended("tool_use"))
    with pytest.raises(DecodeError, match="a tool call got no arguments"):
        decoder.response()
    own = delta(1, type="input_json_delta", partial_json='{"b":2}')
    decoder, _ = play(start() + opened(1, call()) + stray + own + stopped(1) + ended("tool_use"))
    assert decoder.response().message.tool_calls[0].args == {"b": 2}


def test_arguments_in_a_delta_may_be_an_object() -> None:
    whole = delta(0, type="input_json_delta", partial_json={"a": 1})
    decoder, events = play(start() + opened(0, call()) + whole + stopped(0) + ended("tool_use"))
    assert decoder.response().message.tool_calls[0].args == {"a": 1}
    assert told(events) == [(0, ""), (0, '{"a":1}')]


def test_error_without_a_type_is_an_error() -> None:
    failure = b'data: {"base_resp":{"status_code":1002,"status_msg":"slow down"}}\n\n'
    decoder, _ = play(HELLO + failure)
    assert decoder.error is not None
    assert (decoder.error.kind, decoder.error.partial_text) == ("rate_limit", "Hello")


def test_thought_cut_inside_a_character_goes_back_whole() -> None:
    halves = [delta(0, type="thinking_delta", thinking=half) for half in ("\ud83d", "\ude00")]
    signed = delta(0, type="signature_delta", signature="c2ln")
    data = start() + opened(0, thinking("", "")) + b"".join(halves) + signed + stopped(0) + ended()
    decoder, _ = play(data)
    replay = decoder.response().message.replay
    assert replay is not None
    assert replay["blocks"] == [thinking("\U0001f600", "c2ln")]
