"""Errors a tool may raise to say what kind of failure it was."""

from agentcore.errors import AgentCoreError


class ToolError(AgentCoreError):
    """A failure whose text is meant for the model: it is shown as it is, without the exception's name."""


class TransientToolError(ToolError):
    """A failure that may pass: a tool declared with `retry=` is tried again."""

    retryable = True
