"""For tests of what is built on agentcore: scripted models, recorded exchanges and turns, faults on purpose."""

from agentcore.testing import faulty as faults
from agentcore.testing.cassette import CassetteError, record, replay
from agentcore.testing.faulty import FaultyTransport
from agentcore.testing.scripted import Reply, ScriptedModel, ScriptExhaustedError, ScriptItem
from agentcore.testing.turn_document import TurnDocument, export_turn
from agentcore.testing.turn_recorder import TurnRecorder
from agentcore.testing.turn_replay import ReplayedTurn, ReplayError, replay_turn
from agentcore.testing.turn_tape import TurnTape

__all__ = [
    "CassetteError",
    "FaultyTransport",
    "ReplayError",
    "ReplayedTurn",
    "Reply",
    "ScriptExhaustedError",
    "ScriptItem",
    "ScriptedModel",
    "TurnDocument",
    "TurnRecorder",
    "TurnTape",
    "export_turn",
    "faults",
    "record",
    "replay",
    "replay_turn",
]
