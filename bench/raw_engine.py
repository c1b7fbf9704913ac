"""The engine without HTTP, in a process of its own: the same library in its direct mode. Started by overhead.py.

Reads lines "prefill N_TOKENS N_DECODE SEED" and answers each with "FIRST_US DECODE_US": from the call to the first
token, and from there to the last.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from llmd.engine.native import STATUS_WORDS, Status, ffi, lib
from llmd.engine.opening import EngineOptions, info_of, open_engine

from .overhead import prompt_of


def main(arguments: list[str]) -> int:
    model, n_ctx, n_threads = arguments[0], int(arguments[1]), int(arguments[2])
    engine = open_engine(EngineOptions(model=model, n_ctx=n_ctx, n_sessions=1, n_scratch=1, n_threads=n_threads))
    print(info_of(engine).n_threads, flush=True)
    out = ffi.new("llm_session **")
    _check(lib.llm_session_open(engine, b"raw", out))
    for line in sys.stdin:
        n_prompt, n_decode, seed = (int(word) for word in line.split())
        first_us, decode_us = _generate(out[0], prompt_of(n_prompt, seed), n_decode)
        print(first_us, decode_us, flush=True)
    lib.llm_engine_close(engine)
    return 0


def _generate(session: Any, prompt: list[int], n_decode: int) -> tuple[float, float]:
    tokens, resume, token = ffi.new("int32_t[]", prompt), ffi.new("llm_resume *"), ffi.new("int32_t *")
    _check(lib.llm_session_reset(session))
    started_s = time.monotonic()
    _check(lib.llm_session_prefill(session, tokens, len(prompt), ffi.NULL, resume))
    _check(lib.llm_session_decode(session, token))
    first_s = time.monotonic()
    for _ in range(n_decode - 1):
        _check(lib.llm_session_decode(session, token))
    return (first_s - started_s) * 1e6, (time.monotonic() - first_s) * 1e6


def _check(status: int) -> None:
    if status != Status.OK:
        raise SystemExit(f"raw engine: {STATUS_WORDS[status]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
