"""The counts that `./build.sh schemas` reports, on small corpora."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.schemas import corpus, tally
from tests.schemas.__main__ import report
from tests.schemas.driver import Judge, program

NAME = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}
UNIQUE = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
OPEN = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "integer"}}}


def write_corpora(folder: Path) -> None:
    """Writes a file in MaskBench's format, a file in the format of the JSON Schema test suite, and files that must be
    ignored.
    """
    bench, suite = folder / "data", folder / "tests/draft7"
    (suite / "optional").mkdir(parents=True)
    bench.mkdir()
    valid, invalid = {"name": "x"}, {"name": 1}
    one = {"schema": NAME, "tests": [{"valid": True, "data": valid}, {"valid": False, "data": invalid}]}
    (bench / "Web---one.json").write_text(json.dumps({"meta": {}, **one}))
    group = {"description": "unique", "schema": UNIQUE, "tests": [{"valid": False, "data": [1, 1]}]}
    other = {"schema": OPEN, "tests": [{"valid": True, "data": {"z": [None], "a": 1, "y": {}, "b": 2}}]}
    (suite / "two.json").write_text(json.dumps([group, other]))
    (suite / "format.json").write_text(json.dumps([group]))
    (suite / "optional/three.json").write_text(json.dumps([group]))
    (bench / "notes.json").write_text("{")


def test_files_are_found_in_both_formats(tmp_path: Path) -> None:
    write_corpora(tmp_path)
    paths = corpus.find([tmp_path], None, 1)
    assert [path.name for path in paths] == ["Web---one.json", "two.json"]
    assert [corpus.group_name(path) for path in paths] == ["Web", "draft7"]
    assert [len(corpus.groups_in(path)) for path in paths] == [1, 2]
    assert corpus.group_name(Path("data/BFCL_java_0.json")) == "BFCL"


def test_samples_and_mutations_repeat(tmp_path: Path) -> None:
    for i in range(9):
        (tmp_path / f"Web---{i}.json").write_text(json.dumps({"schema": OPEN, "tests": []}))
    assert corpus.find([tmp_path], 3, 1) == corpus.find([tmp_path], 3, 1) != corpus.find([tmp_path], 3, 2)
    path = tmp_path / "Web---0.json"
    damaged = list(corpus.mutated(path, 20, 1))
    assert damaged == list(corpus.mutated(path, 20, 1)) != list(corpus.mutated(path, 20, 2))
    assert any(one["schema"] != OPEN for one in damaged)


def test_damage_of_one_schema_leaves_the_next_alone(tmp_path: Path) -> None:
    path = tmp_path / "Web---0.json"
    path.write_text(json.dumps({"schema": OPEN, "tests": []}))
    first = [json.dumps(one) for one in corpus.mutated(path, 1000, 1)]
    assert first == [json.dumps(one) for one in corpus.mutated(path, 1000, 1)]


def test_results_add_up() -> None:
    results = tally.Results()
    right = {"compile_us": 1000, "masks_us": [500.0, 2000.0], "tests": [[True, True], [False, False]]}
    forbids = {"compile_us": 3000, "tests": [[True, False], [True, True]]}
    lets = {"compile_us": 2000, "tests": [[False, True], [True, None]]}
    refused = {"compile_us": 4000, "refused": "schema/a: the keyword uniqueItems cannot be enforced"}
    empty = {"compile_us": 5000, "tests": []}
    for i, result in enumerate([right, forbids, lets, refused, empty]):
        results.add("Web", {"file": "f", "group": i, "strict": result})
    results.add("Web", {"file": "f", "group": 5, "crashed": "status -11"})
    one = results.tallies["strict", "Web"]
    assert (one.n_schemas, one.n_accepted, one.n_judged, one.n_right) == (5, 4, 3, 1)
    assert (one.n_forbidding, one.n_letting_pass, one.n_undecided, one.n_instances) == (1, 1, 1, 6)
    row = "| Web | 5 | 80.0 % | 33.3 % | 33.3 % | 33.3 % | 1 of 6 | 3.00 / 5.00 / 5.00 | 2.00 / 2.00 |"
    assert tally.row("Web", one) == row
    assert [note.what for note in results.crashes] == ["status -11"]
    assert results.refusals == {"the keyword uniqueItems cannot be enforced": 1}
    assert [note.what for note in sorted(results.wrong, key=lambda note: -note.rank)] == [
        "forbids valid: instance 0",
        "lets invalid pass: instance 0",
        "undecided: instance 1",
    ]


def test_a_loose_answer_may_let_invalid_instances_pass() -> None:
    results = tally.Results()
    results.add("Web", {"file": "f", "group": 0, "loose": {"compile_us": 1, "tests": [[False, True]]}})
    results.add("Web", {"file": "g", "group": 0, "tools": {"compile_us": 1, "refused": "why"}})
    assert [note.what for note in results.wrong] == ["refused: why"]


def test_disagreements_name_who_is_wrong() -> None:
    results = tally.Results()
    strict = {"compile_us": 1, "tests": [[True, True], [True, False], [True, True], [False, None]]}
    oracle = {"compile_us": 1, "tests": [[True, True], [True, True], [True, False], [False, False]]}
    results.add("Web", {"file": "f", "group": 0, "strict": strict, "llguidance": oracle})
    assert [note.what for note in results.disagreements] == [
        "instance 1: strict is wrong",
        "instance 2: llguidance is wrong",
    ]


@pytest.mark.parametrize(("share", "expected"), [(0.5, 2.0), (0.99, 4.0), (1, 4.0), (0.25, 1.0)])
def test_percentiles_are_values_of_the_list(share: float, expected: float) -> None:
    assert tally.percentile([4.0, 1.0, 3.0, 2.0], share) == expected


def test_a_crash_is_told_and_the_next_file_is_judged(tmp_path: Path) -> None:
    fake = tmp_path / "fake.py"
    fake.write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    path = json.loads(line)['path']\n"
        "    print(json.dumps({'file': path, 'group': 0}), flush=True)\n"
        "    if path == 'bad': sys.exit(3)\n"
        "    print(json.dumps({'end': path}), flush=True)\n"
    )
    judge = Judge([sys.executable, str(fake)])
    found = [list(judge.judge(Path(name))) for name in ("good", "bad", "good")]
    judge.close()
    assert found[0] == found[2] == [{"file": "good", "group": 0}]
    assert found[1] == [{"file": "bad", "group": 0}, {"file": "bad", "group": 1, "crashed": "status 3"}]


def test_schemas_are_judged_under_each_policy(tmp_path: Path) -> None:
    write_corpora(tmp_path)
    results = tally.Results()
    judge = Judge([str(program())])
    for path in corpus.find([tmp_path], None, 1):
        for record in judge.judge(path):
            results.add(corpus.group_name(path), record)
    judge.close()
    strict, loose, tools = (results.total(name, results.names()) for name in ("strict", "loose", "tools"))
    assert (strict.n_schemas, strict.n_accepted, strict.n_right) == (3, 2, 2)
    assert (loose.n_accepted, loose.n_forbidding, loose.n_letting_pass) == (3, 0, 1)
    assert (tools.n_accepted, tools.n_forbidding, tools.n_instances) == (3, 0, 3), "an array is no arguments"
    printed = report(results, 5)
    assert "- 1 x the keyword uniqueItems cannot be enforced" in printed
    assert "crashes and hangs: none" in printed and "| **in use** | 1 | 100.0 % |" in printed


def nested(path: str, depth: int) -> dict[str, object]:
    """Returns a schema of nested objects with eight members each, all with different names."""
    if depth == 0:
        return {"type": "integer"}
    members = {f"{path}{i}": nested(f"{path}{i}", depth - 1) for i in range(8)}
    return {"type": "object", "properties": members}


def test_a_tool_with_too_large_a_schema_keeps_its_upper_levels(tmp_path: Path) -> None:
    """If an attempt becomes too large, its rules are removed. A rule that still referred to a removed rule would break
    the grammar.
    """
    tests = [
        {"valid": True, "data": {"p0": {"p00": {"p000": {"p0000": 1}}}}},
        {"valid": False, "data": {"p0": {"p00": {"p000": {"p0000": "x"}}}}},
        {"valid": False, "data": {"p0": {"p00": "x"}}},
        {"valid": False, "data": {"p0": 1}},
    ]
    path = tmp_path / "Web---large.json"
    path.write_text(json.dumps({"schema": nested("p", 4), "tests": tests}))
    judge = Judge([str(program())])
    (record,) = judge.judge(path)
    judge.close()
    assert "refused" not in record["tools"] and record["tools"]["bytes"] < 1 << 18
    assert record["tools"]["tests"] == [[True, True], [False, True], [False, False], [False, False]]


def members(part: int) -> dict[str, object]:
    """Returns schemas of objects. Each object can have one more member in every part."""
    return {f"m{i}": {"properties": {f"p{part}": {"maximum": i + 100 * part}}} for i in range(12)}


def test_every_process_makes_the_same_grammar(tmp_path: Path) -> None:
    """The grammar must not depend on the addresses of the schema's objects, which differ between processes."""
    path = tmp_path / "Web---parts.json"
    schema = {"allOf": [{"properties": members(part)} for part in range(4)]}
    path.write_text(json.dumps({"schema": schema, "tests": []}))
    hashes = set()
    for tunables in ("", "glibc.malloc.tcache_count=0", "glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0"):
        judge = Judge(["env", f"GLIBC_TUNABLES={tunables}", str(program())])
        for record in [*judge.judge(path), *judge.judge(path)]:
            hashes.add(tuple(record[policy]["hash"] for policy in ("strict", "loose", "tools")))
        judge.close()
    assert len(hashes) == 1
