"""Where two requests differ, for a person to read."""

from typing import Any, cast

import msgspec

_AROUND = 60


def difference(recorded: str, sent: str) -> str:
    """Where two bodies differ first, and what stands there; the place in the JSON too, if both are JSON."""
    old, new = recorded.encode(), sent.encode()
    at = next((place for place, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    path = _path(recorded, sent)
    where = f" ({path})" if path else ""
    return (
        f"at byte {at} of {len(old)} recorded and {len(new)} sent{where}:\n"
        f"  recorded: {_excerpt(old, at)}\n"
        f"  sent:     {_excerpt(new, at)}"
    )


def _excerpt(data: bytes, at: int) -> str:
    if at >= len(data):
        return f"…{data[-_AROUND:].decode('utf-8', 'replace')} (its end)"
    begin = max(0, at - _AROUND)
    text = data[begin : at + _AROUND].decode("utf-8", "replace")
    return f"{'…' if begin else ''}{text}{'…' if at + _AROUND < len(data) else ''}"


def _path(recorded: str, sent: str) -> str:
    try:
        old, new = msgspec.json.decode(recorded), msgspec.json.decode(sent)
    except msgspec.DecodeError:
        return ""
    return _first_place(old, new, "")


def _first_place(old: Any, new: Any, path: str) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        before, after = cast("dict[str, Any]", old), cast("dict[str, Any]", new)
        for key in before:
            place = f"{path}.{key}" if path else key
            if key not in after:
                return f"{place}, which was not sent"
            if before[key] != after[key]:
                return _first_place(before[key], after[key], place)
        added = next((key for key in after if key not in before), None)
        return (
            (path or "only in the order of fields, or in spaces")
            if added is None
            else f"{path}.{added}".lstrip(".") + ", new"
        )
    if isinstance(old, list) and isinstance(new, list):
        items, others = cast("list[Any]", old), cast("list[Any]", new)
        for index, (item, other) in enumerate(zip(items, others, strict=False)):
            if item != other:
                return _first_place(item, other, f"{path}[{index}]")
        return f"{path or 'the whole'}, {len(items)} items recorded and {len(others)} sent"
    return path
