"""llmctl sessions list | show | reset | close."""

from __future__ import annotations

import argparse
import time

from llmd.ctl import resident, text
from llmd.ctl.client import Json
from llmd.ctl.context import EXIT_OK, Context, Run, Verbs

SHOW_EPILOG = """\
examples:
  llmctl sessions show work
  llmctl sessions show work --tokens                 token ids, read from shared memory
  llmctl sessions show work --tokens --json | jq '.tokens | length'

--tokens sends no request: it reads what the decode thread writes, and works while the daemon is busy.
"""


def register(verbs: Verbs, shared: argparse.ArgumentParser) -> None:
    group = verbs.add_parser(
        "sessions", help="list, show, reset, close", description="The sessions of the daemon.", parents=[shared]
    )
    actions = group.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add(actions, shared, "list", run_list, "all sessions, the last used first")
    show = _add(actions, shared, "show", run_show, "one session: what it holds, how its last request began")
    show.epilog = SHOW_EPILOG
    show.add_argument("--tokens", action="store_true", help="the tokens it holds, from shared memory")
    reset = _add(actions, shared, "reset", run_reset, "forget what a session holds and keep its place")
    close = _add(actions, shared, "close", run_close, "free a session's place")
    for parser in (show, reset, close):
        parser.add_argument("id", metavar="ID", help="the session's id")
        parser.add_argument("--owner", metavar="N", type=int, help="whose, when several API keys have this id")


def _add(actions: Verbs, shared: argparse.ArgumentParser, name: str, run: Run, help: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(
        name,
        help=help,
        description=f"{help[0].upper()}{help[1:]}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[shared],
    )
    parser.set_defaults(run=run)
    return parser


def run_list(context: Context) -> int:
    raw = context.client.sessions()
    context.say(raw, lambda: overview(raw))
    return EXIT_OK


def run_show(context: Context) -> int:
    options = context.options
    if options.tokens:
        return show_tokens(context, resident.read(context.client.socket_path, options.id, options.owner))
    raw = context.client.session(options.id, options.owner)
    context.say(raw, lambda: details(raw))
    return EXIT_OK


def show_tokens(context: Context, found: resident.Resident) -> int:
    if not found.is_daemon_alive:
        context.warn(f"its daemon (pid {found.pid}) is gone; this is what the session had consumed")
    context.say(vars(found), found.text)
    return EXIT_OK


def run_reset(context: Context) -> int:
    raw = context.client.reset(context.options.id, context.options.owner)
    context.say(raw, lambda: f"{context.options.id} is reset")
    return EXIT_OK


def run_close(context: Context) -> int:
    raw = context.client.close(context.options.id, context.options.owner)
    context.say(raw, lambda: f"{context.options.id} is closed")
    return EXIT_OK


def overview(raw: Json) -> str:
    """A table, and how many places are left."""
    sessions = raw.get("data") or []
    several_owners = any(session.get("owner") for session in sessions)
    header = ["ID", "STATE", "TOKENS>", "REUSED>", "REQUESTS>", "LAST START", "USED", "OWNER>"]
    rows = [_row(session) for session in sessions]
    if not several_owners:
        header, rows = header[:-1], [row[:-1] for row in rows]
    return f"{text.table(header, rows) if rows else 'no sessions'}\n{places(raw.get('places') or {})}"


def places(raw: Json) -> str:
    used, named = raw.get("named_used", 0), raw.get("named", 0)
    return f"{used} of {named} places used; a full house means: {text.scalar(raw.get('policy'))}"


def _row(session: Json) -> list[str]:
    reused = session.get("reused_tokens_total", 0)
    consumed = session.get("prefilled_tokens_total", 0)
    return [
        text.scalar(session.get("id")),
        text.scalar(session.get("state")),
        text.count(session.get("tokens", 0)),
        text.share(reused, reused + consumed),
        text.count(session.get("requests", 0)),
        text.scalar((session.get("last") or {}).get("reason")),
        _age(session.get("used_ms", 0)),
        str(session.get("owner", 0)),
    ]


def details(session: Json) -> str:
    reused, consumed = session.get("reused_tokens_total", 0), session.get("prefilled_tokens_total", 0)
    pairs = [
        ("session", text.scalar(session.get("id"))),
        ("state", text.scalar(session.get("state"))),
        ("tokens", f"{text.count(session.get('tokens', 0))} of {text.count(session.get('context_tokens', 0))}"),
        ("requests", f"{text.count(session.get('requests', 0))}, {session.get('waiting', 0)} waiting"),
        ("prompts", f"{text.count(consumed)} tokens consumed, {text.count(reused)} reused"),
        ("answers", f"{text.count(session.get('generated_tokens_total', 0))} tokens"),
        ("opened", _age(session.get("opened_ms", 0))),
        ("used", _age(session.get("used_ms", 0))),
    ]
    if last := session.get("last"):
        pairs.append(("last start", last_start(last)))
    if session.get("owner"):
        pairs.append(("owner", str(session["owner"])))
    return text.fields(pairs)


def last_start(last: Json) -> str:
    """ "exact_prefix: 412 of 415 prompt tokens reused (The prompt extends ...)" """
    reused, prompt = text.count(last.get("reused_tokens", 0)), text.count(last.get("prompt_tokens", 0))
    diverged = last.get("diverged_at")
    where = "" if diverged is None else f", diverged at token {text.count(diverged)}"
    reason, sentence = text.scalar(last.get("reason")), text.scalar(last.get("reason_text"))
    return f"{reason}: {reused} of {prompt} prompt tokens reused{where} ({sentence})"


def _age(stamp_ms: int) -> str:
    return text.age(stamp_ms / 1000, time.time())
