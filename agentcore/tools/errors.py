"""Errors a tool may raise to say what kind of failure it was, and what a model is told of any error."""

from collections.abc import Iterator
from typing import cast

from agentcore.errors import AgentCoreError

_MAX_CAUSES = 5
_MAX_GROUP = 5


class ToolError(AgentCoreError):
    """A failure whose text is meant for the model: it is shown as it is, without the exception's name."""


class TransientToolError(ToolError):
    """A failure that may pass: a tool declared with `retry=` is tried again."""

    retryable = True


class EnvironmentToolError(ToolError):
    """The tool's surroundings failed, not the call: credentials have run out, a quota is used up.

    The model cannot mend that. Where the client says `pause_on_environment_error=True` the turn waits for a person;
    elsewhere the model is told.
    """


def describe(error: BaseException) -> str:
    """An exception in words, never empty: its name, its text, and what caused it; of a group, what is in it."""
    words = _words(error)
    cause, causes = error.__cause__, 0
    while cause is not None and causes < _MAX_CAUSES and not isinstance(error, ToolError):
        words += f" (caused by {_words(cause)}"
        cause, causes = cause.__cause__, causes + 1
    return words + ")" * causes


def _words(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        inside = list(_leaves(cast("BaseExceptionGroup[BaseException]", error)))
        words = "; ".join([describe(one) for one in inside[:_MAX_GROUP]])
        if len(inside) == 1:
            return words
        return f"{len(inside)} errors: {words}{'; …' if len(inside) > _MAX_GROUP else ''}"
    try:
        text = str(error)
    except Exception as broken:  # noqa: BLE001 - a text that cannot be made is no reason to lose the rest
        text = f"(its text cannot be read: {type(broken).__name__})"
    if isinstance(error, ToolError):
        return text or type(error).__name__
    return f"{type(error).__name__}: {text}" if text.strip() else type(error).__name__


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from _leaves(cast("BaseExceptionGroup[BaseException]", one))
        else:
            yield one
