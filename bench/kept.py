"""The figures in the repository: one CSV file per processor in bench/results.

A file has only the newest figures of each measurement and model. Older figures are in the history of the repository.
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
    """Writes `rows` to the file. They replace the file's rows of the same measurement and model.

    `machine` is a description of the processor, which becomes the file's first line. `measured` is the day and the
    commit.
    """
    # If a model was given as a path, only its file name is stored, because the path has no meaning on another machine.
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
