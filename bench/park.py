"""A session's state out of the model's memory and back, against copying as many bytes (bench/park.c)."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from . import models
from .report import Figure, Report

# A restore may cost twice what the memory bandwidth makes it cost. Below a few megabytes it is not bandwidth that
# counts but the calls, some hundred microseconds: there is no target.
RATIO = 0.5
TARGET_BYTES_MIN = 4_000_000
PROGRAM = Path(__file__).parents[1] / "build" / "native" / "bench" / "park"


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    report = Report("park", f"states of {options.tokens} tokens, to host memory and back")
    for model in options.model:
        report.progress(model)
        _add(report, model, _measure(models.path_of(model), options.tokens, options.repeats))
    return report.close()


def _measure(path: str, n_tokens: int, repeats: int) -> list[list[int]]:
    """Rows of bytes, memcpy_us, save_us, load_us; the first one warms up."""
    if not PROGRAM.exists():
        raise SystemExit(f"{PROGRAM} is missing: run ./build.sh bench")
    command = [str(PROGRAM), path, str(n_tokens), str(repeats + 1)]
    out = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout
    return [[max(int(field), 1) for field in line.split(",")] for line in out.splitlines()][1:]


def _add(report: Report, model: str, rows: list[list[int]]) -> None:
    report.add(Figure(case=model, quantity="state", unit="MB", values=[rows[0][0] / 1e6]))
    for column, quantity in ((1, "memcpy"), (2, "save"), (3, "restore")):
        speeds = [row[0] / row[column] / 1e3 for row in rows]
        report.add(Figure(case=model, quantity=quantity, unit="GB/s", values=speeds))
    report.add(Figure(case=model, quantity="restore", unit="ms", values=[row[3] / 1e3 for row in rows]))
    target = RATIO if rows[0][0] >= TARGET_BYTES_MIN else None
    ratios = [row[1] / row[3] for row in rows]
    report.add(Figure(case=model, quantity="restore / memcpy", unit="", values=ratios, at_least=target))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench park", description=__doc__)
    defaults = ["bench-small", "tiny-window", "tiny-recurrent", "tiny-hybrid-q8"]
    parser.add_argument("--model", nargs="+", default=defaults, metavar="MODEL", help=models.HELP)
    parser.add_argument("--tokens", type=int, default=2000, metavar="N", help="tokens of the session (%(default)s)")
    parser.add_argument("--repeats", type=int, default=15, metavar="N", help="(%(default)s)")
    return parser
