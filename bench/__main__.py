"""Runs measurements: python -m bench [NAME [options]]. Without NAME, runs every measurement with its default
options.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from typing import Protocol, cast

from . import kept, models, peer
from .report import Report

NAMES = (
    "single",
    "many",
    "arrival",
    "cancel",
    "sessions",
    "serving",
    "footprint",
    "busy",
    "day",
    "residents",
    "agent",
    "park",
    "restart",
    "heads",
    "drafts",
    "edit",
    "picking",
    "weights",
    "limits",
    "forms",
    "growth",
    "abuse",
    "feeds",
    "turns",
)


class Scenario(Protocol):
    """The interface of a module that has one measurement. The first line of the module's docstring describes the
    measurement in --help.
    """

    __doc__: str
    MODELS: tuple[str, ...]
    """The models to measure if --model is not set."""
    add_options: Callable[[argparse.ArgumentParser], None]
    about: Callable[[argparse.Namespace], str]
    measure: Callable[[Report, str, argparse.Namespace], None]


def scenario(name: str) -> Scenario:
    return cast(Scenario, importlib.import_module(f"bench.{name}"))


def main(arguments: list[str]) -> int:
    if arguments[:1] in (["-h"], ["--help"]):
        print(usage(), end="")
        return 0
    if arguments and arguments[0] not in NAMES:
        print(f"there is no measurement {arguments[0]}; the measurements are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    if peer.directory() is None:
        print(peer.advice(), file=sys.stderr)
    chosen, given = (arguments[:1], arguments[1:]) if arguments else (list(NAMES), [])
    for name in chosen:
        run(name, given)
    return 0


def usage() -> str:
    rows = "".join(f"  {name:<10} {scenario(name).__doc__.splitlines()[0]}\n" for name in NAMES)
    return (
        f"usage: ./build.sh bench [NAME [options]]\n\n{rows}\n"
        "Without NAME, all measurements run, which takes hours. With --short, one measurement takes some minutes at\n"
        "most. ./build.sh bench NAME --help shows the options of a measurement. The figures are written as CSV to\n"
        "stdout, and as a table for people to stderr. --keep PROCESSOR also writes them to\n"
        "bench/results/PROCESSOR.csv. If ./build.sh peer has built llama-server, it is measured, too.\n"
    )


def run(name: str, given: list[str]) -> None:
    module = scenario(name)
    options = parser(name, module).parse_args(given)
    for model in options.model:
        report = Report(name, model, module.about(options))
        module.measure(report, model, options)
        report.close(options.keep and kept.RESULTS / f"{options.keep}.csv")


def parser(name: str, module: Scenario) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog=f"bench {name}", description=module.__doc__)
    made.add_argument("--model", nargs="+", default=[*module.MODELS], metavar="MODEL", help=models.HELP)
    made.add_argument(
        "--repeats", type=int, default=0, metavar="N", help="how often to measure; 0: the default of the measurement"
    )
    made.add_argument("--short", action="store_true", help="measure less, so that it takes some minutes at most")
    made.add_argument(
        "--also", action="append", default=[], metavar="OPTIONS", help="also measure a llama-server with these options"
    )
    made.add_argument(
        "--keep",
        metavar="PROCESSOR",
        help="also write the figures to bench/results/PROCESSOR.csv, in place of older figures of the same model",
    )
    module.add_options(made)
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
