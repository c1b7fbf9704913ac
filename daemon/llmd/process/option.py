"""One option: a field of `Config`, with all that command line, environment, TOML file, help and documentation need to
know of it. Its name gives the spelling everywhere: `ctx_size` is `--ctx-size`, `LLMD_CTX_SIZE` and `ctx_size` in TOML.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Parser = Callable[[str], Any]

KIB = 1024
NO_PATH = "none"


def text(value: str) -> str:
    if not value or any(ord(character) < 0x20 for character in value):
        raise ValueError
    return value


def integer(low: int, high: int) -> Parser:
    def parse(value: str) -> int:
        parsed = int(value)
        if not low <= parsed <= high:
            raise ValueError
        return parsed

    return parse


def number(low: float, high: float) -> Parser:
    def parse(value: str) -> float:
        parsed = float(value)
        if not (math.isfinite(parsed) and low <= parsed <= high):
            raise ValueError
        return parsed

    return parse


def size(low: int, high: int) -> Parser:
    def parse(value: str) -> int:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", value.strip(), re.IGNORECASE)
        if match is None:
            raise ValueError
        parsed = int(float(match[1]) * KIB ** " KMGT".index(match[2].upper() or " "))
        if not low <= parsed <= high:
            raise ValueError
        return parsed

    return parse


@dataclass(frozen=True, slots=True)
class Choice:
    words: tuple[str, ...]

    def __call__(self, value: str) -> str:
        if value not in self.words:
            raise ValueError
        return value


def choice(*words: str) -> Parser:
    return Choice(words)


def switch(value: str) -> bool:
    meanings = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}
    if value.lower() not in meanings:
        raise ValueError
    return meanings[value.lower()]


def words_of(parser: Parser) -> tuple[str, ...]:
    """Returns the values of an option that has only a few."""
    if isinstance(parser, Choice):
        return parser.words
    return ("on", "off") if parser is switch else ()


def words(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


class PartError(ValueError):
    """One of several values in a text will not do."""

    def __init__(self, part: str) -> None:
        self.part = part
        super().__init__(part)


_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:[a-z0-9._~-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?/?", re.IGNORECASE)
_DEFAULT_PORT = re.compile(r"http://.*:80/?|https://.*:443/?", re.IGNORECASE)
_OTHER_ORIGINS = ("*", "null", "file://")


def origins(value: str) -> tuple[str, ...]:
    """Accepts origins in the form that browsers send: no pattern, no path, no default port. Others would never
    match."""
    found = words(value)
    for one in found:
        if one not in _OTHER_ORIGINS and (not _ORIGIN.fullmatch(one) or _DEFAULT_PORT.fullmatch(one)):
            raise PartError(one)
    return found


def model(value: str) -> str:
    """A path as `path` reads it, or the name of a simulated model."""
    return os.path.expanduser(text(value))


def path(value: str) -> Path:
    try:
        return Path(text(value)).expanduser()
    except RuntimeError as error:  # ~ of a user that the system does not know
        raise ValueError from error


def path_or_none(value: str) -> Path | None:
    return None if value in ("", NO_PATH) else path(value)


# --- options ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table."""

    name: str
    default: Any
    parse: Parser
    expects: str
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

    def shown_default(self) -> str:
        """The default as the command line would spell it; "" when there is none."""
        if callable(self.default):
            return str(self.default())
        if isinstance(self.default, bool):
            return "on" if self.default else "off"
        if isinstance(self.default, float):
            return f"{self.default:g}"
        if self.unit == "bytes" and self.default:
            return f"{self.default // KIB**2}M"
        return "" if self.default in (None, ()) else str(self.default)


def option(default: Any, parse: Parser, expects: str, group: str, metavar: str, help: str, unit: str = "") -> Any:
    row = {"parse": parse, "expects": expects, "group": group, "metavar": metavar, "help": help, "unit": unit}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=row)
    return dataclasses.field(default=default, metadata=row)


def options_of(config: type[Any]) -> tuple[Option, ...]:
    """The rows of a table, in order."""
    rows = []
    for field in dataclasses.fields(config):
        default = field.default if field.default is not dataclasses.MISSING else field.default_factory
        rows.append(Option(name=field.name, default=default, **field.metadata))
    return tuple(rows)
