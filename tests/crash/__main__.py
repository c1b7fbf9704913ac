"""Ends a daemon under load hundreds of times: ``python -m tests.crash --kills 300 --seed 1``.

Each life serves random clients with a disk that fails now and then (disk.c), and ends at a random moment. It is killed
from outside or in the middle of a file operation, a power failure loses what was not synced, or it stops normally. The
next life finds what is left. In every case,

- each complete answer equals that of a daemon that never crashed and reuses nothing;
- what was acknowledged is true: a pinned session exists and is pinned, a closed one does not exist, and a saved one can
  be loaded and has the contents that were saved.
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
