"""Answers of the completion endpoints equal the recorded answers byte by byte. `python -m tests.golden` records the
answers again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.recording import RECORDED, transcript_of
from tests.golden.scenarios import SCENARIOS
from tests.golden.transcript import joined


@pytest.mark.parametrize("name", SCENARIOS)
async def test_nothing_has_changed(name: str, tmp_path: Path) -> None:
    recorded = (RECORDED / f"{name}.txt").read_bytes()
    assert (await transcript_of(name, tmp_path)).split(b"\n") == recorded.split(b"\n")


def test_nothing_else_is_recorded() -> None:
    assert {path.stem for path in RECORDED.iterdir()} == set(SCENARIOS)


def test_only_runs_of_text_are_joined() -> None:
    def event(text: str, id: str = "1") -> str:
        return f'data: {{"id":"{id}","choices":[{{"text":"{text}","finish_reason":null}}]}}\n\n'

    def together(*events: str) -> str:
        return joined("".join(events).encode(), False).decode()

    assert together(event("a"), event("b\\"), event("c")) == event("a") + event("b\\") + event("c")
    assert together(event("a"), event('\\"b'), event("c")) == event('a\\"bc')
    assert together(event("a"), event("b", "2"), event("c")) == event("a") + event("b", "2") + event("c")
    assert together(": keep-alive\n\n", ": keep-alive\n\n", event("a")) == ": keep-alive\n\n" + event("a")
