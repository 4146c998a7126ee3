"""The events of a run as AG-UI events, where a provider or a reader behaves oddly."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import ag_ui.core as ag
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore import InvokeResult, ToolCall, ToolMessage
from agentcore.events import (
    AgentEvent,
    ReasoningDelta,
    ReplyRestarted,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEvent,
)
from agentcore.messages import AssistantMessage, AudioPart, FilePart, ImagePart, TextPart
from agentcore.pause import Pause, PendingCall
from agentcore.usage import Usage
from agentcore.web.ag_ui_events import AgUiEvents
from agentcore.web.answers import Refusal
from agentcore.web.runs import Behind

GIVEN = ag.RunAgentInput(
    thread_id="t1",
    run_id="r1",
    state={},
    messages=[ag.UserMessage(id="u1", content="hi")],
    tools=[],
    context=[],
    forwarded_props={},
)


def ended(*messages: Any, **given: Any) -> InvokeResult:
    given = {"status": "completed", "turn_id": "x", "finish_reason": "stop", **given}
    return InvokeResult(messages=tuple(messages), **given)


def read(told: bytes) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in told.decode().split("\n\n") if line]


def told(happened: Iterable[TurnEvent | Behind], end: InvokeResult | Refusal, **given: Any) -> list[dict[str, Any]]:
    events = AgUiEvents(GIVEN, "run", **given)
    said = [events.begin(), *[events.event(one) for one in happened]]
    said.append(events.failed(end) if isinstance(end, Refusal) else events.finished(end))
    sent = read(b"".join(said))
    check(sent)
    return sent


OPENS = {
    "TEXT_MESSAGE_START": ("TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "messageId"),
    "REASONING_START": ("", "REASONING_END", "messageId"),
    "REASONING_MESSAGE_START": ("REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END", "messageId"),
    "TOOL_CALL_START": ("TOOL_CALL_ARGS", "TOOL_CALL_END", "toolCallId"),
    "SUBAGENT_STARTED": ("", "SUBAGENT_FINISHED SUBAGENT_ERROR", "subagentRunId"),
}


def check(sent: Sequence[dict[str, Any]]) -> None:
    """What is begun is ended, and nothing comes outside of it."""
    assert (sent[0]["type"], sent[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR")) == ("RUN_STARTED", True)
    is_open: set[tuple[str, str]] = set()
    for event in sent:
        for start, (content, ends, key) in OPENS.items():
            if event["type"] == start:
                assert (start, event[key]) not in is_open
                is_open.add((start, event[key]))
            elif event["type"] == content:
                assert (start, event[key]) in is_open
                assert event["delta"]
            elif event["type"] in ends.split():
                is_open.remove((start, event[key]))
        if event["type"] == "TOOL_CALL_RESULT":
            assert ("TOOL_CALL_START", event["toolCallId"]) not in is_open
    assert is_open == set()


def types(sent: Sequence[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in sent[1:-1]]


CALL = ToolCall("c1", "look", {"where": "up"})
TOLD_CALL = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]


def test_call_whose_id_comes_late_is_told_when_it_is_there() -> None:
    pieces = [ToolCallDelta(0, "", "", '{"wh'), ToolCallDelta(0, "c1", "look", 'ere":"up"}'), ToolStarted(CALL)]
    sent = told([*pieces, ToolFinished(ToolMessage("c1", "look", "seen"))], ended())
    assert types(sent) == [*TOLD_CALL, "TOOL_CALL_RESULT"]
    assert sent[2]["delta"] == '{"where":"up"}'


def test_call_that_was_never_streamed_is_told_whole() -> None:
    sent = told([ToolStarted(CALL), ToolFinished(ToolMessage("c1", "look", "seen"))], ended())
    assert types(sent) == [*TOLD_CALL, "TOOL_CALL_RESULT"]
    assert json.loads(sent[2]["delta"]) == {"where": "up"}


@pytest.mark.parametrize("order", ["together", "in-turn"])
def test_calls_of_a_batch_that_was_never_streamed_are_told_once_each(order: str) -> None:
    first, second = ToolStarted(CALL), ToolStarted(ToolCall("c2", "look"))
    ends = [ToolFinished(ToolMessage(call_id, "look", "seen")) for call_id in ("c1", "c2")]
    happened = [first, second, *ends] if order == "together" else [first, ends[0], second, ends[1]]
    sent = told([*happened, TextDelta("done")], ended(AssistantMessage("done"), message=AssistantMessage("done")))
    assert [event["toolCallId"] for event in sent if event["type"] == "TOOL_CALL_START"] == ["c1", "c2"]
    assert len({event["parentMessageId"] for event in sent if event["type"] == "TOOL_CALL_START"}) == 1


def test_id_that_comes_again_without_a_stream_is_of_another_reply() -> None:
    round_ = [ToolStarted(CALL), ToolFinished(ToolMessage("c1", "look", "seen"))]
    sent = told([*round_, *round_], ended())
    assert types(sent).count("TOOL_CALL_START") == types(sent).count("TOOL_CALL_RESULT") == 2


def test_result_whose_call_went_by_unseen_gets_one() -> None:
    sent = told([Behind(7), ToolFinished(ToolMessage("c1", "look", "seen"))], ended())
    assert types(sent) == ["CUSTOM", *TOLD_CALL, "TOOL_CALL_RESULT"]
    assert (sent[1]["name"], sent[1]["value"]) == ("behind", {"missed": 7})


def test_text_after_thoughts_after_text_is_told_apart() -> None:
    happened = [TextDelta("a"), ReasoningDelta("b"), ReasoningDelta("c"), TextDelta("d")]
    sent = told(happened, ended(AssistantMessage("ad")))
    texts = [event["messageId"] for event in sent if event["type"] == "TEXT_MESSAGE_START"]
    assert len(set(texts)) == 2
    assert types(sent).count("REASONING_MESSAGE_CONTENT") == 2


def test_answer_that_was_never_streamed_is_told() -> None:
    sent = told([], ended(AssistantMessage("cached"), message=AssistantMessage("cached")))
    assert [event["delta"] for event in sent if event["type"] == "TEXT_MESSAGE_CONTENT"] == ["cached"]


def test_calls_that_were_refused_are_answered() -> None:
    reply = AssistantMessage(None, (CALL,))
    sent = told([ToolCallDelta(0, "c1", "look", "{}")], ended(reply, ToolMessage("c1", "look", "no", is_error=True)))
    assert types(sent)[-1] == "TOOL_CALL_RESULT"


@pytest.mark.parametrize(
    ("finished", "end"),
    [
        (ToolFinished(ToolMessage("c1", "ask", "done")), "SUBAGENT_FINISHED"),
        (ToolFinished(ToolMessage("c1", "ask", "broken", is_error=True)), "SUBAGENT_ERROR"),
        (None, "SUBAGENT_FINISHED"),
    ],
    ids=["done", "failed", "never"],
)
def test_agent_ends_with_its_tool_call(finished: Any, end: str) -> None:
    inner = [TextDelta("x"), ToolCallDelta(0, "c1", "look", "{"), ToolProgress("c1", {"at": 1})]
    happened = [ToolStarted(ToolCall("c1", "ask")), *[AgentEvent("a", "c1", one) for one in inner]]
    sent = told([*happened, *([finished] if finished else [])], ended())
    [ending] = [event for event in sent if event["type"].startswith("SUBAGENT") and event["type"] != "SUBAGENT_STARTED"]
    assert ending["type"] == end
    inner_call = next(event for event in sent if event["type"] == "TOOL_CALL_START" and event.get("subagentRunId"))
    assert inner_call["toolCallId"] != "c1"


def test_error_ends_what_is_open() -> None:
    inner = AgentEvent("a", "c1", AgentEvent("b", "c2", TextDelta("x")))
    sent = told([ToolStarted(ToolCall("c1", "ask")), inner], Refusal(502, "server", "down"))
    assert [event["message"] for event in sent if event["type"] == "SUBAGENT_ERROR"] == ["down", "down"]
    assert (sent[-1]["message"], sent[-1]["code"]) == ("down", "server")


def test_agents_reply_that_was_given_up_is_taken_back_alone() -> None:
    happened = [
        ToolCallDelta(0, "c1", "ask", "{}"),
        ToolStarted(ToolCall("c1", "ask")),
        AgentEvent("a", "c1", TextDelta("wrong")),
        AgentEvent("a", "c1", ReplyRestarted()),
        AgentEvent("a", "c1", TextDelta("right")),
    ]
    sent = told(happened, ended())
    [snapshot] = [event for event in sent if event["type"] == "MESSAGES_SNAPSHOT"]
    kept = snapshot["messages"]
    assert [one["role"] for one in kept] == ["user", "assistant"]
    assert kept[1]["toolCalls"][0]["function"] == {"name": "ask", "arguments": "{}"}


def test_restart_before_anything_was_said_takes_nothing_back() -> None:
    sent = told([ReplyRestarted(), TextDelta("a")], ended(AssistantMessage("a"), message=AssistantMessage("a")))
    [snapshot] = [event for event in sent if event["type"] == "MESSAGES_SNAPSHOT"]
    assert [one["role"] for one in snapshot["messages"]] == ["user"]


def test_media_of_a_result_are_parts() -> None:
    content = (
        TextPart("see"),
        ImagePart(data=b"hi", media_type="image/png"),
        AudioPart(url="https://a/b.wav"),
        FilePart(data=b"x", media_type="application/pdf"),
    )
    sent = told([ToolStarted(CALL), ToolFinished(ToolMessage("c1", "look", content))], ended())
    [result] = [event for event in sent if event["type"] == "TOOL_CALL_RESULT"]
    assert [part["type"] for part in result["content"]] == ["text", "image", "audio", "document"]
    assert [part["source"] for part in result["content"][1:]] == [
        {"type": "data", "value": "aGk=", "mimeType": "image/png"},
        {"type": "url", "value": "https://a/b.wav"},
        {"type": "data", "value": "eA==", "mimeType": "application/pdf"},
    ]


def test_usage_of_a_resumed_run_is_its_own() -> None:
    pause = Pause(
        id="p",
        conversation_id="t1",
        turn_id="x",
        calls=(PendingCall(call=CALL, kind="approval", digest="d"),),
        created_at=0.0,
        usage=Usage(input_tokens=10, output_tokens=1),
    )
    sent = told([], ended(usage=Usage(input_tokens=25, output_tokens=3)), pause=pause, known=["c1"])
    assert sent[-1]["usage"] == [{"inputTokens": 15, "outputTokens": 2, "totalTokens": 17}]


def test_interrupt_says_when_it_expires() -> None:
    waiting = PendingCall(call=CALL, kind="environment", reason="no line", digest="d")
    pause = Pause(id="p", conversation_id="t1", turn_id="x", calls=(waiting,), created_at=0.0, expires_at=60.0)
    sent = told([ToolCallDelta(0, "c1", "look", "{}")], ended(status="paused", pause=pause))
    [asked] = sent[-1]["outcome"]["interrupts"]
    assert (asked["id"], asked["message"], asked["reason"]) == ("d", "no line", "agentcore:environment")
    assert asked["expiresAt"] == "1970-01-01T00:01:00+00:00"
    assert set(asked["responseSchema"]["properties"]) == {"approved"}


SIMPLE = st.one_of(
    st.builds(TextDelta, st.text("ab", min_size=1)),
    st.builds(ReasoningDelta, st.text("ab", min_size=1)),
    st.builds(
        ToolCallDelta,
        st.integers(0, 2),
        st.sampled_from(["", "c0", "c1"]),
        st.sampled_from(["", "look"]),
        st.sampled_from(["", "{", "}"]),
    ),
    st.builds(ToolStarted, st.builds(ToolCall, st.sampled_from(["c0", "c1"]), st.just("look"))),
    st.builds(ToolFinished, st.builds(ToolMessage, st.sampled_from(["c0", "c1"]), st.just("look"), st.just("x"))),
    st.builds(ToolProgress, st.sampled_from(["c0", "c1"]), st.just(1)),
    st.just(ReplyRestarted()),
    st.builds(Behind, st.integers(1, 3)),
)
ANY = st.one_of(SIMPLE, st.builds(AgentEvent, st.just("a"), st.sampled_from(["c0", "c1"]), SIMPLE))


@given(st.lists(ANY, max_size=12), st.booleans())
def test_whatever_happens_is_told_in_an_order_that_the_protocol_allows(happened: list[Any], fails: bool) -> None:
    told(happened, Refusal(500, "internal", "no") if fails else ended())
