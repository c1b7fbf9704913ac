"""Tokens per second alone, and next to other processes: one or two busy loops, or a compiler.

In each repeat, a run without other processes is followed by runs next to them. So each repeat gives their ratios.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from . import streams
from .daemon import Server
from .report import OURS, Figure, Report
from .sides import alternating, both
from .streams import body, prompt_of

MODELS = ("bench-dense", "bench-small")
BUSY_RATIO = 0.5
PROMPT_TOKENS, N_CTX = 64, 1024
ALONE = "alone"
SPINS = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
COMPILES = [
    "sh",
    "-c",
    "echo; while :; do printf '#include <regex>\\nstd::regex r(\"a\");\\n' | c++ -O2 -x c++ -c -o /dev/null - ; done",
]
NEIGHBOURS: dict[str, list[list[str]]] = {
    ALONE: [],
    "one busy process": [SPINS],
    "two busy processes": [SPINS, SPINS],
    "a compiler": [COMPILES],
}

Rates = dict[str, dict[str, list[float]]]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--streams", type=int, nargs="+", default=[], metavar="N", help="concurrent streams")
    parser.add_argument("--tokens", type=int, default=0, metavar="N", help="tokens of one stream")


def about(options: argparse.Namespace) -> str:
    return "tokens per second, alone and beside others"


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    counts = options.streams or ([1] if options.short else [1, 4])
    repeats = options.repeats or (2 if options.short else 5)
    n_tokens = options.tokens or (32 if options.short else 64)
    found: dict[int, Rates] = {n: {name: {} for name in NEIGHBOURS} for n in counts}
    with both(options, model, slots=max(counts), n_ctx=N_CTX) as servers:
        for turn in range(repeats):
            for n in counts:
                for name, commands in NEIGHBOURS.items():
                    report.progress(f"{turn + 1} of {repeats}: {n} streams, {name}")
                    for side, server in alternating(servers, turn):
                        with _running(commands):
                            rate = _tokens_per_s(server, n, n_tokens, f"{turn} {name}")
                        found[n][name].setdefault(side, []).append(rate)
    for n, rates in found.items():
        for name, by_side in rates.items():
            _add(report, f"{n} streams, {name}", by_side, rates[ALONE] if name != ALONE else {})


def _add(report: Report, case: str, rates: dict[str, list[float]], alone: dict[str, list[float]]) -> None:
    report.compare(case, "decode", "tokens/s", rates)
    for side, of_alone in alone.items():
        ratios = [beside / before for beside, before in zip(rates[side], of_alone, strict=True)]
        has_target = side == OURS and "one busy process" in case
        target = BUSY_RATIO if has_target else None
        report.add(Figure(case=case, side=side, quantity="of alone", unit="", values=ratios, at_least=target))


def _tokens_per_s(server: Server, n_streams: int, n_tokens: int, seed: str) -> float:
    names = [f"{seed} {number}" for number in range(n_streams)]
    bodies = [body(prompt_of(PROMPT_TOKENS, name), n_tokens, name) for name in names]
    return n_tokens * n_streams / streams.complete(server.port, bodies).streaming_s


@contextmanager
def _running(commands: list[list[str]]) -> Iterator[None]:
    with ExitStack() as stack:
        for command in commands:
            stack.enter_context(_neighbour(command))
        yield


@contextmanager
def _neighbour(command: list[str]) -> Iterator[None]:
    if shutil.which(command[0]) is None:
        raise SystemExit(f"{command[0]} is missing")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # also ends the processes that the compiler has started
        process.communicate()
