"""Measures, for one GGUF file in this process, how far a warm session's logits are from a new session's, step by step.

``python -m tests.live.warm_logits MODEL N_HISTORY KV_TYPE`` prints a JSON object:
step → {reason, reused, diff, is_equal}. It is a separate program because a process can load only one build of the
library. LLMD_LIBLLM_VARIANT selects the build.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from array import array
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmd.engine.native import KV_TYPE_WORDS, GenerateFlag, Status, text_of
from llmd.engine.wire import ALL_TOKENS, Fork, Load, Park, Save
from tests.live.logits import prefill
from tests.storm.engine import DEVICE, Engine, Places, serving_engine

IS_EXACT = os.environ.get("LLMD_LIBLLM_VARIANT", "").startswith("exact")
PLACES = Places(
    n_sessions=4, n_scratch=1, n_ctx=1024, timelines=1, exact=IS_EXACT, kv_type=KV_TYPE_WORDS.index(sys.argv[3])
)
ON_DISK = {"parked_bytes": 1}
N_WORDS = 1000

Measured = dict[str, Any]


def words(seed: int, n: int) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(N_WORDS) for _ in range(n)]


N_HISTORY = int(sys.argv[2])
HISTORY = words(1, N_HISTORY)
SUFFIX = words(2, 9)


class Bench:
    """Engines of one model that reuse tokens, and one that does not."""

    def __init__(self, model: str, directory: Path) -> None:
        self.model, self.directory = model, directory
        self.cold = Engine(model, replace(PLACES, n_sessions=1, checkpoint_bytes=1))
        self.measured: dict[str, Measured] = {}
        backend = text_of(self.cold.info.backend)
        assert DEVICE in backend and (DEVICE or backend == "CPU"), backend

    def close(self) -> None:
        self.cold.close()

    def served(self, step: str, **options: Any) -> AbstractContextManager[Engine]:
        """Returns an engine with its own state directory for this step, without the states that other steps saved."""
        state_dir = self.directory / step
        state_dir.mkdir(exist_ok=True)
        return serving_engine(self.model, replace(PLACES, state_dir=state_dir, **options))

    def cold_logits(self, prompt: list[int]) -> array[float]:
        answer, logits = prefill(self.cold, "cold", prompt, GenerateFlag.COLD)
        assert answer.reused == 0
        return logits

    def measure(self, step: str, engine: Engine, session: str, prompt: list[int]) -> None:
        answer, warm = prefill(engine, session, prompt)
        self.note(step, answer.reason, answer.reused, warm, self.cold_logits(prompt))

    def note(self, step: str, reason: str, reused: int, warm: array[float], cold: array[float]) -> None:
        diff = max(abs(a - b) for a, b in zip(warm, cold, strict=True))
        self.measured[step] = {
            "reason": reason, "reused": reused, "diff": diff, "is_equal": warm.tobytes() == cold.tobytes()
        }  # fmt: skip

    # --- in place ----------------------------------------------------------------------------------------------------

    def in_place(self) -> None:
        with serving_engine(self.model, PLACES) as engine:
            for n in (37, 38, 101, N_HISTORY):
                prefill(engine, "a", HISTORY[:n])
            self.measure("append", engine, "a", HISTORY + SUFFIX)
            self.measure("regenerate", engine, "a", HISTORY + SUFFIX)
            answer = engine.say("a", HISTORY + SUFFIX, 12, flags=GenerateFlag.IGNORE_END)
            assert answer.is_whole
            [answered] = engine.resident("a")
            self.measure("append to an answer", engine, "a", answered + words(3, 20))
            self.measure("edit", engine, "a", HISTORY + words(4, 15))
            self.measure("copy", engine, "b", HISTORY + words(4, 15) + words(5, 8))
            self.measure("branch of a copy", engine, "c", HISTORY[:101] + words(6, 30))

    # --- away and back -----------------------------------------------------------------------------------------------

    def served_history(self, engine: Engine) -> list[int]:
        """Returns the tokens of session `a` after an answer."""
        assert engine.say("a", HISTORY + SUFFIX, 6, boundaries=[40, N_HISTORY]).is_whole
        return engine.resident("a")[0]

    def away_and_back(self) -> None:
        with self.served("park to memory") as engine:
            held = self.served_history(engine)
            assert engine.do(Park, "a").status == Status.OK
            self.measure("park to memory", engine, "a", held + SUFFIX)
        with self.served("park to disk", **ON_DISK) as engine:
            held = self.served_history(engine)
            assert engine.do(Park, "a").status == Status.OK
            assert engine.say("a", held + SUFFIX, 1).reason == "restored"
            self.measure("park to disk", engine, "a", held + SUFFIX + words(8, 5))
        with self.served("fork") as engine:
            held = self.served_history(engine)
            assert engine.do(Fork, "a", "b", ALL_TOKENS, True).status == Status.OK
            self.measure("fork", engine, "b", held + SUFFIX)
        with self.served("fork at a checkpoint") as engine:
            held = self.served_history(engine)
            assert engine.do(Fork, "a", "b", N_HISTORY, True).status == Status.OK
            self.measure("fork at a checkpoint", engine, "b", HISTORY + words(7, 9))
        with self.served("save and load") as engine:
            held = self.served_history(engine)
            assert engine.do(Save, "a", "kept").status == Status.OK
            assert engine.do(Load, "b", "kept").status == Status.OK
            self.measure("save and load", engine, "b", held + SUFFIX)
        with self.served("restart") as engine:
            held = self.served_history(engine)
        with self.served("restart") as engine:
            assert engine.say("a", held + SUFFIX, 1).reason == "restored"
            self.measure("restart", engine, "a", held + SUFFIX + words(8, 5))

    def control(self) -> None:
        """Measures how much a few different early tokens change the logits. A bound must be smaller than this."""
        changed = [*words(9, 10), *HISTORY[10:]]
        for step, n in (("control", 60), ("long control", N_HISTORY)):
            self.note(step, "", 0, self.cold_logits(HISTORY[:n]), self.cold_logits(changed[:n]))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(sys.argv[1], Path(directory))
        bench.in_place()
        bench.away_and_back()
        bench.control()
        bench.close()
    print(json.dumps(bench.measured))


if __name__ == "__main__":
    main()
