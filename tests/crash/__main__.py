"""Hundreds of ends of a daemon under load: ``python -m tests.crash --kills 300 --seed 1``.

Each life serves random clients on a disk that fails now and then (disk.c), and ends at a random moment: killed from
outside, killed in the middle of a file operation, by a power failure that loses what was not synced, or in order. The
next life finds what is left. Whatever happened,

- each whole answer is what a daemon says that never crashed and reuses nothing;
- what was acknowledged holds: a pinned session is there and pinned, a closed one is not, and what was saved can be
  loaded and is what it was.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tests.crash.storm import Storm


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--model", default="sim:hybrid", help="sim:CLASS or a GGUF file")
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        storm = Storm(wanted.model, Path(directory), random.Random(wanted.seed))
        asyncio.run(storm.run(wanted.kills))
    print(storm.verdict())
    return 1 if storm.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
