"""Adds up the results of the judges and formats them as tables. Has no side effects."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

JUDGES = ("strict", "loose", "tools", "llguidance")


@dataclass
class Tally:
    """One judge's results for one group of schemas."""

    n_schemas: int = 0
    n_accepted: int = 0
    n_judged: int = 0
    """Accepted schemas that have instances."""
    n_right: int = 0
    """Schemas of which every instance is decided as the corpus says. A schema with an undecided instance is not right.
    """
    n_forbidding: int = 0
    n_letting_pass: int = 0
    n_instances: int = 0
    n_undecided: int = 0
    compile_ms: list[float] = field(default_factory=list)
    mask_ms: list[float] = field(default_factory=list)

    def add(self, result: Json) -> None:
        self.n_schemas += 1
        self.compile_ms.append(result["compile_us"] / 1000)
        self.mask_ms += [us / 1000 for us in result.get("masks_us", [])]
        if "refused" in result:
            return
        self.n_accepted += 1
        tests = result["tests"]
        self.n_judged += bool(tests)
        self.n_instances += len(tests)
        self.n_undecided += sum(taken is None for _, taken in tests)
        self.n_right += bool(tests) and all(taken == valid for valid, taken in tests)
        self.n_forbidding += [True, False] in tests
        self.n_letting_pass += [False, True] in tests

    def merge(self, other: Tally) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(frozen=True)
class Note:
    """One schema that a person should look at."""

    file: str
    group: int
    judge: str
    what: str
    rank: float = 0


class Results:
    """All records of a run."""

    def __init__(self) -> None:
        self.tallies: defaultdict[tuple[str, str], Tally] = defaultdict(Tally)
        self.slowest: list[Note] = []
        self.wrong: list[Note] = []
        self.crashes: list[Note] = []
        self.disagreements: list[Note] = []
        self.refusals: defaultdict[str, int] = defaultdict(int)

    def add(self, name: str, record: Json) -> None:
        """Adds `record`, the results of the driver, the oracle or both (merged) for one schema of the group `name`."""
        place = record["file"], record["group"]
        if "crashed" in record:
            self.crashes.append(Note(*place, "process", record["crashed"]))
        for judge in JUDGES:
            if judge in record:
                self.tallies[judge, name].add(record[judge])
                self._note(place, judge, record[judge])
        self._compare(place, record)

    def total(self, judge: str, names: Iterable[str]) -> Tally:
        total = Tally()
        for name in names:
            total.merge(self.tallies[judge, name])
        return total

    def names(self) -> list[str]:
        return sorted({name for _, name in self.tallies})

    def judges(self) -> list[str]:
        return [judge for judge in JUDGES if any(key[0] == judge for key in self.tallies)]

    def _note(self, place: tuple[str, int], judge: str, result: Json) -> None:
        if judge == "llguidance":
            return
        compile_ms, mask_ms = result["compile_us"] / 1000, max(result.get("masks_us", []), default=0) / 1000
        self.slowest.append(Note(*place, judge, f"{compile_ms:.1f} ms to compile", compile_ms))
        self.slowest.append(Note(*place, judge, f"{mask_ms:.1f} ms for a mask", mask_ms))
        if "refused" in result:
            if judge == "strict":
                self.refusals[_keyword(result["refused"])] += 1
            else:
                self.wrong.append(Note(*place, judge, f"refused: {result['refused']}", 3))
            return
        kinds = {(True, False): "forbids valid", (False, True): "lets invalid pass", None: "undecided"}
        for i, (valid, taken) in enumerate(result["tests"]):
            kind = kinds.get(None if taken is None else (valid, taken))
            if kind is not None and (judge == "strict" or kind != "lets invalid pass"):
                rank = {"forbids valid": 2, "lets invalid pass": 1, "undecided": 0}[kind]
                self.wrong.append(Note(*place, judge, f"{kind}: instance {i}", rank))

    def _compare(self, place: tuple[str, int], record: Json) -> None:
        ours, oracle = record.get("strict", {}), record.get("llguidance", {})
        for i, (one, other) in enumerate(zip(ours.get("tests", []), oracle.get("tests", []), strict=False)):
            if one[1] is not None and one[1] != other[1]:
                wrong = "strict is wrong" if one[1] != one[0] else "llguidance is wrong"
                self.disagreements.append(Note(*place, "strict", f"instance {i}: {wrong}"))


def _keyword(refusal: str) -> str:
    """Returns the message of a refusal without the place in the schema at its start."""
    return refusal.split(": ", 1)[-1][:100] if refusal.startswith("schema") else refusal[:100]


def percentile(values: list[float], share: float) -> float:
    """Returns the smallest value that at least this share of all values does not exceed, or NaN for no values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


HEAD = (
    "| group | schemas | accepted | right | valid forbidden | invalid let pass | undecided instances |"
    " compile ms p50 / p99 / max | mask ms p99 / max |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def _share(n: int, of: int) -> str:
    return f"{100 * n / of:.1f} %" if of else "-"


def row(name: str, one: Tally) -> str:
    """Returns one row of a table. `accepted` is a share of all schemas. The next three are shares of the accepted
    schemas that have instances.
    """
    compiled = " / ".join(f"{percentile(one.compile_ms, p):.2f}" for p in (0.5, 0.99, 1))
    masks = " / ".join(f"{percentile(one.mask_ms, p):.2f}" for p in (0.99, 1)) if one.mask_ms else "-"
    cells = [
        name,
        str(one.n_schemas),
        _share(one.n_accepted, one.n_schemas),
        *(_share(n, one.n_judged) for n in (one.n_right, one.n_forbidding, one.n_letting_pass)),
        f"{one.n_undecided} of {one.n_instances}",
        compiled,
        masks,
    ]
    return f"| {' | '.join(cells)} |"


def table(results: Results, judge: str, totals: dict[str, list[str]]) -> str:
    """Returns a table with one row for each group, then one for each of `totals`."""
    rows = [row(name, results.tallies[judge, name]) for name in results.names() if (judge, name) in results.tallies]
    rows += [row(f"**{title}**", results.total(judge, names)) for title, names in totals.items() if names]
    return "\n".join([f"### {judge}\n", HEAD, *rows])


def notes(title: str, all_notes: list[Note], n_max: int) -> str:
    """The worst first."""
    if not all_notes:
        return f"### {title}: none"
    worst = sorted(all_notes, key=lambda note: (-note.rank, note.file, note.group, note.judge))[:n_max]
    lines = [f"- {note.file}, schema {note.group}, {note.judge}: {note.what}" for note in worst]
    return "\n".join([f"### {title}: {len(all_notes)}\n", *lines])
