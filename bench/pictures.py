"""The figures of one measurement as a picture: a panel per quantity, a group of bars per case, a bar per side.

matplotlib is loaded only here and only when something is drawn; it is pinned in requirements/bench.txt.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from .report import RATIO

Row = dict[str, str]

COLOURS = ("#1f6feb", "#d29922", "#8b949e", "#a371f7", "#3fb950")
PANEL_INCHES = (7.0, 2.6)
CASES_FLAT = 8
"""With more of them in a panel their names would overlap: they are steep, and take more height."""
NAMES_INCHES = 1.2


def panels(rows: list[Row]) -> dict[str, dict[str, dict[str, Row]]]:
    """By "quantity, unit", then side, then case. What only one side has is no comparison, unless nothing is."""
    found: dict[str, dict[str, dict[str, Row]]] = {}
    for row in rows:
        if row["side"] != RATIO:
            name = f"{row['quantity']}, {row['unit']}".rstrip(", ")
            found.setdefault(name, {}).setdefault(row["side"], {})[row["case"]] = row
    compared = {name: sides for name, sides in found.items() if len(sides) > 1}
    return compared or found


def draw(rows: list[Row], title: str, path: Path) -> None:
    pyplot = _pyplot()
    drawn = panels(rows)
    width, height = PANEL_INCHES
    if any(len(by_case) > CASES_FLAT for sides in drawn.values() for by_case in sides.values()):
        height += NAMES_INCHES
    figure, axes = pyplot.subplots(len(drawn), 1, figsize=(width, height * len(drawn)), squeeze=False)
    for axis, (name, sides) in zip(axes[:, 0], drawn.items(), strict=True):
        _panel(axis, name, sides)
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def _panel(axis: Any, name: str, sides: dict[str, dict[str, Row]]) -> None:
    cases = [*dict.fromkeys(case for by_case in sides.values() for case in by_case)]
    width = 0.8 / len(sides)
    for number, (side, by_case) in enumerate(sides.items()):
        shown = [(cases.index(case), row) for case, row in by_case.items()]
        at = [position + (number - (len(sides) - 1) / 2) * width for position, _ in shown]
        medians = [float(row["median"]) for _, row in shown]
        errors = [
            [max(float(row["median"]) - float(row["least"]), 0.0) for _, row in shown],
            [max(float(row["most"]) - float(row["median"]), 0.0) for _, row in shown],
        ]
        colour = COLOURS[number % len(COLOURS)]
        axis.bar(at, medians, width, yerr=errors, label=side, color=colour, error_kw={"elinewidth": 0.8})
    if len(cases) > CASES_FLAT:
        axis.set_xticks(range(len(cases)), cases, fontsize=7, rotation=40, ha="right", rotation_mode="anchor")
    else:
        axis.set_xticks(range(len(cases)), cases, fontsize=7, rotation=12 if len(cases) > 3 else 0)
    axis.set_title(name, fontsize=9, loc="left")
    axis.legend(fontsize=7)
    axis.spines[["top", "right"]].set_visible(False)


def _pyplot() -> Any:
    try:
        matplotlib = importlib.import_module("matplotlib")
    except ImportError as error:
        raise SystemExit("no matplotlib: ./build.sh bench keep installs it from requirements/bench.txt") from error
    matplotlib.use("Agg")
    return importlib.import_module("matplotlib.pyplot")
