"""KeywordToolIndex: finds tools by the words of their names, descriptions and parameters. No package, no network."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

from agentcore.chat import ToolSchema

_NAME_WEIGHT = 3  # a word of the name says more than one of the description
_SATURATION, _LENGTH = 1.2, 0.75  # k1 and b, as Robertson and Zaragoza recommend them (2009, 3.2)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")
# Kana, Han with its extensions, Hangul: written without spaces, or with endings on the word.
_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+")


class ToolIndex(Protocol):
    """Finds tools by what they are good for."""

    async def search(self, query: str, limit: int) -> Sequence[str]:
        """The names of fitting tools, best first, at most `limit`."""
        ...


class KeywordToolIndex:
    """Ranks tools by BM25 over their words; runs of Chinese, Japanese and Korean count as pairs of characters.

    Args:
        tools: what is to be found.
    """

    def __init__(self, tools: Sequence[ToolSchema]) -> None:
        self._names = [one.name for one in tools]
        self._counts = [Counter(_words_of(one)) for one in tools]
        self._lengths = [sum(counts.values()) for counts in self._counts]
        self._average = sum(self._lengths) / len(tools) if tools else 1.0
        self._holders: dict[str, list[int]] = {}
        for number, counts in enumerate(self._counts):
            for word in counts:
                self._holders.setdefault(word, []).append(number)

    async def search(self, query: str, limit: int) -> Sequence[str]:
        """The names of the tools that share words with the query, best first; equals in their own order."""
        scores: dict[int, float] = {}
        for word in dict.fromkeys(words(query)):
            holders = self._holders.get(word, ())
            rarity = math.log(1 + (len(self._names) - len(holders) + 0.5) / (len(holders) + 0.5))
            for number in holders:
                count = self._counts[number][word]
                norm = _SATURATION * (1 - _LENGTH + _LENGTH * self._lengths[number] / self._average)
                scores[number] = scores.get(number, 0.0) + rarity * count * (_SATURATION + 1) / (count + norm)
        ranked = sorted(scores, key=lambda number: (-scores[number], number))
        return [self._names[number] for number in ranked[:limit]]


def words(text: str) -> Iterator[str]:
    """The words of a text: lower case, names taken apart, plurals as singulars, pairs of characters for CJK."""
    for word in _WORD.findall(_CAMEL.sub(" ", text)):
        rest = 0
        for run in _CJK.finditer(word):
            yield from _plain(word[rest : run.start()])
            rest = run.end()
            yield from (run[0][i : i + 2] for i in range(max(1, len(run[0]) - 1)))
        yield from _plain(word[rest:])


def _plain(word: str) -> Iterator[str]:
    if word:
        word = word.casefold()
        yield word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _words_of(one: ToolSchema) -> Iterator[str]:
    for _ in range(_NAME_WEIGHT):
        yield from words(one.name)
    yield from words(one.description)
    parameters: Mapping[str, Any] = one.parameters.get("properties") or {}
    for name, schema in parameters.items():
        yield from words(name)
        if isinstance(schema, Mapping):
            yield from words(str(cast("Mapping[str, Any]", schema).get("description") or ""))
