"""The events of a run as chunks of the AI SDK, where a provider or a reader behaves oddly."""

import json
from collections.abc import Iterable
from typing import Any

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
from agentcore.messages import AssistantMessage, ImagePart, TextPart
from agentcore.pause import Pause, PendingCall
from agentcore.web.answers import Refusal
from agentcore.web.runs import Behind
from agentcore.web.vercel_chunks import DONE, VercelChunks

CALL = ToolCall("c1", "look", {"where": "up"})


def ended(*messages: Any, **given: Any) -> InvokeResult:
    given = {"status": "completed", "turn_id": "x", "finish_reason": "stop", **given}
    return InvokeResult(messages=tuple(messages), **given)


class Message:
    """A message as the SDK builds it out of the chunks (npm `ai` 7, process-ui-message-stream), which refuses others."""

    def __init__(self) -> None:
        self.parts: list[dict[str, Any]] = []
        self.open: dict[str, dict[str, Any]] = {}
        self.partial: set[str] = set()

    def step(self) -> list[dict[str, Any]]:
        starts = [index for index, part in enumerate(self.parts) if part["type"] == "step-start"]
        return self.parts[starts[-1] + 1 :] if starts else self.parts

    def tool(self, call_id: str) -> dict[str, Any]:
        return [part for part in self.parts if part.get("id") == call_id][-1]

    def take(self, chunk: dict[str, Any]) -> None:
        kind, call_id = chunk["type"], chunk.get("toolCallId", "")
        match kind.rpartition("-"):
            case ("text" | "reasoning" as what, _, "start"):
                assert chunk["id"] not in self.open
                self.open[chunk["id"]] = {"type": what, "text": ""}
                self.parts.append(self.open[chunk["id"]])
            case ("text" | "reasoning" as what, _, "delta"):
                assert self.open[chunk["id"]]["type"] == what
                self.open[chunk["id"]]["text"] += chunk["delta"]
            case ("text" | "reasoning", _, "end"):
                del self.open[chunk["id"]]
            case ("tool-input", _, "start"):
                self.partial.add(call_id)
                self.put(call_id, chunk["toolName"], "input-streaming")
            case ("tool-input", _, "delta"):
                assert call_id in self.partial
            case ("tool-input", _, "available"):
                self.put(call_id, chunk["toolName"], "input-available")
            case ("tool-output", _, state):
                self.tool(call_id)["state"] = f"output-{state}"
            case ("tool-approval", _, "request"):
                self.tool(call_id)["state"] = "approval-requested"
            case ("start", _, "step"):
                self.parts.append({"type": "step-start"})
            case ("reset", _, "step"):
                del self.parts[len(self.parts) - len(self.step()) :]
                self.open.clear()
                self.partial.clear()
            case _:
                pass

    def put(self, call_id: str, name: str, state: str) -> None:
        for part in self.step():
            if part.get("id") == call_id:
                part["state"] = state
                return
        self.parts.append({"type": f"tool-{name}", "id": call_id, "state": state})

    def shown(self) -> list[Any]:
        return [
            part["text"] if "text" in part else (part["id"], part["state"])
            for part in self.parts
            if part["type"] != "step-start"
        ]


def told(
    happened: Iterable[TurnEvent | Behind], end: InvokeResult | Refusal, **given: Any
) -> tuple[list[Any], Message]:
    chunks = VercelChunks("m1", **given)
    said = [chunks.begin(), *[chunks.event(one) for one in happened]]
    said.append(chunks.failed(end) if isinstance(end, Refusal) else chunks.finished(end))
    assert said[-1].endswith(DONE)
    lines = b"".join(said).removesuffix(DONE).decode().split("\n\n")
    sent = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    message = Message()
    for call_id in given.get("known", ()):
        message.put(call_id, "look", "approval-responded")
    for chunk in sent:
        message.take(chunk)
    assert message.open == {}
    return sent, message


def test_call_whose_id_comes_late_is_told_when_it_is_there() -> None:
    pieces = [ToolCallDelta(0, "", "", '{"wh'), ToolCallDelta(0, "c1", "look", 'ere":"up"}'), ToolStarted(CALL)]
    sent, message = told([*pieces, ToolFinished(ToolMessage("c1", "look", "seen"))], ended())
    assert [one["inputTextDelta"] for one in sent if one["type"] == "tool-input-delta"] == ['{"where":"up"}']
    assert message.shown() == [("c1", "output-available")]


def test_result_whose_call_went_by_unseen_gets_one() -> None:
    sent, message = told([Behind(7), ToolFinished(ToolMessage("c1", "look", "seen"))], ended())
    assert sent[1] == {"type": "data-behind", "data": {"missed": 7}, "transient": True}
    assert message.shown() == [("c1", "output-available")]


def test_id_that_comes_again_without_a_stream_is_of_another_step() -> None:
    round_ = [ToolStarted(CALL), ToolFinished(ToolMessage("c1", "look", "seen"))]
    _, message = told([*round_, *round_], ended())
    assert message.shown() == [("c1", "output-available")] * 2


def test_answer_that_was_never_streamed_is_told() -> None:
    _, message = told([], ended(AssistantMessage("cached"), message=AssistantMessage("cached")))
    assert message.shown() == ["cached"]


def test_arguments_that_cannot_be_read_are_shown_as_they_are() -> None:
    sent, _ = told([ToolStarted(ToolCall("c1", "look", {}, "{where:"))], ended())
    assert [one["input"] for one in sent if one["type"] == "tool-input-available"] == ["{where:"]


def test_media_of_a_result_are_parts() -> None:
    content = (TextPart("see"), ImagePart(data=b"hi", media_type="image/png"))
    sent, _ = told([ToolStarted(CALL), ToolFinished(ToolMessage("c1", "look", content))], ended())
    [output] = [one["output"] for one in sent if one["type"] == "tool-output-available"]
    assert output[0] == {"type": "text", "text": "see"}
    assert output[1]["data"] == "aGk="


def test_step_that_pauses_shows_only_what_waits() -> None:
    pause = Pause(
        id="p",
        conversation_id="t1",
        turn_id="x",
        calls=(PendingCall(call=CALL, kind="approval", digest="d"),),
        created_at=0.0,
    )
    happened = [
        ReasoningDelta("a"),
        ReasoningDelta("b"),
        TextDelta("c"),
        ToolCallDelta(0, "c1", "look", "{}"),
        ToolCallDelta(1, "c2", "look", "{}"),
    ]
    _, message = told(happened, ended(status="paused", pause=pause))
    assert message.shown() == ["ab", "c", ("c1", "approval-requested")]


@pytest.mark.parametrize("later", [[], [TextDelta("done")]], ids=["ends", "goes-on"])
def test_continued_message_keeps_its_step(later: list[Any]) -> None:
    second = ToolCall("c2", "look")
    happened = [
        ToolStarted(CALL),
        ToolStarted(second),
        ToolFinished(ToolMessage("c2", "look", "seen")),
        ToolFinished(ToolMessage("c1", "look", "seen")),
    ]
    sent, message = told([*happened, *later], ended(), known=["c1"])
    assert message.shown() == [("c1", "output-available"), ("c2", "output-available"), *["done" for _ in later]]
    assert [one["type"] for one in sent].count("start-step") == len(later)


def test_stopped_turn_is_an_abort_and_an_error_an_error() -> None:
    assert told([TextDelta("a")], ended(status="cancelled"))[0][-1] == {"type": "abort"}
    assert told([TextDelta("a")], Refusal(502, "server", "down"))[0][-1] == {"type": "error", "errorText": "down"}


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
ANY = st.one_of(SIMPLE, st.builds(AgentEvent, st.just("a"), st.just("c0"), SIMPLE))


@given(st.lists(ANY, max_size=12), st.sampled_from([[], ["c0"]]), st.booleans())
def test_whatever_happens_is_told_in_an_order_that_the_sdk_takes(
    happened: list[Any], known: list[str], fails: bool
) -> None:
    told(happened, Refusal(500, "internal", "no") if fails else ended(), known=known)
