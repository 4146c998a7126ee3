"""The ledger of a batch under way: a finished call's result is on record before anybody hears of it.

Should the process end before the batch is complete, the next use of the conversation finds the results here and takes
them for the calls' answers; a call that has one is never run again. One entry for each place of the batch, written over
by the next batch, so the ledger does not grow.
"""

import msgspec
from msgspec import Struct

from agentcore.memory.base import MessageLog, RecordKeeping
from agentcore.memory.stored_form import from_text, to_text
from agentcore.messages import ToolMessage

_KIND = "result"


class _Entry(Struct, frozen=True):
    seq: int
    result: str  # in stored form


_decoder = msgspec.json.Decoder(_Entry)


async def record_result(
    records: RecordKeeping, conversation_id: str, seq: int | None, place: int, result: ToolMessage
) -> None:
    """Keep a result.

    Args:
        records: where.
        conversation_id: of which conversation.
        seq: of the message that asked for the call: the last one stored.
        place: of the call in its batch.
        result: the answer to the call.
    """
    body = msgspec.json.encode(_Entry(seq or 0, to_text(result))).decode()
    await records.put_record(conversation_id, _KIND, str(place), body, seq=seq)


async def recorded_results(records: RecordKeeping, log: MessageLog, conversation_id: str) -> dict[str, ToolMessage]:
    """The results on record of a batch that broke off at the end of the conversation, by call id."""
    version = await log.version(conversation_id)
    entries = [_decoder.decode(record.body) for record in await records.list_records(conversation_id, _KIND)]
    results = [from_text(entry.result) for entry in entries if entry.seq == version]
    return {result.tool_call_id: result for result in results if isinstance(result, ToolMessage)}
