"""The arguments of a call where a dialect tells them as an object. Pure."""

from __future__ import annotations

import re

import msgspec

from ..core.errors import ApiError
from ..engine.json_scan import ARGUMENTS

_MARKS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*("?)|[\[\]{},:]|true|false|null', re.DOTALL)
"""Of a text without its end the group is empty."""


def object_of(arguments: str, *, is_cut: bool) -> bytes | None:
    """Its JSON, quick to decode and on one line; None: it is none. Of one that was cut, what is whole of it."""
    found = _cleaned(arguments.strip() or "{}")
    return found if found is not None or not is_cut else _cleaned(_whole_members(arguments)) or b"{}"


def _cleaned(arguments: str) -> bytes | None:
    try:
        cleaned = ARGUMENTS.clean(arguments.encode())
        msgspec.json.decode(cleaned, type=dict[str, msgspec.Raw])
    except (ApiError, msgspec.DecodeError, RecursionError):
        return None
    return cleaned


def _whole_members(arguments: str) -> str:
    """The object as far as its last member that nothing could be added to."""
    depth, end, is_value = 0, 0, False
    for found in _MARKS.finditer(arguments):
        mark = found[0]
        depth += (mark in "{[") - (mark in "}]")
        if depth != 1:
            continue
        if mark == ",":
            end, is_value = found.start(), False
        elif is_value and found[1] != "":
            end = found.end()
        else:
            is_value = mark == ":"
    return arguments[:end] + "}"
