"""The verbs llmctl sessions list and show. explain.py and session_verbs.py have the other verbs of llmctl sessions."""

from __future__ import annotations

import argparse
import time

from llmd.ctl import explain, resident, session_verbs, text
from llmd.ctl.client import Json
from llmd.ctl.context import Context, Verbs, add_id, add_verb, of_session

SHOW_EPILOG = """\
examples:
  llmctl sessions show work
  llmctl sessions show work --tokens                 show token ids, read from shared memory
  llmctl sessions show work --tokens --json | jq '.tokens | length'

--tokens sends no request to llmd: llmctl reads the session table in shared memory, even while llmd is busy.
"""


EPILOG = """\
You can shorten an id if no other id begins with the same characters. The verbs reset, close and rename need the whole
id. A branch of requests that name no session is listed as (scratch N); show and explain accept that id.

examples:
  llmctl sessions list
  llmctl sessions explain work                       show what the last turns of work reused
  llmctl sessions save work draft                    save work under the name draft
  llmctl sessions load draft --as other              continue the saved session under another id
  llmctl help sessions fork                          show the help of one verb, with examples
"""


def register(verbs: Verbs, shared: argparse.ArgumentParser) -> None:
    group = verbs.add_parser(
        "sessions",
        help="list, show, explain, fork, park, pin, rename, save, load, saved, reset, close",
        description="List and change the sessions.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[shared],
    )
    group.set_defaults(run=run_list)
    actions = group.add_subparsers(title="verbs", metavar="VERB")
    add_verb(actions, shared, "list", run_list, "list all sessions, the most recently used first")
    show = add_verb(actions, shared, "show", run_show, "show one session and its last request", epilog=SHOW_EPILOG)
    show.add_argument("--tokens", action="store_true", help="show the session's token ids, read from shared memory")
    add_id(show)
    explain.register(actions, shared)
    session_verbs.register(actions, shared)


def run_list(context: Context) -> None:
    raw = context.client.sessions()
    context.say(raw, lambda: overview(raw))


def run_show(context: Context) -> None:
    options = context.options
    if options.tokens:
        show_tokens(context, resident.read(context.client.socket_path, options.id, owner_number(context)))
        return
    raw = of_session(context, lambda id: context.client.session(id, options.owner))
    context.say(raw, lambda: details(raw))


def owner_number(context: Context) -> int | None:
    """Returns the number of the owner in --owner, or None if --owner is not set. If --owner is a name, asks the daemon
    for the owner's number, because the session table does not contain names of owners.
    """
    owner = context.options.owner
    if owner is None or (owner.isascii() and owner.isdigit()):
        return int(owner) if owner is not None else None
    return int(context.client.session(context.options.id, owner)["owner"])


def show_tokens(context: Context, view: resident.Resident) -> None:
    if not view.is_daemon_alive:
        context.warn(f"llmd (pid {view.pid}) has ended; these are the tokens that the session had then")
    context.say(vars(view), view.text)


def overview(raw: Json) -> str:
    """Returns a table of the sessions, and a line about the slots."""
    sessions = [*(raw.get("data") or []), *(raw.get("scratch") or [])]
    header = [
        "ID", "STATE", "TOKENS>", "BRANCHES>", "MEMORY>", "REUSED>", "REQUESTS>", "LAST START", "USED", "PINNED",
        "CLIENT", "LAST WORDS", "OWNER>",
    ]  # fmt: skip
    rows = [_row(session) for session in sessions]
    # Columns that are empty are not shown.
    for name, title in (("owner", "OWNER>"), ("client", "CLIENT"), ("last_words", "LAST WORDS")):
        if not any(session.get(name) for session in sessions):
            column = header.index(title)
            header, rows = _without(column, header), [_without(column, row) for row in rows]
    return f"{text.table(header, rows) if rows else 'no sessions'}\n{slots_line(raw.get('places') or {})}"


def _without(column: int, cells: list[str]) -> list[str]:
    return cells[:column] + cells[column + 1 :]


def slots_line(raw: Json) -> str:
    used, named = raw.get("named_used", 0), raw.get("named", 0)
    parked = f", {text.count(raw['parked'])} parked" if raw.get("parked") else ""
    asleep = f", {text.count(raw['dormant'])} on disk without an entry" if raw.get("dormant") else ""
    return f"{used} of {named} slots used{parked}{asleep}; when full: {text.scalar(raw.get('policy'))}"


def unprocessed_tokens(session: Json) -> int:
    """Returns the number of prompt tokens that the session's running requests have neither prefilled nor reused yet."""
    unprocessed = (one for one in session.get("timelines") or [] if one.get("state") == "prefill")
    return sum(max(0, (one.get("last") or {}).get("prompt_tokens", 0) - one.get("tokens", 0)) for one in unprocessed)


def prefill_progress(session: Json) -> tuple[int, int] | None:
    """Returns how many prompt tokens the running requests of a session have processed, and how many prompt tokens they
    have. Returns None if no branch of the session is in prefill.
    """
    found = [one for one in session.get("timelines") or [session] if one.get("state") == "prefill"]
    n_all = sum(int((one.get("last") or {}).get("prompt_tokens", 0)) for one in found)
    return (min(sum(int(one.get("tokens", 0)) for one in found), n_all), n_all) if n_all else None


def reused_share(session: Json) -> tuple[int, int]:
    """Returns how many prompt tokens of the session's requests were reused, and how many prompt tokens they have."""
    reused = int(session.get("reused_tokens_total", 0))
    return reused, reused + int(session.get("prefilled_tokens_total", 0)) + unprocessed_tokens(session)


def _row(session: Json) -> list[str]:
    return [
        text.scalar(session.get("id")),
        text.scalar(session.get("state")),
        text.count(longest(session)),
        branches(session),
        text.size(memory_bytes(session)),
        text.share(*reused_share(session)),
        text.count(session.get("requests", 0)),
        text.scalar((session.get("last") or {}).get("reason")),
        _age(session.get("used_ms", 0), time.time()),
        "yes" if session.get("pinned") else text.NOTHING,
        text.scalar(session.get("client")),
        text.scalar(session.get("last_words")),
        owner(session),
    ]


def owner(session: Json) -> str:
    """Returns the owner's name, or the owner's number if llmd knows no name."""
    return text.scalar(session.get("owner_name") or session.get("owner", 0))


def longest(session: Json) -> int:
    """Returns the number of tokens of the session's longest branch. The list does not show the sum of all branches. The
    sum can exceed the context, and would then look like an error.
    """
    tokens: list[int] = [one.get("tokens", 0) for one in session.get("timelines") or []]
    return max(tokens) if tokens else int(session.get("tokens", 0))


def branches(session: Json) -> str:
    """Returns the number of branches and how many of them are parked, for example "3, 1 parked". If all branches are
    parked, or none is, returns only the number of branches.
    """
    found = session.get("timelines") or []
    n_parked = sum(one.get("state") == "parked" for one in found)
    return f"{len(found)}, {n_parked} parked" if 0 < n_parked < len(found) else str(len(found))


def memory_bytes(session: Json) -> int:
    """Returns the bytes of memory of the session's state and its checkpoints."""
    return int(session.get("memory_bytes", 0)) + int(session.get("checkpoint_bytes", 0))


def memory(session: Json) -> str:
    """Returns a text such as "1.5 MiB of state, 300 KiB of checkpoints, 2.0 MiB on disk"."""
    state, checkpoints, disk = (
        text.size(int(session.get(f"{name}_bytes", 0))) for name in ("memory", "checkpoint", "disk")
    )
    return f"{state} of state, {checkpoints} of checkpoints, {disk} on disk"


def details(session: Json, now_s: float | None = None) -> str:
    now_s = time.time() if now_s is None else now_s
    reused, consumed = session.get("reused_tokens_total", 0), session.get("prefilled_tokens_total", 0)
    pairs = [
        ("session", text.scalar(session.get("id"))),
        ("state", state(session)),
        *token_lines(session, now_s),
        *prefill_lines(session),
        ("memory", memory(session)),
        ("requests", f"{text.count(session.get('requests', 0))}, {session.get('waiting', 0)} waiting"),
        ("prompts", f"{text.count(consumed)} tokens prefilled, {text.count(reused)} reused"),
        ("answers", text.counted(session.get("generated_tokens_total", 0), "token")),
        ("opened", _age(session.get("opened_ms", 0), now_s)),
        ("used", _age(session.get("used_ms", 0), now_s)),
    ]
    if last := session.get("last"):
        pairs.append(("last start", last_start(last)))
    if session.get("pinned"):
        pairs.append(("pinned", "yes"))
    if session.get("client"):
        pairs.append(("client", text.scalar(session["client"])))
    if session.get("last_words"):
        pairs.append(("last words", text.scalar(session["last_words"])))
    if session.get("owner"):
        pairs.append(("owner", owner(session)))
    return text.fields(pairs)


_PLACES = {"memory": "in host memory", "disk": "on disk", "none": "without a state"}


def state(one: Json) -> str:
    """Returns the state of a session or branch. If it is parked, also returns where the state of the model is."""
    place = _PLACES.get(str(one.get("kept_in")))
    return text.scalar(one.get("state")) + (f" {place}" if place and one.get("state") == "parked" else "")


def token_lines(session: Json, now_s: float) -> list[tuple[str, str]]:
    """Returns the lines about the tokens of a session: one line for each branch."""
    context_tokens, found = text.count(session.get("context_tokens", 0)), session.get("timelines") or []
    if len(found) < 2:
        return [("tokens", f"{text.count(session.get('tokens', 0))} of {context_tokens}")]
    return [("branch", branch(one, context_tokens, now_s)) for one in found]


def prefill_lines(session: Json) -> list[tuple[str, str]]:
    if (progress := prefill_progress(session)) is None:
        return []
    n_done, n_all = progress
    return [("prefill", f"{text.count(n_done)} of {text.count(n_all)} prompt tokens, {text.share(n_done, n_all)}")]


def branch(one: Json, context_tokens: str, now_s: float) -> str:
    tokens, requests = text.count(one.get("tokens", 0)), text.counted(one.get("requests", 0), "request")
    where = f"entry {one.get('slot')}, used {_age(one.get('used_ms', 0), now_s)}"
    return f"{state(one)}, {tokens} of {context_tokens} tokens, {requests}, {where}"


def last_start(last: Json) -> str:
    """Returns a line such as "exact_prefix: 412 of 415 prompt tokens reused (The prompt extends ...)"."""
    reused, prompt = text.count(last.get("reused_tokens", 0)), text.count(last.get("prompt_tokens", 0))
    diverged = last.get("diverged_at")
    where = "" if diverged is None else f", diverged at token {text.count(diverged)}"
    reason, sentence = text.scalar(last.get("reason")), text.scalar(last.get("reason_text"))
    return f"{reason}: {reused} of {prompt} prompt tokens reused{where} ({sentence})"


def _age(stamp_ms: int, now_s: float) -> str:
    return text.age(stamp_ms / 1000, now_s)
