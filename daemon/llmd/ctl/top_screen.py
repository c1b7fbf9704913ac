"""The screen of llmctl top: makes lines of styled text from a View, for a width and a height. Uses no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from llmd.ctl import sessions, status, text
from llmd.ctl.client import Json
from llmd.ctl.top_columns import GAP, RUNNING, Column, cell, fitting
from llmd.ctl.top_view import View, key_of

Style = Literal["plain", "bold", "header", "selected", "running", "warning"]
Line = list[tuple[str, Style]]

NOT_CONNECTED = "not connected, trying again"
HEAD_LINES = 4
_LINES_BESIDE_ROWS = 3
"""Number of lines around the rows of the table: the line about the table, the header, and the line with the keys."""
_ROWS_BEFORE_HEAD = 3
"""If the table would have fewer rows than this even without the head, the screen shows no head."""

KEYS = (
    ("h", "help"), ("q", "quit"), ("Enter", "details"), ("/", "filter"), ("s", "sort"), ("p", "park"), ("P", "pin"),
    ("c", "close"), ("r", "reverse"), ("space", "pause"),
)  # fmt: skip
DETAIL_KEYS = (("Esc", "back"), ("q", "quit"), ("p", "park"), ("P", "pin"), ("c", "close"), ("space", "pause"))
HELP = """\
arrows, PageUp, PageDown, Home, End   select a session
Enter        show details of the selected session; Esc goes back
/            show sessions with a text: Enter keeps this filter, Esc ends it
s, >, <      sort by the next column (s, >) or the previous one (<)
r            reverse the order
space        pause the display, or continue
p            park the selected session
P            pin or unpin the selected session
c            close the selected session, after a question
Esc          end the filter, then the selection
q, Ctrl-C    quit

A state with +2 means that 2 more requests of the session wait. TOKENS is the
length of the longest branch. PROGRESS is the part of a prompt that is
prefilled. REUSED is the percentage of reused tokens among all prompt tokens.
LAST START is the reason in the last answer. MEMORY is the memory of the
session's state and checkpoints. Memory that sessions share is counted once."""


def render(view: View, width: int, height: int) -> list[Line]:
    """Returns at most `height` lines, each of which takes at most `width` columns."""
    head = _head(view, width)[: _n_head(height)]
    n_body = height - len(head) - 1
    if height < 2:
        return [_bottom(view, width)][:height]
    if view.mode == "table":
        body = _table(view, width, n_body)
    else:
        body = _text(view, width)[view.scroll : view.scroll + n_body]
    body += [[] for _ in range(n_body - len(body))]
    return [*head, *body[:n_body], _bottom(view, width)]


def table_rows(height: int) -> int:
    """Returns how many rows of the table fit on a screen of this height."""
    return max(1, height - _n_head(height) - _LINES_BESIDE_ROWS)


def scroll_max(view: View, width: int, height: int) -> int:
    """Returns how many lines of the details or the help do not fit on the screen."""
    return 0 if view.mode == "table" else max(0, len(_text(view, width)) - (height - _n_head(height) - 1))


def snapshot(view: View, width: int) -> str:
    """Returns the head and the whole table as text."""
    lines = [*_head(view, width), [], *_table(view, width, len(view.rows()) + 2)]
    return "\n".join("".join(span for span, _ in line).rstrip() for line in lines)


def _n_head(height: int) -> int:
    return max(0, min(HEAD_LINES, height - _LINES_BESIDE_ROWS - _ROWS_BEFORE_HEAD + 1))


# --- the head --------------------------------------------------------------------------------------------------------


def _head(view: View, width: int) -> list[Line]:
    shown = view.shown
    places, storage, memory = shown.places, shown.storage, shown.memory
    state_max = memory.get("state_bytes_max", 0)

    state = f"{text.share(memory.get('state_bytes', 0), state_max)} of {text.size(state_max)}"
    kv_tokens = text.count(memory.get("kv_tokens", 0))
    if memory.get("kv_tokens_max") is not None:
        kv_tokens += f" of {text.count(memory['kv_tokens_max'])}"
    slots = f"{places.get('named_used', 0)} of {places.get('named', 0)} used"
    checkpoints = f"{text.count(storage.get('checkpoints', 0))}, {text.size(storage.get('checkpoint_bytes', 0))}"
    n_parked = text.counted(places.get("parked", 0), "branch", "branches")
    disk = f"{status.share_of(storage, 'disk_bytes')}{', writing fails' if storage.get('disk_refuses') else ''}"
    on_disk = [("only on disk", text.counted(n, "session"))] if (n := places.get("dormant", 0)) else []
    return [
        _title(view, width),
        _facts(
            width,
            ("requests", status.live_requests(shown.counters)),
            ("slots", slots),
            ("checkpoints", checkpoints),
        ),
        _facts(
            width,
            ("tokens/s", f"{_rate(shown.prefill_rate)} prefilled, {_rate(shown.decode_rate)} generated"),
            ("state", state),
            ("KV tokens", kv_tokens),
        ),
        _facts(width, ("parked", f"{n_parked}, {status.share_of(storage, 'parked_bytes')}"), ("disk", disk), *on_disk),
    ]


def _title(view: View, width: int) -> Line:
    name = text.one_line(f"llmd {view.version}" if view.version else "llmd")
    if view.trouble:
        return _cut([(f"{name}  ", "bold"), (text.one_line(view.trouble), "warning")], width)
    word = status.state(view.ready)
    style: Style = "plain" if word == "ready" else "warning"
    return _cut([(f"{name}  ", "bold"), (word, style), (f"  {text.scalar(view.ready.get('model'))}", "plain")], width)


def loading(ready: Json) -> str:
    """Returns a text such as "loading the model, 43 %"."""
    if download := ready.get("download"):
        n, n_all = text.size(download.get("bytes", 0)), text.size(download.get("total_bytes", 0))
        return f"downloading {download.get('name')}, {n} of {n_all}"
    return f"loading the model, {ready.get('loaded_per_mille', 0) // 10} %"


def _rate(rate: float | None) -> str:
    return text.NOTHING if rate is None else text.count(round(rate))


def _facts(width: int, *facts: tuple[str, str]) -> Line:
    """Returns a line of names and values. Leaves out facts that do not fit, except the first."""
    line: Line = []
    left = width
    for name, value in facts:
        n = len(name) + 1 + text.cells(value)
        if line and n + 3 > left:
            break
        line += [("   " if line else "", "plain"), (f"{name} ", "plain"), (value, "bold")]
        left -= n + 3
    return _cut(line, width)


# --- the table -------------------------------------------------------------------------------------------------------


def _table(view: View, width: int, n_lines: int) -> list[Line]:
    rows, now_ms = view.rows(), view.shown.time_ms
    keys = [key_of(session) for session in rows]
    n_rows = max(1, n_lines - 2)
    selected = keys.index(view.selected) if view.selected in keys else 0
    first = max(0, min(selected - n_rows // 2, len(rows) - n_rows))
    shown = rows[first : first + n_rows]
    columns = fitting(shown, now_ms, width - 1)
    titles = " " + _joined(columns, [column.title for column, _ in columns])
    lines: list[Line] = [
        _cut([(_about(view, len(rows)), "warning" if view.message else "plain")], width),
        [(text.padded(titles, width), "header")],
    ]
    for session in shown:
        is_selected = key_of(session) == view.selected
        mark = ">" if is_selected else " "
        row = mark + _joined(columns, [cell(column, session, now_ms) for column, _ in columns])
        style: Style = "selected" if is_selected else "running" if session.get("state") in RUNNING else "plain"
        lines.append([(text.padded(row, width), style)])
    return lines


def _joined(columns: Sequence[tuple[Column, int]], texts: Sequence[str]) -> str:
    joined = zip(columns, texts, strict=True)
    return (" " * GAP).join(text.padded(one, n, is_right=column.is_number) for (column, n), one in joined)


def _about(view: View, n_rows: int) -> str:
    if view.message:
        return text.one_line(view.message)
    n_all = len(view.shown.sessions)
    wanted = view.filter if view.typed is None else view.typed
    what = f"{text.count(n_rows)} of {text.counted(n_all, 'session')}" if wanted else text.counted(n_all, "session")
    matching = f' with "{text.one_line(wanted)}"' if wanted else ""
    order = f"sorted by {view.sort}{', reversed' if view.is_reversed else ''}"
    return f"{'PAUSED  ' if view.is_paused else ''}{what}{matching}, {order}"


# --- details, help and the last line ---------------------------------------------------------------------------------


def _text(view: View, width: int) -> list[Line]:
    return _details(view, width) if view.mode == "details" else _wrapped(HELP, width)


def _details(view: View, width: int) -> list[Line]:
    session = view.selected_session()
    if session is None:
        return [*_message(view, width), *_wrapped("This session no longer exists.", width)]
    return [*_message(view, width), *_wrapped(sessions.details(session, view.shown.time_ms / 1000), width)]


def _message(view: View, width: int) -> list[Line]:
    words = view.message or ("PAUSED" if view.is_paused else "")
    return [_cut([(text.one_line(words), "warning")], width)]


def _wrapped(paragraph: str, width: int) -> list[Line]:
    return [[(part, "plain")] for line in paragraph.splitlines() for part in _parts(text.one_line(line), width)]


def _parts(line: str, width: int) -> list[str]:
    """Returns the line in parts of at most `width` columns, divided between words if that is possible."""
    parts: list[str] = []
    while text.cells(line) > width > 1:
        n = len(text.shortened(line, width + 1)) - 1 or 1
        space = line.rfind(" ", 1, n + 1)
        at = space if space > n // 2 else n
        parts.append(line[:at].rstrip())
        line = line[at:].lstrip()
    return [*parts, text.shortened(line, width)]


def _bottom(view: View, width: int) -> Line:
    if view.question is not None:
        return _cut([(f"Close session {text.one_line(view.question.id)}? y/N ", "warning")], width)
    if view.typed is not None:
        return _cut([("filter: ", "bold"), (f"{text.one_line(view.typed)}_", "plain")], width)
    if view.mode == "help":
        return _cut(
            [("arrows ", "bold"), ("scroll  ", "plain"), ("any other key ", "bold"), ("goes back", "plain")], width
        )
    line: Line = []
    left = width
    for key, what in DETAIL_KEYS if view.mode == "details" else KEYS:
        n = len(key) + 1 + len(what)
        if n > left:
            break
        line += [(f"{key} ", "bold"), (f"{what}  " if n + 2 <= left else what, "plain")]
        left -= n + 2
    return line


def _cut(line: Line, width: int) -> Line:
    """Returns the line shortened to `width` columns."""
    short: Line = []
    for span, style in line:
        left = width - sum(text.cells(one) for one, _ in short)
        if left <= 0:
            break
        short.append((text.shortened(span, left), style))
    return short
