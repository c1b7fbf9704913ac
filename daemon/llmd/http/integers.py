"""Integers that a client writes as floats (`4.0`): clients in JavaScript, Lua and PHP know one kind of number.

msgspec takes no float where an integer is declared. One pass before the typed decoding rewrites such floats in the
members of declared objects and in lists of integers. Decoding again for each of them would multiply the cost of
everything else in the body. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

Members = Mapping[str, msgspec.Raw]

_EXACT_BELOW = 1 << 53
"""Below it a float is exact."""
_FRACTION_OF_ZEROS = re.compile(rb"\.0+(?=[,\]])")
_LISTS = (inspect.ListType, inspect.VarTupleType)


@dataclass(frozen=True, slots=True)
class _Place:
    """What a member is declared to hold."""

    is_integer: bool = False
    is_list_of_integers: bool = False
    members: Mapping[str, _Place] = field(default_factory=dict)

    @property
    def has_integers(self) -> bool:
        return self.is_integer or self.is_list_of_integers or bool(self.members)


def with_integers(document: bytes, members: Members, kind: object) -> bytes:
    """The document with integers where `kind` declares integers and the client wrote integral floats. `members`: its
    own."""
    return _rewritten(members, _declared(kind).members) or document


def _rewritten(members: Members, places: Mapping[str, _Place]) -> bytes | None:
    """None: nothing is to be rewritten."""
    texts = ((name, _text(bytes(members[name]), place)) for name, place in places.items() if name in members)
    changed = {name: msgspec.Raw(text) for name, text in texts if text is not None}
    return msgspec.json.encode({**members, **changed}) if changed else None


def _text(text: bytes, place: _Place) -> bytes | None:
    first = text[:1]
    if first == b"{" and place.members:
        return _rewritten(msgspec.json.decode(text, type=dict[str, msgspec.Raw]), place.members)
    if first == b"[" and place.is_list_of_integers and b".0" in text and b'"' not in text:
        return _FRACTION_OF_ZEROS.sub(b"", text)
    return _integer(text) if place.is_integer and first in b"-0123456789" else None


def _integer(text: bytes) -> bytes | None:
    if text.lstrip(b"-").isdigit():
        return None
    value = float(text)
    return b"%d" % int(value) if value.is_integer() and abs(value) < _EXACT_BELOW else None


@cache
def _declared(kind: Any) -> _Place:
    return _place(inspect.type_info(kind))


def _place(kind: inspect.Type) -> _Place:
    kinds = list(_alternatives(kind))
    inner = {
        one.encode_name: place
        for found in kinds
        if isinstance(found, inspect.StructType)
        for one in found.fields
        if (place := _place(one.type)).has_integers
    }
    return _Place(
        is_integer=any(isinstance(one, inspect.IntType) for one in kinds),
        is_list_of_integers=any(_holds_integers(one) for one in kinds),
        members=inner,
    )


def _alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.Metadata):
        yield from _alternatives(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _alternatives(one)
    else:
        yield kind


def _holds_integers(kind: inspect.Type) -> bool:
    """Of lists in lists, too; an object in a list is not looked into."""
    inner: tuple[inspect.Type, ...] = (kind.item_type,) if isinstance(kind, _LISTS) else ()
    if isinstance(kind, inspect.TupleType):
        inner = kind.item_types
    return any(
        isinstance(one, inspect.IntType) or _holds_integers(one) for item in inner for one in _alternatives(item)
    )
