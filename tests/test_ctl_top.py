"""llmctl top: the pure parts (rates, order, filter, columns, keys), and the program on a real terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmd.ctl import conversation_files, text, top, top_screen
from llmd.ctl.context import EXIT_ABSENT, EXIT_INTERRUPTED, EXIT_OK
from llmd.ctl.top_view import Action, View, key_of
from tests.fake_daemon import FakeDaemon
from tests.serving import SETTLE_S
from tests.test_ctl_daemon import START_DEADLINE_S, Daemon, start

Json = dict[str, Any]
NOW_MS = 1_800_000_000_000


MEMORY = {"state_bytes": 430 << 20, "state_bytes_max": 1000 << 20, "kv_tokens": 12_345, "kv_tokens_max": 32_768}


def session(id: str, state: str = "idle", *, owner: int = 0, used_s: float = 10, **members: Any) -> Json:
    last = {"reason": "exact_prefix", "reason_text": "x", "prompt_tokens": 100, "reused_tokens": 40, "diverged_at": 40}
    branch = {
        "slot": 0, "state": state, "tokens": 50, "visible_tokens": 50, "waiting": 0, "requests": 2,
        "prefilled_tokens_total": 60, "reused_tokens_total": 40, "generated_tokens_total": 5,
        "opened_ms": NOW_MS - 60_000, "used_ms": NOW_MS - int(1000 * used_s), "last": last,
    }  # fmt: skip
    branch |= {name: value for name, value in members.items() if name in branch}
    rest = {"owner_name": "local", "client": "curl", "last_words": "hello", "pinned": False, "context_tokens": 4096}
    return branch | {"id": id, "owner": owner, **rest, "timelines": [branch]} | members


def event(
    *sessions: Json, full: bool = False, forgotten: tuple[str, ...] = (), at_s: float = 0, **counters: int
) -> Json:
    return {
        "time_ms": NOW_MS + int(1000 * at_s), "full": full, "sessions": list(sessions),
        "forgotten": [{"owner": 0, "id": id} for id in forgotten],
        "places": {"named": 8, "named_used": 2, "parked": 1, "dormant": 3},
        "storage": {"parked_bytes": 1 << 20, "parked_bytes_max": 1 << 30, "disk_bytes": 0, "disk_bytes_max": 0},
        "memory": MEMORY,
        "counters": counters,
    }  # fmt: skip


READY = {"status": "ready", "model": "tiny"}


def view_of(*sessions: Json) -> View:
    view = View()
    view.connect("1.2.3")
    view.receive(event(*sessions, full=True), READY)
    return view


def ids(view: View) -> list[str]:
    return [row["id"] for row in view.rows()]


def lines(view: View, width: int = 80, height: int = 24) -> list[str]:
    rendered = top_screen.render(view, width, height)
    shown = ["".join(span for span, _ in line) for line in rendered]
    assert len(shown) <= height and all(text.cells(line) <= width for line in shown)
    return shown


def press(view: View, *keys: str) -> Action | None:
    action = None
    for key in keys:
        action = view.press(key)
    return action


# --- what the feed reports -------------------------------------------------------------------------------------------


def test_rates_are_differences_of_counters() -> None:
    view = View()
    view.connect("1")
    view.receive(event(full=True, prefill_tokens_total=1000, decode_tokens_total=10), READY)
    assert (view.shown.prefill_rate, view.shown.decode_rate) == (None, None)
    view.receive(event(at_s=2, prefill_tokens_total=5000, decode_tokens_total=40), READY)
    assert (view.shown.prefill_rate, view.shown.decode_rate) == (2000.0, 15.0)
    assert "2,000 prefilled, 15 generated   state 43 % of 1000 MiB" in lines(view)[2]
    assert "   state 43 % of 1000 MiB   KV tokens 12,345 of 32,768" in lines(view, 120)[2]
    view.receive(event(at_s=3) | {"memory": MEMORY | {"kv_tokens_max": None}}, READY)
    assert lines(view, 120)[2].endswith("KV tokens 12,345")
    view.lose("gone")
    view.connect("1")
    view.receive(event(full=True, at_s=9, prefill_tokens_total=9000, decode_tokens_total=90), READY)
    assert view.shown.prefill_rate is None, "another daemon may have counted the tokens before"
    view.receive(event(at_s=9, prefill_tokens_total=9500, decode_tokens_total=90), READY)
    assert view.shown.prefill_rate is None, "no time has passed"


def test_events_change_sessions_and_forget_them() -> None:
    view = view_of(session("a"), session("b"))
    view.receive(event(session("b", tokens=70), session("c"), forgotten=("a",), at_s=1), READY)
    assert set(ids(view)) == {"b", "c"}
    assert view.shown.sessions[0, "b"]["tokens"] == 70
    view.receive(event(session("d"), full=True, at_s=2), READY)
    assert ids(view) == ["d"]


def test_a_lost_connection_keeps_the_sessions_until_the_next_full_event() -> None:
    view = view_of(session("a"), session("b"))
    view.lose(f"{top_screen.NOT_CONNECTED}: it stopped")
    assert "not connected, trying again: it stopped" in lines(view)[0] and set(ids(view)) == {"a", "b"}
    view.connect("2")
    view.receive(event(session("b"), full=True), READY)
    assert ids(view) == ["b"] and "llmd 2  ready  tiny" in lines(view)[0]


def test_loading_is_shown_with_its_progress() -> None:
    assert top_screen.loading({"status": "loading", "loaded_per_mille": 437}) == "loading the model, 43 %"
    download = {"name": "a/b", "bytes": 1 << 30, "total_bytes": 3 << 30}
    assert top_screen.loading({"download": download}) == "downloading a/b, 1.0 GiB of 3.0 GiB"


# --- order, filter and selection -------------------------------------------------------------------------------------


def test_running_and_waiting_sessions_are_first() -> None:
    view = view_of(
        session("new", used_s=1),
        session("old", used_s=99),
        session("waits", waiting=1, used_s=50),
        session("runs", "decode", used_s=60),
    )
    assert ids(view) == ["runs", "waits", "new", "old"]
    assert " idle +1 " in lines(view)[7]


def test_columns_sort_numbers_down_and_texts_up() -> None:
    view = view_of(session("b", tokens=5), session("a", tokens=7), session("C", tokens=6))
    press(view, "s")
    assert (view.sort, ids(view)) == ("ID", ["a", "b", "C"])
    press(view, "s", ">")
    assert (view.sort, ids(view)) == ("TOKENS", ["a", "C", "b"])
    press(view, "r")
    assert ids(view) == ["b", "C", "a"] and "sorted by TOKENS, reversed" in lines(view)[4]
    press(view, "<", "<", "<")
    assert view.sort == "activity" and not view.is_reversed
    press(view, "<")
    assert view.sort == "LAST WORDS"


def test_every_column_can_sort() -> None:
    bare = {"id": "bare", "owner": 0, "state": "empty", "last": None, "timelines": []}
    view = view_of(session("a", "prefill"), bare, session("b"))
    for _ in range(13):
        press(view, "s")
        assert len(ids(view)) == 3
        lines(view, 200)


def test_a_filter_searches_while_it_is_typed() -> None:
    view = view_of(session("work"), session("play", last_words="Work hard"), session("rest", client="vim"))
    press(view, "/", "W", "o", "é", "backspace")
    assert set(ids(view)) == {"work", "play"} and lines(view)[-1] == "filter: Wo_"
    assert press(view, "p") is None and ids(view) == [], "keys are text now"
    press(view, "backspace", "enter")
    assert '2 of 3 sessions with "Wo"' in lines(view)[4] and view.filter == "Wo"
    press(view, "/", "escape")
    assert view.filter == "" and len(ids(view)) == 3


def test_the_selection_stays_at_its_session_and_else_in_its_row() -> None:
    view = view_of(session("a", used_s=1), session("b", used_s=2), session("c", used_s=3))
    press(view, "down", "down")
    assert view.selected == (0, "b")
    view.receive(event(session("b", used_s=0)), READY)
    assert ids(view)[0] == "b" and view.selected == (0, "b")
    view.receive(event(forgotten=("b",)), READY)
    assert view.selected == (0, "a")
    press(view, "end")
    view.receive(event(forgotten=("c",)), READY)
    assert view.selected == (0, "a")
    view.receive(event(full=True), READY)
    assert view.selected is None
    assert press(view, "up") is None and view.selected is None


def test_the_selected_row_is_on_the_screen() -> None:
    view = view_of(*(session(f"s{n:03}", used_s=n) for n in range(200)))
    view.page_rows = top_screen.table_rows(24)
    for keys, selected in ((["end"], 199), (["page_up"], 182), (["up"], 181), (["home"], 0), (["page_down"], 17)):
        press(view, *keys)
        marked = [line for line in lines(view) if line.startswith(">")]
        assert len(marked) == 1 and marked[0].startswith(f">s{selected:03} ")


def test_a_pause_keeps_what_is_shown() -> None:
    view = view_of(session("a"))
    press(view, " ")
    view.receive(event(session("b"), forgotten=("a",)), READY)
    assert ids(view) == ["a"] and lines(view)[4].startswith("PAUSED  1 session")
    press(view, " ")
    assert ids(view) == ["b"]


# --- actions ---------------------------------------------------------------------------------------------------------


def test_keys_start_actions_on_the_selected_session() -> None:
    view = view_of(session("a", owner=7))
    assert press(view, "p") is None and view.message == "Select a session first, with the arrow keys."
    press(view, "down")
    assert press(view, "p") == Action("park", 7, "a")
    assert press(view, "P") == Action("pin", 7, "a")
    view.receive(event(session("a", owner=7, pinned=True)), READY)
    assert press(view, "P") == Action("unpin", 7, "a")


def test_closing_asks_first() -> None:
    view = view_of(session("a", used_s=1), session("b", used_s=2))
    press(view, "down")
    assert press(view, "c") is None and lines(view)[-1] == "Close session a? y/N "
    assert press(view, "n") is None and view.question is None
    press(view, "c")
    view.receive(event(forgotten=("a",)), READY)
    assert press(view, "y") == Action("close", 0, "a"), "the question was about a, so b must not be closed"


def test_details_have_branches_and_do_not_go_to_another_session() -> None:
    branches = [session("x", "decode")["timelines"][0], session("x", "parked", tokens=30)["timelines"][0]]
    view = view_of(session("a", timelines=branches), session("b"))
    press(view, "enter")
    assert view.message == "Select a session first, with the arrow keys."
    press(view, "down", "enter")
    shown = "\n".join(lines(view, 120))
    assert "branch      decode, 50 of 4,096 tokens, 2 requests" in shown and "parked, 30 of 4,096 tokens" in shown
    assert "diverged at token 40" in shown and "opened      1m ago" in shown
    assert top_screen.scroll_max(view, 30, 8) > 0
    view.receive(event(forgotten=("a",)), READY)
    assert "This session no longer exists." in lines(view)
    assert press(view, "p") is None
    press(view, "escape")
    assert (view.mode, view.selected) == ("table", (0, "b"))


def test_help_names_every_key() -> None:
    view = view_of()
    press(view, "?")
    assert "PageUp" in "\n".join(lines(view))
    press(view, "x")
    assert view.mode == "table"
    press(view, "q")
    assert view.has_ended


def test_actions_use_the_methods_of_the_client() -> None:
    asked: list[tuple[Any, ...]] = []

    class Recorded:
        socket_path = "x"

        def __getattr__(self, name: str) -> Any:
            def answer(*arguments: Any) -> Json:
                asked.append((name, *arguments))
                return {"deleted": False}

            return answer

    client: Any = Recorded()
    said = [top.perform(client, Action(verb, 7, "a")) for verb in ("park", "pin", "unpin", "close")]
    assert asked == [("park", "a", "7"), ("pin", "a", True, "7"), ("pin", "a", False, "7"), ("close", "a", "7")]
    assert said == ["Session a parked.", "Session a pinned.", "Session a unpinned.", "Session a did not exist."]


# --- columns and characters ------------------------------------------------------------------------------------------


def titles(view: View, width: int) -> str:
    return next(line for line in lines(view, width) if line.startswith(" ID"))


def test_narrow_terminals_have_fewer_columns() -> None:
    view = view_of(session("a", "prefill", tokens=30))
    assert titles(view, 200).split() == (
        "ID STATE TOKENS MEMORY PROGRESS REUSED LAST START REQUESTS USED PINNED OWNER CLIENT LAST WORDS".split()
    )
    assert titles(view, 80).split() == "ID STATE TOKENS MEMORY PROGRESS REUSED LAST START USED".split()
    assert titles(view, 60).split() == "ID STATE TOKENS PROGRESS REUSED USED".split()
    assert titles(view, 20).split() == "ID STATE".split()
    assert "[#---]  30%" in "\n".join(lines(view, 60))


def test_any_size_is_shown() -> None:
    view = view_of(*(session(f"session-{n}", "decode", last_words="x" * 300) for n in range(30)))
    for keys in ([], ["down"], ["enter"], ["?"], ["x", "c"], ["n", "escape", "/", "s"]):
        press(view, *keys)
        for width in (1, 2, 9, 20, 33, 80, 300):
            for height in (1, 2, 3, 5, 7, 24, 100):
                lines(view, width, height)


def test_characters_keep_their_columns_and_control_nothing() -> None:
    strange = "a\x1b[31m\n\u202e日本\u200d語 e\u0301 \ud800\U0001f44d\ufe0f"
    assert text.one_line(strange) == "a␛[31m 日本語 e\u0301 \ufffd\U0001f44d"
    view = view_of(session("日本語", last_words=strange, client="日" * 30), session("plain", last_words=strange))
    at = {text.cells(line[: line.index("idle")]) for line in lines(view, 160) if "idle" in line}
    assert at == {1 + 8 + 2}
    shown = "\n".join(lines(view, 160)) + top_screen.snapshot(view, 160)
    assert "\x1b" not in shown and "\u202e" not in shown


@pytest.mark.parametrize(
    ("width", "short"), [(0, ""), (1, "…"), (2, "…"), (3, "日…"), (4, "日…"), (5, "日本…"), (6, "日本語")]
)
def test_wide_characters_are_never_divided(width: int, short: str) -> None:
    assert text.shortened("日本語", width) == short
    assert text.cells(text.padded("日本語", width)) == width


# --- on a terminal ---------------------------------------------------------------------------------------------------


class Watcher:
    """A user who watches llmctl top on a pseudo-terminal."""

    def __init__(self, socket_path: str, *arguments: str, **environment: str) -> None:
        self._master, self._terminal = pty.openpty()
        self.resize(80, 24)
        self.settings = termios.tcgetattr(self._terminal)
        command = [sys.executable, "-m", "llmd.ctl", "--socket", socket_path, "top", *arguments]
        environment = os.environ | {"TERM": "xterm", "NO_COLOR": "", "LC_ALL": "C.UTF-8"} | environment
        self.process = subprocess.Popen(
            command, stdin=self._terminal, stdout=self._terminal, stderr=self._terminal, env=environment,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        self.output = b""
        self._has_begun = False
        """Whether curses reads the keys."""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, shown: str) -> None:
        """Waits until the screen shows a text without long gaps. curses writes only changes, so llmctl is asked to
        write the whole screen again (Ctrl-L) until the text appears.
        """
        deadline = time.monotonic() + SETTLE_S
        self.output = b""
        while shown.encode() not in self.output:
            assert time.monotonic() < deadline and self.process.poll() is None, (shown, self.output)
            self._read(0.1)
            self._has_begun |= b"\x1b[?1049h" in self.output
            if self._has_begun:
                self.type("\x0c")

    def _read(self, wait_s: float) -> None:
        while select.select([self._master], [], [], wait_s)[0]:
            self.output += os.read(self._master, 65536)
            wait_s = 0

    def leave(self, has_screen: bool = True) -> int:
        """Waits for the end of llmctl. Checks that it has restored the terminal, and returns its exit status."""
        deadline = time.monotonic() + SETTLE_S
        while (code := self.process.poll()) is None:
            assert time.monotonic() < deadline, self.output
            self._read(0.1)
        self._read(0)
        assert not has_screen or (b"\x1b[?1049l" in self.output and b"\x1b[?25h" in self.output)
        assert termios.tcgetattr(self._terminal) == self.settings
        self.close()
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for descriptor in (self._master, self._terminal):
            os.close(descriptor)


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("home")))
        yield


def served(folder: Path) -> Daemon:
    daemon = Daemon(start(folder), str(folder / "llmd.sock"))
    deadline = time.monotonic() + START_DEADLINE_S
    while daemon.llmctl("status").returncode != EXIT_OK:
        assert time.monotonic() < deadline and daemon.process.poll() is None
    return daemon


@pytest.fixture(scope="module")
def daemon(home: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    one = served(tmp_path_factory.mktemp("top"))
    one.chat("work", "hello")
    yield one
    one.process.terminate()
    assert one.process.wait(START_DEADLINE_S) == 0


def test_a_terminal_shows_the_sessions_and_keys_work(daemon: Daemon) -> None:
    daemon.chat("doomed", "hello")
    assert conversation_files.load(daemon.socket_path, "doomed")
    watcher = Watcher(daemon.socket_path)
    watcher.wait_for("sim-dense")
    watcher.wait_for("work")
    watcher.type("/doom\r")
    watcher.wait_for('with "doom"')
    watcher.type("\x1bOB")
    watcher.wait_for(">doomed")
    watcher.type("\r")
    watcher.wait_for("of 4,096")
    watcher.type("\x1b")
    watcher.wait_for(">doomed")
    watcher.type("p")
    watcher.wait_for("Session doomed parked.")
    watcher.type("P")
    watcher.wait_for("Session doomed pinned.")
    watcher.type("c")
    watcher.wait_for("Close session doomed?")
    watcher.type("y")
    watcher.wait_for("Session doomed closed.")
    assert daemon.llmctl("sessions", "show", "doomed").returncode != EXIT_OK
    assert not conversation_files.load(daemon.socket_path, "doomed"), "a chat must not continue a closed session"
    watcher.type("q")
    assert watcher.leave() == EXIT_OK


def test_the_screen_follows_the_size_of_the_terminal(daemon: Daemon) -> None:
    watcher = Watcher(daemon.socket_path)
    watcher.wait_for("LAST START")
    watcher.resize(140, 40)
    watcher.wait_for("REQUESTS")
    for columns, n_lines in ((9, 3), (1, 1), (20, 24)):
        watcher.resize(columns, n_lines)
    watcher.wait_for("ready  …")
    watcher.type("q")
    assert watcher.leave() == EXIT_OK


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_restore_the_terminal(daemon: Daemon, number: signal.Signals) -> None:
    watcher = Watcher(daemon.socket_path)
    watcher.wait_for("work")
    watcher.process.send_signal(number)
    assert watcher.leave() == 128 + number


def test_ctrl_c_ends_it(daemon: Daemon) -> None:
    watcher = Watcher(daemon.socket_path, "--no-color")
    watcher.wait_for("work")
    watcher.type("\x03")
    assert watcher.leave() == EXIT_INTERRUPTED


def test_a_locale_without_the_characters_gets_question_marks(daemon: Daemon) -> None:
    watcher = Watcher(daemon.socket_path, LC_ALL="C")
    watcher.resize(112, 24)
    daemon.chat("wide", "日本")
    watcher.wait_for("????")
    watcher.type("q")
    assert watcher.leave() == EXIT_OK
    daemon.llmctl("sessions", "close", "wide")


@pytest.mark.parametrize(("kind", "why"), [("dumb", "cannot move the cursor"), ("no-such-type", "is unknown")])
def test_an_unsuitable_terminal_gets_a_snapshot(daemon: Daemon, kind: str, why: str) -> None:
    watcher = Watcher(daemon.socket_path, TERM=kind)
    assert watcher.leave(has_screen=False) == EXIT_OK
    shown = watcher.output.decode()
    assert why in shown and "work" in shown and "\x1b" not in shown


def test_a_daemon_may_go_and_come_back(tmp_path: Path) -> None:
    first = served(tmp_path)
    watcher = Watcher(first.socket_path)
    watcher.wait_for("0 sessions")
    first.process.terminate()
    assert first.process.wait(START_DEADLINE_S) == 0
    watcher.wait_for("not connected, trying again")
    second = served(tmp_path)
    second.chat("later", "hello")
    watcher.wait_for("later")
    watcher.type("q")
    assert watcher.leave() == EXIT_OK
    second.process.terminate()
    assert second.process.wait(START_DEADLINE_S) == 0


def test_loading_and_no_colors(tmp_path: Path) -> None:
    daemon = FakeDaemon(tmp_path / "llmd.sock")
    daemon.route("GET /live", {"status": "ok", "version": "1", "pid": 1})
    daemon.route("GET /v1/feed", lambda exchange: exchange.refuse(503, "model_loading", "The model loads."))
    ready = {"status": "loading", "model": "m", "loaded_per_mille": 430}
    daemon.route("GET /ready", lambda exchange: exchange.answer(ready, 503))
    try:
        for arguments in (["--no-color"], []):
            watcher = Watcher(daemon.path, *arguments)
            watcher.wait_for("loading the model, 43 %")
            assert (b"\x1b[31m" in watcher.output) == (arguments == [])
            watcher.type("q")
            assert watcher.leave() == EXIT_OK
    finally:
        daemon.stop()


# --- not on a terminal -----------------------------------------------------------------------------------------------


def test_a_pipe_gets_one_snapshot(daemon: Daemon) -> None:
    done = daemon.llmctl("top")
    assert (done.returncode, done.stderr) == (EXIT_OK, "")
    assert "sim-dense" in done.stdout and "\x1b" not in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()[-2:]] == ["ID", "work"]


def test_json_is_the_first_event(daemon: Daemon) -> None:
    first = json.loads(daemon.llmctl("top", "--json").stdout)
    assert first["object"] == "feed" and first["full"] and [key_of(one)[1] for one in first["sessions"]] == ["work"]


def test_no_daemon_is_an_error_with_advice(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "llmd.ctl", "--socket", str(tmp_path / "none"), "top"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SETTLE_S)
    assert done.returncode == EXIT_ABSENT and "check that llmd runs" in done.stderr
