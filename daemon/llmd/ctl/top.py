"""llmctl top: a live view of the sessions in the terminal. A thread reads the feed (GET /v1/feed), and the keys start
actions such as park or close. If standard input or output is no terminal, prints one snapshot.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import llmd.process.socket_trust
from llmd.ctl import advice, conversation_files, top_screen
from llmd.ctl.client import Client, DaemonAbsent, DaemonRefused, Json
from llmd.ctl.context import Context, Verbs, add_verb
from llmd.ctl.conversation import OWN
from llmd.ctl.top_view import Action, View

if TYPE_CHECKING:
    from llmd.ctl.top_terminal import TopTerminal

RETRY_S = 0.5
"""Time between two attempts to read the feed."""
SNAPSHOT_CELLS = 160
"""Width of a snapshot, unless the variable COLUMNS is set."""

EPILOG = f"""\
If standard input or output is not a terminal, llmctl prints one snapshot and ends. --json prints the first event of the
feed (GET /v1/feed).

keys:
{top_screen.HELP}

examples:
  llmctl top
  llmctl top --no-color
  llmctl top | cat                                   print one snapshot
"""

Post = Callable[[Callable[[View], None]], None]
"""Passes a change of the view to the thread that draws the screen."""


def register(verbs: Verbs, shared: argparse.ArgumentParser) -> None:
    parser = add_verb(verbs, shared, "top", run, "watch the sessions live, like htop", epilog=EPILOG)
    parser.add_argument("--no-color", action="store_true", help="show no colors, as with the variable NO_COLOR")


def run(context: Context) -> int | None:
    if context.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        _print_snapshot(context)
        return None
    from llmd.ctl import top_terminal  # imported only here: some Pythons have no curses, which no other verb needs

    if problem := top_terminal.problem():
        context.warn(f"{problem}, so only a snapshot is shown")
        _print_snapshot(context)
        return None
    try:
        context.client.live()
    except DaemonAbsent as absent:
        if absent.reason != "starting":
            raise
    has_color = not (context.options.no_color or os.environ.get("NO_COLOR"))
    return context.rendered(lambda: top_terminal.run(View(), has_color, lambda top: _connect(context.client, top)))


def _connect(client: Client, top: TopTerminal) -> None:
    """Starts the thread that reads the feed, and decides what happens to the actions of the keys. The threads do not
    keep the process alive, so llmctl ends at once even if the daemon does not answer.
    """

    def act(action: Action) -> None:
        threading.Thread(target=lambda: top.post(_result(client, action)), daemon=True).start()

    top.act = act
    threading.Thread(target=_follow, args=(client, top.post), daemon=True).start()


def _print_snapshot(context: Context) -> None:
    client, view = context.client, View()
    with closing(client.feed()) as feed:
        event = next(feed)
    if not context.json:
        _connected(client)(view)
        ready = client.ready()[1]
        context.rendered(lambda: view.receive(event, ready))
    width = shutil.get_terminal_size((SNAPSHOT_CELLS, 0)).columns
    context.say(event, lambda: top_screen.snapshot(view, width))


# --- the thread of the feed ------------------------------------------------------------------------------------------


def _follow(client: Client, post: Post) -> None:
    """Reads the feed, and connects again when it breaks off."""
    pause = threading.Event()
    while True:
        try:
            _read_feed(client, post)
        except (DaemonAbsent, DaemonRefused, llmd.process.socket_trust.UntrustedSocketError, OSError) as error:
            trouble = _trouble(client, error)
            post(lambda view, trouble=trouble: view.lose(trouble))  # type: ignore[misc]
        pause.wait(RETRY_S)


def _read_feed(client: Client, post: Post) -> None:
    llmd.process.socket_trust.check_socket(Path(client.socket_path))
    post(_connected(client))
    with closing(client.feed()) as feed:
        for event in feed:
            post(_received(event, client.ready()[1]))


def _connected(client: Client) -> Callable[[View], None]:
    version = client.live().get("version")
    return lambda view: view.connect(version)


def _received(event: Json, ready: Json) -> Callable[[View], None]:
    return lambda view: view.receive(event, ready)


def _trouble(client: Client, error: Exception) -> str:
    """Returns why there is no feed, or how much of the model is loaded."""
    if isinstance(error, DaemonAbsent):
        if error.reason == "starting":
            try:
                ready = client.ready()[1]
                if ready.get("status") == "loading":
                    return top_screen.loading(ready)
            except (DaemonAbsent, DaemonRefused):
                pass
        return f"{top_screen.NOT_CONNECTED}: {advice.sentence(error)}"
    return f"{top_screen.NOT_CONNECTED}: {error}"


# --- actions ---------------------------------------------------------------------------------------------------------


def _result(client: Client, action: Action) -> Callable[[View], None]:
    """Carries out an action. Returns the change of the view that shows the result."""
    try:
        message = perform(client, action)
    except (DaemonRefused, conversation_files.DiskFailed) as error:
        message = str(error)
    except DaemonAbsent as absent:
        message = advice.sentence(absent)
    return lambda view: view.show(message)


def perform(client: Client, action: Action) -> str:
    """Does what `llmctl sessions VERB` does, and returns a sentence about it."""
    id, owner = action.id, str(action.owner)
    if action.verb == "park":
        client.park(id, owner)
        return f"Session {id} parked."
    if action.verb in ("pin", "unpin"):
        client.pin(id, action.verb == "pin", owner)
        return f"Session {id} {action.verb}ned."
    raw = client.close(id, owner)
    if action.owner == OWN:
        conversation_files.forget(client.socket_path, id)
    return f"Session {id} closed." if raw.get("deleted", True) else f"Session {id} did not exist."
