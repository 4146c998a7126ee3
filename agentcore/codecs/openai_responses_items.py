"""The output items of a Responses reply as they grow: which event belongs to which item, whatever the server's habits.

A wrong merge is worse than an error: a tool would run with another call's arguments.
"""

from typing import Any, Literal, TypeAlias, cast

from agentcore.codecs.openai_responses_replay import summary_texts
from agentcore.codecs.shared import as_text, encode_json, excerpt, parse_arguments
from agentcore.errors import DecodeError

MAX_ITEMS = 4096
MAX_TELLINGS = 16
"""How often the arguments of one call are told whole, at most; a sane server does it twice."""

Kind: TypeAlias = Literal["message", "reasoning", "call", "other"]

_KINDS: dict[object, Kind] = {
    "message": "message",
    "reasoning": "reasoning",
    "function_call": "call",
    "custom_tool_call": "call",
}


class Item:
    """One output item.

    Attributes:
        id: the service's id of the item, by which later events name it.
        index: its `output_index`.
        is_alone: no other item has its id.
        call: position among the calls of the reply.
        said: pieces of its text, of its readable reasoning, or of its arguments as they came in deltas.
        arguments: arguments that came whole, the most trustworthy first.
        raw: the item as the service finished it.
        field: of reasoning, the field that is read; routers copy one thought into several.
        part: of reasoning, the part that the last piece belonged to.
    """

    __slots__ = (
        "arguments",
        "call",
        "call_id",
        "done",
        "field",
        "id",
        "index",
        "is_alone",
        "kind",
        "name",
        "part",
        "phase",
        "raw",
        "said",
    )

    def __init__(self, kind: Kind, item_id: Any, index: int | None) -> None:
        self.kind: Kind = kind
        self.id: Any = item_id
        self.index = index
        self.is_alone = item_id is not None
        self.call = 0
        self.call_id = ""
        self.name = ""
        self.phase: str | None = None
        self.said: list[str] = []
        self.arguments: list[object] = []
        self.raw: dict[str, Any] = {}
        self.done = False
        self.field: Literal["content", "summary"] | None = None
        self.part = -1

    def learn(self, item: dict[str, Any]) -> None:
        """Take what an event says of the item itself; what was told before stays as it was told."""
        self.call_id = self.call_id or id_text(item.get("call_id"))
        self.name = self.name or as_text(item.get("name")) or ""
        self.phase = self.phase or as_text(item.get("phase"))

    def told(self) -> str:
        """What came in pieces, put together."""
        if len(self.said) > 1:
            self.said = ["".join(self.said)]
        return self.said[0] if self.said else ""

    def take_arguments(self, arguments: object, *, first: bool = False) -> None:
        """Arguments that came whole."""
        if arguments is not None and len(self.arguments) < MAX_TELLINGS and arguments not in self.arguments:
            self.arguments.insert(0 if first else len(self.arguments), arguments)

    def is_other_than(self, item: dict[str, Any], index: int | None) -> bool:
        """Whether a finished call is not the one that `item` finishes: some servers give all calls one id."""
        call_id, name = id_text(item.get("call_id")), as_text(item.get("name"))
        if index is not None and self.index is not None and index != self.index:
            return True
        return bool(
            (call_id and self.call_id and call_id != self.call_id)
            or (name and self.name and name != self.name)
            or arguments_of(item) not in (None, *self.arguments)
        )

    def final_arguments(self) -> tuple[dict[str, Any], str | None]:
        """The arguments: the first that are an object with something in it; else what cannot be read; else none.

        Servers are known to finish a call with `{}` or with its last piece only, having told the arguments elsewhere.
        """
        broken: str | None = None
        for candidate in (*self.arguments, self.told()):
            args, raw = parse_arguments(candidate)
            if args:
                return args, None
            broken = broken if broken is not None else raw
        return {}, broken

    def says_arguments(self) -> bool:
        """Whether any arguments came, if only `{}`."""
        told = (*self.arguments, self.told())
        return any(not isinstance(one, str) or one.strip() for one in told)


class Items:
    """The items of one reply, in the order of their coming."""

    def __init__(self) -> None:
        self.all: list[Item] = []
        self.last: Item | None = None  # the one that the last event was about
        self._by_id: dict[str, list[Item]] = {}
        self._by_index: dict[int, list[Item]] = {}
        self._calls = 0

    def add(self, kind: Kind, item_id: object, index: int | None) -> Item:
        """A new item."""
        if len(self.all) >= MAX_ITEMS:
            raise DecodeError(f"one reply with more than {MAX_ITEMS} output items")
        made = Item(kind, item_id if isinstance(item_id, str) and item_id else None, index)
        if kind == "call":
            made.call = self._calls
            self._calls += 1
        self.all.append(made)
        if made.id is not None:
            same = self._by_id.setdefault(made.id, [])
            same.append(made)
            if len(same) > 1:
                for item in same:
                    item.is_alone = False
        if index is not None:
            self._by_index.setdefault(index, []).append(made)
        self.last = made
        return made

    def opened(self, kind: Kind, item_id: object, index: int | None) -> Item:
        """The item that an event opens: a new one, unless it is told twice."""
        for known in self._named(kind, item_id, index):
            if known.id == item_id and known.id is not None and known.index == index and not known.done:
                return known
        return self.add(kind, item_id, index)

    def found(self, kind: Kind, item_id: object, index: int | None, call_id: str = "") -> Item:
        """The item of this kind that an event is about; a new one where a server leaves out the opening.

        Raises:
            DecodeError: it may be about one of several calls.
        """
        last = self.last
        if (  # nearly always
            last is not None
            and last.is_alone
            and last.id == item_id
            and last.index == index
            and last.kind == kind
            and not last.done
        ):
            return last
        named = self._named(kind, item_id, index)
        if call_id and len(named) > 1:
            named = [item for item in named if item.call_id in ("", call_id)] or named
        going_on = [item for item in named or self.all if item.kind == kind and not item.done]
        if not going_on and isinstance(item_id, str) and item_id and item_id not in self._by_id:
            named = []  # a new item; some servers give every one the same index
        if kind == "call":
            if not named:  # an id that was never told belongs to a call that nothing came for yet, or to a new one
                going_on = [item for item in going_on if not item.said or (call_id and item.call_id == call_id)]
            if len(going_on) > 1:
                raise DecodeError("the stream does not say to which of several tool calls an event belongs")
        if going_on:
            found = going_on[-1]
        elif named:
            found = named[-1]
        else:
            return self.add(kind, item_id, index)
        if not named and isinstance(item_id, str) and item_id:
            self._by_id[item_id] = [found]
        self.last = found
        return found

    def _named(self, kind: Kind, item_id: object, index: int | None) -> list[Item]:
        """Items of this kind with the id and the index, or with one of the two where the other is of no use."""
        by_id = self._by_id.get(item_id, []) if isinstance(item_id, str) else []
        by_id = [item for item in by_id if item.kind == kind]
        # An id is made for its item; an index may be 0 in every event.
        named = [item for item in by_id if item.index == index] or by_id
        if named or index is None:
            return named
        return [item for item in self._by_index.get(index, []) if item.kind == kind]


def kind_of_item(item: dict[str, Any]) -> Kind:
    """What an item is; one without a type is told by its fields."""
    kind = item.get("type")
    if kind is None:
        return "call" if "arguments" in item else "message" if "content" in item else "other"
    return _KINDS.get(kind, "other") if isinstance(kind, str) else "other"


def id_text(value: object) -> str:
    """An id as text; some servers number their calls."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def arguments_of(item: dict[str, Any]) -> object:
    """The arguments of a call; the text of a custom tool call is its one argument."""
    if item.get("type") == "custom_tool_call":
        return {"input": item.get("input")}
    return item.get("arguments")


def texts_of_message(item: dict[str, Any]) -> tuple[str, bool]:
    """The text of a message, and whether there is a refusal in it.

    Raises:
        DecodeError: the content is neither text nor parts.
    """
    content = cast("object", item.get("content"))
    if content is None or isinstance(content, str):
        return content or "", False
    if not isinstance(content, list | dict):
        raise DecodeError(f"content is neither text nor parts: {excerpt(encode_json(content))}")
    texts: list[str] = []
    refused = False
    for part in cast("list[Any]", content if isinstance(content, list) else [content]):
        if isinstance(part, dict):
            known = cast("dict[str, Any]", part)
            refusal = as_text(known.get("refusal"))
            refused = refused or refusal is not None
            texts.append(refusal or as_text(known.get("text")) or "")
        else:
            texts.append(as_text(part) or "")
    return "".join(texts), refused


def thoughts_of(item: dict[str, Any], field: Literal["content", "summary"] | None) -> list[str]:
    """The parts of readable reasoning; where the field is not said, what was thought rather than its summary."""
    if field != "summary":
        content = summary_texts({"summary": item.get("content")})
        if content or field is not None:
            return content
    return summary_texts(item)
