"""The arguments of a call as an object, for dialects that return them in that form. Pure."""

from __future__ import annotations

import re

import msgspec

from ..core.errors import ApiError
from ..engine.json_scan import ARGUMENTS

_MARKS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*("?)|[\[\]{},:]|true|false|null', re.DOTALL)
"""Matches the texts and marks of JSON. For a text whose closing quote is missing, the group is empty."""


def object_of(arguments: str, *, is_cut: bool) -> bytes | None:
    """Returns the object as JSON on one line, cheap to decode, or None if the arguments are not an object. If the
    arguments were cut off (`is_cut`), returns an object with the members that are complete.
    """
    found = _cleaned(arguments.strip() or "{}")
    return found if found is not None or not is_cut else _cleaned(_complete_members(arguments)) or b"{}"


def text_of(name: str, arguments: str) -> str:
    """Returns the text that replaces a call whose arguments are not an object: the tool's name and the arguments."""
    return f"{name}({arguments})"


def _cleaned(arguments: str) -> bytes | None:
    try:
        cleaned = ARGUMENTS.clean(arguments.encode())
        msgspec.json.decode(cleaned, type=dict[str, msgspec.Raw])
    except (ApiError, msgspec.DecodeError, RecursionError):
        return None
    return cleaned


def _complete_members(arguments: str) -> str:
    """Returns the object up to its last complete member."""
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
