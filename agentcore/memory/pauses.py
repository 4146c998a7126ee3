"""Pauses in a store: one at most for a conversation, resumed once, by whoever comes first."""

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentcore.errors import PauseError
from agentcore.memory.base import MessageLog, RecordKeeping
from agentcore.memory.branching import PAUSE
from agentcore.pause import Pause

PauseState: TypeAlias = Literal["open", "resumed", "abandoned"]

_TICKET = "pause_ticket"
_CURRENT = "current"


class _KeptPause(Struct, frozen=True):
    state: PauseState
    pause: Pause


_decoder = msgspec.json.Decoder(_KeptPause)


async def keep_pause(
    records: RecordKeeping, conversation_id: str, pause: Pause, *, seq: int | None, expires_in: float | None
) -> None:
    """Store a pause, and the ticket that resumes it: the ticket runs out by the store's clock, and is taken once."""
    await records.put_record(conversation_id, _TICKET, pause.id, "{}", seq=seq, expires_in=expires_in)
    await _keep(records, conversation_id, _KeptPause("open", pause), seq)


async def open_pause(records: RecordKeeping, conversation_id: str) -> Pause | None:
    """The pause that waits in a conversation; None if none does, or it has expired."""
    kept, _ = await _load(records, conversation_id)
    if kept is None or kept.state != "open":
        return None
    ticket = await records.get_record(conversation_id, _TICKET, kept.pause.id)
    return kept.pause if ticket is not None else None


async def pause_to_resume(records: RecordKeeping, conversation_id: str) -> Pause:
    """The pause that waits in a conversation.

    Raises:
        PauseError: none does; says whether there never was one, it was resumed or abandoned, or it has expired.
    """
    kept, _ = await _load(records, conversation_id)
    if kept is None:
        raise PauseError(f"nothing waits in conversation {conversation_id!r}", reason="nothing")
    if kept.state == "resumed":
        raise PauseError(
            f"the pause in conversation {conversation_id!r} was resumed already; a pause is resumed once",
            reason="resumed",
        )
    if kept.state == "abandoned":
        raise PauseError(
            f"the pause in conversation {conversation_id!r} is over: a new turn began before it was resumed",
            reason="stale",
        )
    if await records.get_record(conversation_id, _TICKET, kept.pause.id) is None:
        raise PauseError(
            f"the pause in conversation {conversation_id!r} has expired; its calls were not run", reason="expired"
        )
    return kept.pause


async def take_pause(records: RecordKeeping, conversation_id: str, pause: Pause) -> None:
    """Use a pause up, before anything of it runs: of several who try, one goes on.

    Raises:
        PauseError: somebody else has resumed it, it has expired, or another one has taken its place.
    """
    kept, seq = await _load(records, conversation_id)
    if kept is None or kept.pause.id != pause.id or kept.state != "open":
        await pause_to_resume(records, conversation_id)  # says what became of it, if nothing waits now
        raise PauseError(
            f"another pause waits in conversation {conversation_id!r} now; decide on that one", reason="stale"
        )
    if await records.take_record(conversation_id, _TICKET, pause.id) is None:
        raise PauseError(
            f"the pause in conversation {conversation_id!r} has expired or is being resumed elsewhere",
            reason="expired",
        )
    await _keep(records, conversation_id, replace(kept, state="resumed"), seq)


async def abandon_pause(records: RecordKeeping, log: MessageLog | None, conversation_id: str) -> bool:
    """A new turn begins on open calls: what waited will not be resumed.

    Returns:
        Whether the open calls are those that waited, so that nothing of them has run. That is asked again by the next
        turn if this one comes to nothing; and calls that were stored after a pause are none of its own.
    """
    kept, seq = await _load(records, conversation_id)
    if kept is None or kept.state == "resumed":
        return False
    if kept.state == "open":
        await records.take_record(conversation_id, _TICKET, kept.pause.id)
        await _keep(records, conversation_id, replace(kept, state="abandoned"), seq)
    if log is None or seq is None:
        return kept.state == "open"
    return not await log.read(conversation_id, after=seq, limit=1)


async def _load(records: RecordKeeping, conversation_id: str) -> tuple[_KeptPause | None, int | None]:
    record = await records.get_record(conversation_id, PAUSE, _CURRENT)
    return (None, None) if record is None else (_decoder.decode(record.body), record.seq)


async def _keep(records: RecordKeeping, conversation_id: str, kept: _KeptPause, seq: int | None) -> None:
    body = msgspec.json.encode(kept).decode()
    await records.put_record(conversation_id, PAUSE, _CURRENT, body, seq=seq)
