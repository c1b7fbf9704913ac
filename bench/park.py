"""Moving a session's state out of the model's memory and back (bench/park.c), compared with copying as many bytes."""

from __future__ import annotations

import argparse
import subprocess

from . import machine, models
from .report import Figure, Report

# Target: restoring a state takes at most twice the time of copying its bytes. A state of less than a few megabytes has
# no target, because the calls of llama.cpp then take most of the time, some hundred microseconds.
MODELS = ("bench-small", "tiny-window", "tiny-recurrent", "tiny-hybrid-q8")
RATIO = 0.5
TARGET_BYTES_MIN = 4_000_000
PROGRAM = machine.PROGRAMS / "park"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tokens", type=int, default=2000, metavar="N", help="tokens of the session (%(default)s)")


def about(options: argparse.Namespace) -> str:
    return f"states of {options.tokens} tokens, to host memory and back"


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    rows = _measure(models.path_of(model), options.tokens, options.repeats or (3 if options.short else 15))
    _add(report, f"{options.tokens} tokens", rows)


def _measure(path: str, n_tokens: int, repeats: int) -> list[list[int]]:
    """Returns one row for each repeat. A row has the bytes of the state, and the microseconds to copy them, to save the
    state and to restore it. A first repeat only warms up, and is not returned.
    """
    if not PROGRAM.exists():
        raise SystemExit(f"{PROGRAM} is missing: run ./build.sh bench")
    command = [str(PROGRAM), path, str(n_tokens), str(repeats + 1)]
    out = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout
    return [[max(int(field), 1) for field in line.split(",")] for line in out.splitlines()][1:]


def _add(report: Report, case: str, rows: list[list[int]]) -> None:
    report.add(Figure(case=case, quantity="state", unit="MB", values=[rows[0][0] / 1e6]))
    for column, quantity in ((1, "memcpy"), (2, "save"), (3, "restore")):
        speeds = [row[0] / row[column] / 1e3 for row in rows]
        report.add(Figure(case=case, quantity=quantity, unit="GB/s", values=speeds))
    report.add(Figure(case=case, quantity="restore", unit="ms", values=[row[3] / 1e3 for row in rows]))
    target = RATIO if rows[0][0] >= TARGET_BYTES_MIN else None
    ratios = [row[1] / row[3] for row in rows]
    report.add(Figure(case=case, quantity="restore / memcpy", unit="", values=ratios, at_least=target))
