"""A few rounds of the crash test (tests/crash), with a fixed seed. `./build.sh storm` runs hundreds of rounds."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.crash.daemon import strays_in
from tests.crash.promises import Label, Promises, broken_by_loaded
from tests.crash.storm import Storm

KILLS = 6


async def test_no_crash_breaks_a_promise_or_changes_an_answer(tmp_path: Path) -> None:
    storm = Storm("sim:hybrid", tmp_path, random.Random(7))
    await storm.run(KILLS)
    assert storm.wrong == []
    assert storm.n_compared > 0 and storm.did["promises checked"] > 0


ONE, TWO, LONGER = b"\1\0\0\0", b"\2\0\0\0", b"\1\0\0\0\2\0\0\0"


@pytest.mark.parametrize(
    ("contents", "is_broken"), [({ONE}, False), ({TWO}, False), ({LONGER}, True), ({b"\3\0\0\0"}, True), (set(), True)]
)
def test_what_was_saved_is_looked_at(contents: set[bytes], is_broken: bool) -> None:
    saved = Label(True, n_tokens=1, held=frozenset({ONE, TWO, LONGER}))
    assert bool(broken_by_loaded("label", saved, frozenset(contents))) == is_broken


def test_of_what_made_way_before_it_was_seen_only_the_length_is_known() -> None:
    saved = Label(True, n_tokens=1, held=frozenset({LONGER}))
    assert broken_by_loaded("label", saved, frozenset({TWO})) == []
    assert Promises(saved={"label": saved}).broken_by_saved({"label": 1}) == []
    assert Promises(saved={"label": saved}).broken_by_saved({"label": 2}) != []
    assert Promises(saved={"label": saved}).broken_by_saved({}) != []


def test_files_that_no_session_explains_are_found(tmp_path: Path) -> None:
    names = ("1.llmd-session", "1.llmd-state", "2.llmd-state", "3.refused", "4.refused-state", "5.writing", "6.writing")
    for name in names:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (100, 100) if name.startswith("5") else (300, 300))
    found = strays_in(tmp_path, since_s=200)
    assert sorted(Path(stray.split()[0].rstrip(":")).name[0] for stray in found) == ["2", "3", "4", "5"]
