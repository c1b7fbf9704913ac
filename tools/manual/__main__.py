"""Writes the man pages and completions below a directory, at their paths below share/: python -m tools.manual --out
build/share
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tools.manual import completion, pages


def files() -> dict[str, str]:
    return {**pages.pages(), **completion.scripts()}


def write(out: Path) -> None:
    for name, content in files().items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    write(parser.parse_args().out)
