"""For tests of what is built on agentcore: models that follow a script."""

from agentcore.testing.scripted import Reply, ScriptedModel, ScriptExhaustedError, ScriptItem

__all__ = ["Reply", "ScriptExhaustedError", "ScriptItem", "ScriptedModel"]
