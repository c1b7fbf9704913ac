"""llmctl sessions saved list | remove."""

from __future__ import annotations

import argparse
import time

from llmd.ctl import text
from llmd.ctl.client import Json
from llmd.ctl.context import EXIT_OK, Context, Verbs, add_verb


def register(actions: Verbs, shared: argparse.ArgumentParser) -> None:
    group = actions.add_parser(
        "saved",
        help="list, remove",
        description="List or remove saved sessions (sessions save).",
        parents=[shared],
    )
    verbs = group.add_subparsers(title="verbs", metavar="VERB", required=True)
    listed = add_verb(verbs, shared, "list", run_list, "list saved sessions, the newest first")
    remove = add_verb(verbs, shared, "remove", run_remove, "remove a saved session")
    remove.add_argument("name", metavar="NAME", help="name of the saved session")
    for parser in (listed, remove):
        parser.add_argument(
            "--owner",
            metavar="NAME",
            help="owner of the saved sessions (default: list shows all owners, remove takes your own)",
        )


def run_list(context: Context) -> int:
    raw = context.client.saved(context.options.owner)
    context.say(raw, lambda: overview(raw))
    return EXIT_OK


def run_remove(context: Context) -> int:
    raw = context.client.remove_saved(context.options.name, context.options.owner)
    context.say(raw, lambda: f"Saved session {context.options.name} removed.")
    return EXIT_OK


def overview(raw: Json) -> str:
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
