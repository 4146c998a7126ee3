"""Pauses: a turn that waits for a person, as a record that can be stored, shown, and resumed in another process."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from agentcore.errors import PauseError
from agentcore.messages import Content, ToolCall
from agentcore.usage import UNKNOWN_USAGE, Usage

PendingKind: TypeAlias = Literal["approval", "client_tool", "environment"]
"""Why a call waits: it needs a person's consent, it runs on the caller's side, or its surroundings failed."""

Action: TypeAlias = Literal["approve", "reject", "reply", "retry", "proceed"]

_ALLOWED: Mapping[PendingKind, frozenset[Action]] = {
    "approval": frozenset({"approve", "reject", "reply"}),
    "client_tool": frozenset({"reply", "reject"}),
    "environment": frozenset({"retry", "proceed", "reply", "reject"}),
}


class Decision(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person decided on one call. Made by the methods of `PendingCall`; plain data, so it may come as JSON.

    Attributes:
        digest: of the pause and the arguments it was decided on; a decision on anything else is refused.
        args: with `approve`: arguments to run with instead of the model's.
        content: with `reply`: the result in the tool's place; with `reject`: the reason, for the model.
        is_error: with `reply`: the content tells of a failure.
    """

    call_id: str
    digest: str
    action: Action
    args: dict[str, Any] | None = None
    content: Content | None = None
    is_error: bool = False


class PendingCall(Struct, frozen=True, kw_only=True):
    """A tool call that waits for a decision.

    Attributes:
        call: what the model asked for.
        kind: why it waits.
        reason: in words, for the person who decides.
        digest: ties a decision to this pause and these arguments.
    """

    call: ToolCall
    kind: PendingKind
    reason: str = ""
    digest: str = ""

    def approve(self, args: Mapping[str, Any] | None = None) -> Decision:
        """Run it, with these arguments if any are given."""
        return self._decide("approve", args=None if args is None else dict(args))

    def reject(self, reason: str = "") -> Decision:
        """Do not run it, and tell the model why."""
        return self._decide("reject", content=reason)

    def reply(self, content: Content, *, is_error: bool = False) -> Decision:
        """Do not run it: this is its result."""
        return self._decide("reply", content=content, is_error=is_error)

    def retry(self) -> Decision:
        """Run it again: its surroundings are in order now."""
        return self._decide("retry")

    def proceed(self) -> Decision:
        """Go on with the failure as its result."""
        return self._decide("proceed")

    def _decide(self, action: Action, **details: Any) -> Decision:
        return Decision(call_id=self.call.id, digest=self.digest, action=action, **details)


class Pause(Struct, frozen=True, kw_only=True):
    """A turn that waits. Stored with its conversation, resumed once.

    Attributes:
        id: unguessable.
        calls: what waits for a decision, in call order.
        created_at, expires_at: Unix times in seconds; `expires_at` is None if it waits for ever.
        position: messages of the turn that are stored already.
        model_calls, tool_calls, usage: what the turn has taken so far.
    """

    id: str
    conversation_id: str
    turn_id: str
    calls: tuple[PendingCall, ...]
    created_at: float
    expires_at: float | None = None
    position: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    usage: Usage = UNKNOWN_USAGE

    def decide(self, decisions: "Decision | Iterable[Decision]") -> dict[str, Decision]:
        """The decisions by call id, when they are good for this pause: one for each call that waits, and no other.

        Raises:
            PauseError: a decision is missing, forged or stale, or cannot be made on such a call; names the call.
        """
        from hmac import compare_digest

        given = [decisions] if isinstance(decisions, Decision) else list(decisions)
        waiting = {one.call.id: one for one in self.calls}
        made: dict[str, Decision] = {}
        for decision in given:
            one = waiting.get(decision.call_id)
            if one is None:
                raise PauseError(
                    f"no call {decision.call_id!r} waits in this pause; waiting: {', '.join(waiting)}", reason="stale"
                )
            if decision.call_id in made:
                raise PauseError(f"two decisions on call {decision.call_id!r}; give one", reason="forged")
            if not compare_digest(decision.digest, one.digest):
                raise PauseError(
                    f"the decision on call {decision.call_id!r} ({one.call.name}) was made on other arguments or for "
                    "another pause; decide on what is shown now",
                    reason="forged",
                )
            if decision.action not in _ALLOWED[one.kind]:
                allowed = ", ".join(sorted(_ALLOWED[one.kind]))
                raise PauseError(
                    f"{decision.action!r} is no decision on call {decision.call_id!r}, which waits as {one.kind}: "
                    f"use {allowed}",
                    reason="forged",
                )
            made[decision.call_id] = decision
        missing = [call_id for call_id in waiting if call_id not in made]
        if missing:
            raise PauseError(f"no decision on {', '.join(missing)}; decide on all calls together", reason="incomplete")
        return made


class Resumption(Struct, frozen=True):
    """A pause that is being resumed, and what was decided on its calls, by call id."""

    pause: Pause
    decisions: dict[str, Decision]


def new_pause(
    conversation_id: str,
    turn_id: str,
    calls: Sequence[PendingCall],
    *,
    now: float,
    expires_in: float | None,
    **so_far: Any,
) -> Pause:
    """A pause with an id of its own, its calls bound to it."""
    from secrets import token_urlsafe

    pause_id = token_urlsafe(16)
    bound = tuple(
        PendingCall(call=one.call, kind=one.kind, reason=one.reason, digest=_digest(pause_id, one.call))
        for one in calls
    )
    return Pause(
        id=pause_id,
        conversation_id=conversation_id,
        turn_id=turn_id,
        calls=bound,
        created_at=now,
        expires_at=None if expires_in is None else now + expires_in,
        **so_far,
    )


def _digest(pause_id: str, call: ToolCall) -> str:
    from hashlib import sha256

    shown = msgspec.json.encode((pause_id, call.id, call.name, call.args), order="deterministic")
    return sha256(shown).hexdigest()
