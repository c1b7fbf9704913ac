"""Judges the schema compiler by schemas with instances: ``./build.sh schemas FOLDER --vocabulary FILE.gguf``.

The folders contain files of MaskBench (guidance-ai/jsonschemabench) or of the JSON-Schema-Test-Suite. The report has a
table for each policy (strict answers, loose answers, arguments of tools). A table shows how many schemas are accepted,
how many of them are right for every instance, and the time to compile them and to make masks of a vocabulary. After the
tables, the report lists the worst schemas.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.schemas import corpus, tally
from tests.schemas.driver import Judge, program

REFUSALS_SHOWN = 12


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./build.sh schemas", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--sample", type=int, metavar="N", help="at most N files of each group, drawn by --seed (default: all)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--vocabulary", metavar="FILE", help="a GGUF file, of a vocabulary alone or of a model: times masks"
    )
    parser.add_argument(
        "--masks", type=int, default=500, metavar="N", help="files whose masks are timed (default: 500)"
    )
    parser.add_argument(
        "--oracle", metavar="PYTHON", help="an interpreter that has llguidance: judges the same schemas"
    )
    parser.add_argument(
        "--mutations", type=int, default=0, metavar="N", help="damaged schemas to compile for each file"
    )
    parser.add_argument(
        "--worst", type=int, default=20, metavar="N", help="how many of the worst are listed (default: 20)"
    )
    parser.add_argument("--records", type=Path, metavar="FILE", help="what was found of each schema, one JSON a line")
    return parser


def records(
    asked: argparse.Namespace, paths: list[Path], driver: Judge, oracle: Judge | None
) -> Iterator[tuple[Path, dict[str, object]]]:
    """Yields a record for each schema, with the oracle's result if there is one."""
    masked = set(random.Random(asked.seed).sample(paths, min(len(paths), asked.masks)))
    last = time.monotonic()
    for n, path in enumerate(paths):
        if time.monotonic() > last + 30:
            last = time.monotonic()
            print(f"{n} of {len(paths)} files", file=sys.stderr)
        opinions = list(oracle.judge(path)) if oracle else []
        for i, record in enumerate(driver.judge(path, path in masked)):
            yield path, record | (opinions[i] if i < len(opinions) and "llguidance" in opinions[i] else {})


def run(asked: argparse.Namespace, driver: Judge, oracle: Judge | None) -> tally.Results:
    results = tally.Results()
    paths = corpus.find(asked.folders, asked.sample, asked.seed)
    with tempfile.TemporaryDirectory() as scratch, open(asked.records or "/dev/null", "w") as out:
        for path, record in records(asked, paths, driver, oracle):
            results.add(corpus.group_name(path), record)
            out.write(json.dumps(record) + "\n")
        for path in paths if asked.mutations else []:
            for i, damaged in enumerate(corpus.mutated(path, asked.mutations, asked.seed)):
                file = Path(scratch) / f"{path.stem}-{i}.json"
                file.write_text(json.dumps(damaged))
                for record in driver.judge(file):
                    results.add("mutated", record)
                    out.write(json.dumps(record | {"schema": damaged["schema"]}) + "\n")
                file.unlink()
    return results


def report(results: tally.Results, n_worst: int) -> str:
    names = [name for name in results.names() if name != "mutated"]
    totals = {"in use": [name for name in names if not corpus.MADE_UP.match(name)], "all": names}
    parts = [tally.table(results, judge, totals) for judge in results.judges()]
    refusals = sorted(results.refusals.items(), key=lambda item: -item[1])[:REFUSALS_SHOWN]
    parts.append("\n".join(["### what strict refuses\n", *(f"- {n} x {what}" for what, n in refusals)]))
    for title, found in {
        "crashes and hangs": results.crashes,
        "wrong, or undecided": results.wrong,
        "disagreements with llguidance": results.disagreements,
        "slowest": results.slowest,
    }.items():
        parts.append(tally.notes(title, found, n_worst))
    return "\n\n".join(parts)


def main() -> int:
    asked = arguments().parse_args()
    driver = Judge([str(program()), *([asked.vocabulary] if asked.vocabulary else [])])
    oracle = Judge([asked.oracle, str(Path(__file__).with_name("oracle.py"))]) if asked.oracle else None
    results = run(asked, driver, oracle)
    for judge in (driver, oracle):
        if judge is not None:
            judge.close()
    print(report(results, asked.worst))
    return 1 if results.crashes else 0


if __name__ == "__main__":
    raise SystemExit(main())
