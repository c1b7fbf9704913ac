"""Reads README's table of clients, so that the tests use the lines that users read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from llmd.process.config_table import DEFAULT_PORT

README = Path(__file__).parents[2] / "README.md"
ADDRESS = f"http://127.0.0.1:{DEFAULT_PORT}"
"""llmd's address in these lines."""
CONTEXT = "65536"
"""The context size in these lines, which stands for the daemon's."""
_ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| (`.*`) \|$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Lines:
    """The configuration in one row."""

    files: Mapping[str, str] = field(default_factory=dict)
    """Maps paths in the home directory to contents. The working directory is `work` in the home directory."""
    environment: Mapping[str, str] = field(default_factory=dict)


def lines_of(client: str, url: str, n_ctx: int) -> Lines:
    """Returns the configuration of a client, by its name in the table. `url` is llmd's address, `n_ctx` the context
    size in tokens.
    """
    rows = {name: (where, what) for name, where, what in _ROW.findall(README.read_text())}
    where, what = rows[client]
    lines = [line.replace(ADDRESS, url).replace(CONTEXT, str(n_ctx)) for line in re.findall("`([^`]*)`", what)]
    if where == "environment":
        return Lines(environment=dict(line.split("=", 1) for line in lines))
    path = where.strip("`")
    place = path.removeprefix("~/") if path.startswith("~/") else f"work/{path}"
    return Lines(files={place: "\n".join(lines) + "\n"})
