"""Server-sent events, incrementally: bytes in, (event name, data) out.

Source: WHATWG HTML, "Server-sent events", parsing an event stream. Two liberties, both needed by servers in use: a last
event without its blank line counts, and bytes are not decoded here, so a character may be cut anywhere.
"""

from agentcore.errors import DecodeError

MAX_EVENT_BYTES = 16 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"


class SSEParser:
    """Feeds on the bytes of one stream, cut anywhere.

    Args:
        max_event_bytes: a single event may not be larger, so that a broken server cannot fill the memory.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._rest = b""
        self._start = True
        self._cr_at_end = False

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """The events that these bytes complete.

        Raises:
            DecodeError: an event is larger than the cap.
        """
        if self._start:
            data = self._rest + data
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._rest = data
                return []
            self._start, self._rest = False, b""
            data = data.removeprefix(_BOM)
        if self._cr_at_end or b"\r" in data:
            data = self._with_line_feeds(data)
        data = self._rest + data if self._rest else data
        end = data.rfind(b"\n\n")
        if end < 0:
            self._keep(data)
            return []
        self._keep(data[end + 2 :])
        events: list[tuple[str, bytes]] = []
        for block in data[:end].split(b"\n\n"):
            if block[:6] == b"data: " and b"\n" not in block:
                events.append(("", block[6:]))
            elif block:
                event = _parse(block)
                if event is not None:
                    events.append(event)
        return events

    def finish(self) -> list[tuple[str, bytes]]:
        """The connection is closed: the event that is left, if there is one."""
        event = _parse(self._rest) if self._rest else None
        self._rest = b""
        return [event] if event is not None else []

    @property
    def pending(self) -> bytes:
        """Bytes that do not make an event yet."""
        return self._rest

    def _keep(self, rest: bytes) -> None:
        if len(rest) > self._max:
            raise DecodeError(f"one event of the stream is larger than {self._max} bytes; raise max_event_bytes if it is meant")
        self._rest = rest

    def _with_line_feeds(self, data: bytes) -> bytes:
        """CR and CRLF as LF, also when the network cut between the two."""
        if self._cr_at_end and data[:1] == b"\n":
            data = data[1:]
            if not data:
                return data
        self._cr_at_end = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _parse(block: bytes) -> tuple[str, bytes] | None:
    name = ""
    data: list[bytes] = []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    return (name, b"\n".join(data)) if data else None
