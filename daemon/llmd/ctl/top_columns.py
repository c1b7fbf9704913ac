"""The columns of the table of llmctl top: what they show of a session, how they are sorted, and which of them fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llmd.ctl import sessions, text
from llmd.ctl.client import Json

GAP = 2
"""Spaces between two columns."""
ID_CELLS_MAX, WORD_CELLS_MAX = 24, 16
LAST_WORDS_CELLS_MIN = 12
RUNNING = ("prefill", "decode")
_BAR_CELLS = 4

Order = tuple[float, str]
"""The value by which a column sorts a session: a number and a text. A column sets one of the two, and leaves the other
one empty.
"""


@dataclass(frozen=True)
class Column:
    title: str
    cell: Callable[[Json, int], str]
    """Takes a session and the present time in milliseconds, and returns the text in the column."""
    order: Callable[[Json], Order]
    cells_min: int = 0
    cells_max: int = WORD_CELLS_MAX
    is_number: bool = False
    """True if the column has numbers. Numbers are aligned to the right, and sorted from the largest to the smallest."""


def activity(session: Json) -> int:
    """Returns 0 for a session that runs, 1 for a session whose requests only wait, and 2 for every other session."""
    states = [one.get("state") for one in session.get("timelines") or []]
    is_running = session.get("state") in RUNNING or any(state in RUNNING for state in states)
    return 0 if is_running else 1 if session.get("waiting") else 2


def _progress(session: Json, _: int) -> str:
    done = sessions.prefill_progress(session)
    if done is None:
        return ""
    n_filled = _BAR_CELLS * done[0] // done[1]
    return f"[{'#' * n_filled}{'-' * (_BAR_CELLS - n_filled)}] {100 * done[0] // done[1]:>3}%"


def _progress_order(session: Json) -> Order:
    done = sessions.prefill_progress(session)
    return (done[0] / done[1] if done else -1.0), ""


def _reused_order(session: Json) -> Order:
    reused, n_all = sessions.reused_share(session)
    return (reused / n_all if n_all else -1.0), ""


def _state(session: Json) -> str:
    waiting = f" +{session['waiting']}" if session.get("waiting") else ""
    return f"{text.scalar(session.get('state'))}{waiting}"


def _last_start(session: Json) -> str:
    return text.scalar((session.get("last") or {}).get("reason"))


def _number(name: str) -> Callable[[Json], Order]:
    return lambda session: (float(session.get(name) or 0), "")


def _word(cell: Callable[[Json], str]) -> Callable[[Json], Order]:
    return lambda session: (0.0, cell(session).casefold())


def _member(name: str) -> Callable[[Json], str]:
    return lambda session: text.scalar(session.get(name))


def _text_column(title: str, cell: Callable[[Json], str], cells_min: int, cells_max: int = WORD_CELLS_MAX) -> Column:
    return Column(title, lambda session, _: cell(session), _word(cell), cells_min, cells_max)


ID = _text_column("ID", _member("id"), 8, ID_CELLS_MAX)
STATE = _text_column("STATE", _state, 7)
TOKENS = Column(
    "TOKENS",
    lambda session, _: text.count(sessions.longest(session)),
    lambda session: (float(sessions.longest(session)), ""),
    is_number=True,
)
MEMORY = Column(
    "MEMORY",
    lambda session, _: text.size(sessions.memory_bytes(session)),
    lambda session: (float(sessions.memory_bytes(session)), ""),
    is_number=True,
)
PROGRESS = Column("PROGRESS", _progress, _progress_order, _BAR_CELLS + 7, is_number=True)
REUSED = Column("REUSED", lambda session, _: text.share(*sessions.reused_share(session)), _reused_order, is_number=True)
LAST_START = _text_column("LAST START", _last_start, 12)
REQUESTS = Column(
    "REQUESTS", lambda session, _: text.count(session.get("requests", 0)), _number("requests"), is_number=True
)
USED = Column(
    "USED",
    lambda session, now_ms: text.age(session.get("used_ms", 0) / 1000, now_ms / 1000),
    _number("used_ms"),
    7,
    is_number=True,
)
PINNED = Column(
    "PINNED", lambda session, _: "yes" if session.get("pinned") else text.NOTHING, _number("pinned"), is_number=True
)
OWNER = _text_column("OWNER", sessions.owner, 5)
CLIENT = _text_column("CLIENT", _member("client"), 6)
LAST_WORDS = _text_column("LAST WORDS", _member("last_words"), LAST_WORDS_CELLS_MIN, 10_000)

SHOWN = (ID, STATE, TOKENS, MEMORY, PROGRESS, REUSED, LAST_START, REQUESTS, USED, PINNED, OWNER, CLIENT, LAST_WORDS)
"""The columns from left to right."""
BY_IMPORTANCE = (
    ID, STATE, TOKENS, PROGRESS, USED, REUSED, MEMORY, LAST_START, PINNED, LAST_WORDS, REQUESTS, CLIENT, OWNER,
)  # fmt: skip
"""The columns, the most important one first. On a narrow terminal, the least important ones are left out."""


def fitting(rows: Sequence[Json], now_ms: int, width: int) -> list[tuple[Column, int]]:
    """Returns the columns that fit into `width`, from left to right, each with its width. The last words of a session
    get the rest of the line. The first column is shown even if it has to be shortened.
    """
    found: dict[str, int] = {}
    left = width
    for column in BY_IMPORTANCE:
        n = _natural_width(column, rows, now_ms)
        if found and n + GAP > left:
            break
        found[column.title] = min(n, width)
        left -= n + (GAP if len(found) > 1 else 0)
    if LAST_WORDS.title in found:
        found[LAST_WORDS.title] += max(0, left)
    return [(column, found[column.title]) for column in SHOWN if column.title in found]


def _natural_width(column: Column, rows: Sequence[Json], now_ms: int) -> int:
    if column is LAST_WORDS:
        return column.cells_min
    longest = max((text.cells(cell(column, session, now_ms)) for session in rows), default=0)
    return max(len(column.title), column.cells_min, min(longest, column.cells_max))


def cell(column: Column, session: Json, now_ms: int) -> str:
    return text.one_line(column.cell(session, now_ms))
