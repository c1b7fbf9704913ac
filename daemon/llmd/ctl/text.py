"""Formats output for people: aligned tables, counts and ages. Also makes text that others have written, such as a
model's answer, safe to print on a terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TextIO

NOTHING = "-"

# Maps each control character to a visible character. A model's answer must not control the terminal that shows it.
_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
_PICTURES |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


def printable(text: str) -> str:
    return text.translate(_PICTURES)


def count(number: int) -> str:
    return f"{number:,}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Returns a text such as "1 session" or "1,234 sessions"."""
    return f"{count(number)} {noun if number == 1 else plural or noun + 's'}"


def share(part: int, total: int) -> str:
    """Returns a text such as "87 %", or a dash if `total` is 0."""
    return f"{100 * part // total} %" if total else NOTHING


def duration(seconds: float) -> str:
    """Returns a duration in its two largest units, for example 45s, 3m 20s, 2h 5m or 9d 4h."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if left >= size or (unit == "s" and not parts):
            parts.append(f"{left // size}{unit}")
            left %= size
    return " ".join(parts[:2])


def age(then_s: float, now_s: float) -> str:
    """Returns how long ago the time `then_s` was, in its largest unit ("3m ago"). Returns "now" for a time less than a
    second ago. Also returns "now" for a time in the future, because clocks can differ.
    """
    return NOTHING if then_s <= 0 else "now" if now_s - then_s < 1 else f"{duration(now_s - then_s).split()[0]} ago"


def size(n_bytes: int) -> str:
    value, units = float(n_bytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.0f} {units[0]}" if value >= 10 or units[0] == "B" else f"{value:.1f} {units[0]}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table in which each column is as wide as its longest cell. If a header ends with ">", its column is
    aligned to the right.
    """
    titles = [title.removesuffix(">") for title in header]
    widths = [max(len(cell) for cell in column) for column in zip(titles, *rows, strict=True)]
    lines = []
    for row in [titles, *rows]:
        cells = zip(row, header, widths, strict=True)
        lines.append("  ".join(c.rjust(w) if h.endswith(">") else c.ljust(w) for c, h, w in cells).rstrip())
    return "\n".join(lines)


def fields(pairs: Sequence[tuple[str, str]]) -> str:
    """Returns a line with a name and its value for each pair."""
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in pairs)


def dim(text: str, stream: TextIO | None = None) -> str:
    target = stream or sys.stdout
    colourful = target.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    return f"\033[2m{text}\033[0m" if colourful else text


def scalar(raw: object) -> str:
    """Returns a JSON string, number or boolean as text. Returns a dash for null and for ""."""
    if raw is None or raw == "":
        return NOTHING
    return count(raw) if isinstance(raw, int) and not isinstance(raw, bool) else printable(str(raw))
