"""Defines what an option is. An option is a field of `Config` (config_table.py). Its definition has all facts for the
command line, the environment, the TOML file, --help and the documentation.

All spellings of an option are made from the field's name. For example, the field `ctx_size` is `--ctx-size` on the
command line, `LLMD_CTX_SIZE` in the environment, and `ctx_size` in the TOML file.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

N = TypeVar("N", int, float)

KIB = 1024
NO_PATH = "none"


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A type of values that an option can have. `parse` converts the text of a value, and raises ValueError if the text
    is invalid.
    """

    parse: Callable[[str], Any]
    expects: str
    """Says which texts are valid. Error messages show it after "expected"."""
    words: tuple[str, ...] = ()
    """All valid texts, if there are only a few. Empty otherwise."""


def _text(value: str) -> str:
    if not value or any(ord(character) < 0x20 for character in value):
        raise ValueError
    return value


def text(expects: str) -> ValueKind:
    return ValueKind(_text, expects)


def integer(low: int, high: int, expects: str = "{} to {}") -> ValueKind:
    return ValueKind(lambda value: _between(low, int(value), high), expects.format(low, high))


def number(low: float, high: float, expects: str = "seconds, {:g} to {:g}") -> ValueKind:
    return ValueKind(lambda value: _between(low, float(value), high), expects.format(low, high))


def size(low: int, high: int, expects: str) -> ValueKind:
    def parse(value: str) -> int:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", value.strip(), re.IGNORECASE)
        if match is None:
            raise ValueError
        return _between(low, int(float(match[1]) * KIB ** " KMGT".index(match[2].upper() or " ")), high)

    return ValueKind(parse, expects)


def _between(low: float, value: N, high: float) -> N:
    """Returns `value`. Raises ValueError if the value is below `low`, above `high`, or NaN."""
    if not low <= value <= high:
        raise ValueError
    return value


def choice(*words: str) -> ValueKind:
    def parse(value: str) -> str:
        if value not in words:
            raise ValueError
        return value

    return ValueKind(parse, f"{', '.join(words[:-1])} or {words[-1]}", words)


def _switch(value: str) -> bool:
    meanings = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}
    if value.lower() not in meanings:
        raise ValueError
    return meanings[value.lower()]


def _words(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


class PartError(ValueError):
    """Raised if an option's text is a list, and one of the listed values, `part`, is invalid."""

    def __init__(self, part: str) -> None:
        self.part = part
        super().__init__(part)


_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:[a-z0-9._~-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?/?", re.IGNORECASE)
_DEFAULT_PORT = re.compile(r"http://.*:80/?|https://.*:443/?", re.IGNORECASE)
_OTHER_ORIGINS = ("*", "null", "file://")


def _origins(value: str) -> tuple[str, ...]:
    """Returns the web origins in a comma-separated list. Raises PartError if an origin has a pattern, a path or a
    default port. Browsers send origins without these, so such an origin would never match a request.
    """
    found = _words(value)
    for one in found:
        if one not in _OTHER_ORIGINS and (not _ORIGIN.fullmatch(one) or _DEFAULT_PORT.fullmatch(one)):
            raise PartError(one)
    return found


_WEB_ADDRESS = re.compile(r"https?://[^\s/?#]+[^\s?#]*", re.IGNORECASE)


def _web_address(value: str) -> str:
    if value and not _WEB_ADDRESS.fullmatch(value):
        raise ValueError
    return value


def _path(value: str) -> Path:
    try:
        return Path(_text(value)).expanduser()
    except RuntimeError as error:  # the path begins with ~NAME, and no user has that name
        raise ValueError from error


switch = ValueKind(_switch, "on or off", ("on", "off"))
words = ValueKind(_words, "names separated by commas")
origins = ValueKind(
    _origins,
    "SCHEME://HOST or SCHEME://HOST:PORT without path, pattern or default port, separated by commas; * allows all",
)
web_address = ValueKind(_web_address, "http://HOST or http://HOST:PORT, also with https and with a path")
model = ValueKind(lambda value: os.path.expanduser(_text(value)), "a path, OWNER/NAME[:QUANTIZATION] or sim:CLASS")
path = ValueKind(_path, "a path")
path_or_none = ValueKind(lambda value: None if value in ("", NO_PATH) else _path(value), "a path, or none")


# --- from fields to options -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    default: Any
    kind: ValueKind
    group: str
    metavar: str
    help: str
    unit: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def environment(self) -> str:
        return "LLMD_" + self.name.upper()

    def default_text(self) -> str:
        """Returns the option's default in the syntax of the command line, or "" if the option has no default."""
        if callable(self.default):
            return str(self.default())
        if isinstance(self.default, bool):
            return "on" if self.default else "off"
        if isinstance(self.default, float):
            return f"{self.default:g}"
        if self.unit == "bytes" and self.default:
            return f"{self.default // KIB**2}M"
        return "" if self.default in (None, ()) else str(self.default)


def option(group: str, default: Any, kind: ValueKind, metavar: str, help: str, unit: str = "") -> Any:
    row = {"kind": kind, "group": group, "metavar": metavar, "help": help, "unit": unit}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=row)
    return dataclasses.field(default=default, metadata=row)


def options_of(config: type[Any]) -> tuple[Option, ...]:
    rows = []
    for field in dataclasses.fields(config):
        default = field.default if field.default is not dataclasses.MISSING else field.default_factory
        rows.append(Option(name=field.name, default=default, **field.metadata))
    return tuple(rows)
