"""The first prompt after a restart: in an old conversation, a new one with the same system prompt, an unrelated one.

A daemon that is stopped with SIGTERM writes its sessions to disk. After the restart, a new conversation can reuse from
disk the tokens that it shares with one of these sessions. Each case is the first request to a newly started daemon.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict

from . import client, models
from .conversation import words
from .daemon import daemon
from .report import Figure, Report, ratios_of

MODELS = ("bench-dense", "bench-hybrid")
GOES_ON, NEW, STRANGER = "goes on", "new, the same system prompt", "new, another system prompt"
HALF = 0.5
"""Target: the time to the first token of a new conversation with the same system prompt, divided by that of an
unrelated conversation, is at most this.
"""
N_TOKENS, USER_WORDS = 16, 60


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--system", type=int, default=1500, metavar="N", help="words of a system prompt (%(default)s)")
    parser.add_argument("--turns", type=int, default=3, metavar="N", help="turns of the old conversation (%(default)s)")


def about(options: argparse.Namespace) -> str:
    return f"{options.turns} turns after a system prompt of {options.system} words, then an orderly stop"


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    path = models.path_of(model)
    answers: dict[str, list[client.Answer]] = defaultdict(list)
    for repeat in range(options.repeats or (1 if options.short else 5)):
        report.progress(f"restart {repeat + 1}")
        for case, answer in _restarts(path, f"{repeat}", options).items():
            answers[case].append(answer)
    firsts = {case: [answer.first_ms for answer in made] for case, made in answers.items()}
    for case, made in answers.items():
        prefilled = [float(answer.n_prefilled) for answer in made]
        report.add(Figure(case=case, quantity="prefilled", unit=made[0].reason, values=prefilled))
        report.add(Figure(case=case, quantity="first token", unit="ms", values=firsts[case]))
    ratios = ratios_of(firsts[NEW], firsts[STRANGER])
    report.add(Figure(case=NEW, quantity="first token / a stranger's", unit="", values=ratios, at_most=HALF))


def _restarts(path: str, seed: str, options: argparse.Namespace) -> dict[str, client.Answer]:
    with tempfile.TemporaryDirectory(prefix="llmd-bench-") as state:
        own, others = (words(f"{whose} {seed}", options.system) for whose in ("system", "other"))
        with daemon(path, state_dir=state) as server:
            messages = [{"role": "system", "content": own}]
            for turn in range(options.turns):
                messages.append(_user(f"{seed} {turn}"))
                messages.append({"role": "assistant", "content": _ask(server.port, "before", messages).text})
        cases = {
            NEW: ("new", [messages[0], _user(f"{seed} new")]),
            STRANGER: ("stranger", [{"role": "system", "content": others}, _user(f"{seed} stranger")]),
            GOES_ON: ("before", [*messages, _user(f"{seed} on")]),
        }
        answers = {}
        for case, (session, prompt) in cases.items():
            with daemon(path, state_dir=state) as server:
                answers[case] = _ask(server.port, session, prompt)
                # The next case must find the same sessions on disk.
                client.ask(server.port, "DELETE", f"/v1/sessions/{session}")
        return answers


def _ask(port: int, session: str, messages: client.Messages) -> client.Answer:
    return client.chat(port, messages, session_id=session, max_tokens=N_TOKENS, temperature=0, seed=1)


def _user(seed: str) -> dict[str, str]:
    return {"role": "user", "content": words(seed, USER_WORDS)}
