"""Runs llmd and records how long each stage of a request takes: python -m bench.turn_stages FILE [llmd's options].

A stage is a function of llmd. Each call appends a line "STAGE MILLISECONDS" to FILE. The stages do not overlap.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TextIO

STAGES: dict[str, tuple[str, ...]] = {
    "json_scan": ("llmd.engine.json_scan:JsonScan.clean",),
    "decode": ("llmd.http.body:typed",),
    "reader": ("llmd.dialects.openai.endpoints:chat_of",),
    "memory": ("llmd.pipeline.prompt:in_order", "llmd.pipeline.prompt:plain", "llmd.pipeline.prompt:_digests"),
    "render: request": ("llmd.pipeline.prompt:render_request",),
    "render and tokenize": ("llmd.engine.engine:render_chat",),
    "parser": ("llmd.engine.engine:AnswerParser",),
    "push": ("llmd.engine.engine:Engine.generate",),
}
"""For each stage, its functions, as MODULE:NAME."""


def main(file: str, arguments: list[str]) -> int:
    sink = Path(file).open("a", buffering=1)
    for stage, places in STAGES.items():
        for place in places:
            module, _, path = place.partition(":")
            *outer, name = path.split(".")
            owner: Any = importlib.import_module(module)
            for one in outer:
                owner = getattr(owner, one)
            setattr(owner, name, _timed(getattr(owner, name), stage, sink))
    entry = importlib.import_module("llmd.__main__")
    sys.argv = ["llmd", *arguments]
    entry.main()
    return 0


def _timed(call: Callable[..., Any], stage: str, sink: TextIO) -> Callable[..., Any]:
    @wraps(call)
    def timed(*arguments: Any, **named: Any) -> Any:
        started = time.perf_counter()
        try:
            return call(*arguments, **named)
        finally:
            sink.write(f"{stage}\t{(time.perf_counter() - started) * 1e3:.3f}\n")

    return timed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
