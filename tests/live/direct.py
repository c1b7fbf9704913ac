"""One GGUF in this process: how far the logits of a warm session are from those of a fresh one, step by step.

``python -m tests.live.direct MODEL N_HISTORY`` prints a JSON object: step → {reason, reused, diff, is_equal}. It is a
program of its own, because a process loads one build of the library; LLMD_LIBLLM_VARIANT says which.

What the decode thread does (fork, park, save) is done by commands; after `llm_engine_stop` the session is opened
directly, and its logits are read.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmd.engine.native import REASON_WORDS, Status, ffi, lib, text_of
from llmd.engine.wire import ALL_TOKENS, Fork, Load, Park, Save
from tests.storm.engine import DEVICE, Engine, Places, open_engine

IS_EXACT = os.environ.get("LLMD_LIBLLM_VARIANT") == "exact"
PLACES = Places(n_sessions=4, n_scratch=1, n_ctx=1024, exact=IS_EXACT)
ON_DISK = {"parked_bytes": 1}
N_WORDS = 1000

Measured = dict[str, Any]


def words(seed: int, n: int) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(N_WORDS) for _ in range(n)]


N_HISTORY = int(sys.argv[2])
HISTORY = words(1, N_HISTORY)
SUFFIX = words(2, 9)


class Session:
    """A session in direct mode."""

    def __init__(self, engine: Any, name: str) -> None:
        out = ffi.new("llm_session **")
        assert lib.llm_session_open(engine, name.encode(), out) == Status.OK
        info = ffi.new("llm_info *")
        lib.llm_engine_info(engine, info)
        self.pointer, self.n_vocab = out[0], int(info.n_vocab)

    def prefill(self, prompt: list[int]) -> tuple[str, int]:
        resume = ffi.new("llm_resume *")
        assert lib.llm_session_prefill(self.pointer, prompt, len(prompt), ffi.NULL, resume) == Status.OK
        return REASON_WORDS[resume.reason], int(resume.n_reused)

    def decode(self, n: int) -> list[int]:
        token, out = ffi.new("int32_t *"), []
        for _ in range(n):
            assert lib.llm_session_decode(self.pointer, token) == Status.OK
            out.append(int(token[0]))
        return out

    def logits(self) -> array[float]:
        out = array("f", bytes(4 * self.n_vocab))
        assert lib.llm_session_logits(self.pointer, ffi.from_buffer("float[]", out), self.n_vocab) == Status.OK
        return out

    def reset(self) -> None:
        assert lib.llm_session_reset(self.pointer) == Status.OK


class Bench:
    """The warm engines of one model, and the cold one beside them."""

    def __init__(self, model: str, directory: Path) -> None:
        self.model, self.directory = model, directory
        self.cold = open_engine(model, replace(PLACES, n_sessions=1, checkpoint_bytes=1))
        self.cold_session = Session(self.cold, "cold")
        self.measured: dict[str, Measured] = {}
        info = ffi.new("llm_info *")
        lib.llm_engine_info(self.cold, info)
        backend = text_of(info.backend)
        assert DEVICE in backend and (DEVICE or backend == "CPU"), backend

    def close(self) -> None:
        lib.llm_engine_close(self.cold)

    @contextmanager
    def direct(self) -> Iterator[Any]:
        engine = open_engine(self.model, PLACES)
        try:
            yield engine
        finally:
            lib.llm_engine_close(engine)

    @contextmanager
    def served(self, **options: Any) -> Iterator[Engine]:
        """Session `a` holds the history; afterwards the engine is to be stopped and looked at directly."""
        places = replace(PLACES, state_dir=self.directory, **options)
        engine = Engine(self.model, places)
        try:
            yield engine
        finally:
            engine.close()

    def cold_logits(self, prompt: list[int]) -> array[float]:
        self.cold_session.reset()
        _, reused = self.cold_session.prefill(prompt)
        assert reused == 0
        return self.cold_session.logits()

    def measure(self, step: str, session: Session, prompt: list[int]) -> None:
        reason, reused = session.prefill(prompt)
        self.note(step, reason, reused, session.logits(), self.cold_logits(prompt))

    def note(self, step: str, reason: str, reused: int, warm: array[float], cold: array[float]) -> None:
        diff = max(abs(a - b) for a, b in zip(warm, cold, strict=True))
        self.measured[step] = {
            "reason": reason, "reused": reused, "diff": diff, "is_equal": warm.tobytes() == cold.tobytes()
        }  # fmt: skip

    # --- in place ----------------------------------------------------------------------------------------------------

    def in_place(self) -> None:
        with self.direct() as engine:
            session = Session(engine, "a")
            for n in (37, 38, 101, N_HISTORY):
                session.prefill(HISTORY[:n])
            self.measure("append", session, HISTORY + SUFFIX)
            self.measure("regenerate", session, HISTORY + SUFFIX)
            said = session.decode(12)
            answered = HISTORY + SUFFIX + said[:-1]
            self.measure("append to an answer", session, answered + words(3, 20))
            self.measure("edit", session, HISTORY + words(4, 15))
            self.measure("copy", Session(engine, "b"), HISTORY + words(4, 15) + words(5, 8))
            self.measure("branch of a copy", Session(engine, "c"), HISTORY[:101] + words(6, 30))

    # --- away and back -----------------------------------------------------------------------------------------------

    def served_history(self, engine: Engine) -> list[int]:
        """What session `a` holds after an answer."""
        assert engine.say("a", HISTORY + SUFFIX, 6, boundaries=[40, N_HISTORY]).is_whole
        return engine.resident("a")[0]

    def look(self, step: str, engine: Engine, name: str, prompt: list[int]) -> None:
        assert lib.llm_engine_stop(engine.pointer) == Status.OK
        self.measure(step, Session(engine.pointer, name), prompt)

    def away_and_back(self) -> None:
        with self.served() as engine:
            held = self.served_history(engine)
            assert engine.do(Park, "a").status == Status.OK
            self.look("park to memory", engine, "a", held + SUFFIX)
        with self.served(**ON_DISK) as engine:
            held = self.served_history(engine)
            assert engine.do(Park, "a").status == Status.OK
            assert engine.say("a", held + SUFFIX, 1).reason == "restored"
            self.look("park to disk", engine, "a", held + SUFFIX + words(8, 5))
        with self.served() as engine:
            held = self.served_history(engine)
            assert engine.do(Fork, "a", "b", ALL_TOKENS, True).status == Status.OK
            self.look("fork", engine, "b", held + SUFFIX)
        with self.served() as engine:
            held = self.served_history(engine)
            assert engine.do(Fork, "a", "b", N_HISTORY, True).status == Status.OK
            self.look("fork at a checkpoint", engine, "b", HISTORY + words(7, 9))
        with self.served() as engine:
            held = self.served_history(engine)
            assert engine.do(Save, "a", "kept").status == Status.OK
            assert engine.do(Load, "b", "kept").status == Status.OK
            self.look("save and load", engine, "b", held + SUFFIX)
        with self.served() as engine:
            held = self.served_history(engine)
        with self.served() as engine:
            assert engine.say("a", held + SUFFIX, 1).reason == "restored"
            self.look("restart", engine, "a", held + SUFFIX + words(8, 5))

    def control(self) -> None:
        """How much a few other early tokens move the logits: less than that, a bound must be."""
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
