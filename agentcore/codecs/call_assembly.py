"""Tool calls out of stream fragments: which fragment belongs to which call, whatever the server's habits.

A wrong merge is worse than an error: a tool would run with another call's arguments.
"""

from typing import Any, cast

from agentcore.codecs.shared import encode_json, is_complete_json, parse_arguments, with_distinct_ids
from agentcore.errors import DecodeError
from agentcore.events import ToolCallDelta
from agentcore.messages import ToolCall

MAX_CALLS = 1024


class _Entry:
    __slots__ = ("fragments", "id", "name", "object", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self.id = ""
        self.name = ""
        self.fragments: list[str] = []
        self.object: dict[str, Any] | None = None

    def started(self) -> bool:
        return self.object is not None or bool(self.fragments)

    def complete(self) -> bool:
        return self.object is not None or (bool(self.fragments) and is_complete_json("".join(self.fragments)))


class CallAssembly:
    """The calls of one streamed reply, put together fragment by fragment."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._by_index: dict[int, _Entry] = {}
        self._by_id: dict[str, _Entry] = {}
        self._displaced: _Entry | None = None

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, index: int | None, call_id: str, name: str, arguments: object) -> ToolCallDelta | None:
        """Take one fragment; the event that tells of it.

        Raises:
            DecodeError: it cannot be told which call the fragment belongs to.
        """
        if not isinstance(arguments, str | dict) and arguments is not None:
            arguments = encode_json(arguments).decode()
        entry = self._find(index, call_id, name, arguments or "")
        if entry is None:
            return None
        if call_id and not entry.id:
            entry.id = call_id
            self._by_id.setdefault(call_id, entry)
        if name and name != entry.name:
            _extend_name(entry, name)
        fragment = ""
        if isinstance(arguments, dict):
            entry = self._take_object(entry, index, name, cast("dict[str, Any]", arguments))
            fragment = encode_json(arguments).decode()
        elif arguments:
            if entry.object is not None:
                raise DecodeError(f"the stream goes on with text after the whole arguments of tool call {entry.name!r}")
            entry.fragments.append(arguments)
            fragment = arguments
        return ToolCallDelta(entry.position, entry.id, entry.name, fragment)

    def calls(self, response_id: str | None) -> tuple[ToolCall, ...]:
        """The calls as they are now: nameless empty ones left out, ids given where they are missing or repeated.

        Raises:
            DecodeError: arguments came for a call that never got a name.
        """
        made: list[ToolCall] = []
        for entry in self._entries:
            raw: object = entry.object if entry.object is not None else "".join(entry.fragments)
            if not entry.name:
                if raw:
                    raise DecodeError(f"a tool call came without a name; its arguments: {str(raw)[:200]}")
                continue
            args, raw_arguments = parse_arguments(raw)
            made.append(ToolCall(entry.id, entry.name, args, raw_arguments))
        return with_distinct_ids(made, response_id)

    def _find(self, index: int | None, call_id: str, name: str, arguments: object) -> _Entry | None:
        if index is None:
            return self._find_without_index(call_id, name, arguments)
        entry = self._by_index.get(index)
        if entry is None:
            known = self._by_id.get(call_id) if call_id and not name else None
            if known is None and not call_id and not name:
                # A server that gave its last call a used index goes on with the right one.
                known = self._displaced
            if known is not None:
                self._by_index[index] = known
                return known
            return self._open(index)
        if call_id and entry.id and call_id != entry.id:
            known = self._by_id.get(call_id)
            return known if known is not None else self._displace(index)
        # Without an id a name after whole arguments begins another call: some gateways number every call 0.
        if name and not call_id and (arguments or name != entry.name) and entry.complete():
            return self._displace(index)
        return entry

    def _find_without_index(self, call_id: str, name: str, arguments: object) -> _Entry | None:
        last = self._entries[-1] if self._entries else None
        if call_id:
            known = self._by_id.get(call_id)
            if known is not None:
                if name and arguments and known is last and known.complete():
                    return self._open(None)  # a server whose ids are not unique
                return known
            if last is not None and not last.id and not name:
                return last
            return self._open(None)
        if last is None:
            return self._open(None) if name or arguments else None
        if name and last.name and ((arguments and last.complete()) or (name != last.name and last.started())):
            return self._open(None)
        return last

    def _open(self, index: int | None) -> _Entry:
        if len(self._entries) >= MAX_CALLS:
            raise DecodeError(f"one reply with more than {MAX_CALLS} tool calls")
        entry = _Entry(len(self._entries))
        self._entries.append(entry)
        if index is not None:
            self._by_index[index] = entry
        return entry

    def _displace(self, index: int) -> _Entry:
        self._displaced = self._open(index)
        return self._displaced

    def _take_object(self, entry: _Entry, index: int | None, name: str, arguments: dict[str, Any]) -> _Entry:
        if entry.started() and entry.object != arguments:
            if not name:
                raise DecodeError(f"the stream sends the arguments of tool call {entry.name!r} twice, differently")
            entry = self._open(index)
            entry.name = name
        entry.object = arguments
        return entry


def _extend_name(entry: _Entry, name: str) -> None:
    if not entry.name or (not entry.started() and name.startswith(entry.name)):
        entry.name = name
    elif not entry.started():
        entry.name += name
    else:
        raise DecodeError(f"the stream gives one tool call two names, {entry.name!r} and {name!r}")
