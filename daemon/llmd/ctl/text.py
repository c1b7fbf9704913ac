"""Formats output for people: aligned tables, counts and ages. Also makes text that others have written, such as a
model's answer, safe to print on a terminal.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Callable, Sequence
from typing import TextIO

NOTHING = "-"

# Maps each control character to a visible character. A model's answer must not control the terminal that shows it.
_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
_PICTURES |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


def printable(text: str) -> str:
    return text.translate(_PICTURES)


# Maps Unicode categories to the text that one_line() writes instead of their characters. These are characters without
# a width, such as those that change the direction of writing, line separators, and characters whose width on a terminal
# is unknown.
_REPLACED = {"Cf": "", "Zl": " ", "Zp": " ", "Cs": "\ufffd", "Cn": "\ufffd", "Co": "\ufffd"}
_NO_SELECTORS = dict.fromkeys(range(0xFE00, 0xFE10)) | {ord("\n"): " ", ord("\t"): " "}
"""Removes variation selectors. Terminals disagree about the width of the character before such a selector."""


def one_line(text: str) -> str:
    """Returns the text as one line that is printable and whose width cells() knows."""
    line = printable(text).translate(_NO_SELECTORS)
    return line if line.isascii() else "".join(_REPLACED.get(unicodedata.category(char), char) for char in line)


def cells(text: str) -> int:
    """Returns the number of columns of a terminal that the text takes. East Asian characters and emoji take two, and
    combining marks none.
    """
    return len(text) if text.isascii() else sum(map(_cells, text))


def _cells(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def shortened(text: str, width: int) -> str:
    """Returns the text if it fits into `width` columns. Otherwise returns its beginning and an ellipsis."""
    if cells(text) <= width:
        return text
    n, used = 0, 1
    while n < len(text) and (used := used + _cells(text[n])) <= width:
        n += 1
    return text[:n] + "…" if width > 0 else ""


def padded(text: str, width: int, *, is_right: bool = False) -> str:
    """Returns the text, shortened or padded with spaces, so that it takes exactly `width` columns."""
    short = shortened(text, width)
    spaces = " " * (width - cells(short))
    return spaces + short if is_right else short + spaces


def count(number: int) -> str:
    return f"{number:,}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Returns a text such as "1 session" or "1,234 sessions"."""
    return f"{count(number)} {noun if number == 1 else plural or noun + 's'}"


def drafts(number: Callable[[str], int]) -> str:
    """Returns how many verified draft tokens were accepted, for each source. `number` takes the name of a count, and
    returns the count.
    """
    drafted, accepted = number("drafted_tokens"), number("accepted_tokens")
    others = [
        (source, number(f"{source}_drafted_tokens"), number(f"{source}_accepted_tokens"))
        for source in ("grammar", "model")
    ]
    # The counters are read one after the other. So a part can be larger than the total.
    of_text = max(0, drafted - sum(drafts for _, drafts, _ in others))
    accepted_of_text = max(0, accepted - sum(right for _, _, right in others))
    return ", ".join(
        f"{source} {count(right)} of {count(drafts)} accepted"
        for source, drafts, right in [("lookup", of_text, accepted_of_text), *others]
        if source != "model" or drafts
    )


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
