"""The process runtime: event-driven steps for flows above a single loop; parallel, deterministic, resumable."""

from agentcore.process.builder import ProcessBuilder
from agentcore.process.context import StepContext, StepResult
from agentcore.process.errors import GraphChangedError, RunConflictError, UnknownRunError, UnstorableValueError
from agentcore.process.events import (
    Event,
    EventType,
    ProcessEvent,
    StepEvent,
    StepFailure,
    StepFinished,
    StepStarted,
    SuperstepFinished,
    each,
    failed,
    gather,
    latest,
)
from agentcore.process.process import Process
from agentcore.process.result import ProcessLimits, ProcessResult, ProcessStatus, Waiting
from agentcore.process.step import Step
from agentcore.process.stream import ProcessStream

__all__ = [
    "Event",
    "EventType",
    "GraphChangedError",
    "Process",
    "ProcessBuilder",
    "ProcessEvent",
    "ProcessLimits",
    "ProcessResult",
    "ProcessStatus",
    "ProcessStream",
    "RunConflictError",
    "Step",
    "StepContext",
    "StepEvent",
    "StepFailure",
    "StepFinished",
    "StepResult",
    "StepStarted",
    "SuperstepFinished",
    "UnknownRunError",
    "UnstorableValueError",
    "Waiting",
    "each",
    "failed",
    "gather",
    "latest",
]
