"""RunRecords: what a store keeps of a run: the last snapshot, the outcomes since, the answer to a pause."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

import msgspec

from agentcore.errors import ConfigurationError, StoreError
from agentcore.memory.base import BusyPolicy, ChatMemory, Lease, RecordKeeping, TurnLocking, record_store
from agentcore.memory.locks import ConversationLocks
from agentcore.process.snapshot import Snapshot

SNAPSHOT = "process_snapshot"
OUTCOME = "process_outcome"
ANSWER = "process_answer"


class RunRecords:
    """The records of one run, under names of their own: `process:{run_id}` and `process-outcomes:{run_id}`.

    Args:
        store: any store that keeps records.
        run_id: the run.
        locks: for stores that cannot lock.

    Raises:
        ConfigurationError: the store keeps no records.
    """

    def __init__(self, store: ChatMemory, run_id: str, locks: ConversationLocks) -> None:
        store = record_store(store)
        if not isinstance(store, RecordKeeping):
            raise ConfigurationError(
                f"{type(store).__name__} keeps no records, so that a process cannot be resumed from it; use a store "
                "with put_record, such as InMemoryChatMemory"
            )
        self._store: ChatMemory = store
        self._records: RecordKeeping = store
        self._locking: TurnLocking = store if isinstance(store, TurnLocking) else locks
        self._name = f"process:{run_id}"
        self._outcomes = f"process-outcomes:{run_id}"  # apart: they are forgotten at every barrier

    def lock(self, on_busy: BusyPolicy, supersede: Callable[[], None]) -> AbstractAsyncContextManager[Lease | None]:
        """Hold the run: nobody else runs it meanwhile.

        Raises:
            ConversationBusyError: refused.
        """
        return self._locking.lock_turn(self._name, on_busy=on_busy, supersede=supersede)

    async def begin(self, snapshot: bytes) -> bool:
        """Store the first snapshot; False if there is a run of this id."""
        return await self._records.put_record(self._name, SNAPSHOT, "", snapshot.decode(), if_absent=True)

    async def save(self, snapshot: bytes, *, expires_in: float | None = None) -> None:
        """Store a snapshot in place of the one before."""
        await self._records.put_record(self._name, SNAPSHOT, "", snapshot.decode(), expires_in=expires_in)

    async def load(self) -> Snapshot | None:
        """The last snapshot.

        Raises:
            StoreError: what is stored there is no snapshot that this version can read.
        """
        record = await self._records.get_record(self._name, SNAPSHOT, "")
        if record is None:
            return None
        try:
            return msgspec.json.decode(record.body, type=Snapshot)
        except msgspec.DecodeError as error:
            raise StoreError(f"what is stored as {self._name!r} is no snapshot of a process: {error}") from error

    async def put_outcome(self, superstep: int, step: str, index: int, text: str) -> None:
        """Record what an instance of a step brought, before the barrier."""
        await self._records.put_record(self._outcomes, OUTCOME, f"{superstep}:{step}:{index}", text)

    async def outcomes(self, superstep: int) -> Mapping[tuple[str, int], str]:
        """What was recorded in a superstep that did not reach its barrier."""
        found: dict[tuple[str, int], str] = {}
        for record in await self._records.list_records(self._outcomes, OUTCOME):
            number, _, key = record.key.partition(":")
            if int(number) == superstep:  # a crash right after a barrier leaves those from before it
                step, _, index = key.rpartition(":")
                found[step, int(index)] = record.body
        return found

    async def drop_outcomes(self) -> None:
        """Forget the recorded outcomes: the snapshot holds them now."""
        await self._store.clear(self._outcomes)

    async def put_answer(self, revision: int, text: str) -> bool:
        """Keep the answer to the pause of this revision; False if it has one. Of many who try at once, one succeeds."""
        return await self._records.put_record(self._name, ANSWER, str(revision), text, if_absent=True)

    async def answer(self, revision: int) -> str | None:
        """The answer that was kept and perhaps not yet acted on."""
        record = await self._records.get_record(self._name, ANSWER, str(revision))
        return None if record is None else record.body

    async def drop_answer(self, revision: int) -> None:
        """Forget an answer: the snapshot holds it now."""
        await self._records.take_record(self._name, ANSWER, str(revision))

    async def forget(self) -> None:
        """Forget the run."""
        await self._store.clear(self._outcomes)
        await self._store.clear(self._name)
