"""Pieces: text that comes in pieces, whole characters only."""

from agentcore.codecs.shared import mend_surrogates


class Pieces:
    """Text that comes in pieces; some servers cut an emoji between the two halves of its surrogate pair."""

    __slots__ = ("held", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.held = ""

    def mended(self, text: str) -> str:
        """The next piece, whole characters only: a first half is held back until the next piece."""
        text, self.held = self.held + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self.held = text[:-1], text[-1]
        return mend_surrogates(text)

    def __str__(self) -> str:
        return "".join(self.pieces)
