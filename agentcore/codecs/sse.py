"""Server-sent events, incrementally: bytes in, (event name, data) out.

Source: WHATWG HTML, "Server-sent events", parsing an event stream. Three liberties, all needed by servers in use: a
last event without its blank line counts; a line that begins with `{` is data (proxies put a bare JSON error between
the events); and bytes are not decoded here, so a character may be cut anywhere.
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
        self._rest: list[bytes] = []  # of the event that is not whole yet; joined once, however often it was cut
        self._rest_size = 0
        self._start = True
        self._cr_at_end = False
        self._too_large = False

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """The events that these bytes complete.

        Raises:
            DecodeError: an event is larger than the cap. Events that stand before it in the same bytes are returned
                first; the call after that raises.
        """
        if self._too_large:
            raise self._size_error()
        if self._start:
            data = self.take_rest() + data
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._keep(data)
                return []
            self._start = False
            data = data.removeprefix(_BOM)
        if self._cr_at_end or b"\r" in data:
            data = self._with_line_feeds(data)
        if self._rest and data:
            if b"\n\n" not in data and not (data[0] == 10 and self._rest[-1][-1] == 10):
                self._keep(data)
                return []
            data = self.take_rest() + data
        end = data.rfind(b"\n\n")
        if end < 0:
            self._keep(data)
            return []
        whole = data[:end]
        blocks = whole.split(b"\n\n")
        events: list[tuple[str, bytes]] = []
        if len(whole) <= self._max and whole.count(b"\n") == 2 * len(blocks) - 2:  # one line each: the usual stream
            events = [("", block[6:]) for block in blocks if block[:6] == b"data: "]
            if len(events) == len(blocks):
                self._keep(data[end + 2 :], events)
                return events
        events = []  # else block by block
        for block in blocks:
            if len(block) > self._max:
                self._overflow(events)
                return events
            if block[:6] == b"data: " and b"\n" not in block:
                events.append(("", block[6:]))
            elif block:
                event = _parse(block)
                if event is not None:
                    events.append(event)
        self._keep(data[end + 2 :], events)
        return events

    def finish(self) -> list[tuple[str, bytes]]:
        """The connection is closed: the event that is left, if there is one.

        Raises:
            DecodeError: an event was larger than the cap.
        """
        if self._too_large:
            raise self._size_error()
        event = _parse(self.take_rest().removesuffix(b"\n"))
        return [event] if event is not None else []

    def take_rest(self) -> bytes:
        """Take out the bytes that do not make an event yet."""
        rest = b"".join(self._rest)
        self._rest.clear()
        self._rest_size = 0
        return rest

    def _keep(self, rest: bytes, events: list[tuple[str, bytes]] | None = None) -> None:
        if rest:
            self._rest.append(rest)
            self._rest_size += len(rest)
            if self._rest_size > self._max + 1:  # the event's own line feed may be among them
                self._overflow(events)

    def _overflow(self, events: list[tuple[str, bytes]] | None) -> None:
        self.take_rest()
        self._too_large = True
        if not events:
            raise self._size_error()

    def _size_error(self) -> DecodeError:
        return DecodeError(
            f"one event of the stream is larger than {self._max} bytes; raise max_event_bytes if it is meant"
        )

    def _with_line_feeds(self, data: bytes) -> bytes:
        """CR and CRLF as LF, also when the network cut between the two."""
        if not data:
            return data
        if self._cr_at_end and data[0] == 10:
            data = data[1:]
            self._cr_at_end = False
        if data:
            self._cr_at_end = data[-1] == 13
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _parse(block: bytes) -> tuple[str, bytes] | None:
    name = ""
    data: list[bytes] = []
    for line in block.split(b"\n"):
        if line[:1] == b"{":
            data.append(line)
            continue
        field, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    return (name, b"\n".join(data)) if data else None
