"""An agent rewrites a file of 300 lines that it has just read: llmd with drafts and without, and llama-server.

The model `bench-edit` answers with the file of its prompt, and replaces 1 in 30 tokens: names all over the file, and
several words of some sentences. So drafts that are found in the prompt are right, until such a token comes. The model
has the size of `bench-dense`, and a step takes as long. The measurement fails if an answer is not this text.

Each turn measures another part of the answer. The prompt then ends with the answer before this part, and a request
before it makes each server prefill the prompt. The speed counts from the request to its end. Several streams rewrite
files that have the same lines, and begin with different ones.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any

from tools.tiny_models import copying
from tools.tiny_models.tokenizer import Tokenizer

from . import client, models, peer
from .daemon import Server, daemon
from .report import OURS, Figure, Report
from .sides import PEER, alternating

MODELS = ("bench-edit",)
WITHOUT = "llmd without drafts"
DRAFTING = (
    "--spec-type ngram-simple",
    "--spec-type ngram-map-k4v",
    "--spec-type ngram-mod",
    "--spec-type ngram-cache",
    "--spec-type ngram-simple --spec-ngram-simple-size-n 4 --spec-ngram-simple-size-m 24",
)
"""Options with which llama-server drafts without a second model. ngram-map-k is left out, because it finds the same
drafts as ngram-simple. The sizes in the last entry were the fastest ones of 35 in a simulation of this text, in which
a draft token costs 6 to 10 % of a step.
"""
# Targets: llmd's speed divided by the speed of another side.
WITHOUT_AT_LEAST, DEFAULT_AT_LEAST, DRAFTING_AT_LEAST = 2.0, 2.0, 1.2
STREAMS_AT_LEAST = 1.3
N_CTX = 8192


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--streams", type=int, nargs="+", default=[1, 4], metavar="N", help="numbers of answers at once"
    )
    parser.add_argument(
        "--tokens", type=int, default=0, metavar="N", help="tokens of one part of an answer (200, with --short 100)"
    )


def about(options: argparse.Namespace) -> str:
    return f"{_n_tokens(options)} tokens of an edited file of {len(_file())} tokens"


def _n_tokens(options: argparse.Namespace) -> int:
    return int(options.tokens or (100 if options.short else 200))


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    for n in options.streams:
        speeds, drafts = _measure(report, models.path_of(model), n, options)
        case = "1 stream" if n == 1 else f"{n} streams"
        for side, values in speeds.items():
            report.add(Figure(case=case, side=side, quantity="speed", unit="tokens/s", values=values))
        for side, made in drafts.items():
            share = [100 * one.n_accepted / one.n for one in made if one.n > 0]
            accepted = [one.n_accepted for one in made if one.n > 0]
            report.add(Figure(case=case, side=side, quantity="accepted drafts", unit="tokens", values=accepted))
            report.add(Figure(case=case, side=side, quantity="accepted drafts", unit="%", values=share))
        without_at_least = WITHOUT_AT_LEAST if n == 1 else STREAMS_AT_LEAST
        report.add_ratio(case, "speed", speeds, against=WITHOUT, at_least=without_at_least)
        report.add_ratio(case, "speed", speeds, against=PEER, at_least=DEFAULT_AT_LEAST if n == 1 else None)
        drafting = [side for side in speeds if side.startswith(f"{PEER} ")]
        if drafting:
            best = min(drafting, key=lambda side: sum(1 / speed for speed in speeds[side]))
            report.add_ratio(case, "speed", speeds, against=best, at_least=DRAFTING_AT_LEAST if n == 1 else None)


@dataclass(frozen=True, slots=True)
class Drafts:
    """Draft tokens of a part of an answer, or of one part of each answer."""

    n: int
    n_accepted: int


def _measure(
    report: Report, path: str, n: int, options: argparse.Namespace
) -> tuple[dict[str, list[float]], dict[str, list[Drafts]]]:
    turns = options.repeats or (2 if options.short else 3)
    rewritings = [rewriting(stream * len(_file()) // n) for stream in range(n)]
    speeds: dict[str, list[float]] = {}
    drafts: dict[str, list[Drafts]] = {}
    with ExitStack() as stack:
        servers = {side: stack.enter_context(server) for side, server in _sides(path, n, options)}
        for turn in range(turns):
            report.progress(f"{n} at once, {turn + 1} of {turns}")
            at = turn * (len(_file()) - _n_tokens(options)) // turns
            for side, server in alternating(servers, turn):
                _prefill(server, rewritings, at)
                seconds, made = _parts(server, rewritings, at, _n_tokens(options))
                speeds.setdefault(side, []).append(n * _n_tokens(options) / seconds)
                drafts.setdefault(side, []).append(made)
    return speeds, drafts


def _sides(path: str, n: int, options: argparse.Namespace) -> Iterator[tuple[str, Server]]:
    """Starts one server after the other. Several streams are compared with a llama-server with default options, and
    with those in `options.also`. llama-server's context is limited, because each server would need 5 GB for it.
    """
    yield OURS, daemon(path)
    yield WITHOUT, daemon(path, speculate="off")
    if peer.directory() is not None:
        for also in ("", *(DRAFTING if n == 1 else ()), *options.also):
            context = ["-c", str(N_CTX * max(1, n))]
            yield f"{PEER} {also}".strip(), peer.server(path, options=[*context, *also.split()])


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A prompt with a file, and the answer of the model to it."""

    name: str
    prompt: list[int]
    answer: list[int]


def _prefill(server: Server, rewritings: list[Rewriting], at: int) -> None:
    """Makes the server prefill all prompts but for their last tokens, so that no prompt is complete before it is
    measured.
    """
    for one in rewritings:
        prompt = one.prompt + one.answer[:at]
        client.post(server.port, "/v1/completions", {**_body(one, prompt[:-1]), "max_tokens": 1})


def _body(rewriting: Rewriting, prompt: list[int]) -> dict[str, Any]:
    greedy = {"temperature": 0, "ignore_eos": True, "timings_per_token": True}
    return {**greedy, "prompt": prompt, "session_id": rewriting.name}


def _parts(server: Server, rewritings: list[Rewriting], at: int, n_tokens: int) -> tuple[float, Drafts]:
    """Makes all answers at once, each from its token number `at` on. Returns the seconds that they took together."""
    begun_s = time.monotonic()
    with ThreadPoolExecutor(len(rewritings)) as threads:
        made = [*threads.map(lambda one: _part(server, one, at, n_tokens), rewritings)]
    seconds = time.monotonic() - begun_s
    return seconds, Drafts(sum(one.n for one in made), sum(one.n_accepted for one in made))


def _part(server: Server, rewriting: Rewriting, at: int, n_tokens: int) -> Drafts:
    body = _body(rewriting, rewriting.prompt + rewriting.answer[:at])
    answer = client.post(server.port, "/v1/completions", {**body, "max_tokens": n_tokens})
    text = answer["choices"][0]["text"]
    expected = _words().decode(rewriting.answer[at : at + n_tokens])
    if text != expected:
        raise SystemExit(f"the model does not copy: its answer is\n{text}\ninstead of\n{expected}")
    timings = answer["timings"]
    return Drafts(timings.get("draft_n", 0), timings.get("draft_n_accepted", 0))


@cache
def _words() -> Tokenizer:
    return copying.vocabulary()


@cache
def _file() -> list[int]:
    return _words().encode(copying.FILE_PATH.read_text(encoding="utf-8"))


def rewriting(first: int) -> Rewriting:
    """Returns the prompt with the file from the line on that has its token number `first`, and then the lines before.
    The task has as many words as it takes to have the first token of the file at the model's distance.
    """
    words = _words()
    lines = [at + 1 for at, token in enumerate(_file()) if words.tokens[token].endswith("Ċ")]
    begin = next(at for at in (0, *lines) if at >= first)
    file = _file()[begin:] + _file()[:begin]
    turn, end = words.id_of("<|im_start|>"), words.id_of("<|im_end|>")
    head = [turn, *words.encode("user\nThis is boundary.py:\n")]
    tail = [end, *words.encode("\n"), turn, *words.encode("assistant\n")]
    names = ", ".join(f"{old.strip()} to {new.strip()}" for old, new in copying.EDITS.items())
    task = words.encode(f"\nRewrite the file. Rename {names}.")
    n_task = copying.DISTANCE + 1 - len(file) - len(tail)
    if not 0 < n_task <= len(task):
        raise SystemExit(f"the task has {len(task)} tokens instead of {n_task}")
    replaced = copying.edits(words)
    return Rewriting(f"edit-{first}", [*head, *file, *task[:n_task], *tail], [replaced.get(one, one) for one in file])
