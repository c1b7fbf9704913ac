"""Products of quantized weights with 1 to 512 rows, by one thread, compared with llama.cpp's kernels."""

from __future__ import annotations

import argparse
import subprocess

from . import machine
from .report import OURS, Figure, Report

MODELS = ("2048x4096",)
PROGRAM = machine.PROGRAMS / "weights"
THEIRS = "llama.cpp"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--types", nargs="+", default=[], metavar="TYPE", help="types of weights (default: all)")


def about(options: argparse.Namespace) -> str:
    return "one thread; MODEL is the size of a matrix, INPUTSxOUTPUTS. Ratio: llmd's speed divided by llama.cpp's"


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    if not PROGRAM.exists():
        raise SystemExit(f"{PROGRAM} is missing: run ./build.sh bench")
    command = [str(PROGRAM), *model.split("x"), "3" if options.short else "9", *options.types]
    speeds: dict[tuple[str, int], dict[str, list[float]]] = {}
    for repeat in range(options.repeats or (3 if options.short else 9)):
        report.progress(f"{repeat + 1}")
        out = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
        for line in out.splitlines():
            kind, rows, layout, gb_s, gmac_s = line.split(",")
            n_rows = int(rows)
            speed = float(gb_s if n_rows <= 1 else gmac_s)  # one row takes as long as reading the weights
            speeds.setdefault((kind, n_rows), {}).setdefault(layout, []).append(speed)
    for (kind, n_rows), layouts in speeds.items():
        _add(report, kind, n_rows, layouts)


def _add(report: Report, kind: str, n_rows: int, layouts: dict[str, list[float]]) -> None:
    if n_rows == 0:
        report.add(Figure(case=kind, quantity="read by one thread", unit="GB/s", values=layouts["read"]))
        return
    # llama.cpp uses its own layout if it has one.
    sides = {OURS: layouts.get("llmd", []), THEIRS: layouts.get("repack") or layouts["file"]}
    unit = "GB/s" if n_rows == 1 else "GMAC/s"
    report.compare(f"{kind}, rows {n_rows}", "speed", unit, sides, against=THEIRS)
