"""The order of the onion: where the memory comes, and which orders a client refuses."""

from collections.abc import Sequence
from typing import ClassVar

import pytest

from agentcore import ChatClient, ConfigurationError, Filter, InMemoryChatMemory, MemoryFilter, ToolContext
from agentcore.filters.base import MemorySide
from agentcore.filters.cache import CacheFilter
from agentcore.filters.input_guard import InputGuard
from agentcore.filters.logging import LoggingFilter
from agentcore.filters.output_guard import OutputGuard
from agentcore.filters.rate_limit import RateLimitFilter
from agentcore.filters.re_reading import ReReadingFilter
from agentcore.filters.redacting import RedactingFilter
from agentcore.filters.retrieval import Passage, RetrievalFilter
from agentcore.filters.retry import RetryFilter
from agentcore.filters.structured import StructuredOutputFilter
from agentcore.filters.tool_search import ToolSearchFilter
from agentcore.filters.usage import UsageFilter
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


def nothing(*_: object) -> None:
    return None


class Finds:
    async def retrieve(self, query: str, context: ToolContext) -> Sequence[Passage]:
        return ()


SHIPPED: dict[str, tuple[Filter, str]] = {
    "LoggingFilter": (LoggingFilter(), "anywhere"),
    "InputGuard": (InputGuard(nothing), "outside"),
    "RateLimitFilter": (RateLimitFilter(60), "outside"),
    "RedactingFilter": (RedactingFilter(["x"]), "outside"),
    "RetryFilter": (RetryFilter(), "anywhere"),
    "UsageFilter": (UsageFilter(nothing), "anywhere"),
    "RetrievalFilter": (RetrievalFilter(Finds()), "inside"),
    "ReReadingFilter": (ReReadingFilter(), "inside"),
    "ToolSearchFilter": (ToolSearchFilter(), "inside"),
    "CacheFilter": (CacheFilter(), "inside"),
    "StructuredOutputFilter": (StructuredOutputFilter(), "inside"),
    "OutputGuard": (OutputGuard(nothing), "inside"),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_filter_comes_to_its_side_of_the_memory_and_is_refused_on_the_other(name: str) -> None:
    one, side = SHIPPED[name]
    assert onion(one) == (["MemoryFilter", name] if side == "inside" else [name, "MemoryFilter"])
    for wrong, order in (("outside", [MemoryFilter(), one]), ("inside", [one, MemoryFilter()])):
        if side == wrong:
            with pytest.raises(ConfigurationError, match=f"{name} belongs {side} the memory"):
                onion(*order)
        else:
            assert name in onion(*order)


def test_every_shipped_filter_in_one_onion() -> None:
    assert onion(*(one for one, _ in SHIPPED.values())) == [*list(SHIPPED)[:6], "MemoryFilter", *list(SHIPPED)[6:]]
