"""Tool calls out of stream fragments: which fragment belongs to which call, whatever the server's habits.

A wrong merge is worse than an error: a tool would run with another call's arguments.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

from agentcore.codecs.base import NO_NAMES
from agentcore.codecs.shared import (
    encode_json,
    excerpt,
    is_complete_json,
    mend_surrogates,
    parse_arguments,
    with_distinct_ids,
)
from agentcore.errors import DecodeError
from agentcore.events import ToolCallDelta
from agentcore.messages import ToolCall

MAX_CALLS = 1024


_STRUCTURE = re.compile(r'["{}\[\]]|\\.?', re.DOTALL)
_LONGEST_WORD = 64  # pieces


class _Entry:
    __slots__ = ("end", "fragments", "id", "name", "object", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self.id = ""
        self.name = ""
        self.fragments: list[str] = []
        self.object: dict[str, Any] | None = None
        self.end: _End | None = None  # made for the servers whose calls can only be told apart by where they end

    def started(self) -> bool:
        return self.object is not None or bool(self.fragments)

    def complete(self) -> bool:
        if self.object is not None:
            return True
        if self.end is None:
            self.end = _End()
        return self.end.reached(self.fragments)


class _End:
    """Finds the end of a JSON object or text that comes in pieces.

    Each piece is looked at once and the whole parsed once: a server that repeats the name asks for the end at every
    piece, and parsing all of them each time would take hours.
    """

    __slots__ = ("_depth", "_escaped", "_opened", "_seen", "_verdict", "_within")

    def __init__(self) -> None:
        self._seen = 0  # pieces
        self._depth = 0  # brackets that are open
        self._within = False  # a text
        self._escaped = False  # the last piece ended with a backslash
        self._opened = False
        self._verdict: bool | None = None  # once everything that was opened is closed

    def reached(self, pieces: list[str]) -> bool:
        for piece in pieces[self._seen :]:
            self._look_at(piece)
        self._seen = len(pieces)
        if not self._opened:  # a bare word
            return len(pieces) <= _LONGEST_WORD and "".join(pieces).strip() == "null"
        if self._verdict is None and self._depth <= 0 and not self._within:
            self._verdict = is_complete_json("".join(pieces))
        return self._verdict is True

    def _look_at(self, piece: str) -> None:
        if self._verdict is not None:
            self._verdict = self._verdict and not piece.strip()
            return
        start = int(self._escaped)
        self._escaped = False
        for found in _STRUCTURE.finditer(piece, start):
            mark = found[0]
            if mark[0] == "\\":
                self._escaped = len(mark) == 1
            elif mark == '"':
                self._within = not self._within
                self._opened = True
            elif not self._within:
                self._depth += 1 if mark in "{[" else -1
                self._opened = True


class CallAssembly:
    """The calls of one streamed reply, put together fragment by fragment.

    Args:
        names: wire name → neutral name, where they differ.
    """

    def __init__(self, names: Mapping[str, str] = NO_NAMES) -> None:
        self._names = names
        self._entries: list[_Entry] = []
        self._by_index: dict[int, _Entry] = {}
        self._by_id: dict[str, _Entry] = {}
        self._displaced: _Entry | None = None  # the last call that was given a used index
        self._doubtful: set[int] = set()  # indexes that a second call took before the first one was complete
        self._position = 0  # of the last fragment in its list
        self._listed: set[int] = set()  # positions of the calls that had a fragment in that list

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(
        self, index: int | None, call_id: str, name: str, arguments: object, *, position: int = 0
    ) -> ToolCallDelta | None:
        """Take one fragment; the event that tells of it, if it says anything.

        Args:
            index: the number the server gives the call, if it does.
            call_id: its id, empty if the fragment has none.
            name: its name or the next piece of it, empty if the fragment has none.
            arguments: a piece of JSON text, or the arguments as a value.
            position: place of the fragment in its list; those of one list that carry no index, or a name each and no
                id, are different calls.

        Raises:
            DecodeError: it cannot be told which call the fragment belongs to.
        """
        if not isinstance(arguments, str | dict) and arguments is not None:
            arguments = encode_json(arguments).decode()
        says_arguments = isinstance(arguments, dict) or bool(arguments and arguments.strip())
        if position <= self._position:
            self._listed.clear()
        self._position = position
        entry = self._find(index, call_id, name, says_arguments, position)
        if entry is None:
            return None
        self._listed.add(entry.position)
        if call_id and not entry.id:
            entry.id = call_id
            self._by_id[call_id] = entry
        if name and name != entry.name:
            _extend_name(entry, name)
        fragment = ""
        if isinstance(arguments, dict):
            _take_object(entry, cast("dict[str, Any]", arguments))
            fragment = encode_json(cast("object", arguments)).decode()
        elif arguments:
            if entry.object is not None:
                if not says_arguments:
                    return None
                raise DecodeError(f"the stream goes on with text after the whole arguments of tool call {entry.name!r}")
            entry.fragments.append(arguments)
            fragment = arguments if arguments.isascii() else mend_surrogates(arguments)
        return ToolCallDelta(entry.position, entry.id, self._names.get(entry.name, entry.name), fragment)

    def calls(self, response_id: str | None, *, cut: bool = False) -> tuple[ToolCall, ...]:
        """The calls as they are now: nameless empty ones left out, ids given where they are missing or repeated.

        Args:
            response_id: what generated ids are made of, so that they are the same however the reply came.
            cut: the reply ended at its limit, so a last call without arguments is one whose arguments never came.

        Raises:
            DecodeError: arguments came for a call that never got a name.
        """
        made: list[ToolCall] = []
        for entry in self._entries:
            raw: object = entry.object if entry.object is not None else "".join(entry.fragments)
            if not entry.name:
                if raw:
                    raise DecodeError(f"a tool call came without a name; its arguments: {excerpt(_text(raw))}")
                continue
            args, raw_arguments = parse_arguments(raw)
            if cut and raw == "" and entry is self._entries[-1]:
                raw_arguments = ""
            name = self._names.get(entry.name, entry.name)
            made.append(ToolCall(mend_surrogates(entry.id), mend_surrogates(name), args, raw_arguments))
        return with_distinct_ids(made, response_id)

    def _find(self, index: int | None, call_id: str, name: str, says_arguments: bool, position: int) -> _Entry | None:
        if index is None:
            return self._find_without_index(call_id, name, says_arguments, position)
        entry = self._by_index.get(index)
        if entry is None:
            return self._find_new_index(index, call_id, name)
        if call_id and entry.id and call_id != entry.id:
            if call_id not in self._by_id and says_arguments and not name and entry.name and not entry.complete():
                return entry  # a server that makes up an id for every fragment
            return self._by_id.get(call_id) or self._displace(index, entry)
        if name and not call_id and entry.name and entry.position in self._listed:
            return self._displace(index, entry)
        # Without an id a name after whole arguments begins another call: some gateways number every call 0.
        if name and not call_id and (says_arguments or name != entry.name) and entry.complete():
            return self._displace(index, entry)
        if says_arguments and not call_id and index in self._doubtful:
            raise DecodeError(f"the stream gives two tool calls the index {index}; whose arguments follow is unknown")
        return entry

    def _find_new_index(self, index: int, call_id: str, name: str) -> _Entry:
        known = self._by_id.get(call_id) if call_id and not name else None
        if known is None and not call_id and not name and self._displaced is not None:
            # A server that gave its last call a used index goes on with the right one.
            known, self._displaced = self._displaced, None
        if known is not None:
            self._by_index[index] = known
            return known
        return self._open(index)

    def _find_without_index(self, call_id: str, name: str, says_arguments: bool, position: int) -> _Entry | None:
        last = self._entries[-1] if self._entries else None
        if call_id:
            known = self._by_id.get(call_id)
            if known is not None:
                if name and ((says_arguments and known is last and known.complete()) or name != known.name):
                    return self._open(None, call_id)  # a server whose ids are not unique
                return known
            if last is not None and not last.id and not name and position == 0:
                return last
            return self._open(None)
        if last is None:
            return self._open(None) if name or says_arguments else None
        if position and name:
            return self._open(None)
        if position and says_arguments:
            raise DecodeError("the stream brings pieces of several tool calls at once without saying of which")
        if name and last.name and (name != last.name or (says_arguments and last.complete())):
            return self._open(None)
        return last

    def _open(self, index: int | None, call_id: str = "") -> _Entry:
        if len(self._entries) >= MAX_CALLS:
            raise DecodeError(f"one reply with more than {MAX_CALLS} tool calls")
        entry = _Entry(len(self._entries))
        self._entries.append(entry)
        if index is not None:
            self._by_index[index] = entry
        if call_id:
            entry.id = call_id
            self._by_id[call_id] = entry
        return entry

    def _displace(self, index: int, earlier: _Entry) -> _Entry:
        if not earlier.complete():
            self._doubtful.add(index)
        self._displaced = self._open(index)
        return self._displaced


def _take_object(entry: _Entry, arguments: dict[str, Any]) -> None:
    earlier = entry.object if entry.object is not None else {}
    # Some servers send the object anew as it grows; anything else is not one call's arguments.
    if entry.fragments or any(key not in arguments or arguments[key] != earlier[key] for key in earlier):
        raise DecodeError(f"the stream sends the arguments of tool call {entry.name!r} twice, differently")
    entry.object = arguments


def _extend_name(entry: _Entry, name: str) -> None:
    if not entry.name or (not entry.started() and name.startswith(entry.name)):
        entry.name = name
    elif not entry.started():
        entry.name += name
    else:
        raise DecodeError(f"the stream gives one tool call two names, {entry.name!r} and {name!r}")


def _text(raw: object) -> str:
    return raw if isinstance(raw, str) else encode_json(raw).decode()
