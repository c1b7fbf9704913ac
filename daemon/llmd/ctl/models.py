"""llmctl models: what is served."""

from __future__ import annotations

import argparse

from llmd.ctl import text
from llmd.ctl.client import Json
from llmd.ctl.context import EXIT_OK, Context, Verbs


def register(verbs: Verbs, shared: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "models", help="the model being served", description="The model being served.", parents=[shared]
    )
    parser.set_defaults(run=run)


def run(context: Context) -> int:
    raw = context.client.models()
    context.say(raw, lambda: "\n\n".join(details(model) for model in raw.get("data") or []))
    return EXIT_OK


def details(model: Json) -> str:
    """Every fact the daemon states, nested ones under their own name."""
    facts = {key: value for key, value in model.items() if not isinstance(value, dict | list)}
    for nested in model.values():
        facts |= nested if isinstance(nested, dict) else {}
    return text.fields([(key, text.value(value)) for key, value in facts.items()])
