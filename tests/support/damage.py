"""Bytes damaged at random places."""

import hypothesis.strategies as st

edits = st.lists(st.tuples(st.integers(0, 10_000), st.binary(min_size=1, max_size=4)), min_size=1, max_size=5)
"""Where something is written over, and what."""


def mutate(data: bytes, edits: list[tuple[int, bytes]]) -> bytes:
    """The bytes with the edits made in them; positions beyond the end wrap around."""
    made = bytearray(data)
    for position, piece in edits:
        at = position % (len(made) + 1)
        made[at : at + len(piece)] = piece
    return bytes(made)
