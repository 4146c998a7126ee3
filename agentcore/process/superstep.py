"""One superstep: the composed firings run at once in a task group; their outcomes come back in their fixed order."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from itertools import count
from typing import Any, TypeAlias

from anyio import CapacityLimiter, to_thread

from agentcore.context import ToolContext
from agentcore.errors import AgentCoreError
from agentcore.memory.finishing import finish
from agentcore.process.context import StepContext
from agentcore.process.events import ProcessEvent, StepEvent, StepFinished, StepStarted
from agentcore.process.graph import Graph, Node
from agentcore.process.outcome import Outcome, failure_of, from_text, outcome_of, to_text
from agentcore.process.recording import RunRecords
from agentcore.process.state import Firing

Sink: TypeAlias = Callable[[ProcessEvent], Awaitable[None]]


class Superstep:
    """The instances of one superstep.

    Args:
        graph: the process.
        number: of the superstep.
        context: the flat context that all of them see.
        runs_left: for each step with a bound, how often it may still run.
        records: where outcomes are recorded as they come; None for a run that is stored nowhere.
        sink: where the reader's events go; None when nobody reads.
        threads: worker threads for sync steps.
        concurrency: instances that run at once.
    """

    def __init__(
        self,
        graph: Graph,
        run_id: str,
        number: int,
        context: ToolContext,
        runs_left: Callable[[Node], int | None],
        records: RunRecords | None,
        sink: Sink | None,
        threads: CapacityLimiter,
        concurrency: int | None,
    ) -> None:
        self._graph = graph
        self._run_id = run_id
        self._number = number
        self._context = context
        self._runs_left = runs_left
        self._records = records
        self._sink = sink
        self._threads = threads
        self._places = asyncio.Semaphore(concurrency) if concurrency is not None else None
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: list[tuple[str, BaseException]] = []

    async def run(
        self, firings: Sequence[Firing], recorded: Mapping[tuple[str, int], str]
    ) -> Sequence[Sequence[Outcome]]:
        """Run all instances that have no recorded outcome; the outcomes of each firing, in order of its instances.

        A failure that no step takes stops the others, waits for their clean-up and comes out as it is, never in a
        group. What had finished by then is recorded. A cancellation goes before failures in its clean-up.
        """
        outcomes: list[list[Outcome]] = []
        todo: list[tuple[list[Outcome], int, Firing, int]] = []
        for firing in firings:
            slots: list[Outcome] = [_NOTHING] * firing.count
            outcomes.append(slots)
            for place in range(firing.count):
                text = recorded.get((firing.node.name, firing.first + place)) if recorded else None
                if text is None:
                    todo.append((slots, place, firing, firing.first + place))
                else:
                    slots[place] = from_text(self._graph, firing.node, text)
        is_recording = len(todo) + len(recorded) > 1  # the only one's outcome is in the snapshot that follows at once
        # asyncio's group, not anyio's: it cancels a step once, so that the step's clean-up may await. A failing step
        # stops the others by itself: where the group does it, Python 3.11 leaves our own task marked as cancelled.
        async with asyncio.TaskGroup() as group:
            for slots, place, firing, index in todo:
                values = firing.values
                if firing.items is not None and firing.node.each is not None:
                    values = {**values, firing.node.each: firing.items[place]}
                self._tasks.add(
                    group.create_task(self._instance(slots, place, firing.node, index, values, is_recording))
                )
        if self._failures:
            raise self._explained()
        return outcomes

    def _explained(self) -> BaseException:
        """The failure that came first; what failed while the others were being stopped is told in a note."""
        _, first = self._failures[0]
        for step, other in self._failures[1:]:
            first.add_note(f"step {step!r} failed as well: {type(other).__name__}")
        return first

    async def _instance(
        self, slots: list[Outcome], place: int, node: Node, index: int, values: dict[str, Any], is_recording: bool
    ) -> None:
        try:
            if self._places is None:
                slots[place] = await self._attempt(node, index, values, is_recording)
            else:
                async with self._places:
                    slots[place] = await self._attempt(node, index, values, is_recording)
        except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 - raised by `run`, at the end
            # An exit as well: raised in this task it would stop the event loop before the others can clean up.
            error.add_note(
                f"in step {node.name!r} (instance {index}, superstep {self._number}) of process {self._graph.name!r}, "
                f"run {self._run_id!r}"
            )
            self._failures.append((node.name, error))
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()

    async def _attempt(self, node: Node, index: int, values: dict[str, Any], is_recording: bool) -> Outcome:
        sink, step = self._sink, node.step
        if sink is not None:
            await sink(StepStarted(node.name, index, self._number))
        if step.contexts:
            context = self._context_for(node, index)
            values = {**values, **dict.fromkeys(step.contexts, context)}
        try:
            if step.is_async:
                returned = await step.__wrapped__(**values)
            else:
                returned = await self._in_thread(lambda: step.__wrapped__(**values))
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            # A library inside let its own cancellation out: it is an error of the step, not the end of the run.
            cause = AgentCoreError(f"step {node.name!r}: something inside it cancelled it")
            if node.failure is None:
                raise cause from error
            outcome = failure_of(node, index, cause)
        except Exception as error:
            if node.failure is None:
                raise
            outcome = failure_of(node, index, error)
        else:
            outcome = outcome_of(self._graph, node, returned, is_stored=self._records is not None)
        is_cancelled = _is_cancelled()
        if self._records is not None and (is_recording or is_cancelled):
            text = to_text(outcome, self._graph)
            await finish(self._records.put_outcome(self._number, node.name, index, text))
        if is_cancelled:  # it ran to its end all the same: what it brought is kept, nobody waits for it
            raise asyncio.CancelledError
        if sink is not None:
            await sink(StepFinished(node.name, index, self._number, outcome.value, outcome.failure))
        return outcome

    def _context_for(self, node: Node, index: int) -> StepContext:
        sink, number = self._sink, self._number
        send = None if sink is None else partial(_send, sink, node.name, index, number)
        runs_left = self._runs_left(node)
        return StepContext.for_step(self._context, self._run_id, number, node.name, index, runs_left, send)

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        """Call it in a worker thread; a cancellation waits for a thread that runs, since it cannot be stopped."""
        claims = count()  # whoever draws the 0 decides: the thread that it runs, a cancellation that it does not

        def claimed() -> Any:
            return call() if next(claims) == 0 else None

        work = asyncio.ensure_future(to_thread.run_sync(claimed, limiter=self._threads))
        while not work.done():
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError:
                if next(claims) == 0:
                    work.cancel()
        if work.cancelled():
            raise asyncio.CancelledError
        value = work.result()
        return await value if isawaitable(value) else value


async def _send(sink: Sink, step: str, index: int, superstep: int, event: Any) -> None:
    await sink(StepEvent(step, index, superstep, event))


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


_NOTHING = Outcome(has_value=False)
