"""A few lives of the storm of crashes (tests/crash), with a fixed seed; ``./build.sh storm`` has hundreds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.promises import Held, Label, broken_by_loaded
from tests.crash.storm import Storm

KILLS = 6


async def test_no_crash_breaks_a_promise_or_changes_an_answer(tmp_path: Path) -> None:
    storm = Storm("sim:hybrid", tmp_path, random.Random(7))
    await storm.run(KILLS)
    assert storm.wrong == []
    assert storm.n_compared > 0 and storm.did["promises checked"] > 0


SAVED = Label(True, Held([{"role": "user", "content": "a question"}], n_prompt=20), n_tokens=30)


@pytest.mark.parametrize(
    ("tokens", "report", "is_broken"),
    [
        (30, {"session_reset_reason": "restored"}, False),
        (30, {"session_reset_reason": "restored", "diverged_at": 25}, False),
        (30, {"session_reset_reason": "torn"}, False),
        (29, {"session_reset_reason": "restored"}, True),
        (30, {"session_reset_reason": "rewind", "diverged_at": 19}, True),
        (30, {"session_reset_reason": "new"}, True),
    ],
)
def test_what_was_saved_is_looked_at(tokens: int, report: dict[str, object], is_broken: bool) -> None:
    assert bool(broken_by_loaded("label", SAVED, {"tokens": tokens}, report)) == is_broken
