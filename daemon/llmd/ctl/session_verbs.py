"""The verbs llmctl sessions reset, close, fork, park, pin, rename, save and load, and llmctl sessions saved list and
remove.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from llmd.ctl import conversation_files, text
from llmd.ctl.client import Json
from llmd.ctl.context import EXIT_NOT_FOUND, EXIT_OK, Context, Verbs, add_id, add_verb, of_session

FORK_EPILOG = """\
examples:
  llmctl sessions fork work try                      copy all tokens
  llmctl sessions fork work try --at last_user       copy the tokens before the user's last message
  llmctl sessions fork work try --at turn:3          copy the tokens before the user's third message
  llmctl sessions fork work try --at 400             copy the first 400 tokens
"""


def register(actions: Verbs, shared: argparse.ArgumentParser) -> None:
    reset = add_verb(actions, shared, "reset", run_reset, "clear the tokens of a session and keep the session")
    close = add_verb(actions, shared, "close", run_close, "close a session: forget its tokens and free its slots")
    fork = add_verb(
        actions, shared, "fork", run_fork, "make a new session as a copy of another one", epilog=FORK_EPILOG
    )
    park = add_verb(
        actions, shared, "park", run_park, "park a session: move it out of the model's memory until its next request"
    )
    pin = add_verb(actions, shared, "pin", run_pin, "pin a session, so that llmd never forgets it by itself")
    rename = add_verb(actions, shared, "rename", run_rename, "rename a session")
    save = add_verb(actions, shared, "save", run_save, "save a copy of a session under a name in the state directory")
    for parser in (reset, close, fork, park, pin, rename, save):
        add_id(parser)
    for parser in (fork, rename):
        parser.add_argument("new", metavar="NEW", help="the new id")
    fork.add_argument(
        "--at",
        metavar="POINT",
        type=point,
        help="copy only the tokens before this point: a number of tokens, last_user or turn:N (default: copy all)",
    )
    pin.add_argument("--off", action="store_true", help="unpin the session")
    save.add_argument("name", metavar="NAME", help="name of the saved session")
    load = add_verb(actions, shared, "load", run_load, "load a saved session")
    load.add_argument("name", metavar="NAME", help="name of the saved session")
    load.add_argument("--as", metavar="ID", dest="id", help="id of the session (default: NAME)")
    for parser in (fork, load):
        parser.add_argument("--replace", action="store_true", help="if a session with that id exists, replace it")
    load.add_argument(
        "--owner", metavar="NAME", help="owner of the saved session (default: the owner of the unix socket)"
    )
    register_saved(actions, shared)


def point(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() else text


def tokens(raw: Json) -> str:
    return text.counted(raw.get("tokens", 0), "token")


def run_reset(context: Context) -> int:
    raw = context.client.reset(context.options.id, context.options.owner)
    return _forgotten(context, raw, "existed", "reset")


def run_close(context: Context) -> int:
    raw = context.client.close(context.options.id, context.options.owner)
    return _forgotten(context, raw, "deleted", "closed")


def _forgotten(context: Context, raw: Json, existed: str, done: str) -> int:
    """Reports that a session was reset or closed, and forgets its conversation. For the daemon it is no error if the
    session did not exist. But llmctl then returns EXIT_NOT_FOUND, because the user may have meant another session.
    """
    name, is_there = context.options.id, raw.get(existed, True)
    _conversation_follows(context, lambda socket_path: conversation_files.forget(socket_path, name))
    context.say(raw, lambda: f"Session {name} {done}." if is_there else f"Session {name} did not exist.")
    return EXIT_OK if is_there else EXIT_NOT_FOUND


def run_fork(context: Context) -> None:
    options = context.options
    raw = of_session(
        context, lambda id: context.client.fork(id, options.new, options.at, options.owner, replace=options.replace)
    )
    _conversation_follows(context, lambda socket_path: _copy_conversation(socket_path, options))
    all_of_it = ", all of its tokens" if isinstance(options.at, int) and raw.get("tokens", 0) < options.at else ""
    context.say(raw, lambda: f"Session {options.new} forked from {options.id} with {tokens(raw)}{all_of_it}.")


def _copy_conversation(socket_path: str, options: argparse.Namespace) -> Path | None:
    """Copies the part of the conversation before the point of the fork. If that point is a number of tokens, copies no
    turn, because llmctl does not know how many turns these tokens are.
    """
    at = options.at
    if at is None:
        n_turns = None
    elif at == "last_user":
        n_turns = max(0, conversation_files.n_turns(conversation_files.load(socket_path, options.id)) - 1)
    else:
        n_turns = int(at.removeprefix("turn:")) - 1 if isinstance(at, str) else 0
    return conversation_files.copy(socket_path, options.id, options.new, n_turns)


def _conversation_follows(context: Context, act: Callable[[str], Path | None]) -> None:
    """Calls `act` after the daemon has changed a session. `act` makes the same change to the conversation that llmctl
    keeps of this session. If --owner is set, `act` is not called, because llmctl keeps no conversations of sessions of
    other owners.
    """
    if context.options.owner is None:
        try:
            if (aside := act(context.client.socket_path)) is not None:
                context.warn(f"the earlier conversation was moved to {aside}")
        except conversation_files.DiskFailed as error:
            context.warn(str(error))


def run_park(context: Context) -> None:
    raw = of_session(context, lambda id: context.client.park(id, context.options.owner))
    context.say(raw, lambda: f"Session {context.options.id} parked with {tokens(raw)}.")


def run_pin(context: Context) -> None:
    options = context.options
    raw = of_session(context, lambda id: context.client.pin(id, not options.off, options.owner))
    context.say(raw, lambda: f"Session {options.id} {'unpinned' if options.off else 'pinned'}.")


def run_rename(context: Context) -> None:
    options = context.options
    raw = context.client.rename(options.id, options.new, options.owner)
    _conversation_follows(context, lambda socket_path: conversation_files.rename(socket_path, options.id, options.new))
    context.say(raw, lambda: f"Session {options.id} renamed to {options.new}.")


def run_save(context: Context) -> None:
    options = context.options
    raw = of_session(context, lambda id: context.client.save(id, options.name, options.owner))
    _conversation_follows(
        context, lambda socket_path: conversation_files.save_as(socket_path, options.id, options.name)
    )
    context.say(raw, lambda: f"Session {options.id} saved as {options.name}, {tokens(raw)}.")


def run_load(context: Context) -> None:
    options = context.options
    name = options.id or options.name
    raw = context.client.load(name, options.name, options.owner, replace=options.replace)
    _conversation_follows(context, lambda socket_path: conversation_files.load_as(socket_path, options.name, name))
    context.say(raw, lambda: f"Session {name} loaded from {options.name}, {tokens(raw)}.")


# --- saved sessions --------------------------------------------------------------------------------------------------


def register_saved(actions: Verbs, shared: argparse.ArgumentParser) -> None:
    group = actions.add_parser(
        "saved",
        help="list, remove",
        description="List or remove the sessions that `sessions save` has saved.",
        parents=[shared],
    )
    verbs = group.add_subparsers(title="verbs", metavar="VERB", required=True)
    listed = add_verb(verbs, shared, "list", run_saved_list, "list saved sessions, the newest first")
    remove = add_verb(verbs, shared, "remove", run_saved_remove, "remove a saved session")
    remove.add_argument("name", metavar="NAME", help="name of the saved session")
    for parser in (listed, remove):
        parser.add_argument(
            "--owner",
            metavar="NAME",
            help="owner of the saved sessions (default: for list all owners, for remove the owner of the unix socket)",
        )


def run_saved_list(context: Context) -> None:
    raw = context.client.saved(context.options.owner)
    context.say(raw, lambda: saved_overview(raw))


def run_saved_remove(context: Context) -> None:
    raw = context.client.remove_saved(context.options.name, context.options.owner)
    context.say(raw, lambda: f"Saved session {context.options.name} removed.")


def saved_overview(raw: Json) -> str:
    found = raw.get("data") or []
    if not found:
        return "no saved sessions"
    rows = [
        [
            text.scalar(one.get("name")),
            text.count(one.get("tokens", 0)),
            text.count(one["state_bytes"]) if one.get("state_bytes") else text.NOTHING,
            text.age(one.get("saved_ms", 0) / 1000, time.time()),
            str(one.get("owner_name") or one.get("owner", 0)),
        ]
        for one in found
    ]
    return text.table(["NAME", "TOKENS>", "BYTES>", "SAVED", "OWNER"], rows)
