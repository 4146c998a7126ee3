"""Process: the public face of a built process: run, stream, resume, draw."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec
from anyio import CapacityLimiter
from msgspec import Raw, Struct

from agentcore.context import ToolContext
from agentcore.errors import ConversationBusyError, InvalidInputError
from agentcore.memory.base import BusyPolicy, ChatMemory
from agentcore.memory.finishing import finish
from agentcore.memory.locks import ConversationLocks
from agentcore.process.errors import RunConflictError, UnknownRunError
from agentcore.process.graph import Graph, encode
from agentcore.process.mermaid import draw
from agentcore.process.recording import RunRecords
from agentcore.process.result import ProcessLimits, ProcessResult
from agentcore.process.runtime import Run, checked_event, checked_value
from agentcore.process.snapshot import Snapshot
from agentcore.process.state import RunState
from agentcore.process.stream import ProcessStream
from agentcore.process.superstep import Sink


class _Answer(Struct, frozen=True, omit_defaults=True):
    """What `resume` brought, as it is kept until a snapshot holds it."""

    events: list[tuple[str, Raw]] = []
    answers: list[tuple[str, str, Raw]] = []  # id of the wait, name of the event, its value


class Process:
    """A process as it was built. Immutable, holds no run: share it between any number of concurrent runs.

    Made by `ProcessBuilder.build`.
    """

    def __init__(self, graph: Graph, *, limits: ProcessLimits, max_threads: int, keep_finished: float | None) -> None:
        self._graph = graph
        self._limits = limits
        self._keep_finished = keep_finished
        self._threads = CapacityLimiter(max_threads)
        self._locks = ConversationLocks()

    @property
    def name(self) -> str:
        """The process's name."""
        return self._graph.name

    def mermaid(self) -> str:
        """The graph as a Mermaid flowchart, for a README or a browser."""
        return draw(self._graph)

    def __repr__(self) -> str:
        return f"Process({self.name}: {', '.join(node.name for node in self._graph.nodes)})"

    async def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        store: ChatMemory | None = None,
        run_id: str | None = None,
        context: Mapping[str, Any] | None = None,
        limits: ProcessLimits | None = None,
    ) -> ProcessResult:
        """Run the process from its start until its result is there, it has to wait, or a bound is reached.

        Args:
            inputs: a value for each of the inputs that the process declares.
            store: where snapshots go: any store that keeps records. Without one nothing can be resumed.
            run_id: of the new run, unique in the store; a random one if it is left out.
            context: the flat context at the start.
            limits: bounds of this call, instead of the process's.

        Returns:
            The result; see its `status` for how the call ended.

        Raises:
            InvalidInputError: inputs are missing, unknown, or not of their type; nothing was run.
            RunConflictError: the store has a run of this id.
            UnstorableValueError: with a store: a step's value cannot be kept.
            StoreError: the store failed.
            Exception: a step's own, unless another step takes its failures. A stored run can be resumed: what had
                finished is not run again.
        """
        run = self._new_run(run_id or uuid4().hex, limits, None)
        return await self._begin(run, inputs, store, context)

    def stream(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        store: ChatMemory | None = None,
        run_id: str | None = None,
        context: Mapping[str, Any] | None = None,
        limits: ProcessLimits | None = None,
    ) -> ProcessStream:
        """Run the process and read along: `async with process.stream(…) as run: async for event in run: …`.

        Arguments and errors are those of `run`; errors come out of the iteration.
        """
        return ProcessStream(
            partial(self._new_run, run_id or uuid4().hex, limits),
            partial(self._begin, inputs=inputs, store=store, context=context),
        )

    async def resume(
        self,
        run_id: str,
        events: Mapping[str, Any] | None = None,
        *,
        store: ChatMemory,
        answers: Mapping[str, Any] | None = None,
        limits: ProcessLimits | None = None,
        on_busy: BusyPolicy = "reject",
    ) -> ProcessResult:
        """Go on with a stored run, in this process or another: after a pause, a limit, a cancellation, a crash.

        Steps that had finished are not run again, not even those of a superstep that a crash broke off. A run that
        waits and is brought nothing stays as it is: its result says what it waits for. A finished one gives its result
        again.

        Args:
            run_id: of the run.
            events: events from outside, by name; each for whoever has waited longest.
            store: where the run is.
            answers: events from outside for certain waits, by the `id` that `result.waiting` tells.
            limits: bounds of this call, instead of the process's.
            on_busy: what to do while somebody else runs it; after a crash it counts as running until its lease is over.

        Raises:
            UnknownRunError: the store has no run of this id.
            RunConflictError: it is running, has ended, or somebody else has answered; nothing was changed.
            GraphChangedError: another graph began it; nothing was changed.
            InvalidInputError: an event that is not waited for, or a value that is not of its type; nothing was changed.
        """
        run = self._new_run(run_id, limits, None)
        return await self._go_on(run, events, store, answers, on_busy)

    def stream_resume(
        self,
        run_id: str,
        events: Mapping[str, Any] | None = None,
        *,
        store: ChatMemory,
        answers: Mapping[str, Any] | None = None,
        limits: ProcessLimits | None = None,
        on_busy: BusyPolicy = "reject",
    ) -> ProcessStream:
        """Go on with a stored run and read along; arguments and errors are those of `resume`."""
        return ProcessStream(
            partial(self._new_run, run_id, limits),
            partial(self._go_on, events=events, store=store, answers=answers, on_busy=on_busy),
        )

    async def forget(self, run_id: str, *, store: ChatMemory) -> None:
        """Let go of a stored run that nobody will resume. Forgetting an unknown one does nothing.

        Raises:
            RunConflictError: it is running.
        """
        run = self._new_run(run_id, None, None)
        records = RunRecords(store, run_id, self._locks)
        async with self._held(run, records, "reject"):
            await records.forget()

    def _new_run(self, run_id: str, limits: ProcessLimits | None, sink: Sink | None) -> Run:
        return Run(self._graph, run_id, limits or self._limits, self._threads, sink, self._keep_finished)

    async def _begin(
        self, run: Run, inputs: Mapping[str, Any] | None, store: ChatMemory | None, context: Mapping[str, Any] | None
    ) -> ProcessResult:
        given = self._checked_inputs(inputs or {})
        start = ToolContext(context, turn_id=run.run_id)
        if store is None:
            state = RunState(self._graph, run.run_id, start, is_stored=False)
            state.begin(given)
            return await run.drive(state, None, {})
        records = RunRecords(store, run.run_id, self._locks)
        async with self._held(run, records, "reject"):
            state = RunState(self._graph, run.run_id, start, is_stored=True)
            state.begin(given)
            if not await finish(records.begin(state.snapshot())):
                raise RunConflictError(
                    f"there is a run {run.run_id!r} in this store already; resume it, or begin one with another run_id"
                )
            return await run.drive(state, records, {})

    async def _go_on(
        self,
        run: Run,
        events: Mapping[str, Any] | None,
        store: ChatMemory,
        answers: Mapping[str, Any] | None,
        on_busy: BusyPolicy,
    ) -> ProcessResult:
        records = RunRecords(store, run.run_id, self._locks)
        async with self._held(run, records, on_busy):
            snapshot = await records.load()
            if snapshot is None:
                raise UnknownRunError(
                    f"there is no run {run.run_id!r} of process {self.name!r} in this store; was it begun with this "
                    "store, and is it not long finished?"
                )
            self._graph.check_same(run.run_id, snapshot.graph)
            if snapshot.is_done:
                return self._finished(run.run_id, snapshot, bool(events or answers))
            state = RunState.restore(self._graph, snapshot)
            await self._take_answer(state, records, events or {}, answers or {})
            return await run.drive(state, records, await records.outcomes(state.superstep))

    def _held(self, run: Run, records: RunRecords, on_busy: BusyPolicy) -> "_Held":
        return _Held(run.run_id, partial(records.lock, on_busy, run.cancel))

    def _finished(self, run_id: str, snapshot: Snapshot, is_brought: bool) -> ProcessResult:
        if is_brought:
            raise RunConflictError(f"run {run_id!r} has ended with its result and takes no more events")
        graph = self._graph
        assert graph.result is not None  # only a result makes a run end for good
        values = {name: graph.slot(name).unpack(raw) for name, raw in snapshot.context.items()}
        return ProcessResult(
            status="completed",
            run_id=run_id,
            value=graph.codecs[graph.result].unpack(snapshot.value),
            context=ToolContext(values, turn_id=run_id),
            supersteps=snapshot.superstep,
        )

    async def _take_answer(
        self, state: RunState, records: RunRecords, events: Mapping[str, Any], answers: Mapping[str, Any]
    ) -> None:
        """Put what came from outside on record, once, and send it on its way; also what was kept before a crash."""
        revision = state.revision
        kept = await records.answer(revision)
        if kept is not None:
            answer = msgspec.json.decode(kept, type=_Answer)
            if events or answers:
                brought = self._checked_answer(state, events, answers)
                if brought != answer:
                    raise RunConflictError(
                        f"run {state.run_id!r} was answered already, with something else; resume it without events to "
                        "go on with that"
                    )
        elif events or answers:
            answer = self._checked_answer(state, events, answers)
            if not await finish(records.put_answer(revision, encode(answer).decode())):
                raise RunConflictError(f"somebody else has just answered run {state.run_id!r}")
        else:
            return
        self._apply(state, answer)
        state.revision += 1
        await finish(records.save(state.snapshot()))
        await records.drop_answer(revision)

    def _apply(self, state: RunState, answer: _Answer) -> None:
        graph = self._graph
        waiting = (
            {one.id: one for one in state.arrivals.waiting(for_outside=True, with_listeners=True)}
            if answer.answers
            else {}
        )
        for name, raw in answer.events:
            state.emit(name, graph.outside[name].unpack(raw), bytes(raw))
        for id_, name, raw in answer.answers:
            place = state.arrivals.place_of_answer(waiting[id_], name)
            state.emit(name, graph.outside[name].unpack(raw), bytes(raw), to=place)

    def _checked_answer(self, state: RunState, events: Mapping[str, Any], answers: Mapping[str, Any]) -> _Answer:
        """What came from outside, if the run waits for it."""
        if not state.arrivals.is_at_rest:  # an event more could change which instances the superstep has
            raise RunConflictError(
                f"run {state.run_id!r} was broken off and has steps to run before it waits for anything; resume it "
                "without events first; nothing was changed"
            )
        waiting = state.arrivals.waiting(for_outside=True, with_listeners=True)
        wanted = {event for one in waiting for event in one.events}
        brought: list[tuple[str, Raw]] = []
        for name, value in events.items():
            raw, _ = checked_event(self._graph, name, value)
            if name not in wanted:
                raise InvalidInputError(
                    f"run {state.run_id!r} does not wait for event {name!r} now; it waits for "
                    f"{', '.join(sorted(wanted)) or 'nothing'}; nothing was changed"
                )
            brought.append((name, Raw(raw)))
        by_id = {one.id: one for one in waiting}
        answered: list[tuple[str, str, Raw]] = []
        for id_, value in answers.items():
            one = by_id.get(id_)
            if one is None:
                raise InvalidInputError(
                    f"run {state.run_id!r} has no wait {id_!r}: it was answered, or never was; it waits with "
                    f"{', '.join(by_id) or 'nothing'}; nothing was changed"
                )
            if len(one.events) != 1:
                raise InvalidInputError(
                    f"wait {id_!r} of run {state.run_id!r} is for several events ({', '.join(one.events)}); bring them "
                    "by name, in events; nothing was changed"
                )
            raw, _ = checked_event(self._graph, one.events[0], value)
            answered.append((id_, one.events[0], Raw(raw)))
        return _Answer(brought, answered)

    def _checked_inputs(self, inputs: Mapping[str, Any]) -> dict[str, tuple[bytes, Any]]:
        declared = self._graph.inputs
        unknown = [name for name in inputs if name not in declared]
        missing = [name for name in declared if name not in inputs]
        if unknown or missing:
            words = [f"{', '.join(map(repr, unknown))} unknown"] if unknown else []
            words += [f"{', '.join(map(repr, missing))} missing"] if missing else []
            raise InvalidInputError(
                f"process {self.name!r} takes the inputs {', '.join(declared) or 'none'}: {' and '.join(words)}"
            )
        return {
            name: checked_value(codec, inputs[name], f"input {name!r} of process {self.name!r}")
            for name, codec in declared.items()
        }


class _Held:
    """A run held for the length of a block, with a refusal in the words of processes."""

    def __init__(self, run_id: str, lock: Callable[[], Any]) -> None:
        self._run_id = run_id
        self._lock = lock
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> None:
        try:
            await self._stack.enter_async_context(self._lock())
        except ConversationBusyError as error:
            raise RunConflictError(
                f"run {self._run_id!r} is running, here or in another process; wait for it (on_busy='wait'), or try "
                "again later"
            ) from error

    async def __aexit__(self, *exc: Any) -> None:
        await self._stack.__aexit__(*exc)
