"""For tests of what is built on agentcore: scripted models, recorded exchanges, faults on purpose."""

from agentcore.testing import faulty as faults
from agentcore.testing.cassette import CassetteError, record, replay
from agentcore.testing.faulty import FaultyTransport
from agentcore.testing.scripted import Reply, ScriptedModel, ScriptExhaustedError, ScriptItem

__all__ = [
    "CassetteError",
    "FaultyTransport",
    "Reply",
    "ScriptExhaustedError",
    "ScriptItem",
    "ScriptedModel",
    "faults",
    "record",
    "replay",
]
