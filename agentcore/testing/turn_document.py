"""A stored turn as one JSON document: the history before it, what it stored, and what it asked if that was recorded."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from agentcore.errors import ConfigurationError, InvalidInputError
from agentcore.memory.base import ChatMemory, MessageLog, RecordKeeping, StoredMessage, record_store
from agentcore.testing.turn_recorder import last_recorded_turn, recorded_runs
from agentcore.testing.turn_tape import RecordedRun, message_from, message_to

_FORMAT = 1


class TurnDocument(Struct, frozen=True, kw_only=True):
    """One turn of a conversation, with all that a replay of it needs.

    Attributes:
        history: the conversation before the turn, as the store holds it.
        messages: what the turn stored, with their positions in it.
        runs: what was recorded beside it (see `TurnRecorder`): one, and one more for each time it was resumed; empty if
            nothing was, and then its requests are not known.
    """

    conversation_id: str
    turn_id: str
    history: tuple[StoredMessage, ...]
    messages: tuple[StoredMessage, ...]
    runs: tuple[RecordedRun, ...] = ()

    def to_json(self) -> bytes:
        """The document, to be read by people too."""
        written = _Written(
            format=_FORMAT,
            conversation_id=self.conversation_id,
            turn_id=self.turn_id,
            history=_lines(self.history),
            messages=_lines(self.messages),
            runs=self.runs,
        )
        return msgspec.json.format(msgspec.json.encode(written), indent=1) + b"\n"

    @classmethod
    def from_json(cls, data: bytes | str) -> "TurnDocument":
        """The document that `to_json` has written.

        Raises:
            InvalidInputError: it is none, or one of another version.
        """
        try:
            written = msgspec.json.decode(data, type=_Written)
        except msgspec.DecodeError as error:
            raise InvalidInputError(f"this is no exported turn: {error}") from error
        if written.format != _FORMAT:
            raise InvalidInputError(
                f"this turn was exported in format {written.format}, and format {_FORMAT} is read here; export it again"
            )
        return cls(
            conversation_id=written.conversation_id,
            turn_id=written.turn_id,
            history=_stored(written.history),
            messages=_stored(written.messages),
            runs=written.runs,
        )

    async def save(self, path: str | Path) -> None:
        """Write it to a file."""
        await anyio.Path(path).write_bytes(self.to_json())

    @classmethod
    async def load(cls, path: str | Path) -> "TurnDocument":
        """Read it from a file.

        Raises:
            InvalidInputError: it is none, or one of another version.
            FileNotFoundError: there is no such file.
        """
        return cls.from_json(await anyio.Path(path).read_bytes())


async def export_turn(memory: ChatMemory, conversation_id: str, turn_id: str | None = None) -> TurnDocument:
    """Make a document of a stored turn.

    Args:
        memory: where the conversation is, in a window or not.
        conversation_id: the conversation.
        turn_id: the turn (`InvokeResult.turn_id`); the last one if not given, though it failed and stored nothing.

    Raises:
        ConfigurationError: the store does not keep which turn stored what.
        InvalidInputError: there is no such turn in the conversation.
    """
    record = record_store(memory)
    if not isinstance(record, MessageLog):
        raise ConfigurationError(
            f"{type(record).__name__} does not keep which turn stored what; use a store with MessageLog "
            "(agentcore.memory.base)"
        )
    stored = await record.read(conversation_id)
    keeping = record if isinstance(record, RecordKeeping) else None
    chosen = turn_id or await _last_turn(stored, keeping, conversation_id)
    runs: tuple[RecordedRun, ...] = ()
    if keeping is not None and chosen is not None:
        runs = await recorded_runs(keeping, conversation_id, chosen)
    first = next((one.seq for one in stored if one.turn_id == chosen), None)
    if chosen is None or (first is None and not runs):
        known = list(dict.fromkeys(one.turn_id for one in stored))
        which = f"no turn {turn_id!r}" if turn_id is not None else "no turn"
        raise InvalidInputError(
            f"there is {which} in conversation {conversation_id!r}; its last ones: {', '.join(known[-5:]) or 'none'}"
        )
    if first is None:
        first = min(run.after for run in runs) + 1  # a turn that failed before it stored anything
    return TurnDocument(
        conversation_id=conversation_id,
        turn_id=chosen,
        history=tuple(one for one in stored if one.seq < first),
        messages=tuple(one for one in stored if one.turn_id == chosen),
        runs=runs,
    )


async def _last_turn(
    stored: Sequence[StoredMessage], records: RecordKeeping | None, conversation_id: str
) -> str | None:
    last = stored[-1] if stored else None
    recorded = None if records is None else await last_recorded_turn(records, conversation_id)
    if recorded is not None and (last is None or recorded[1] > last.created_at):
        return recorded[0]
    return None if last is None else last.turn_id


class _Line(Struct, frozen=True):
    seq: int
    turn_id: str
    position: int
    created_at: float
    message: msgspec.Raw


class _Written(Struct, frozen=True, kw_only=True, omit_defaults=True):
    format: int
    conversation_id: str
    turn_id: str
    history: tuple[_Line, ...]
    messages: tuple[_Line, ...]
    runs: tuple[RecordedRun, ...] = ()


def _lines(stored: Sequence[StoredMessage]) -> tuple[_Line, ...]:
    return tuple(_Line(one.seq, one.turn_id, one.position, one.created_at, message_to(one.message)) for one in stored)


def _stored(lines: Sequence[_Line]) -> tuple[StoredMessage, ...]:
    return tuple(
        StoredMessage(one.seq, one.turn_id, one.position, message_from(one.message), one.created_at) for one in lines
    )
