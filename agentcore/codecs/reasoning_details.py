"""ReasoningDetails: the `reasoning_details` of a reply (OpenRouter), to be sent back as they came."""

from typing import Any, cast

_PIECEMEAL = {"reasoning.text": "text", "reasoning.summary": "summary"}


class ReasoningDetails:
    """The entries of one reply; of a stream the pieces of one entry are put together."""

    def __init__(self) -> None:
        self._entries: list[Any] = []
        self._pieces: list[str] = []  # of the last entry's text; joined once, however many there are

    def take(self, detail: Any, *, whole: bool) -> None:
        """Take one entry.

        Args:
            detail: as it came; it is changed.
            whole: it is not a piece of the entry before it.
        """
        last = self._entries[-1] if self._entries else None
        if not whole and isinstance(detail, dict) and isinstance(last, dict):
            piece, known = cast("dict[str, Any]", detail), cast("dict[str, Any]", last)
            field = _PIECEMEAL.get(str(piece.get("type")))
            if field is not None and _names(piece) == _names(known):
                self._add(piece, known, field)
                return
        self._close()
        self._entries.append(detail)

    def all(self) -> list[Any]:
        """The entries as they are now."""
        self._close()
        return self._entries

    def _add(self, piece: dict[str, Any], known: dict[str, Any], field: str) -> None:
        for key, value in piece.items():
            if key == field and isinstance(value, str) and isinstance(known.get(key), str):
                if not self._pieces:
                    self._pieces.append(known[key])
                self._pieces.append(value)
            elif value is not None:
                if key == field:
                    self._pieces.clear()
                known[key] = value

    def _close(self) -> None:
        if self._pieces:
            last = cast("dict[str, Any]", self._entries[-1])
            last[_PIECEMEAL[str(last.get("type"))]] = "".join(self._pieces)
            self._pieces.clear()


def _names(detail: dict[str, Any]) -> tuple[Any, Any]:
    return detail.get("type"), detail.get("index")
