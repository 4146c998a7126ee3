"""Healing: any list of messages becomes whole, and a whole one is left alone."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from agentcore.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    check_history,
)
from agentcore.pairing import NAMELESS, heal, interrupted_result

U, A, B = UserMessage("u"), ToolCall("a", "f"), ToolCall("b", "g")
RA, RB = ToolMessage("a", "f", "1"), ToolMessage("b", "g", "2")


def calls(*made: ToolCall) -> AssistantMessage:
    return AssistantMessage(None, made)


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        ([U, calls(A, B), RA, U], [U, calls(A, B), RA, interrupted_result(B), U]),
        ([U, calls(A)], [U, calls(A), interrupted_result(A)]),
        ([calls(A), U, RA], [calls(A), RA, U]),
        ([SystemMessage("s"), RA, U], [SystemMessage("s"), U]),
        ([calls(A), RA, RA, U], [calls(A), RA, U]),
        (
            [calls(A), calls(A), RA],
            [calls(A), interrupted_result(A), calls(A), RA],
        ),
        (
            [calls(A, A), RA, ToolMessage("a", "f", "2")],
            [calls(A, ToolCall("a_1", "f")), RA, ToolMessage("a_1", "f", "2")],
        ),
        ([calls(ToolCall("a", "")), RA], [calls(A), RA]),
        (
            [calls(ToolCall("a", "")), U],
            [calls(ToolCall("a", NAMELESS)), interrupted_result(ToolCall("a", NAMELESS)), U],
        ),
    ],
    ids=[
        "dangling",
        "at-the-end",
        "late-result",
        "orphan",
        "twice",
        "id-of-two-batches",
        "id-of-two-calls",
        "nameless",
        "nameless-and-dangling",
    ],
)
def test_breach_is_repaired(broken: list[Message], whole: list[Message]) -> None:
    healed, repairs = heal(broken)
    assert list(healed) == whole
    assert repairs
    assert check_history(healed) == []


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ([calls(A), ToolMessage("x", "f", "?"), RA], [1]),
        ([calls(A, B), RA, RA, RB], [2]),
        ([calls(A), calls(B), RA, RB], [2]),
        ([calls(A), U, RA], [2]),
    ],
    ids=["orphan-between", "second-result-between", "of-another-batch-between", "user-between"],
)
def test_repairs_name_what_was_out_of_place_and_not_what_stood_behind_it(
    broken: list[Message], told: list[int]
) -> None:
    healed, repairs = heal(broken)
    assert [repair.index for repair in repairs] == told
    assert check_history(healed) == []


def test_results_of_a_batch_are_put_in_call_order_without_a_word() -> None:
    broken = [U, calls(A, B), RB, RA, U]  # as when one of the calls has waited for a person
    healed, repairs = heal(broken)
    assert list(healed) == [U, calls(A, B), RA, RB, U]
    assert repairs == []
    assert check_history(broken) == []


def test_whole_history_is_returned_as_it_is() -> None:
    history = [U, calls(A, B), RA, RB, AssistantMessage("done"), U]
    healed, repairs = heal(history)
    assert healed is history
    assert repairs == []


ids = st.sampled_from(["a", "b", "c", ""])
messages = st.one_of(
    st.builds(UserMessage, st.text(max_size=3)),
    st.builds(SystemMessage, st.text(max_size=3)),
    st.builds(ToolMessage, ids, st.just("f"), st.text(max_size=3)),
    st.builds(
        AssistantMessage,
        st.just("x"),
        st.lists(st.builds(ToolCall, ids, st.sampled_from(["f", "g", ""])), max_size=3).map(tuple),
    ),
)


@given(st.lists(messages, max_size=12))
def test_healing_makes_any_list_whole(history: list[Message]) -> None:
    healed, _ = heal(history)
    assert check_history(healed) == []


@given(st.lists(messages, max_size=12))
def test_healing_is_idempotent_and_keeps_all_but_results(history: list[Message]) -> None:
    healed, _ = heal(history)
    again, repairs = heal(healed)
    assert again is healed
    assert not repairs
    kept = [message for message in healed if isinstance(message, UserMessage | SystemMessage)]
    assert kept == [message for message in history if isinstance(message, UserMessage | SystemMessage)]


@given(st.lists(messages, max_size=8), st.text(min_size=1, max_size=3))
def test_appending_leaves_the_healed_prefix(history: list[Message], text: str) -> None:
    before, _ = heal(history)
    after, _ = heal([*history, UserMessage(text)])
    assert list(after[: len(before)]) == list(before)


def test_history_of_open_calls_is_healed_in_one_pass() -> None:
    history: list[Message] = [message for n in range(5000) for message in (calls(ToolCall(f"c{n}", "f")), U)]
    healed, repairs = heal(history)
    assert len(healed) == 15_000
    assert len(repairs) == 5000
    assert check_history(healed) == []
