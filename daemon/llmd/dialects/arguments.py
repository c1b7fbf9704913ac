"""Converts the arguments of a tool call to a JSON object, for APIs that return arguments in this form. All functions
are pure.
"""

from __future__ import annotations

import re

import msgspec

from ..core.errors import ApiError
from ..engine.json_scan import ARGUMENTS

_MARKS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*("?)|[\[\]{},:]|true|false|null', re.DOTALL)
"""Matches a text, a bracket, a comma, a colon or a literal of JSON. If the closing quote of a text is missing, the
group is empty.
"""


def object_of(arguments: str, *, is_cut: bool) -> bytes | None:
    """Returns the arguments as a JSON object without line breaks. Returns None if the arguments are not a JSON object.
    If the arguments were cut off (`is_cut`), returns an object with the members that are complete.
    """
    found = _cleaned(arguments.strip() or "{}")
    return found if found is not None or not is_cut else _cleaned(_complete_members(arguments)) or b"{}"


def text_of(name: str, arguments: str) -> str:
    """Returns the tool's name and the arguments as a text. This text replaces a tool call whose arguments are not an
    object.
    """
    return f"{name}({arguments})"


def _cleaned(arguments: str) -> bytes | None:
    try:
        cleaned = ARGUMENTS.clean(arguments.encode())
        msgspec.json.decode(cleaned, type=dict[str, msgspec.Raw])
    except (ApiError, msgspec.DecodeError, RecursionError):
        return None
    return cleaned


def _complete_members(arguments: str) -> str:
    """Returns the beginning of a JSON object that was cut off, up to its last complete member, with a closing
    bracket.
    """
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
