"""The generated models that live tests run on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODELS = Path(os.environ.get("LLMD_TEST_MODELS", ROOT / "build" / "models"))
TINY = (
    "dense",
    "window",
    "recurrent",
    "hybrid",
    "granite",
    "hybrid-window",
    "latent",
    "indexed",
    "indexed-shared",
    *(() if os.environ.get("LLMD_TEST_DEVICE") else ("sparse",)),  # devices do not support it
    "dense-q8",
    "hybrid-q8",
)

QUANTIZABLE = ("dense", "window", "hybrid", "granite", "hybrid-window", "dense-q8", "hybrid-q8")
"""Models whose keys and values can be quantized."""


def model_path(name: str) -> str:
    path = MODELS / f"tiny-{name}.gguf"
    if not path.exists():
        pytest.skip(f"{path} is missing; make it with: python -m tools.tiny_models --out {MODELS}")
    return str(path)
