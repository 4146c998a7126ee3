"""The order of the onion: where the memory comes, and which orders a client refuses."""

from typing import ClassVar

import pytest

from agentcore import ChatClient, ConfigurationError, Filter, InMemoryChatMemory, MemoryFilter
from agentcore.filters.base import MemorySide
from agentcore.testing import ScriptedModel


class Outside(Filter):
    memory_side: ClassVar[MemorySide | None] = "outside"


class Inside(Filter):
    memory_side: ClassVar[MemorySide | None] = "inside"


class Anywhere(Filter):
    pass


class Looks(Filter):
    inside_of: ClassVar[tuple[str, ...]] = ("Anywhere",)


class Derived(Anywhere):
    pass


def onion(*filters: Filter, memory: InMemoryChatMemory | None = None) -> list[str]:
    lines = ChatClient(ScriptedModel([]), filters=filters, memory=memory).describe().splitlines()
    return [line.split(":")[0] for line in lines[:-2]]


@pytest.mark.parametrize("memory", [None, InMemoryChatMemory()], ids=["no-store", "store"])
@pytest.mark.parametrize(
    ("filters", "made"),
    [
        ([], ["MemoryFilter"]),
        ([Anywhere()], ["Anywhere", "MemoryFilter"]),
        ([Outside(), Anywhere(), Inside()], ["Outside", "Anywhere", "MemoryFilter", "Inside"]),
        ([Inside(), Anywhere()], ["MemoryFilter", "Inside", "Anywhere"]),
    ],
    ids=["none", "anywhere", "both-sides", "inside-first"],
)
def test_memory_comes_innermost_but_outside_of_what_belongs_inside(
    filters: list[Filter], made: list[str], memory: InMemoryChatMemory | None
) -> None:
    assert onion(*filters, memory=memory) == made


def test_memory_that_is_in_the_list_stays_where_it_is() -> None:
    assert onion(MemoryFilter(), Anywhere(), Inside()) == ["MemoryFilter", "Anywhere", "Inside"]


@pytest.mark.parametrize(
    ("filters", "told"),
    [
        ([MemoryFilter(), Outside()], "Outside belongs outside the memory: in filters, put it before the MemoryFilter"),
        ([Inside(), Outside()], "Outside belongs outside the memory.*before Inside, which belongs inside"),
        ([Inside(), MemoryFilter()], "Inside belongs inside the memory: in filters, put it after the MemoryFilter"),
        ([Looks(), Anywhere()], "Looks belongs inside Anywhere"),
        ([Looks(), Derived()], "Looks belongs inside Anywhere"),
    ],
    ids=["outside-is-inside", "contradiction", "inside-is-outside", "inside-of", "inside-of-a-subclass"],
)
def test_order_that_is_known_to_be_wrong_is_refused_with_the_cure(filters: list[Filter], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        onion(*filters)


def test_right_orders_are_left_alone() -> None:
    assert onion(Anywhere(), Looks()) == ["Anywhere", "Looks", "MemoryFilter"]
    assert onion(Looks()) == ["Looks", "MemoryFilter"]
