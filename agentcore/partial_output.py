"""PartialOutput: a value of a type out of JSON that is still being written."""

import re
from collections.abc import Iterator
from typing import Generic, TypeVar, cast

import msgspec

from agentcore.schema import convert_value
from agentcore.structured import WRAPPED, is_wrapped

T = TypeVar("T")

_STEP = 32
_BEGINNING = re.compile(r"[\[{]")
_STRUCTURE = re.compile(r'["{}\[\],:]')
_IN_STRING = re.compile(
    r'[^"\\]+|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u]'
)


class PartialOutput(Generic[T]):
    """Takes the text of a reply piece by piece, and gives the value that it makes so far.

    Unfinished texts are taken as far as they go; unfinished numbers, words and names are not there yet. What does not
    fit the type is left out from its innermost open end, until the rest fits or nothing is left.
    """

    def __init__(self, type_: type[T]) -> None:
        self._type = type_
        self._wrapped = is_wrapped(type_)
        self._pieces: list[str] = []
        self._fed = 0
        self._taken = 0  # how much of it has been looked at
        self._last: list[T] = []
        self._scan: _Scan | None = None

    @property
    def due(self) -> bool:
        """Whether enough is new to be looked at: steps that grow with the text keep the whole linear."""
        return (self._fed - self._taken) * _STEP >= self._taken

    def feed(self, text: str) -> None:
        """Take the next piece."""
        self._pieces.append(text)
        self._fed += len(text)

    def step(self) -> Iterator[T]:
        """The value so far, if it is another one than before."""
        if self._taken == self._fed:
            return
        text = "".join(self._pieces)
        self._pieces = [text]
        self._taken = self._fed
        if self._scan is None:
            beginning = _BEGINNING.search(text)
            if beginning is None:
                return
            self._scan = _Scan(beginning.start())
        self._scan.go_on(text)
        for candidate in self._scan.candidates(text):
            try:
                value = self._value(msgspec.json.decode(candidate))
            except (msgspec.MsgspecError, ValueError, RecursionError):
                continue
            if [value] != self._last:
                self._last = [value]
                yield value
            return

    def _value(self, found: object) -> T:
        if self._wrapped and isinstance(found, dict):
            if WRAPPED not in found:
                raise ValueError("the value itself has not begun")
            found = cast("dict[str, object]", found)[WRAPPED]
        return convert_value(found, self._type)


class _Open:
    """A container that is not closed yet: the last place in it where it could be."""

    __slots__ = ("closer", "in_name", "whole")

    def __init__(self, closer: str, whole: int) -> None:
        self.closer, self.whole = closer, whole
        self.in_name = closer == "}"  # a text here is a member's name


class _Scan:
    """How far a JSON text has been read, and what is open there."""

    def __init__(self, start: int) -> None:
        self._start = self._position = start
        self._open: list[_Open] = []
        self._in_string = False
        self._end: int | None = None

    def go_on(self, text: str) -> None:
        """Read what is new."""
        while self._end is None:
            if self._in_string:
                for piece in iter(lambda: _IN_STRING.match(text, self._position), None):
                    self._position = piece.end()
                if text[self._position : self._position + 1] != '"':
                    return
                self._in_string = False
                self._position += 1
                if not self._open[-1].in_name:
                    self._open[-1].whole = self._position
            found = _STRUCTURE.search(text, self._position)
            if found is None:
                return  # a number or a word: it is looked at again, being short
            self._position = found.end()
            self._take(found[0])

    def _take(self, sign: str) -> None:
        if sign == '"':
            self._in_string = True
        elif sign in "{[":
            self._open.append(_Open("}" if sign == "{" else "]", self._position))
        elif sign in "}]":
            self._open.pop()
            if self._open:
                self._open[-1].whole = self._position
            else:
                self._end = self._position
        elif sign == ",":
            self._open[-1].whole = self._position - 1
            self._open[-1].in_name = self._open[-1].closer == "}"
        else:
            self._open[-1].in_name = False

    def candidates(self, text: str) -> Iterator[str]:
        """Whole JSON texts out of what is there: the fullest first, then with open ends left out, innermost first."""
        if self._end is not None:
            yield text[self._start : self._end]
            return
        closers = "".join([one.closer for one in reversed(self._open)])
        if self._in_string and not self._open[-1].in_name:
            yield f'{text[self._start : self._position]}"{closers}'
        for depth, one in enumerate(reversed(self._open)):
            yield text[self._start : one.whole] + closers[depth:]
