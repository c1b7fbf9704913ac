"""A few lives of the storm of crashes (tests/crash), with a fixed seed; ``./build.sh storm`` has hundreds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.promises import Label, broken_by_loaded
from tests.crash.storm import Storm

KILLS = 6


async def test_no_crash_breaks_a_promise_or_changes_an_answer(tmp_path: Path) -> None:
    storm = Storm("sim:hybrid", tmp_path, random.Random(7))
    await storm.run(KILLS)
    assert storm.wrong == []
    assert storm.n_compared > 0 and storm.did["promises checked"] > 0


@pytest.mark.parametrize(("contents", "is_broken"), [({b"first"}, False), ({b"other"}, True), (set(), True)])
def test_what_was_saved_is_looked_at(contents: set[bytes], is_broken: bool) -> None:
    saved = Label(True, contents=frozenset({b"first", b"second"}))
    assert bool(broken_by_loaded("label", saved, frozenset(contents))) == is_broken
