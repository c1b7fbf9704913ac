"""Reports figures. A figure is the median of repeated measurements of one side (llmd, llama-server, ...). Figures are
written as CSV to stdout for programs, and as a table to stderr for people.
"""

from __future__ import annotations

import csv
import io
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import kept, machine

COLUMNS = ("bench", "model", "case", "side", "quantity", "unit", "median", "least", "most", "repeats", "target", "met")
OURS = "llmd"
RATIO = "ratio"
"""The value of Figure.side if the figure is the ratio of two sides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    case: str
    quantity: str
    unit: str
    values: Sequence[float]
    side: str = OURS
    at_least: float | None = None
    at_most: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def is_met(self) -> bool | None:
        """True if the target is met. None if the figure has no target."""
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


def ratios_of(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Returns the ratio of the two sides in each turn if both have the same number of turns. Otherwise returns only the
    ratio of their medians.
    """
    if len(ours) == len(theirs):
        return [a / b for a, b in zip(ours, theirs, strict=True) if b]
    return [statistics.median(ours) / statistics.median(theirs)] if ours and theirs else []


class Report:
    """The figures of one measurement of one model. `close` prints them, together with the load that other processes
    caused during the measurement.
    """

    def __init__(self, bench: str, model: str, about: str) -> None:
        self._bench = bench
        self._model = model
        self._figures: list[Figure] = []
        self._neighbours = machine.Neighbours()
        _say(f"\n{bench}: {model}: {about}\n  {machine.describe()}")

    def progress(self, text: str) -> None:
        _say(f"  ... {text}")

    def add(self, figure: Figure) -> None:
        if figure.values:
            self._figures.append(figure)

    def compare(
        self,
        case: str,
        quantity: str,
        unit: str,
        values: Mapping[str, Sequence[float]],
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        against: str = "llama-server",
    ) -> None:
        """Adds a figure for each side, and a figure with the ratio of llmd to the side `against`. The target applies to
        the ratio.
        """
        for side, measured in values.items():
            self.add(Figure(case=case, side=side, quantity=quantity, unit=unit, values=measured))
        self.add_ratio(case, quantity, values, at_least=at_least, at_most=at_most, against=against)

    def add_ratio(
        self,
        case: str,
        quantity: str,
        values: Mapping[str, Sequence[float]],
        *,
        against: str,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> None:
        found = ratios_of(values.get(OURS, []), values.get(against, []))
        self.add(
            Figure(
                case=case,
                side=RATIO,
                quantity=f"{quantity} / {against}'s",
                unit="",
                values=found,
                at_least=at_least,
                at_most=at_most,
            )
        )

    def close(self, keep: Path | None = None) -> None:
        """Prints all figures. If `keep` is set, also writes them to this file, which contains the figures of one
        processor.

        A missed target is only printed. It is not an error, because other processes may have caused it. The load of
        these processes is printed, too.
        """
        _say(f"  {self._neighbours.report()}")
        cases = max((len(figure.case) for figure in self._figures), default=0)
        sides = max((len(figure.side) for figure in self._figures), default=0)
        names = max((len(figure.quantity) for figure in self._figures), default=0)
        for figure in self._figures:
            least, most = number(min(figure.values)), number(max(figure.values))
            spread = f"({least} .. {most})" if len(figure.values) > 1 else ""
            verdict = f"  target {figure.target}: {figure.met}" if figure.met else ""
            value = f"{number(figure.median):>9} {figure.unit}"
            _say(
                f"  {figure.case:<{cases}}  {figure.side:<{sides}}  {figure.quantity:<{names}}  "
                f"{value} {spread}{verdict}"
            )
        text = self.as_csv()
        print(text, end="", flush=True)
        if keep is not None:
            kept.keep(keep, machine.describe(), machine.today(), [*csv.DictReader(io.StringIO(text))])

    def as_csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for figure in self._figures:
            numbers = [number(value) for value in (figure.median, min(figure.values), max(figure.values))]
            row = (self._bench, self._model, figure.case, figure.side, figure.quantity, figure.unit, *numbers)
            writer.writerow((*row, len(figure.values), figure.target, figure.met))
        return text.getvalue()


def number(value: float) -> str:
    if value != 0 and abs(value) < 100:
        return f"{value:.3g}"
    return f"{value:.0f}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
