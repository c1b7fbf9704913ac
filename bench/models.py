"""The generated models of realistic size: made when they are first asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIRECTORY = ROOT / "build" / "models"
NAMES = ("bench-small", "bench-dense", "bench-hybrid")


def path_of(model: str) -> str:
    """`model` is one of NAMES, a path, or sim:..."""
    if model not in NAMES:
        return model
    path = DIRECTORY / f"{model}.gguf"
    if not path.exists():
        command = [sys.executable, "-m", "tools.tiny_models", "--out", str(DIRECTORY), model]
        subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
    return str(path)


HELP = f"{', '.join(NAMES)} (generated, random weights), a GGUF file, or sim:CLASS (%(default)s)"
