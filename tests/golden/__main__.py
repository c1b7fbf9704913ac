"""Records the transcripts again: `python -m tests.golden [NAME...]`.

Use it only if an answer is meant to change. `git diff tests/golden` must then show this change and nothing else.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.golden.recording import RECORDED, transcript_of
from tests.golden.scenarios import SCENARIOS


def main(names: list[str]) -> None:
    RECORDED.mkdir(exist_ok=True)
    for name in names or SCENARIOS:
        with tempfile.TemporaryDirectory() as directory:
            (RECORDED / f"{name}.txt").write_bytes(asyncio.run(transcript_of(name, Path(directory))))
        print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
