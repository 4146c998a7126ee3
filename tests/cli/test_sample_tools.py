"""The sample tools are honest and harmless."""

import re
from pathlib import Path
from zoneinfo import available_timezones

import pytest

from agentcore.cli import sample_tools
from agentcore.cli.sample_tools import CHAT_TOOLS, calculate, current_time, roll_dice, save_note
from agentcore.cli.store import data_directory
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


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    return data_directory()


def test_notes_are_lines_of_one_file(home: Path) -> None:
    assert save_note("buy\n milk") == "noted"
    assert save_note("Käse \ud800") == "noted"
    first, second = (home / "notes.txt").read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d  buy milk", first)
    assert second.endswith("  Käse ?")


@pytest.mark.parametrize("text", ["", " \n ", "x" * 2_001])
def test_note_of_nothing_or_of_a_book_is_refused(text: str, home: Path) -> None:
    with pytest.raises(ToolError, match="1 to 2,000 characters"):
        save_note(text)
    assert not home.exists()


def test_only_the_note_waits_for_a_person(home: Path) -> None:
    assert [one.name for one in CHAT_TOOLS if one.approval] == ["save_note"]
    assert save_note in CHAT_TOOLS
    assert save_note not in sample_tools.SAMPLE_TOOLS
