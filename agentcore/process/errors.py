"""What can go wrong with a run of a process that is no outcome of it."""

from agentcore.errors import AgentCoreError


class UnknownRunError(AgentCoreError, LookupError):
    """The store knows no run of this id: another store, another id, or a run that ended and was let go of."""

    kind = "not_found"


class RunConflictError(AgentCoreError):
    """The run cannot take this call now: it is running elsewhere, has ended, or the pause was answered already."""

    kind = "conflict"


class GraphChangedError(AgentCoreError):
    """The run was begun with another graph than the one that is to go on with it; nothing was run."""

    kind = "conflict"


class UnstorableValueError(AgentCoreError, TypeError):
    """A value cannot be kept in a snapshot: it has no JSON form, or does not come back as the type it was declared."""
