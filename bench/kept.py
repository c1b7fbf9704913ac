"""Reads and writes the figures that the repository keeps in bench/results, in one CSV file for each processor.

A file contains only the newest figures of each measurement and model. The history of the repository contains older
figures.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

Row = dict[str, str]

COLUMNS = ("measured", "bench", "model", "case", "side", "quantity", "unit", "median", "least", "most", "repeats")
RESULTS = Path(__file__).parent / "results"


def keep(path: Path, machine: str, measured: str, rows: Sequence[Mapping[str, str]]) -> None:
    """Writes the figures `rows` to the file, in place of the file's figures of the same measurement and model.

    `machine` describes the processor and becomes the first line of the file. `measured` is the day and the commit of
    the measurement.
    """
    # If the model is a path, only its file name is stored, because the path has no meaning on another machine.
    new = [{"measured": measured, **row, "model": row["model"].rpartition("/")[2]} for row in rows]
    replaced = {(row["bench"], row["model"]) for row in new}
    kept = [row for row in read(path) if (row["bench"], row["model"]) not in replaced] if path.exists() else []
    kept += new
    kept.sort(key=lambda row: (row["bench"], row["model"]))
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(kept)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# {machine}\n{text.getvalue()}")


def read(path: Path) -> list[Row]:
    return [*csv.DictReader(line for line in path.read_text().splitlines() if not line.startswith("#"))]
