"""What a guard decides."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TypeAlias, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Block(Struct, frozen=True):
    """It may not go on.

    Attributes:
        reason: why; it is the turn's `result.reason`.
    """

    reason: str


Judge: TypeAlias = Callable[[T], "Block | Awaitable[Block | None] | None"]
"""Looks at something and lets it pass (`None`) or not (`Block("why")`); sync or async."""


async def judged(judge: Judge[T], value: T) -> Block | None:
    """The verdict.

    Raises:
        TypeError: the guard gave something that is no verdict; nothing passes on a misunderstanding.
    """
    given = judge(value)
    return _checked(await given if isawaitable(given) else given)


def _checked(verdict: object) -> Block | None:
    if verdict is None or isinstance(verdict, Block):
        return verdict
    raise TypeError(f"a guard returns None or Block(reason), not {type(verdict).__name__}")
