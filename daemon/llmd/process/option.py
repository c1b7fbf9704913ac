"""One option: a field of `Config`, with all that command line, environment, TOML file, help and documentation need to
know of it. Its name gives the spelling everywhere: `ctx_size` is `--ctx-size`, `LLMD_CTX_SIZE` and `ctx_size` in TOML.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from .option_values import KIB, Parser


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
