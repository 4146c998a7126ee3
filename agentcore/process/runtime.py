"""Run: a process on its way: compose, run a superstep, fold, store the snapshot, until it is at rest or at a bound."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from anyio import CapacityLimiter

from agentcore.errors import InvalidInputError
from agentcore.memory.finishing import finish
from agentcore.process.errors import RunConflictError, UnstorableValueError
from agentcore.process.events import SuperstepFinished
from agentcore.process.graph import Graph
from agentcore.process.recording import RunRecords
from agentcore.process.result import ProcessLimit, ProcessLimits, ProcessResult, ProcessStatus
from agentcore.process.state import BoundReachedError, InFlight, RunState
from agentcore.process.superstep import Sink, Superstep
from agentcore.process.values import ValueCodec


class Run:
    """One call of `run` or `resume`, while it lasts.

    Args:
        graph: the process.
        run_id: of the run.
        limits: bounds of this call.
        threads: worker threads for sync steps.
        sink: where the reader's events go; None when nobody reads.
        keep_finished: seconds for which the outcome is kept.
    """

    def __init__(
        self,
        graph: Graph,
        run_id: str,
        limits: ProcessLimits,
        threads: CapacityLimiter,
        sink: Sink | None,
        keep_finished: float | None,
    ) -> None:
        self.run_id = run_id
        self.is_cancelled = False
        self._graph = graph
        self._limits = limits
        self._threads = threads
        self._sink = sink
        self._keep_finished = keep_finished
        self._scope: asyncio.Timeout | None = None
        self._state: RunState | None = None
        self._inbox: list[tuple[str, Any, bytes]] = []
        self._final: ProcessResult | None = None

    def cancel(self) -> None:
        """End this call from outside; its steps are stopped and waited for, its status is `cancelled`."""
        self.is_cancelled = True
        if self._scope is not None and not self._scope.expired():
            with suppress(RuntimeError):  # it has ended already
                self._scope.reschedule(0)

    def send(self, name: str, value: Any) -> None:
        """Take an event from outside, for the next barrier.

        Raises:
            InvalidInputError: no such event, or a value that is not of its type.
            RunConflictError: the call has ended.
        """
        raw, value = checked_event(self._graph, name, value)
        if self._final is not None or self.is_cancelled:
            raise RunConflictError(
                f"run {self.run_id!r} takes no event {name!r} any more: this call has ended; bring it with resume"
            )
        self._inbox.append((name, value, raw))

    async def drive(
        self, state: RunState, records: RunRecords | None, recorded: Mapping[tuple[str, int], str]
    ) -> ProcessResult:
        """Run supersteps from this state on, within the bounds.

        Args:
            state: where the run stands; it is stored, if it is to be.
            records: where it is stored.
            recorded: outcomes of the next superstep that are known already.
        """
        self._state = state
        scope = self._scope = asyncio.timeout(0 if self.is_cancelled else self._limits.seconds)
        try:
            async with scope:
                self._final = await self._supersteps(state, records, recorded)
        except TimeoutError:
            if not scope.expired():
                raise
        if self._final is None:
            if self.is_cancelled:
                self._final = self._result("cancelled")
            else:
                self._final = self._result("limit", limit="seconds")
        return self._final

    def result_so_far(self) -> ProcessResult:
        """How the call ended for somebody who did not wait for its end."""
        return self._final or self._result("cancelled")

    async def _supersteps(
        self, state: RunState, records: RunRecords | None, recorded: Mapping[tuple[str, int], str]
    ) -> ProcessResult:
        passed = 0
        while True:
            await self._take_in(state, records)
            try:
                firings = state.compose()
            except BoundReachedError as bound:
                return self._result("limit", limit="max_runs", limited_step=bound.step)
            if not firings:
                if self._inbox:  # it came while the snapshot was stored
                    continue
                result = self._at_rest(state)
                if records is not None and result.status == "completed":  # without a result there is no last snapshot
                    await finish(records.save(state.snapshot(), expires_in=self._keep_finished))
                return result
            if self._limits.supersteps is not None and passed >= self._limits.supersteps:
                return self._result("limit", limit="supersteps")
            number = state.superstep
            superstep = Superstep(
                self._graph,
                self.run_id,
                number,
                state.context,
                state.runs_left,
                records,
                self._sink,
                self._threads,
                self._limits.concurrency,
            )
            outcomes = await superstep.run(firings, recorded)
            final = state.fold(firings, outcomes)
            passed += 1
            if final is not None:
                self._final = self._result("completed", value=final.value)
            if records is not None:
                await finish(self._store(state, records, final))
                if recorded or sum(firing.count for firing in firings) > 1:
                    await records.drop_outcomes()
            recorded = {}
            if self._sink is not None:
                await self._sink(SuperstepFinished(number))
            if self._final is not None:
                return self._final

    async def _take_in(self, state: RunState, records: RunRecords | None) -> None:
        """Send what came from outside on its way; the snapshot holds it before any step sees it."""
        if not self._inbox:
            return
        for name, value, raw in self._inbox:
            state.emit(name, value, raw)
        self._inbox.clear()
        if records is not None:
            await finish(self._store(state, records, None))

    async def _store(self, state: RunState, records: RunRecords, result: InFlight | None) -> None:
        state.revision += 1
        expires = self._keep_finished if result is not None else None
        await records.save(state.snapshot(result=result), expires_in=expires)

    def _at_rest(self, state: RunState) -> ProcessResult:
        # Without a result to reach, a step that only listens does not keep the run open.
        waiting = state.arrivals.waiting(for_outside=True, with_listeners=self._graph.result is not None)
        if waiting:
            return self._result("paused", waiting=waiting)
        stuck = state.arrivals.waiting(for_outside=False)
        if self._graph.result is None and not stuck:
            return self._result("completed")
        return self._result("stalled", waiting=stuck)

    def _result(
        self,
        status: ProcessStatus,
        *,
        value: Any = None,
        waiting: tuple[Any, ...] = (),
        limit: ProcessLimit | None = None,
        limited_step: str | None = None,
    ) -> ProcessResult:
        state = self._state
        if state is None:
            return ProcessResult(status=status, run_id=self.run_id)
        return ProcessResult(
            status=status,
            run_id=self.run_id,
            value=value,
            context=state.context,
            supersteps=state.superstep,
            waiting=waiting,
            limit=limit,
            limited_step=limited_step,
        )


def checked_event(graph: Graph, name: str, value: Any) -> tuple[bytes, Any]:
    """An event from outside, as JSON text and as the value of its type.

    Raises:
        InvalidInputError: no such event, or a value that is not of its type.
    """
    codec = graph.outside.get(name)
    if codec is None:
        raise InvalidInputError(
            f"process {graph.name!r} takes no event {name!r} from outside; it takes "
            f"{', '.join(graph.outside) or 'none'}; nothing was changed"
        )
    return checked_value(codec, value, f"event {name!r} for process {graph.name!r}")


def checked_value(codec: ValueCodec, value: Any, what: str) -> tuple[bytes, Any]:
    """A value from outside as its type says.

    Raises:
        InvalidInputError: it is not of its type.
    """
    try:
        return codec.pack(value, what)
    except UnstorableValueError as error:
        raise InvalidInputError(f"{error}; nothing was changed") from error
