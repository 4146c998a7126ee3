"""Typed values as JSON text: what a snapshot holds, checked when it is made and not when it is needed."""

from typing import Any, cast

import msgspec

from agentcore.process.errors import UnstorableValueError
from agentcore.schema import convert_value, describe_error, json_default, schema_of

_encoder = msgspec.json.Encoder(enc_hook=json_default)
_MAX_SHOWN = 200


class ValueCodec:
    """One declared type: values to JSON text and back.

    Args:
        type_: the declared type; `Any` for plain JSON values.
    """

    __slots__ = ("_decoder", "type")

    def __init__(self, type_: Any) -> None:
        self.type = type_
        self._decoder: msgspec.json.Decoder[Any] | None = None

    def pack(self, value: Any, what: str) -> tuple[bytes, Any]:
        """The value's JSON text, and the value as it comes back from it.

        Args:
            value: the value.
            what: what it is and where, for the error: "the result of step 'draft'".

        Raises:
            UnstorableValueError: it has no JSON form or is not what was declared.
        """
        try:
            raw = _encoder.encode(value)
        except (TypeError, NotImplementedError, ValueError, RecursionError, OverflowError) as error:
            raise UnstorableValueError(
                f"{what} is a {type(value).__name__}, which has no JSON form ({_short(str(error))}), so that no "
                "snapshot can hold it; return plain data, a Struct, a dataclass or a Pydantic model, and declare its "
                "type"
            ) from error
        try:
            back = self.unpack(raw)
        except (msgspec.DecodeError, TypeError, NotImplementedError) as error:
            problem = error if isinstance(error, msgspec.DecodeError) else RuntimeError(str(error))
            raise UnstorableValueError(
                f"{what} is a {type(value).__name__}, but is declared {type_name(self.type)}: "
                f"{_short(describe_error(problem))}; return what is declared, or declare what is returned"
            ) from error
        if self.type is Any and back != value:
            raise UnstorableValueError(
                f"{what} is a {type(value).__name__} and would come back from the snapshot as a "
                f"{type(back).__name__} of another value, since it has no declared type; declare one"
            )
        return raw, back

    def unpack(self, raw: bytes | msgspec.Raw) -> Any:
        """The value of a JSON text."""
        if self._decoder is None:
            self._decoder = msgspec.json.Decoder(self.type, dec_hook=_from_json_value)
        return self._decoder.decode(raw)

    def schema_text(self) -> str:
        """The type in words that change when it does."""
        try:
            return msgspec.json.encode(_without_words(schema_of(self.type)), order="sorted").decode()
        except (TypeError, NotImplementedError, RuntimeError):  # no schema: a type that only Python knows
            return type_name(self.type)


def _without_words(node: Any, *, is_names: bool = False) -> Any:
    """A schema without titles and descriptions: a docstring that was changed makes no other type."""
    if isinstance(node, list):
        return [_without_words(item) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    return {
        key: _without_words(value, is_names=key in ("properties", "$defs") and not is_names)
        for key, value in cast("dict[str, Any]", node).items()
        if is_names or key not in ("title", "description")
    }


def type_name(type_: Any) -> str:
    """A type as one writes it."""
    return type_.__name__ if isinstance(type_, type) and not hasattr(type_, "__args__") else repr(type_)


def _from_json_value(type_: Any, value: object) -> Any:
    return convert_value(value, type_)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
