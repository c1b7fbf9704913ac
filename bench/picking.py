"""Time to pick one of 151,936 tokens: for each kind of structured output, and for each sampler in free text."""

from __future__ import annotations

import argparse
import subprocess

from . import machine
from .report import Figure, Report

MODELS = ("made",)
PROGRAM = machine.PROGRAMS / "picking"
FORM_US_MAX = 2000
QUANTITIES = ("median", "99 % within", "longest")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tokens", type=int, default=1000, metavar="N", help="number of tokens to pick in each case (%(default)s)"
    )


def about(options: argparse.Namespace) -> str:
    return f"processor time of {options.tokens} picks; MODEL is 'made' (a generated vocabulary), or a file of tokens"


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    if not PROGRAM.exists():
        raise SystemExit(f"{PROGRAM} is missing: run ./build.sh bench")
    rows: dict[tuple[str, str, str], list[list[float]]] = {}
    for repeat in range(options.repeats or (1 if options.short else 3)):
        report.progress(f"{repeat + 1}")
        command = [str(PROGRAM), model, str(options.tokens)]
        out = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
        for line in out.splitlines():
            what, case, way, *figures = line.split(",")
            rows.setdefault((what, case, way), []).append([float(figure) for figure in figures])
    for (what, case, way), repeats in rows.items():
        for column, quantity in enumerate(QUANTITIES):
            most = FORM_US_MAX if what == "form" and quantity == "99 % within" else None
            values = [figures[column] for figures in repeats]
            report.add(Figure(case=f"{what}: {case}, {way}", quantity=quantity, unit="us", values=values, at_most=most))
