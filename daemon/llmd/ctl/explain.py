"""llmctl sessions explain: prints a paragraph about each of the last turns of a session. The paragraph says how many
tokens the turn reused, and why it could not reuse more.
"""

from __future__ import annotations

import argparse
import time

from llmd.ctl import text
from llmd.ctl.client import Json
from llmd.ctl.context import Context, Verbs, add_id, add_verb, of_session

EPILOG = """\
For each turn, llmctl shows how many tokens of the prompt were reused, and why no more could be reused. If the prompt
differs from the session, llmctl shows the text of both from the first different token on. The session's text is shown
only if llmd knows it for certain. llmd remembers only turns since its start.
"""
INDENT = "    "


def register(actions: Verbs, shared: argparse.ArgumentParser) -> None:
    help = "show which tokens each of the last turns of a session reused, and why it could not reuse more"
    add_id(add_verb(actions, shared, "explain", run, help, epilog=EPILOG))


def run(context: Context) -> None:
    raw = of_session(context, lambda id: context.client.explain(id, context.options.owner))
    context.say(raw, lambda: story(raw))


def story(raw: Json, *, only_last: bool = False) -> str:
    turns = raw.get("turns") or []
    if not turns:
        return f"{text.scalar(raw.get('id'))}: no turn since llmd started"
    slots = {turn.get("slot") for turn in turns}
    paragraphs = [paragraph(number, turn, len(slots) > 1) for number, turn in enumerate(turns, 1)]
    return "\n".join(paragraphs[-1:] if only_last else [*paragraphs, *branches(raw)])


def branches(raw: Json) -> list[str]:
    """Returns a line about each branch, the oldest first. Returns no line if the session has only one branch, and this
    branch has no checkpoints.
    """
    found = raw.get("branches") or []
    return [branch(one) for one in found if len(found) > 1 or one.get("checkpoints")]


def branch(one: Json) -> str:
    line = f"branch in entry {one.get('slot')}: {text.counted(one.get('tokens', 0), 'token')}"
    if one.get("parent") is not None:
        line += f", the first {text.count(one.get('shared_tokens', 0))} as in entry {one['parent']}"
    if one.get("checkpoints"):
        line += f"; checkpoints after {', '.join(map(text.count, one['checkpoints']))}"
    return line


def paragraph(number: int, turn: Json, has_several_branches: bool) -> str:
    when = text.age(turn.get("at_ms", 0) / 1000, time.time())
    where = f", branch in entry {turn.get('slot')}" if has_several_branches and turn.get("slot") is not None else ""
    lines = [f"turn {number}, {when}{where}: {text.scalar(turn.get('reason') or turn.get('outcome'))}"]
    if turn.get("reason"):
        lines.append(f"{INDENT}{text.scalar(turn.get('reason_text'))}")
    lines.append(f"{INDENT}{counts(turn)}; {text.scalar(turn.get('outcome'))}")
    if turn.get("drafted_tokens"):
        lines.append(f"{INDENT}drafts: {text.drafts(lambda name: turn.get(name, 0))}")
    if point := turn.get("divergence"):
        lines += divergence(point)
    return "\n".join(lines)


def counts(turn: Json) -> str:
    prompt, reused = turn.get("prompt_tokens", 0), turn.get("reused_tokens", 0)
    return (
        f"{text.count(reused)} of {text.count(prompt)} prompt tokens reused, "
        f"{text.count(turn.get('prefilled_tokens', 0))} prefilled, "
        f"{text.count(turn.get('generated_tokens', 0))} generated"
    )


def divergence(point: Json) -> list[str]:
    """Returns lines about the first token at which the prompt differs from the session. The lines show the text before
    this token and, from this token on, the text of the session and the text of the prompt. If both texts look the same,
    the lines also show the token ids.
    """
    lines = [f"{INDENT}the prompt diverges from the session at token {text.count(point.get('at', 0))}"]
    read_the_same = _read_the_same(point.get("resident") or "", point.get("prompt") or "")
    for name, key in (("after", "before"), ("session", "resident"), ("prompt", "prompt")):
        value = point.get(key)
        ids = point.get(f"{key}_tokens") if read_the_same else None
        tokens = f"  tokens {' '.join(map(str, ids))}" if ids else ""
        lines.append(f"{INDENT}  {name:<8} {'not known' if value is None else quoted(value) + tokens}")
    return lines


def _read_the_same(resident: str, prompt: str) -> bool:
    """Returns whether both texts are equal up to the end of the shorter one. They have the same number of tokens, but
    can have different lengths.
    """
    n = min(len(resident), len(prompt))
    return n > 0 and resident[:n] == prompt[:n]


def quoted(value: str) -> str:
    """Returns a text in quotes on one line. Line ends and control characters are escaped."""
    return '"' + text.printable(value.replace("\n", "\\n").replace("\t", "\\t")) + '"'
