"""llmctl version, and the agreement between this program and the daemon."""

from __future__ import annotations

import argparse

import llmd
from llmd.ctl import output
from llmd.ctl.context import EXIT_OK, Context, Verbs


def register(verbs: Verbs, shared: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "version",
        help="show the versions of llmctl and llmd",
        description="Show the versions of llmctl and llmd. "
        "The exit status is 3 if llmd does not run or cannot be reached.",
        parents=[shared],
    )
    parser.set_defaults(run=run)


def run(context: Context) -> int:
    if not context.json:
        output.answer(f"llmctl  {llmd.__version__}")
    health = context.client.health().body
    raw = {"llmctl": llmd.__version__, "llmd": health}
    context.say(raw, lambda: f"llmd    {health.get('version', 'unknown')}")
    warn_if_different(context, health.get("version"))
    return EXIT_OK


def warn_if_different(context: Context, daemon: object) -> None:
    if isinstance(daemon, str) and daemon != llmd.__version__:
        context.warn(f"warning: this is llmctl {llmd.__version__}, the daemon is llmd {daemon}")
