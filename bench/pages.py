"""docs/benchmarks.md between its markers, and the pictures, from the figures that were kept in bench/results."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from . import pictures
from .report import RATIO

Row = dict[str, str]

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"


@dataclass(frozen=True, slots=True)
class Kept:
    """One measurement of one model, as it was kept."""

    name: str
    notes: list[str]
    """The machine, what else it did, the day, the command."""
    rows: list[Row]


def read(path: Path) -> Kept:
    lines = path.read_text().splitlines()
    notes = [line.removeprefix("# ") for line in lines if line.startswith("# ")]
    return Kept(path.stem, notes, [*csv.DictReader(line for line in lines if not line.startswith("# "))])


def write(results: Path) -> None:
    kept = [read(path) for path in sorted(results.glob("*.csv"))]
    for one in kept:
        pictures.draw(one.rows, one.name, results / f"{one.name}.png")
    sections = [overview(kept), *(section(one) for one in kept)]
    PAGE.write_text(with_figures(PAGE.read_text(), "\n".join(sections)))


def with_figures(page: str, text: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def title(kept: Kept) -> str:
    """ "single, bench-dense, deep": what, of which model, and the label."""
    bench, model = kept.rows[0]["bench"], Path(kept.rows[0]["model"]).name
    label = kept.name.removeprefix(f"{bench}-{model.split(',')[0].removesuffix('.gguf').replace(':', '-')}").strip("-")
    return ", ".join(filter(None, (bench, model, label)))


def anchor(heading: str) -> str:
    """Of a heading's link."""
    return "".join(letter for letter in heading.lower().replace(" ", "-") if letter.isalnum() or letter in "-_")


def overview(kept: list[Kept]) -> str:
    lines = ["### All tables", "", _line(["table", "targets met", "measured"]), _line(["---"] * 3)]
    for one in kept:
        verdicts = [row["met"] for row in one.rows if row["met"]]
        met = f"{verdicts.count('yes')} of {len(verdicts)}" if verdicts else ""
        machine, _, day, _ = one.notes
        lines.append(_line([f"[{title(one)}](#{anchor(title(one))})", met, f"{day}, {machine}"]))
    return "\n".join([*lines, ""])


def section(kept: Kept) -> str:
    machine, others, day, command = kept.notes
    missed = [row for row in kept.rows if row["met"] == "no"]
    lines = [
        f"### {title(kept)}",
        "",
        f"`{command}`, {day}, {machine}; {others}.",
        "",
        *table(kept.rows),
        "",
        f"![{kept.name}](../bench/results/{kept.name}.png)",
        "",
    ]
    if missed:
        lines += [
            "Missed: " + "; ".join(f"{row['case']}, {row['quantity']}: {row['median']}" for row in missed) + ".",
            "",
        ]
    return "\n".join(lines)


def table(rows: list[Row]) -> list[str]:
    """A line per case and quantity, a column per side, and the ratio that has a target."""
    sides = [*dict.fromkeys(row["side"] for row in rows if row["side"] != RATIO)]
    cells: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows:
        if row["side"] == RATIO:
            continue
        key = (row["case"], row["quantity"], row["unit"])
        cells.setdefault(key, {})[row["side"]] = _spread(row)
    lines = [_line(["case", "", *sides]), _line(["---"] * (2 + len(sides)))]
    for (case, quantity, unit), by_side in cells.items():
        lines.append(_line([case, f"{quantity}, {unit}".rstrip(", "), *(by_side.get(side, "") for side in sides)]))
    ratios = [row for row in rows if row["target"] or row["side"] == RATIO]
    lines += ["", _line(["case", "ratio", "median", "target", "met"]), _line(["---"] * 5)]
    lines += [_line([row["case"], row["quantity"], _spread(row), row["target"], row["met"]]) for row in ratios]
    return lines


def _spread(row: Row) -> str:
    return row["median"] if row["repeats"] == "1" else f"{row['median']} ({row['least']}–{row['most']})"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
