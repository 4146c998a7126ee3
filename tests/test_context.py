"""ToolContext: a flat snapshot, and writes folded in order."""

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.context import ToolContext


def test_context_is_a_mapping_that_shows_only_its_keys() -> None:
    context = ToolContext({"conversation_id": "u1", "token": "sk-secret"}, turn_id="t", call_id="c")
    assert dict(context) == {"conversation_id": "u1", "token": "sk-secret"}
    assert (len(context), context.conversation_id, context.call_key) == (2, "u1", "t:c")
    assert "sk-secret" not in repr(context)
    assert ToolContext(context) == context
    assert ToolContext().conversation_id is None


def test_callers_mapping_is_not_kept() -> None:
    given = {"a": 1}
    context = ToolContext(given)
    given["a"] = 2
    assert context["a"] == 1
    with pytest.raises(TypeError):
        context["a"] = 3  # type: ignore[index]


def test_writes_are_folded_in_order_with_reducers() -> None:
    context = ToolContext({"n": 1, "x": "old"}, turn_id="t")
    folded = context.fold([{"n": 2, "x": "a"}, {"n": 3, "x": "b"}, {"new": 1}], {"n": operator.add})
    assert dict(folded) == {"n": 6, "x": "b", "new": 1}
    assert dict(context) == {"n": 1, "x": "old"}
    assert folded.turn_id == "t"


def test_reducer_of_an_empty_slot_gets_none() -> None:
    folded = ToolContext().fold([{"log": "a"}, {"log": "b"}], {"log": lambda old, new: [*(old or []), new]})
    assert folded["log"] == ["a", "b"]


def test_view_of_a_call_shares_the_snapshot() -> None:
    context = ToolContext({"a": 1}, turn_id="t")
    view = context.for_call("c1")
    assert (view.call_key, dict(view)) == ("t:c1", {"a": 1})
    assert context.call_id == ""


def test_failing_reducer_names_its_slot() -> None:
    with pytest.raises(TypeError) as caught:
        ToolContext({"n": "x"}).fold([{"n": 1}], {"n": operator.add})
    assert caught.value.__notes__ == ["in the reducer of the tool context's slot 'n'"]


def test_call_key_is_the_same_whenever_it_is_asked_for() -> None:
    context = ToolContext({}, turn_id="t")
    assert context.for_call("c").call_key == context.for_call("c").call_key == "t:c"
    assert context.for_call("c").call_key != context.for_call("d").call_key


@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), st.integers())),
    st.dictionaries(st.sampled_from("abc"), st.integers()),
)
def test_folding_is_one_update_after_another(writes: list[dict[str, int]], start: dict[str, int]) -> None:
    expected = dict(start)
    for write in writes:
        expected.update(write)
    assert dict(ToolContext(start).fold(writes, {})) == expected
