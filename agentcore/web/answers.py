"""What the routes answer with: results and errors as JSON, events as server-sent events."""

import json
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from logging import getLogger
from typing import Any, TypeAlias

import msgspec
from sse_starlette.sse import EventSourceResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agentcore.errors import (
    AgentCoreError,
    ConversationBusyError,
    InvalidInputError,
    LeaseLostError,
    PauseError,
    ProviderError,
    StoreError,
    UnsupportedContentError,
    VersionConflictError,
)
from agentcore.exchange import InvokeResult
from agentcore.web.runs import Run, RunEvent, ShuttingDownError

SEND_TIMEOUT = 60.0
"""Seconds in which a reader must take what it is sent; one that does not is given up, and holds nothing back."""

_LONGEST_WAIT = 86_400  # seconds that a caller is told to wait at most

_log = getLogger("agentcore.web")
_encoder = msgspec.json.Encoder(enc_hook=str)  # tools may tell of anything; a form for people is better than none

Batches: TypeAlias = AsyncIterator[Sequence[RunEvent]]
"""The events of a run as a reader is given them."""


class Refusal(HTTPException):
    """A request that is answered with an error in the routes' form."""

    def __init__(self, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, message, headers)
        self.kind = kind


def _encode(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:  # half a character, of a model or store that checks nothing: JSON can say it, UTF-8 not
        return json.dumps(msgspec.to_builtins(value, enc_hook=str, str_keys=True), separators=(",", ":")).encode()


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as JSON, never cached."""
    return Response(
        _encode(value), status, {"cache-control": "no-store", **(headers or {})}, media_type="application/json"
    )


def refusal_response(refusal: Refusal) -> Response:
    """The answer that a refusal stands for."""
    return json_response(
        {"error": {"kind": refusal.kind, "message": refusal.detail}}, refusal.status_code, refusal.headers
    )


def as_refusal(error: Exception, *, details: bool) -> Refusal:
    """An error of a turn as an answer: status, kind, and words that a stranger may read.

    Args:
        error: what ended the turn, or kept it from beginning.
        details: say what a provider or a store said; else that is only logged.
    """
    match error:
        case Refusal():
            return error
        case ShuttingDownError():
            return Refusal(503, "shutting_down", str(error), {"retry-after": "5"})
        case PauseError():
            return Refusal(409, f"pause_{error.reason}", str(error))
        case ConversationBusyError():
            return Refusal(409, "busy", "another turn of this conversation is running", {"retry-after": "1"})
        case LeaseLostError() | VersionConflictError():
            return Refusal(409, "conflict", "another process changed this conversation; read it again")
        case InvalidInputError() | UnsupportedContentError():
            return Refusal(422, "invalid_input", str(error))
        case ProviderError():
            status = {"timeout": 504, "rate_limit": 503, "overloaded": 503}.get(error.kind, 502)
            wait = error.retry_after
            after = None if wait is None or math.isnan(wait) else {"retry-after": str(_whole_seconds(wait))}
            return _logged(error, status, error.kind, "the model could not answer", details, after)
        case StoreError():
            return _logged(
                error, 503, "storage", "the conversation could not be reached", details, {"retry-after": "5"}
            )
        case AgentCoreError():
            return _logged(error, 500, error.kind, "the turn failed", details)
        case _:
            return _logged(error, 500, "internal", "the turn failed", details)


def _whole_seconds(wait: float) -> int:
    return round(max(1.0, min(wait, _LONGEST_WAIT)))


def _logged(
    error: Exception, status: int, kind: str, words: str, details: bool, headers: Mapping[str, str] | None = None
) -> Refusal:
    unforeseen = not isinstance(error, AgentCoreError)
    _log.error("a turn failed: %s", error, exc_info=error if unforeseen else None)
    return Refusal(status, kind, f"{words}: {error}" if details and not unforeseen else words, headers)


def result_value(run_id: str, result: InvokeResult) -> dict[str, Any]:
    """What a browser is told of a turn that ended. The tool context stays on the server."""
    return {
        "run": run_id,
        "conversation_id": result.conversation_id,
        "status": result.status,
        "text": result.text,
        "messages": result.messages,
        "finish_reason": result.finish_reason,
        "usage": result.usage,
        "cost": result.cost,
        "limit": result.limit,
        "reason": result.reason,
        "pause": result.pause,
    }


def server_sent(data: Any, *, event: str | None = None, id_: str | None = None) -> bytes:
    """One server-sent event of a JSON value, which has no line breaks (HTML standard, "Server-sent events")."""
    head = (f"id: {id_}\n" if id_ is not None else "") + (f"event: {event}\n" if event is not None else "")
    return head.encode() + b"data: " + _encode(data) + b"\n\n"


async def run_events(run: Run, batches: Batches, *, details: bool) -> AsyncIterator[bytes]:
    """The events of a run, then `result` or `error`."""
    try:
        async for batch in batches:
            yield b"".join(
                [
                    server_sent(event, event=str(event.__struct_config__.tag), id_=f"{run.id}:{number}")
                    for number, event in batch
                ]
            )
        yield server_sent(result_value(run.id, run.result), event="result")
    except Exception as error:  # noqa: BLE001 - told to the reader and logged
        refusal = as_refusal(error, details=details)
        yield server_sent({"kind": refusal.kind, "message": refusal.detail}, event="error")


class RunStream(EventSourceResponse):
    """A run as server-sent events. Its reader counts as one from now on, not only when the first event is asked for: a
    client that is gone before that has left the run too.

    Args:
        run: what is told.
        tell: makes whole events of the run's.
        after: the number of the last event that is known.
        headers: further ones.
        grace: seconds that the stream may go on when the server goes down.
    """

    def __init__(
        self,
        run: Run,
        tell: Callable[[Batches], AsyncIterator[bytes]],
        *,
        after: int = 0,
        headers: Mapping[str, str] | None = None,
        grace: float,
    ) -> None:
        self._reading = run.joined(after)
        chunks = tell(self._reading.__enter__())
        super().__init__(  # pyright: ignore[reportUnknownMemberType] - the library's own
            chunks, headers=headers, send_timeout=SEND_TIMEOUT, shutdown_grace_period=grace, sep="\n"
        )

    def leave(self) -> None:
        """Stop reading."""
        self._reading.__exit__(None, None, None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events as they come, until the run ends or the client goes away."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.leave()
