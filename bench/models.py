"""Finds the model of a measurement. The models bench-* and tiny-* have random weights, and are generated when they are
first used.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from . import peer

ROOT = Path(__file__).parents[1]
DIRECTORY = ROOT / "build" / "models"
HELP = (
    "bench-small, -long, -dense, -edit, -hybrid, -experts, one of these with -q4, tiny-*, a GGUF file, or sim:CLASS "
    "(%(default)s)"
)
Q4 = "-q4"


def path_of(model: str) -> str:
    """Returns the path of a model, and generates the model if necessary. `model` is one of these:
    - the name of a generated model, bench-* or tiny-*
    - the path of a GGUF file
    - a simulated model, sim:...
    """
    if not model.startswith(("bench-", "tiny-")):
        return model
    path = DIRECTORY / f"{model}.gguf"
    if not path.exists():
        command = _quantize(model) if model.endswith(Q4) else _generate(model)
        subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
    return str(path)


def _generate(model: str) -> list[str]:
    return [sys.executable, "-m", "tools.tiny_models", "--out", str(DIRECTORY), model]


def _quantize(model: str) -> list[str]:
    """Returns the command that makes the model `NAME-q4`. The command quantizes the model NAME to Q4_K_M with
    llama.cpp's own program.
    """
    directory = peer.directory()
    if directory is None:
        raise SystemExit(f"{model} is made by llama-quantize; {peer.advice()}")
    made_from = path_of(model.removesuffix(Q4))
    return [
        str(directory / "llama-quantize"),
        "--allow-requantize",
        made_from,
        str(DIRECTORY / f"{model}.gguf"),
        "Q4_K_M",
    ]
