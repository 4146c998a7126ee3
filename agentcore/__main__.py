"""`python -m agentcore`."""

from agentcore.cli.main import run

run()
