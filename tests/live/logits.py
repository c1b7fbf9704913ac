"""Reads the logits after a prompt from the engine's internal state with `tests/c/logits_probe.c`, which is built with
the C tests.
"""

from __future__ import annotations

import ctypes
import os
from array import array
from functools import cache
from pathlib import Path
from typing import Any

from llmd.engine.native import ffi
from tests.storm.engine import Answer, Engine

BUILD = Path(__file__).parents[2] / "build"
VARIANT = os.environ.get("LLMD_LIBLLM_VARIANT", "native")
PROBE = BUILD / ("portable" if os.environ.get("LLMD_PORTABLE") else VARIANT) / "tests" / "logits_probe.so"


@cache
def _probe() -> Any:
    if not PROBE.exists():
        raise FileNotFoundError(f"{PROBE} is missing; build it with: ./build.sh test")
    read = ctypes.CDLL(str(PROBE)).probe_logits
    read.argtypes, read.restype = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32), ctypes.POINTER(ctypes.c_float)
    return read


def prefill(engine: Engine, session: str, prompt: list[int], flags: int = 0) -> tuple[Answer, array[float]]:
    """Prefills the prompt in the session and samples exactly one token. Returns the answer and the logits that the
    token was sampled from.
    """
    answer = engine.say(session, prompt, 1, flags=flags)
    kept = _probe()(int(ffi.cast("uintptr_t", engine.pointer)), session.encode(), len(prompt))
    assert kept, f"no logits are kept after {len(prompt)} tokens"
    return answer, array("f", kept[: engine.info.n_vocab])
