"""The sample tools are honest and harmless."""

from zoneinfo import available_timezones

import pytest

from agentcore.cli.sample_tools import calculate, current_time, roll_dice
from agentcore.tools.errors import ToolError


@pytest.mark.parametrize(
    ("expression", "value"),
    [("1 + 2 * 3", 7), ("-(4 - 6) / 4", 0.5), ("7 // 2 % 2", 1), ("+3", 3), ("2.5 * 2", 5.0), (" 1 + 1 ", 2)],
)
def test_arithmetic_is_worked_out(expression: str, value: float) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os')",
        "x",
        "9 ** 9 ** 9",
        "1 if 1 else 2",
        "'a' * 9",
        "1 / 0",
        "1e999",
        "1e999 - 1e999",
        "True + 1",
        "1j",
        "1 +",
        "[1]",
        "1" * 300,
        "(" * 150 + ")" * 150,
    ],
)
def test_nothing_but_arithmetic_is_done(expression: str) -> None:
    with pytest.raises(ToolError):
        calculate(expression)


@pytest.mark.parametrize("zone", ["UTC", "utc"])
def test_time_is_told_in_utc_without_a_zone_database(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoneinfo.TZPATH", ())
    assert current_time(zone).endswith("UTC")


@pytest.mark.skipif("Europe/Oslo" not in available_timezones(), reason="this machine has no zone database")
def test_time_is_told_in_a_zone() -> None:
    assert current_time("Europe/Oslo").endswith(("CET", "CEST"))


def test_unknown_zone_is_refused() -> None:
    for zone in ("Atlantis/Deep", "../../etc/passwd", "Europe", ""):
        with pytest.raises(ToolError, match="no time zone"):
            current_time(zone)


def test_dice_stay_in_their_bounds() -> None:
    assert all(1 <= number <= 6 for number in roll_dice(count=100))
    for sides, count in ((1, 1), (6, 0), (6, 101), (1001, 1)):
        with pytest.raises(ToolError, match="sides is 2 to 1000"):
            roll_dice(sides, count)
