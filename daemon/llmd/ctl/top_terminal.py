"""The terminal of llmctl top: paints the screen, and reads keys, signals and changes of the view. Decides nothing."""

from __future__ import annotations

import errno
import locale
import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType

from llmd.ctl import text, top_screen
from llmd.ctl.top_screen import Line, Style
from llmd.ctl.top_view import Action, View

try:
    import curses
except ImportError:  # Python was built without curses
    curses = None  # type: ignore[assignment]

ESCAPE_DELAY_MS = 25
"""Time to wait after the character ESC. An arrow key sends more characters at once, the key Esc does not."""
_CHARACTERS = {"\x1b": "escape", "\n": "enter", "\r": "enter", "\x7f": "backspace", "\b": "backspace", "\x0c": "redraw"}
_STDIN, _STDOUT = 0, 1


def problem() -> str | None:
    """Returns why the live view cannot be shown, or None."""
    if curses is None:
        return "this Python has no module curses"
    try:
        curses.setupterm()  # without this check, initscr would end the process
    except curses.error:
        return f"the terminal type {os.environ.get('TERM', '')!r} is unknown"
    if curses.tigetstr("cup") is None:
        return f"a terminal of the type {os.environ.get('TERM', '')!r} cannot move the cursor"
    return None


def run(view: View, has_color: bool, start: Callable[[TopTerminal], None]) -> int:
    """Shows the view until the user quits or a signal ends llmctl. Returns the exit status. `start` is called with the
    terminal before the first paint. The terminal is restored in any case.
    """
    locale.setlocale(locale.LC_ALL, "")  # curses encodes characters for this locale
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    top = TopTerminal(view, readable, writable)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH):
        signal.signal(number, top.note_signal)
    try:
        window = curses.initscr()
        try:
            top.prepare(window, has_color)
            start(top)
            return top.run()
        finally:
            curses.endwin()
    finally:
        signal.set_wakeup_fd(-1)


class TopTerminal:
    """The curses screen. Only the main thread uses it, but every thread can call `post`."""

    def __init__(self, view: View, readable: int, writable: int) -> None:
        self.act: Callable[[Action], None] = lambda _: None
        """Called with each action that a key starts."""
        self._view = view
        self._inbox: SimpleQueue[Callable[[View], None]] = SimpleQueue()
        self._readable, self._writable = readable, writable
        """A pipe that wakes the main thread. Signals and the method `post` write to this pipe."""
        self._status: int | None = None
        self._attributes: dict[Style, int] = {}
        self._encoding = locale.nl_langinfo(locale.CODESET)
        """The encoding of curses. sys.stdout can have another one: in the locale C, Python uses UTF-8 but curses ASCII.
        """

    def post(self, change: Callable[[View], None]) -> None:
        """Passes a change of the view to the main thread."""
        self._inbox.put(change)
        with suppress(BlockingIOError):  # the pipe is full, so the main thread is awake
            os.write(self._writable, b"\0")

    def note_signal(self, number: int, _: FrameType | None) -> None:
        """Ends the loop at its next step, instead of raising an exception in the middle of a paint. SIGWINCH only wakes
        the loop.
        """
        if number != signal.SIGWINCH:
            self._status = 128 + number

    def prepare(self, window: curses.window, has_color: bool) -> None:
        self._window = window
        curses.noecho()
        curses.cbreak()
        curses.set_escdelay(ESCAPE_DELAY_MS)
        window.keypad(True)
        window.nodelay(True)
        with suppress(curses.error):  # some terminals cannot hide the cursor
            curses.curs_set(0)
        plain, bold = curses.A_NORMAL, curses.A_BOLD
        self._attributes = {"bold": bold, "header": curses.A_REVERSE, "selected": curses.A_REVERSE | bold}
        self._attributes |= {"plain": plain, "running": bold, "warning": bold}
        if has_color and curses.has_colors():
            curses.start_color()
            background = curses.COLOR_BLACK
            with suppress(curses.error):
                curses.use_default_colors()
                background = -1
            curses.init_pair(1, curses.COLOR_GREEN, background)
            curses.init_pair(2, curses.COLOR_RED, background)
            self._attributes |= {"running": curses.color_pair(1), "warning": curses.color_pair(2) | bold}

    def run(self) -> int:
        poll = select.poll()
        poll.register(_STDIN, select.POLLIN)
        poll.register(self._readable, select.POLLIN)
        while self._status is None and not self._view.has_ended:
            self._paint()
            ready = dict(poll.poll())
            if ready.get(_STDIN, 0) & (select.POLLHUP | select.POLLERR):
                return 128 + signal.SIGHUP  # the terminal was closed
            self._take_changes()
            self._take_keys()
        return self._status or 0

    def _take_changes(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._readable, 4096)
        with suppress(Empty):
            while True:
                self._inbox.get_nowait()(self._view)

    def _take_keys(self) -> None:
        while (key := self._key()) is not None:
            if key == "redraw":
                self._window.redrawwin()
            elif (action := self._view.press(key)) is not None:
                self.act(action)

    def _key(self) -> str | None:
        try:
            key = self._window.get_wch()
        except curses.error:  # no key is waiting
            return None
        return _CHARACTERS.get(key, key) if isinstance(key, str) else _key_names().get(key, "unknown")

    def _paint(self) -> None:
        self._follow_size()
        height, width = self._window.getmaxyx()
        self._view.page_rows = top_screen.table_rows(height)
        self._view.scroll = min(self._view.scroll, top_screen.scroll_max(self._view, width, height))
        self._window.erase()
        for y, line in enumerate(top_screen.render(self._view, width, height)):
            self._paint_line(y, line)
        self._window.refresh()

    def _paint_line(self, y: int, line: Line) -> None:
        x = 0
        for span, style in line:
            shown = _encodable(span, self._encoding)
            with suppress(curses.error):  # curses reports an error after it has written the last cell of the screen
                self._window.addstr(y, x, shown, self._attributes[style])
            x += text.cells(span)

    def _follow_size(self) -> None:
        try:
            columns, lines = os.get_terminal_size(_STDOUT)
        except OSError as error:
            if error.errno not in (errno.ENOTTY, errno.EIO):
                raise
            return
        if columns > 0 and lines > 0 and (lines, columns) != self._window.getmaxyx():
            curses.resizeterm(lines, columns)


def _encodable(span: str, encoding: str) -> str:
    """Replaces each character that the encoding lacks by question marks that are together as wide as the character."""
    try:
        span.encode(encoding)
        return span
    except UnicodeEncodeError:
        return "".join(c if c == c.encode(encoding, "ignore").decode(encoding) else "?" * text.cells(c) for c in span)


def _key_names() -> dict[int, str]:
    return {
        curses.KEY_UP: "up",
        curses.KEY_DOWN: "down",
        curses.KEY_PPAGE: "page_up",
        curses.KEY_NPAGE: "page_down",
        curses.KEY_HOME: "home",
        curses.KEY_END: "end",
        curses.KEY_ENTER: "enter",
        curses.KEY_BACKSPACE: "backspace",
    }
