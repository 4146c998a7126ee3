"""Tool calls out of fragments: never the arguments of one with the name of another."""

from typing import Any

import pytest

from agentcore.codecs.call_assembly import MAX_CALLS, CallAssembly
from agentcore.errors import DecodeError
from agentcore.messages import ToolCall

Fragment = tuple[int | None, str, str, Any]


def assemble(*fragments: Fragment) -> list[tuple[str, str, dict[str, Any]]]:
    assembly = CallAssembly()
    for fragment in fragments:
        assembly.add(*fragment)
    return [(call.id, call.name, call.args) for call in assembly.calls("r1")]


def shown(calls: list[tuple[str, str, dict[str, Any]]]) -> list[tuple[str, str, dict[str, Any]]]:
    """With generated ids all alike."""
    return [("call" if call_id.startswith("call_") else call_id, name, args) for call_id, name, args in calls]


A, B = '{"a":1}', '{"b":2}'
HABITS: list[tuple[str, list[Fragment], list[tuple[str, str, dict[str, Any]]]]] = [
    ("pieces", [(0, "c1", "f", ""), (0, "", "", '{"a"'), (0, "", "", ":1}")], [("c1", "f", {"a": 1})]),
    ("interleaved", [(0, "c1", "f", ""), (1, "c2", "g", '{"b"'), (0, "", "", A), (1, "", "", ":2}")], [("c1", "f", {"a": 1}), ("c2", "g", {"b": 2})]),
    ("index-from-one", [(1, "c1", "f", A), (2, "c2", "g", B)], [("c1", "f", {"a": 1}), ("c2", "g", {"b": 2})]),
    ("sparse-index", [(5, "c1", "f", A), (9, "c2", "g", B)], [("c1", "f", {"a": 1}), ("c2", "g", {"b": 2})]),
    ("no-index", [(None, "c1", "f", A), (None, "c2", "g", B)], [("c1", "f", {"a": 1}), ("c2", "g", {"b": 2})]),
    ("no-index-pieces", [(None, "c1", "f", '{"a"'), (None, "", "", ":1}"), (None, "c2", "g", B)], [("c1", "f", {"a": 1}), ("c2", "g", {"b": 2})]),
    ("no-index-by-id", [(None, "c1", "f", '{"a"'), (None, "c2", "g", B), (None, "c1", "", ":1}")], [("c1", "f", {"a": 1}), ("c2", "g", {"b": 2})]),
    ("index-zero-for-all", [(0, "c1", "f", A), (0, "c2", "g", B)], [("c1", "f", {"a": 1}), ("c2", "g", {"b": 2})]),
    ("index-zero-then-right", [(0, "c1", "f", A), (0, "c2", "g", ""), (1, "", "", '{"b"'), (1, "", "", ":2}")], [("c1", "f", {"a": 1}), ("c2", "g", {"b": 2})]),
    ("id-and-name-repeated", [(0, "c1", "f", '{"a"'), (0, "c1", "f", ":1"), (0, "c1", "f", "}")], [("c1", "f", {"a": 1})]),
    ("id-repeated-no-index", [(None, "c1", "f", '{"a"'), (None, "c1", "f", ":1}")], [("c1", "f", {"a": 1})]),
    ("name-late", [(0, "c1", "", '{"a"'), (0, "", "f", ":1}")], [("c1", "f", {"a": 1})]),
    ("id-late", [(0, "", "f", '{"a"'), (0, "c1", "", ":1}")], [("c1", "f", {"a": 1})]),
    ("id-late-no-index", [(None, "", "f", '{"a"'), (None, "c1", "", ":1}")], [("c1", "f", {"a": 1})]),
    ("name-in-pieces", [(0, "c1", "get_", ""), (0, "", "weather", ""), (0, "", "", A)], [("c1", "get_weather", {"a": 1})]),
    ("name-growing", [(0, "c1", "get", ""), (0, "c1", "get_weather", ""), (0, "", "", A)], [("c1", "get_weather", {"a": 1})]),
    ("empty-strings", [(0, "c1", "f", ""), (0, "", "", '{"a":'), (0, "", "", "1}")], [("c1", "f", {"a": 1})]),
    ("null-then-text", [(0, "c1", "f", None), (0, "", "", A)], [("c1", "f", {"a": 1})]),
    ("object", [(0, "c1", "f", {"a": 1})], [("c1", "f", {"a": 1})]),
    ("object-repeated", [(0, "c1", "f", {"a": 1}), (0, "c1", "f", {"a": 1})], [("c1", "f", {"a": 1})]),
    ("index-new-id-known", [(0, "c1", "f", '{"a"'), (1, "c1", "", ":1}")], [("c1", "f", {"a": 1})]),
    ("object-growing", [(0, "c1", "f", {"a": 1}), (0, "c1", "f", {"a": 1, "b": 2})], [("c1", "f", {"a": 1, "b": 2})]),
    ("blank-after-object", [(0, "c1", "f", {"a": 1}), (0, "", "", " ")], [("c1", "f", {"a": 1})]),
    ("blank-after-text", [(0, "", "f", A), (0, "", "f", " \n")], [("call", "f", {"a": 1})]),
    ("no-index-without-arguments", [(None, "", "f", ""), (None, "", "g", B)], [("call", "f", {}), ("call", "g", {"b": 2})]),
    ("no-index-name-repeated", [(None, "", "f", ""), (None, "", "f", '{"a"'), (None, "", "f", ":1}")], [("call", "f", {"a": 1})]),
    ("double-encoded", [(0, "", "f", '"{\\"a\\"'), (0, "", "f", ':1}"'), (0, "", "g", B)], [("call", "f", {"a": 1}), ("call", "g", {"b": 2})]),
    ("same-id-pieces-twice", [(None, "x", "f", '{"a"'), (None, "x", "", ":1}"), (None, "x", "f", '{"b"'), (None, "x", "", ":2}")], [("x", "f", {"a": 1}), ("call", "f", {"b": 2})]),
    ("same-id-other-name", [(None, "x", "f", '{"a"'), (None, "x", "g", B)], [("x", "f", None), ("call", "g", {"b": 2})]),
    ("back-to-the-first-by-id", [(0, "c1", "f", '{"a"'), (0, "c2", "g", B), (0, "c1", "", ":1}")], [("c1", "f", {"a": 1}), ("c2", "g", {"b": 2})]),
    ("new-id-for-every-piece", [(0, "c1", "f", ""), (0, "r2", "", '{"a"'), (0, "r3", "", ":1}")], [("c1", "f", {"a": 1})]),
    ("blank-between", [(0, "", "f", A), (0, "", "", " "), (0, "", "f", B)], [("call", "f", {"a": 1}), ("call", "f", {"b": 2})]),
    ("quote-cut-off-its-backslash", [(0, "", "f", '{"a":"\\'), (0, "", "f", '"}'), (0, "", "f", '"}'), (0, "", "g", B)], [("call", "f", {"a": '"}'}), ("call", "g", {"b": 2})]),
    ("bracket-in-a-text", [(0, "", "f", '{"a":"}'), (0, "", "f", '{"}'), (0, "", "g", B)], [("call", "f", {"a": "}{"}), ("call", "g", {"b": 2})]),
    ("nothing-in-it", [(0, "", "", ""), (1, "c2", "g", B)], [("c2", "g", {"b": 2})]),
]  # fmt: skip


@pytest.mark.parametrize(("fragments", "calls"), [h[1:] for h in HABITS], ids=[h[0] for h in HABITS])
def test_fragments_find_their_call(fragments: list[Fragment], calls: list[tuple[str, str, dict[str, Any]]]) -> None:
    assert shown(assemble(*fragments)) == [(call_id, name, args or {}) for call_id, name, args in calls]


@pytest.mark.parametrize(
    "fragments",
    [
        [(0, "", "f", A), (0, "", "g", B)],
        [(0, "", "f", A), (0, "", "f", B)],
        [(None, "", "f", A), (None, "", "g", B)],
        [(None, "", "f", A), (None, "", "f", B)],
        [(None, "f", "f", A), (None, "f", "f", B)],
        [(0, "x", "f", A), (1, "x", "f", B)],
        [(0, "", "f", {"a": 1}), (0, "", "f", {"b": 2})],
    ],
    ids=[
        "index-0-names",
        "index-0-same-name",
        "no-index",
        "no-index-same-name",
        "ids-are-names",
        "ids-repeat",
        "objects",
    ],
)
def test_calls_without_ids_of_their_own_stay_apart(fragments: list[Fragment]) -> None:
    calls = assemble(*fragments)
    assert [args for _, _, args in calls] == [{"a": 1}, {"b": 2}]
    assert len({call_id for call_id, _, _ in calls}) == 2
    assert all(call_id for call_id, _, _ in calls)


@pytest.mark.parametrize(
    ("fragments", "words"),
    [
        ([(0, "c", "f", {"a": 1}), (0, "", "", "x")], "goes on with text"),
        ([(0, "c", "f", {"a": 1}), (0, "c", "", {"b": 1})], "twice"),
        ([(0, "c", "f", '{"a"'), (0, "c", "g", ":1}")], "two names"),
        ([(0, "c", "", A)], "without a name"),
        ([(0, "c1", "f", ""), (0, "c2", "g", ""), (0, "", "", A), (1, "", "", B)], "two tool calls the index 0"),
        ([(0, "c1", "f", '{"a"'), (0, "c2", "g", ""), (0, "", "", ":1}")], "two tool calls the index 0"),
        ([(0, "c1", "f", A), (0, "c2", "g", ""), (1, "", "", B), (2, "", "", A)], "without a name"),
        ([(0, "c1", "f", A), (0, "random", "", A)], "without a name"),
    ],
    ids=[
        "text-after-object",
        "two-objects",
        "two-names",
        "nameless",
        "heads-first",
        "first-unfinished",
        "third-tail",
        "new-id-each-time",
    ],
)
def test_what_cannot_be_told_apart_is_an_error(fragments: list[Fragment], words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        assemble(*fragments)


def test_entries_of_one_list_are_different_calls() -> None:
    assembly = CallAssembly()
    for position in range(3):
        assembly.add(None, "", "f", {}, position=position)
    assert len({call.id for call in assembly.calls("r1")}) == 3
    with pytest.raises(DecodeError, match="several tool calls at once"):
        assembly.add(None, "", "", A, position=1)


def test_name_in_pieces_is_mapped_back_as_a_whole() -> None:
    assembly = CallAssembly({"math_add": "math.add"})
    assembly.add(0, "c1", "math_", None)
    event = assembly.add(0, "", "add", None)
    assert event is not None
    assert event.name == "math.add"
    assert assembly.calls(None) == (ToolCall("c1", "math.add"),)


def test_call_cut_before_its_arguments_does_not_look_like_one_without() -> None:
    assembly = CallAssembly()
    assembly.add(0, "c1", "now", "")
    assembly.add(1, "c2", "write", "")
    assert assembly.calls(None, cut=True) == (ToolCall("c1", "now"), ToolCall("c2", "write", {}, ""))


def test_repeated_name_costs_no_square_of_time() -> None:
    assembly = CallAssembly()
    assembly.add(0, "", "f", '{"a":"')
    for _ in range(20_000):  # parsed at each of them, these would take minutes
        assembly.add(0, "", "f", "x" * 50)
    assembly.add(0, "", "f", '"}')
    assert len(assembly.calls(None)[0].args["a"]) == 1_000_000


def test_number_of_calls_is_bounded() -> None:
    assembly = CallAssembly()
    with pytest.raises(DecodeError, match=f"more than {MAX_CALLS}"):
        for index in range(MAX_CALLS + 1):
            assembly.add(index, f"c{index}", "f", "{}")


def test_arguments_of_other_types_are_kept_as_text() -> None:
    assembly = CallAssembly()
    assembly.add(0, "c1", "f", ["a"])
    assert assembly.calls(None) == (ToolCall("c1", "f", {}, '["a"]'),)


def test_entries_of_one_list_stay_apart_though_they_have_one_index_and_no_ids() -> None:
    assembly = CallAssembly()
    for position, name in enumerate("fgf"):
        assembly.add(0, "", name, "", position=position)
    assert [call.name for call in assembly.calls("r1")] == ["f", "g", "f"]


@pytest.mark.parametrize("piece", ["x" * 49 + "}", '\\"' * 20 + '"', " ", "}"])
def test_looking_for_the_end_of_arguments_costs_no_square_of_time(piece: str) -> None:
    assembly = CallAssembly()
    assembly.add(0, "", "f", '{"a":"')
    for _ in range(50_000):  # parsed at each of them, these would take minutes
        assembly.add(0, "", "f", piece)
    assert assembly.calls(None)
