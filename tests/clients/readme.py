"""README's table of clients: the lines that are tried are those that are read there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
ADDRESS = "http://127.0.0.1:8000"
"""llmd's address in these lines."""
CONTEXT = "65536"
"""The context size in these lines, which stands for the one that is served."""
_ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| (`.*`) \|$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of one row."""

    files: Mapping[str, str] = field(default_factory=dict)
    """Path in the home to contents. The working directory is `work` in it."""
    environment: Mapping[str, str] = field(default_factory=dict)


def lines_of(client: str, url: str, n_ctx: int) -> Lines:
    """`client`: as the table calls it; `url`: where llmd is; `n_ctx`: tokens of its sessions."""
    rows = {name: (where, what) for name, where, what in _ROW.findall(README.read_text())}
    where, what = rows[client]
    lines = [line.replace(ADDRESS, url).replace(CONTEXT, str(n_ctx)) for line in re.findall("`([^`]*)`", what)]
    if where == "environment":
        return Lines(environment=dict(line.split("=", 1) for line in lines))
    path = where.strip("`")
    place = path.removeprefix("~/") if path.startswith("~/") else f"work/{path}"
    return Lines(files={place: "\n".join(lines) + "\n"})
