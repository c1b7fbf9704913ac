"""What another busy process costs: tokens per second of a real model, alone and beside a process that only spins.

The two are measured in turn, in the same run; "alone" means beside whatever else the machine does, which is printed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from . import models, streams
from .daemon import Server, daemon
from .overhead import prompt_of
from .report import Figure, Report

BUSY_RATIO = 0.5
PROMPT_TOKENS = 64


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    report = Report("busy", f"{options.model}, {options.tokens} tokens per stream, alone and beside a busy process")
    alone: dict[int, list[float]] = {n: [] for n in options.streams}
    beside: dict[int, list[float]] = {n: [] for n in options.streams}
    path = models.path_of(options.model)
    with daemon(path, max_sessions=max(options.streams), ctx_size=2048, threads=options.threads) as server:
        _tokens_per_s(server, 1, options.tokens)
        for repeat in range(options.repeats):
            for n_streams in options.streams:
                for rates, neighbour in ((alone, nullcontext()), (beside, _spinning())):
                    with neighbour:
                        rates[n_streams].append(_tokens_per_s(server, n_streams, options.tokens))
                report.progress(f"{repeat + 1}: {n_streams} streams")
    for n_streams in options.streams:
        case = f"{n_streams} streams"
        report.add(Figure(case=case, quantity="alone", unit="tokens/s", values=alone[n_streams]))
        report.add(Figure(case=case, quantity="beside a busy process", unit="tokens/s", values=beside[n_streams]))
        ratios = [b / a for a, b in zip(alone[n_streams], beside[n_streams], strict=True)]
        report.add(Figure(case=case, quantity="ratio", unit="", values=ratios, at_least=BUSY_RATIO))
    return report.close()


def _tokens_per_s(server: Server, n_streams: int, n_tokens: int) -> float:
    bodies = [
        {
            "prompt": prompt_of(PROMPT_TOKENS, number),
            "max_tokens": n_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "session_id": f"stream-{number}",
        }
        for number in range(n_streams)
    ]
    return n_tokens * n_streams / streams.complete(server.port, bodies).streaming_s


@contextmanager
def _spinning() -> Iterator[None]:
    spinner = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    try:
        assert spinner.stdout is not None
        spinner.stdout.readline()
        yield
    finally:
        spinner.kill()
        spinner.communicate()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench busy", description=__doc__)
    parser.add_argument("--model", default="bench-small", help=models.HELP)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8], metavar="N", help="concurrent streams")
    parser.add_argument("--tokens", type=int, default=250, metavar="N", help="tokens of one stream (%(default)s)")
    parser.add_argument(
        "--threads", type=int, default=0, metavar="N", help="threads of the model; 0: the daemon's choice"
    )
    parser.add_argument("--repeats", type=int, default=7, metavar="N", help="(%(default)s)")
    return parser
