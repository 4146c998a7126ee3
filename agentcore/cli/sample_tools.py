"""Small honest tools for the command line: the time, arithmetic, dice, and notes, which a person has to agree to."""

import ast
import math
import random
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agentcore.cli.store import data_directory
from agentcore.context import ToolContext
from agentcore.messages import ToolCall
from agentcore.tools.errors import ToolError
from agentcore.tools.tool import tool

_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}
_UNARY: dict[type[ast.unaryop], Callable[[float], float]] = {ast.USub: lambda a: -a, ast.UAdd: lambda a: +a}
_MAX_EXPRESSION = 200
_MAX_NOTE = 2_000


@tool
def current_time(zone: Annotated[str, "IANA time zone, for example Europe/Oslo"] = "UTC") -> str:
    """Tell the current date and time in a time zone."""
    place: tzinfo = UTC
    if zone.upper() != "UTC":
        try:
            place = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ToolError(f"there is no time zone {zone!r}; name one such as Europe/Oslo or Asia/Tokyo") from error
    return datetime.now(place).strftime("%A, %d %B %Y, %H:%M:%S %Z")


@tool
def calculate(expression: Annotated[str, "for example (3 + 4) * 2.5"]) -> float:
    """Work out an arithmetic expression with + - * / // % and brackets."""
    if len(expression) > _MAX_EXPRESSION:
        raise ToolError(f"the expression is longer than {_MAX_EXPRESSION} characters")
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, OverflowError, RecursionError, ValueError) as error:
        raise ToolError(f"cannot work out {expression!r}: {error}") from error
    if not math.isfinite(value):  # JSON has no word for it
        raise ToolError(f"the result of {expression!r} is too large")
    return value


@tool
def roll_dice(sides: Annotated[int, "sides of each die"] = 6, count: Annotated[int, "how many dice"] = 1) -> list[int]:
    """Roll dice and tell what came up."""
    if not (2 <= sides <= 1000 and 1 <= count <= 100):
        raise ToolError("sides is 2 to 1000, count 1 to 100")
    return [random.randint(1, sides) for _ in range(count)]  # noqa: S311 - a game


def _where_it_writes(call: ToolCall, context: ToolContext) -> str:
    return f"It adds a line to {_notes()}."


@tool(approval=_where_it_writes)
def save_note(text: Annotated[str, "what to keep"]) -> str:
    """Write a note down for the user, in a text file on their machine. The user is asked before."""
    line = " ".join(text.split())
    if not line or len(line) > _MAX_NOTE:
        raise ToolError(f"a note has 1 to {_MAX_NOTE:,} characters")
    path = _notes()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", errors="replace") as file:
        file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M}  {line}\n")
    return "noted"


def _notes() -> Path:
    return data_directory() / "notes.txt"


def _value(node: ast.AST) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand))
    raise ToolError("only numbers, + - * / // % and brackets can be worked out")


SAMPLE_TOOLS = (current_time, calculate, roll_dice)
CHAT_TOOLS = (*SAMPLE_TOOLS, save_note)
"""With one that waits for a person."""
