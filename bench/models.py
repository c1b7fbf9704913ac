"""The generated models: those of realistic size are made when they are first asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIRECTORY = ROOT / "build" / "models"
HELP = "bench-small, bench-dense, bench-hybrid, tiny-* (generated), a GGUF file, or sim:CLASS (%(default)s)"


def path_of(model: str) -> str:
    """`model` is a generated one's name, a path, or sim:..."""
    if not model.startswith(("bench-", "tiny-")):
        return model
    path = DIRECTORY / f"{model}.gguf"
    if not path.exists():
        command = [sys.executable, "-m", "tools.tiny_models", "--out", str(DIRECTORY), model]
        subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
    return str(path)
