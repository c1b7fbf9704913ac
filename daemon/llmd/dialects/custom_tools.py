"""Custom tools, whose input is free text. The model sees each custom tool as a function with one text argument. This
module does no I/O. It makes the function for a custom tool, and the JSON arguments for past calls of the tool. While
the model writes a new call, the module extracts the input from the JSON arguments.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

import msgspec

from ..core.generation_request import ArgumentForm, Tool
from ..core.tools import tool_of

INPUT = "input"
"""Name of the argument of a custom tool."""


class OfferedFunction(msgspec.Struct, frozen=True):
    """A function in the list of tools of a request, in the form that all APIs except Anthropic's have."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class AnyText(msgspec.Struct, frozen=True, tag="text"):
    """Format of a tool whose input is any text."""


class Grammar(msgspec.Struct, frozen=True):
    syntax: Literal["lark", "regex"]
    definition: Annotated[str, msgspec.Meta(min_length=1)]


def custom_tool(path: str, name: str, description: str | None, grammar: Grammar | None) -> Tool:
    """Returns the function that stands for a custom tool. `path` is the client's name of the tool. Raises an ApiError
    that names the invalid member.
    """
    described, form = description or "", None
    if grammar is not None:
        form = ArgumentForm(INPUT, "lark_string" if grammar.syntax == "lark" else "regex_string", grammar.definition)
        described += f"\n\nThe text of {INPUT} follows this {grammar.syntax}:\n{grammar.definition}"
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {INPUT: {"type": "string"}},
        "required": [INPUT],
        "additionalProperties": False,
    }
    return msgspec.structs.replace(tool_of(path, name, described.strip(), parameters), form=form)


def custom_arguments(text: str) -> str:
    """Returns the JSON arguments of a past call whose input was this text."""
    return msgspec.json.encode({INPUT: text}).decode()


# --- the text of a call ----------------------------------------------------------------------------------------------

_OPENS = re.compile(rf'\s*{{\s*"{INPUT}"\s*:\s*"')
_OPENING = f'{{"{INPUT}":"'
_COMPLETE_CHARACTERS = re.compile(
    r"""(?: [^"\\]+ | \\["\\/bfnrt]
      | \\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}   # one character in two halves
      | \\u(?![dD][89abAB])[0-9a-fA-F]{4} )*""",
    re.VERBOSE,
)
"""Matches the characters after the opening quote of a JSON text, up to the closing quote or to an incomplete escape
sequence.
"""
_OPENING_CHARS_MAX = 256
"""Number of characters of the arguments within which the input must begin. If the input has not begun by then, the
model has not written the expected JSON object, and `finish` returns the whole input.
"""


class CustomInput:
    """Extracts the input of one call. `more` is called while the call's arguments arrive, and `finish` at the end."""

    def __init__(self) -> None:
        self._arguments: list[str] = []
        self._unread = ""
        """Received arguments that were not yet returned as input."""
        self._has_begun = False
        self._is_over = False
        """True if `more` returns no more text, because the input has ended or the arguments are not the expected JSON
        object.
        """
        self._returned: list[str] = []

    @property
    def arguments(self) -> str:
        return "".join(self._arguments)

    def more(self, arguments: str) -> str:
        self._arguments.append(arguments)
        if self._is_over:
            return ""
        self._unread += arguments
        if not self._has_begun and not self._begins():
            return ""
        found = _COMPLETE_CHARACTERS.match(self._unread)
        assert found is not None, "the pattern also matches an empty text"
        self._unread = self._unread[found.end() :]
        self._is_over = self._unread.startswith('"')
        text = _read(f'"{found[0]}"')
        self._returned.append(text or "")
        return text or ""

    def finish(self) -> tuple[str, str]:
        """Returns the part of the input that `more` has not returned yet, and the whole input. If the arguments were
        cut off, the input is the text so far. If the arguments are not the expected JSON object, they are returned
        unchanged as the input.
        """
        arguments, returned = self.arguments, "".join(self._returned)
        whole = _read(arguments)
        if whole is None:
            is_cut = self._has_begun or _OPENING.startswith("".join(arguments.split()))
            whole = returned if is_cut else arguments
        if not whole.startswith(returned):
            return "", returned
        return whole.removeprefix(returned), whole

    def _begins(self) -> bool:
        opening = _OPENS.match(self._unread)
        if opening is not None:
            self._has_begun = True
            self._unread = self._unread[opening.end() :]
        elif len(self._unread) > _OPENING_CHARS_MAX:
            self._is_over = True
        return self._has_begun


def _read(document: str) -> str | None:
    """Decodes JSON. Returns the text if the document is a text. Returns the text of the member `input` if the document
    is an object. Otherwise returns None. Accepts raw line breaks and halves of surrogate pairs, because models write
    them.
    """
    try:
        found = json.loads(document, strict=False)
    except (ValueError, RecursionError):
        return None
    value = found.get(INPUT) if isinstance(found, dict) else found
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else None
