"""Which share of the machine's limits llmd reaches: of the memory with one stream, of the multiply-adds in prefill.

A stream alone reads all weights for each token, so the memory limits it. In prefill, each weight is read once for many
tokens, so the multiply-adds limit it. The limits are the speeds of loops that do nothing else (bench/limits.c). Without
VNNI, the limit of weights of 8 bits is that of multiply-adds of words, and the limit of weights of 4 to 6 bits is that
of multiply-adds of bytes.
"""

from __future__ import annotations

import argparse
import os
import subprocess

from . import machine, models, streams
from .report import Figure, Report
from .sides import alternating, both

MODELS = ("bench-dense", "bench-dense-q4", "bench-hybrid")
PROGRAM = machine.PROGRAMS / "limits"
PREFILL = (520, 4000)
DECODE = (64, 4000)
STREAMS = (4, 16)
N_TOKENS = 32
LIMITS = {
    "memory_gb_s": ("read from memory", "GB/s"),
    "word_gmac_s": ("multiply-adds of words", "GMAC/s"),
    "byte_gmac_s": ("multiply-adds of bytes", "GMAC/s"),
}
_READ, _MULTIPLY = ("memory_gb_s",), ("word_gmac_s", "byte_gmac_s")

Facts = dict[str, float]
"""The values that bench/limits.c prints, by name."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="threads of the loops (default: all cores)")


def about(options: argparse.Namespace) -> str:
    return f"{N_TOKENS} tokens after prompts of {DECODE}, prefill of {PREFILL}, {STREAMS} new streams"


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    facts = _facts(models.path_of(model), options.threads or len(os.sched_getaffinity(0)))
    for limit in [name for name in LIMITS if name in facts]:
        quantity, unit = LIMITS[limit]
        report.add(Figure(case="limit", side="machine", quantity=quantity, unit=unit, values=[facts[limit]]))
    rates: dict[str, dict[str, list[float]]] = {}
    with both(options, model, slots=max(STREAMS), n_ctx=max(PREFILL) + 4 * N_TOKENS) as servers:
        for turn in range(options.repeats or (1 if options.short else 3)):
            report.progress(f"{turn + 1}")
            for side, server in alternating(servers, turn):
                for case, rate in _tokens_per_s(server.port, f"{turn}").items():
                    rates.setdefault(case, {}).setdefault(side, []).append(rate)
    for case, (giga, limits) in _needs(facts).items():
        for side, values in rates[case.partition(":")[0]].items():
            _add(report, case, side, [value * giga for value in values], {name: facts.get(name) for name in limits})


def _tokens_per_s(port: int, seed: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for n in sorted({*PREFILL, *DECODE}):
        prompt = streams.prompt_of(n, f"{seed} {n}")
        stream = streams.complete(port, [streams.body(prompt, N_TOKENS)]).streams[0]
        found[f"prefill of {n}"] = n / stream.first_us * 1e6
        found[f"one stream after {n}"] = stream.decode_rate(N_TOKENS)
    for n in STREAMS:
        found[f"{n} streams"] = _together(port, n, seed)
    return found


def _together(port: int, n: int, seed: str) -> float:
    """Returns the tokens per second of n streams together, in the time in which all of them decode."""
    bodies = [streams.body(streams.prompt_of(8, f"{seed} {i}"), 4 * N_TOKENS, f"{n} {seed} {i}") for i in range(n)]
    run = streams.complete(port, bodies)
    begin_us = max(stream.sent_us + stream.first_us for stream in run.streams)
    end_us = min(stream.sent_us + stream.last_us for stream in run.streams)
    arrivals_us = [stream.sent_us + us for stream in run.streams for us in stream.arrivals_us]
    return sum(begin_us < us <= end_us for us in arrivals_us) / (end_us - begin_us) * 1e6


def _needs(facts: Facts) -> dict[str, tuple[float, tuple[str, ...]]]:
    """Returns, for each case, the 10^9 bytes or multiply-adds that one token needs, and the limits of them."""
    needs: dict[str, tuple[float, tuple[str, ...]]] = {}
    for n in DECODE:
        needs[f"one stream after {n}"] = (facts["weight_bytes"] + n * facts["position_bytes"]) / 1e9, _READ
    for n in PREFILL:  # a token has half of the prompt before it, on average
        needs[f"prefill of {n}"] = (facts["macs"] + n / 2 * facts["position_macs"]) / 1e9, _MULTIPLY
    for n in STREAMS:
        needs[f"{n} streams: memory"] = facts["weight_bytes"] / n / 1e9, _READ
        needs[f"{n} streams: products"] = (facts["macs"] + facts["output_macs"]) / 1e9, _MULTIPLY
    return needs


def _add(report: Report, case: str, side: str, values: list[float], limits: dict[str, float | None]) -> None:
    unit = LIMITS[next(iter(limits))][1]
    report.add(Figure(case=case, side=side, quantity="speed", unit=unit, values=values))
    for name, limit in limits.items():
        shares = [100 * value / limit for value in values] if limit else []
        report.add(Figure(case=case, side=side, quantity=f"of the limit of {LIMITS[name][0]}", unit="%", values=shares))


def _facts(path: str, n_threads: int) -> Facts:
    if not PROGRAM.exists():
        raise SystemExit(f"{PROGRAM} is missing: run ./build.sh bench")
    features = os.environ.get("LLMD_CPU_FEATURES") or "all"
    command = [str(PROGRAM), path, str(n_threads), features, "9"]
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return {name: float(value) for name, value in (line.split(",") for line in out.splitlines())}
