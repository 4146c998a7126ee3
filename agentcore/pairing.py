"""Healing: any list of messages made into a history that every provider accepts, deterministically."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from agentcore.messages import AssistantMessage, Message, ToolCall, ToolMessage

INTERRUPTED_RESULT = "This tool call was interrupted before it gave a result. It may or may not have taken effect."


NAMELESS = "unnamed_tool"
"""Stands for the name of a tool that nobody wrote down."""


class Repair(Struct, frozen=True):
    """One thing that healing changed: the index in the original list, and what was done."""

    index: int
    detail: str

    def __str__(self) -> str:
        return f"message {self.index}: {self.detail}"


def interrupted_result(call: ToolCall) -> ToolMessage:
    """The answer to a call that never got its own."""
    return ToolMessage(call.id, call.name, INTERRUPTED_RESULT, is_error=True)


def last_batch(messages: Sequence[Message]) -> tuple[tuple[ToolCall, ...], set[str]]:
    """Of a batch at the very end of a history: its calls, and the ids of those that are answered."""
    index = len(messages) - 1
    while index >= 0 and type(messages[index]) is ToolMessage:
        index -= 1
    message = messages[index] if index >= 0 else None
    if type(message) is not AssistantMessage:
        return (), set()
    return message.tool_calls, {m.tool_call_id for m in messages[index + 1 :] if isinstance(m, ToolMessage)}


def unanswered_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """The calls at the very end of a history that have no result yet."""
    calls, answered = last_batch(messages)
    return [call for call in calls if call.id not in answered]


def with_call_ids(message: AssistantMessage, seed: str) -> AssistantMessage:
    """The message with an id for every call, no two alike; the same object if it has them already."""
    calls = message.tool_calls
    if not calls or (all(call.id for call in calls) and len({call.id for call in calls}) == len(calls)):
        return message
    seen: set[str] = set()
    distinct: list[ToolCall] = []
    for position, call in enumerate(calls):
        call_id = call.id
        if not call_id or call_id in seen:
            call_id = f"call_{seed}_{position}"
        seen.add(call_id)
        distinct.append(call if call_id == call.id else replace(call, id=call_id))
    return replace(message, tool_calls=tuple(distinct))


def heal(messages: Sequence[Message]) -> tuple[Sequence[Message], list[Repair]]:
    """Make a history whole: every call answered once, right after its message, in call order; nothing else changed.

    Calls without a result get an "interrupted" one; results that stand elsewhere are brought to their call; results
    without a call are left out, as are second results; ids missing or repeated within a batch are given or made
    different; a call without a name gets that of its result, or one that no tool has. A history that is whole is
    returned as it is (the same object), but for the order of results in a batch, which is no breach. Pure and
    deterministic: the same history heals to the same messages, and appending to it leaves the healed prefix as it was,
    unless what is appended answers a call.
    """
    position = _first_breach(messages)
    if position is None:
        return messages, []
    return _Healing(messages).run(position)


def _first_breach(messages: Sequence[Message]) -> int | None:
    """Index of the first message from which on healing has to look, or None if the history is whole and in order."""
    # Every turn looks through its whole history here, twice: messages that have no part in it cost one comparison each.
    numbered = enumerate(messages)
    for index, message in numbered:
        if type(message) is AssistantMessage:
            calls = message.tool_calls
            if not calls:
                continue
            if len(calls) > 1 and len({call.id for call in calls}) != len(calls):
                return index
            for call in calls:
                _, answer = next(numbered, (0, None))
                if type(answer) is not ToolMessage or not call.id or not call.name or answer.tool_call_id != call.id:
                    return index
        elif type(message) is ToolMessage:
            return index
    return None


class _Healing:
    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.repairs: list[Repair] = []
        self.used: set[int] = set()  # indexes of results that have found their call
        # Where each id is answered and called: looking for it would make a history of open calls cost n².
        self.answers: dict[str, list[int]] = {}
        self.calls: dict[str, list[int]] = {}
        for index, message in enumerate(messages):
            if isinstance(message, ToolMessage):
                self.answers.setdefault(message.tool_call_id, []).append(index)
            elif isinstance(message, AssistantMessage):
                for call_id in {call.id for call in message.tool_calls}:
                    self.calls.setdefault(call_id, []).append(index)

    def run(self, start: int) -> tuple[list[Message], list[Repair]]:
        healed = list(self.messages[:start])
        for index in range(start, len(self.messages)):
            message = self.messages[index]
            if isinstance(message, ToolMessage):
                if index not in self.used:
                    self.repairs.append(Repair(index, f"left out a result without a call ({message.tool_call_id!r})"))
            elif isinstance(message, AssistantMessage) and message.tool_calls:
                healed.extend(self.batch(index, message))
            else:
                healed.append(message)
        return healed, sorted(self.repairs, key=lambda repair: repair.index)

    def batch(self, index: int, message: AssistantMessage) -> list[Message]:
        calls = self.with_names(index, self.with_ids(index, message.tool_calls))
        if calls is not message.tool_calls:
            message = replace(message, tool_calls=calls)
        places: list[int | None] = []
        for original in cast("AssistantMessage", self.messages[index]).tool_calls:
            place = self.find_result(index, original.id)
            places.append(place)
            if place is not None:
                self.used.add(place)
        results: list[Message] = []
        end = index + 1
        while end < len(self.messages) and type(self.messages[end]) is ToolMessage:
            end += 1
        for call, place in zip(calls, places, strict=True):
            if place is None:
                self.repairs.append(Repair(index, f"answered call {call.id!r} ({call.name}) as interrupted"))
                results.append(interrupted_result(call))
                continue
            # The order of those that follow their calls is nobody's fault: one may have waited for a person.
            if place >= end:
                self.repairs.append(Repair(place, f"brought the result of {call.id!r} to its call"))
            result = self.messages[place]
            assert isinstance(result, ToolMessage)
            results.append(result if result.tool_call_id == call.id else replace(result, tool_call_id=call.id))
        return [message, *results]

    def find_result(self, index: int, call_id: str) -> int | None:
        """The first unused result with this id, up to the next message that uses the id for a call of its own."""
        answers, calls = self.answers.get(call_id, []), self.calls[call_id]
        following = bisect_right(calls, index)
        end = calls[following] if following < len(calls) else len(self.messages)
        for position in answers[bisect_right(answers, index) :]:
            if position >= end:
                return None
            if position not in self.used:
                return position
        return None

    def with_names(self, index: int, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
        if all(call.name for call in calls):
            return calls
        original = cast("AssistantMessage", self.messages[index]).tool_calls
        named: list[ToolCall] = []
        for position, call in enumerate(calls):
            if call.name:
                named.append(call)
                continue
            found = self.find_result(index, original[position].id)
            result = self.messages[found] if found is not None else None
            name = result.name if isinstance(result, ToolMessage) and result.name else NAMELESS
            self.repairs.append(Repair(index, f"gave call {call.id!r} the name {name!r}"))
            named.append(replace(call, name=name))
        return tuple(named)

    def with_ids(self, index: int, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
        seen: set[str] = set()
        renamed: list[ToolCall] = []
        for position, call in enumerate(calls):
            call_id = call.id or f"call_{index}_{position}"
            while call_id in seen:
                call_id = f"{call_id}_{position}"
            if call_id != call.id:
                self.repairs.append(Repair(index, f"gave call {position} ({call.name}) the id {call_id!r}"))
                call = replace(call, id=call_id)  # noqa: PLW2901
            seen.add(call_id)
            renamed.append(call)
        return tuple(renamed) if self.repairs else calls
