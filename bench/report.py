"""Figures: medians of repeats, as CSV on stdout for programs and as a table on stderr for people."""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from . import machine

_COLUMNS = ("bench", "case", "quantity", "unit", "median", "least", "most", "repeats", "target", "met")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    case: str
    quantity: str
    unit: str
    values: Sequence[float]
    at_least: float | None = None
    at_most: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def is_met(self) -> bool | None:
        """None: there is no target."""
        if self.at_least is not None:
            return self.median >= self.at_least
        return self.median <= self.at_most if self.at_most is not None else None

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return f"<= {self.at_most:g}" if self.at_most is not None else ""

    @property
    def met(self) -> str:
        return {None: "", True: "yes", False: "no"}[self.is_met]


class Report:
    """The figures of one measurement. Printed at the end, with what else the machine did meanwhile."""

    def __init__(self, bench: str, about: str) -> None:
        self._bench = bench
        self._figures: list[Figure] = []
        self._neighbours = machine.Neighbours()
        _say(f"\n{bench}: {about}\n  {machine.describe()}")

    def progress(self, text: str) -> None:
        _say(f"  ... {text}")

    def add(self, figure: Figure) -> None:
        if figure.values:
            self._figures.append(figure)

    def close(self) -> int:
        """Prints everything; the exit status is 0 even where a target is missed: whether that matters depends on what
        else the machine did, which is printed too."""
        _say(f"  {self._neighbours.report()}")
        width = max((len(figure.case) for figure in self._figures), default=0)
        names = max((len(figure.quantity) for figure in self._figures), default=0)
        for figure in self._figures:
            spread = (
                f"({_number(min(figure.values))} .. {_number(max(figure.values))})" if len(figure.values) > 1 else ""
            )
            verdict = f"  target {figure.target}: {figure.met}" if figure.met else ""
            value = f"{_number(figure.median):>9} {figure.unit}"
            _say(f"  {figure.case:<{width}}  {figure.quantity:<{names}}  {value} {spread}{verdict}")
        self._write_csv()
        return 0

    def _write_csv(self) -> None:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for figure in self._figures:
            numbers = [_number(value) for value in (figure.median, min(figure.values), max(figure.values))]
            row = (self._bench, figure.case, figure.quantity, figure.unit, *numbers, len(figure.values))
            writer.writerow((*row, figure.target, figure.met))
        sys.stdout.flush()


def _number(value: float) -> str:
    if value != 0 and abs(value) < 100:
        return f"{value:.3g}"
    return f"{value:.0f}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
