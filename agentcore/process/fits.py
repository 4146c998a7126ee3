"""Whether what an event brings can be what an input is declared to be; refuses only what certainly cannot."""

import types
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin


def fits(brought: Any, wanted: Any) -> bool:
    """Whether a value of type `brought` may be given where `wanted` is declared; in doubt, yes."""
    brought, wanted = _plain(brought), _plain(wanted)
    if Any in (brought, wanted) or object is wanted or brought == wanted:
        return True
    if _is_union(brought):
        return any(fits(one, wanted) for one in get_args(brought))
    if _is_union(wanted):
        return any(fits(brought, one) for one in get_args(wanted))
    if get_origin(brought) is Literal:
        return get_origin(wanted) is Literal or any(fits(type(one), wanted) for one in get_args(brought))
    if get_origin(wanted) is Literal:
        return any(fits(brought, type(one)) for one in get_args(wanted))
    outer, outer_wanted = get_origin(brought) or brought, get_origin(wanted) or wanted
    if not (isinstance(outer, type) and isinstance(outer_wanted, type)):
        return True
    if not _is_subclass(outer, outer_wanted):
        return False
    items, items_wanted = get_args(brought), get_args(wanted)
    if len(items) != len(items_wanted) or outer is tuple or outer_wanted is tuple:
        return True
    return all(fits(one, other) for one, other in zip(items, items_wanted, strict=True))


def item_of(type_: Any) -> Any:
    """Type of the items of a list type; None if it is no list at all."""
    type_ = _plain(type_)
    if type_ is Any or _is_union(type_):
        return Any
    origin = get_origin(type_) or type_
    if not isinstance(origin, type) or not issubclass(origin, list | tuple):
        return Any if not isinstance(origin, type) or origin.__module__ == "collections.abc" else None
    arguments = get_args(type_)
    if not arguments:
        return Any
    distinct = [one for one in arguments if one is not Ellipsis]
    return distinct[0] if len(distinct) == 1 else Any


def _plain(type_: Any) -> Any:
    if get_origin(type_) is Annotated:
        return _plain(get_args(type_)[0])
    if isinstance(type_, TypeVar) or type_ is None:
        return Any if type_ is not None else type(None)
    return type_


def _is_union(type_: Any) -> bool:
    return get_origin(type_) in (Union, types.UnionType)


def _is_subclass(one: type, other: type) -> bool:
    if other is float and one is int:  # as type checkers see it
        return True
    if getattr(other, "_is_protocol", False) or getattr(one, "__total__", None) is not None:
        return True  # protocols and TypedDicts: not for us to judge
    try:
        return issubclass(one, other)
    except TypeError:
        return True
