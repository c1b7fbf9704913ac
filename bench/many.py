"""Many streams at once: in new sessions, in every other warm session, and after other streams.

Measures decode after a prompt of 64 tokens:
- the tokens per second of all streams together and of each stream
- the gaps between tokens
- the time until the last stream has its first token

The tokens per second of all streams are counted from the first text of any stream. Every server runs one turn before
the measured turns. After each turn, the sessions of the turn are deleted. So every turn finds the same slots. Streams
in every other slot ("staggered") are compared with streams in neighboring slots. The sessions of both are equally warm.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable

from . import streams
from .client import ask
from .daemon import Server
from .report import OURS, Report
from .sides import alternating, both, ours
from .streams import Request, Run, body, prompt_of

MODELS = ("bench-dense", "bench-hybrid", "bench-small")
PROMPT_TOKENS, N_CTX = 64, 1024
STAGGERED, BESIDE = "staggered", "neighbours beside staggered"
KINDS = ("fresh", "traffic", "after traffic", STAGGERED)
TRAFFIC_REQUESTS, TRAFFIC_REQUESTS_SHORT = 144, 16
"""Number of requests of all users together in the case "traffic". The requests of four or eight users take about two
minutes. One, two or three users each send as many requests as if there were four users.
"""
# Targets, by the number of streams: the smallest ratio of llmd's tokens per second, of all streams together, to
# llama-server's.
TOTAL_AT_LEAST = {4: 1.0, 8: 1.2, 16: 1.5}
SAME_AS_FRESH = 0.95
REFERENCES = {STAGGERED: BESIDE, "after traffic": "fresh"}

Runs = dict[str, list[Run]]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--streams", type=int, nargs="+", default=[], metavar="N", help="numbers of concurrent streams")
    parser.add_argument("--tokens", type=int, default=48, metavar="N", help="tokens of one stream (%(default)s)")
    parser.add_argument("--kinds", nargs="+", default=[*KINDS], choices=KINDS, help="what to measure (all)")
    parser.add_argument(
        "--traffic", type=int, default=0, metavar="N", help="number of requests of each user in the case traffic"
    )


def about(options: argparse.Namespace) -> str:
    return f"streams of {options.tokens} tokens after a prompt of {PROMPT_TOKENS}"


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    counts = options.streams or ([1, 4, 8] if options.short else [1, 2, 4, 8, 16, 32])
    for n in counts:
        measured: dict[str, Runs] = {kind: {} for kind in options.kinds}
        alone = {kind: runs for kind, runs in measured.items() if kind != STAGGERED}
        if alone:
            _measure(report, model, n, alone, options)
        if STAGGERED in measured:
            measured[BESIDE] = {}
            _measure_staggered(report, model, n, measured[STAGGERED], measured[BESIDE], options)
        _add(report, n, options, measured)


def _measure(report: Report, model: str, n: int, measured: dict[str, Runs], options: argparse.Namespace) -> None:
    with both(options, model, slots=n, n_ctx=N_CTX) as servers:
        for side, server in servers.items():
            fresh(server, n, options.tokens, "before")
            _forget(side, server)
        for kind, runs in measured.items():
            turns = 1 if kind == "traffic" else _turns(options)
            for turn in range(turns):
                report.progress(f"{n} streams, {kind}, {turn + 1} of {turns}")
                for side, server in alternating(servers, turn):
                    runs.setdefault(side, []).append(_run(kind, server, n, f"{turn}", options))
                    if kind == "fresh":
                        _forget(side, server)


def _measure_staggered(
    report: Report, model: str, n: int, runs: Runs, neighbours: Runs, options: argparse.Namespace
) -> None:
    """Measures streams in every other slot of each server. Each turn of llmd comes right before or after a turn of a
    second llmd, whose streams are in neighboring slots. So other programs on the machine disturb both equally.
    """
    with both(options, model, slots=2 * n, n_ctx=N_CTX) as servers, ours(model, slots=n, n_ctx=N_CTX) as other:
        for side, server in (*servers.items(), (OURS, other)):
            warm(server, n, 1, options.tokens, "before")
            _forget(side, server)
        for turn in range(_turns(options)):
            report.progress(f"{n} streams, {STAGGERED}, {turn + 1} of {_turns(options)}")
            for side, server in alternating(servers, turn):
                pair = [(runs, STAGGERED, server)] + ([(neighbours, BESIDE, other)] if side == OURS else [])
                for made, kind, asked in pair if turn % 2 == 0 else pair[::-1]:
                    made.setdefault(side, []).append(_run(kind, asked, n, f"{turn}", options))
                    _forget(side, asked)


def _forget(side: str, server: Server) -> None:
    if side == OURS:
        for session in json.loads(ask(server.port, "GET", "/v1/sessions"))["data"]:
            ask(server.port, "DELETE", f"/v1/sessions/{session['id']}")


def _turns(options: argparse.Namespace) -> int:
    return int(options.repeats or (2 if options.short else 5))


def _run(kind: str, server: Server, n: int, turn: str, options: argparse.Namespace) -> Run:
    if kind == "traffic":
        n_requests = TRAFFIC_REQUESTS_SHORT if options.short else TRAFFIC_REQUESTS
        return streams.send(server.port, traffic(n, options.traffic or max(1, n_requests // max(n, 4))))
    if kind in (STAGGERED, BESIDE):
        return warm(server, n, 2 if kind == STAGGERED else 1, options.tokens, f"{kind} {turn}")
    return fresh(server, n, options.tokens, f"{kind} {turn}")


def fresh(server: Server, n: int, n_tokens: int, seed: str) -> Run:
    """Runs `n` streams at once, each in a new session."""
    names = [f"{seed} {number}" for number in range(n)]
    return streams.complete(server.port, [body(prompt_of(PROMPT_TOKENS, name), n_tokens, name) for name in names])


def warm(server: Server, n: int, every: int, n_tokens: int, seed: str) -> Run:
    """Makes `every * n` sessions warm by prefilling half of their prompt. Then runs `n` streams, in every `every`-th of
    these sessions. A stream begins after as many prompt tokens as in `fresh`.
    """
    names = [f"{seed} {number}" for number in range(every * n)]
    prompts = {name: prompt_of(PROMPT_TOKENS, name) for name in names}
    for name in names:
        streams.complete(server.port, [body(prompts[name][: PROMPT_TOKENS // 2], 1, name, cache_prompt=True)])
    return streams.complete(
        server.port, [body(prompts[name], n_tokens, name, cache_prompt=True) for name in names[::every]]
    )


def traffic(n_users: int, n_requests: int) -> list[Request]:
    """Returns requests whose prompts and answers have many lengths, each in a new session. Each user sends one request
    after the other.
    """
    lengths = random.Random("traffic")
    requests = []
    for number in range(n_users * n_requests):
        name, n_prompt, n_tokens = f"traffic {number}", lengths.randint(16, 256), lengths.randint(8, 96)
        pause_ms = lengths.randint(0, 200)
        requests.append(Request(body(prompt_of(n_prompt, name), n_tokens, name), number % n_users, pause_ms))
    return requests


def _rate(kind: str, run: Run, n: int, options: argparse.Namespace) -> float:
    """Returns the tokens per second of all streams together. The time begins with the first text of any stream or, for
    the case "traffic", with the first request.
    """
    if kind == "traffic":
        n_tokens: int = sum(request.body["max_tokens"] for request in traffic(n, len(run.streams) // n))
        return n_tokens / run.whole_s
    return float(n * options.tokens / run.streaming_s)


def _add(report: Report, n: int, options: argparse.Namespace, measured: dict[str, Runs]) -> None:
    totals = {
        kind: {side: [_rate(kind, run, n, options) for run in made] for side, made in runs.items()}
        for kind, runs in measured.items()
    }
    for kind, runs in measured.items():
        case = f"{n} streams, {kind}"
        gaps = {side: [run.gaps_ms for run in made] for side, made in runs.items()}
        report.compare(case, "total", "tokens/s", totals[kind], at_least=TOTAL_AT_LEAST.get(n))
        if kind != "traffic":
            # "total" leaves out the prefill of a server that answers no stream before it has prefilled all prompts.
            whole = {side: [n * options.tokens / run.whole_s for run in made] for side, made in runs.items()}
            report.compare(case, "total from the requests", "tokens/s", whole)
            report.compare(case, "of each stream", "tokens/s", _of_each(runs, options.tokens))
        report.compare(case, "gap, median", "ms", _each(gaps, statistics.median))
        report.compare(case, "gap, 99 % within", "ms", _each(gaps, lambda run: statistics.quantiles(run, n=100)[-1]))
        last = {side: [max(one.first_ms for one in run.streams) for run in made] for side, made in runs.items()}
        report.compare(case, "first token of the last", "ms", last, at_most=1.0 if kind == "fresh" else None)
        fresh_kind = REFERENCES.get(kind)
        if fresh_kind in totals:
            name = "fresh slots" if fresh_kind == "fresh" else "neighbouring slots"
            against = {OURS: totals[kind][OURS], name: totals[fresh_kind][OURS]}
            report.add_ratio(case, "total", against, against=name, at_least=SAME_AS_FRESH)


def _of_each(runs: Runs, n_tokens: int) -> dict[str, list[float]]:
    """Returns, for each run of each server, the median of the streams' tokens per second after their first tokens."""
    return {
        side: [statistics.median(one.decode_rate(n_tokens) for one in run.streams) for run in made]
        for side, made in runs.items()
    }


def _each(gaps: dict[str, list[list[float]]], of: Callable[[list[float]], float]) -> dict[str, list[float]]:
    return {side: [of(run) for run in runs if len(run) > 1] for side, runs in gaps.items()}
