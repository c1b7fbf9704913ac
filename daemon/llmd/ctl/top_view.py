"""The state of llmctl top: what the feed has reported, what the user has chosen, and what each key does. Uses no
terminal, no clock and no connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from llmd.ctl import sessions, text
from llmd.ctl.client import Json
from llmd.ctl.top_columns import SHOWN, Order, activity

SessionKey = tuple[int, str]
"""Owner and id of a session."""
ACTIVITY = "activity"
_SORTS = (ACTIVITY, *(column.title for column in SHOWN))
SELECT_FIRST = "Select a session first, with the arrow keys."
FILTER_LENGTH_MAX = 60


def key_of(session: Json) -> SessionKey:
    return int(session.get("owner", 0)), str(session.get("id"))


@dataclass(frozen=True)
class Reported:
    """The sessions and counters of the feed after one event. Each event makes a new object. So a paused display keeps
    the object that it shows.
    """

    sessions: dict[SessionKey, Json] = field(default_factory=dict)
    time_ms: int = 0
    places: Json = field(default_factory=dict)
    storage: Json = field(default_factory=dict)
    memory: Json = field(default_factory=dict)
    counters: Json = field(default_factory=dict)
    prefill_rate: float | None = None
    """Tokens per second between the last two events. None if there is no connection, and before the second event of a
    connection.
    """
    decode_rate: float | None = None

    def after(self, event: Json, *, is_first: bool) -> Reported:
        """Returns the sessions and counters after this event. `is_first` says whether the event is the first one of a
        connection. The first event gives no rate: its counters may come from another daemon than those of the event
        before, and each daemon counts from 0.
        """
        found = {} if event["full"] else dict(self.sessions)
        for gone in event["forgotten"]:
            found.pop(key_of(gone), None)
        found |= {key_of(session): session for session in event["sessions"]}
        return Reported(
            found,
            int(event["time_ms"]),
            dict(event["places"]),
            dict(event["storage"]),
            dict(event["memory"]),
            dict(event["counters"]),
            None if is_first else self._rate(event, "prefill_tokens_total"),
            None if is_first else self._rate(event, "decode_tokens_total"),
        )

    def _rate(self, event: Json, name: str) -> float | None:
        elapsed_ms = int(event["time_ms"]) - self.time_ms
        before, now = self.counters.get(name), event["counters"].get(name)
        if before is None or now is None or now < before or elapsed_ms <= 0:
            return None
        return float(1000 * (now - before) / elapsed_ms)


@dataclass(frozen=True)
class Action:
    """The change that a key makes to a session: park, pin, unpin or close it."""

    verb: str
    owner: int
    id: str


class View:
    """Holds the sessions that the screen shows, and the choices of the user. The feed calls connect, receive and lose,
    and each key calls press.
    """

    def __init__(self) -> None:
        self.version = ""
        self.ready: Json = {}
        """The newest answer of /ready."""
        self.trouble = "connecting"
        """Why no events arrive now, or ""."""
        self.message = ""
        """A sentence about the last action. The next key removes the sentence."""
        self.mode = "table"
        """The part that is shown: table, details or help."""
        self.filter = ""
        self.typed: str | None = None
        """The filter while the user types it."""
        self.question: Action | None = None
        """The action for which the user has to press y."""
        self.sort = ACTIVITY
        self.is_reversed = False
        self.selected: SessionKey | None = None
        self.scroll = 0
        """First line that is shown of the details or the help."""
        self.page_rows = 1
        """Number of rows of the table that fit on the screen."""
        self.has_ended = False
        self._index = 0
        """Row in which the selected session was shown most recently."""
        self._reported = Reported()
        self._is_first_event = True
        self._paused: Reported | None = None
        self._mode_before_help = "table"

    @property
    def shown(self) -> Reported:
        return self._paused or self._reported

    @property
    def is_paused(self) -> bool:
        return self._paused is not None

    # --- the feed ----------------------------------------------------------------------------------------------------

    def connect(self, version: object) -> None:
        self.version = text.scalar(version)
        self._is_first_event = True

    def receive(self, event: Json, ready: Json) -> None:
        self._reported = self._reported.after(event, is_first=self._is_first_event)
        self._is_first_event = False
        self.ready, self.trouble = ready, ""
        self._settle()

    def lose(self, trouble: str) -> None:
        self.trouble = trouble
        self._reported = replace(self._reported, prefill_rate=None, decode_rate=None)

    def show(self, message: str) -> None:
        self.message = message

    # --- the table ---------------------------------------------------------------------------------------------------

    def rows(self) -> list[Json]:
        """Returns the sessions that match the filter, in their order."""
        wanted = (self.filter if self.typed is None else self.typed).casefold()
        rows = [one for one in self.shown.sessions.values() if not wanted or wanted in _searched(one)]
        rows.sort(key=key_of)
        rows.sort(key=lambda session: -session.get("used_ms", 0))
        if self.sort == ACTIVITY:
            rows.sort(key=activity, reverse=self.is_reversed)
            return rows
        column = next(column for column in SHOWN if column.title == self.sort)
        order: Callable[[Json], Order] = column.order
        rows.sort(key=order, reverse=column.is_number != self.is_reversed)
        return rows

    def selected_session(self) -> Json | None:
        return None if self.selected is None else self.shown.sessions.get(self.selected)

    def _settle(self) -> None:
        """If the selected session is gone, selects the session in the same row of the table. In contrast, the details
        go on showing that the session is gone. Otherwise a key could act on another session than the one that the user
        has read about.
        """
        if self.selected is None or self.mode == "details":
            return
        keys = [key_of(session) for session in self.rows()]
        if self.selected in keys:
            self._index = keys.index(self.selected)
        else:
            self.selected = keys[min(self._index, len(keys) - 1)] if keys else None

    def _move(self, key: str) -> None:
        keys = [key_of(session) for session in self.rows()]
        if not keys:
            return
        steps = {"up": -1, "down": 1, "page_up": -self.page_rows, "page_down": self.page_rows}
        steps |= {"home": -len(keys), "end": len(keys)}
        is_first = self.selected not in keys and key != "end"
        at = 0 if is_first else self._index + steps[key]
        self._index = max(0, min(at, len(keys) - 1))
        self.selected = keys[self._index]

    # --- keys --------------------------------------------------------------------------------------------------------

    def press(self, key: str) -> Action | None:
        """Returns the action that the key starts, or None. A key is a character, or a name such as "page_up"."""
        self.message = ""
        action = None
        if self.question is not None:
            action, self.question = (self.question if key in ("y", "Y") else None), None
        elif self.typed is not None:
            self._type(key)
        elif key in _MOVES:
            self._move(key) if self.mode == "table" else self._scroll(key)
        elif self.mode == "help":
            self.mode, self.scroll = self._mode_before_help, 0
        elif key in _ACTIONS:
            action = self._start(_ACTIONS[key])
        elif key in _KEYS:
            _KEYS[key](self)
        self._settle()
        return action

    def _type(self, key: str) -> None:
        typed = self.typed or ""
        if key == "enter":
            self.filter, self.typed = typed, None
        elif key == "escape":
            self.filter, self.typed = "", None
        elif key == "backspace":
            self.typed = typed[:-1]
        elif len(key) == 1 and key.isprintable() and len(typed) < FILTER_LENGTH_MAX:
            self.typed = typed + key

    def _scroll(self, key: str) -> None:
        steps = {"up": -1, "down": 1, "page_up": -self.page_rows, "page_down": self.page_rows}
        self.scroll = max(0, self.scroll + steps[key]) if key in steps else 0

    def _start(self, verb: str) -> Action | None:
        session = self.selected_session()
        if session is None:
            self.message = SELECT_FIRST if self.mode == "table" else "This session no longer exists."
            return None
        owner, id = key_of(session)
        if verb == "close":
            self.question = Action(verb, owner, id)
            return None
        return Action("unpin" if verb == "pin" and session.get("pinned") else verb, owner, id)

    def _end(self) -> None:
        self.has_ended = True

    def _go_back(self) -> None:
        """Goes back from the details. In the table, removes the filter, then the selection."""
        if self.mode == "details":
            self.mode, self.scroll = "table", 0
        elif self.filter:
            self.filter = ""
        else:
            self.selected = None

    def _show_details(self) -> None:
        if self.mode == "details":
            self._go_back()
        elif self.selected_session() is not None:
            self.mode, self.scroll = "details", 0
        else:
            self.message = SELECT_FIRST

    def _show_help(self) -> None:
        self._mode_before_help, self.mode, self.scroll = self.mode, "help", 0

    def _begin_filter(self) -> None:
        if self.mode == "table":
            self.typed = self.filter

    def _sort_by(self, step: int) -> None:
        self.sort = _SORTS[(_SORTS.index(self.sort) + step) % len(_SORTS)]
        self.is_reversed = False

    def _reverse(self) -> None:
        self.is_reversed = not self.is_reversed

    def _pause(self) -> None:
        self._paused = None if self.is_paused else self._reported


_ACTIONS = {"p": "park", "P": "pin", "c": "close"}
_MOVES = ("up", "down", "page_up", "page_down", "home", "end")
_KEYS: dict[str, Callable[[View], None]] = {
    "q": View._end,
    "enter": View._show_details,
    "escape": View._go_back,
    "h": View._show_help,
    "?": View._show_help,
    "/": View._begin_filter,
    "s": lambda view: view._sort_by(1),
    ">": lambda view: view._sort_by(1),
    "<": lambda view: view._sort_by(-1),
    "r": View._reverse,
    " ": View._pause,
}


def _searched(session: Json) -> str:
    """Returns the text in which the filter is searched."""
    members = ("id", "state", "client", "last_words")
    words = [str(session.get(name) or "") for name in members]
    return " ".join([*words, sessions.owner(session), str((session.get("last") or {}).get("reason", ""))]).casefold()
