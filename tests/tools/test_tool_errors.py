"""What a model is told of an exception: never nothing, and what there is to act on."""

import httpx
import pytest

from agentcore.tools.errors import ToolError, TransientToolError, describe


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("bad two"), "ValueError: bad two"),
        (TimeoutError(), "TimeoutError"),
        (ValueError("  "), "ValueError"),
        (KeyError("x"), "KeyError: 'x'"),
        (httpx.ReadTimeout(""), "ReadTimeout"),
        (Mute(), "Mute: (its text cannot be read: RuntimeError)"),
        (ToolError("plain words"), "plain words"),
        (ToolError(), "ToolError"),
        (TransientToolError(), "TransientToolError"),
        (caused(ToolError("plain words"), OSError("inner")), "plain words"),
        (
            caused(RuntimeError("not saved"), OSError("disk full")),
            "RuntimeError: not saved (caused by OSError: disk full)",
        ),
        (
            caused(RuntimeError(), caused(OSError(), KeyError(1))),
            "RuntimeError (caused by OSError (caused by KeyError: 1))",
        ),
        (ExceptionGroup("unhandled", [ValueError("x")]), "ValueError: x"),
        (ExceptionGroup("a", [ExceptionGroup("b", [ValueError("x")])]), "ValueError: x"),
        (ExceptionGroup("a", [ValueError("x"), ToolError("y")]), "2 errors: ValueError: x; y"),
    ],
    ids=repr,
)
def test_exception_is_told_in_words(error: BaseException, words: str) -> None:
    assert describe(error) == words


def test_causes_in_a_circle_come_to_an_end() -> None:
    error = ValueError("x")
    error.__cause__ = error
    assert describe(error).count("ValueError: x") == 6


def test_large_group_is_told_in_part() -> None:
    words = describe(ExceptionGroup("many", [ValueError(str(n)) for n in range(9)]))
    assert words.startswith("9 errors: ValueError: 0; ")
    assert words.endswith("ValueError: 4; …")
