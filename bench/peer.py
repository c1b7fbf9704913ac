"""Runs llama.cpp's own programs (llama-server, llama-bench) for comparison. `./build.sh peer` builds them from the same
source and with the same compiler flags as llmd.

The programs run as users run them, with the environment of a shell and their default options. Options are added only
where a measurement needs them, for example a slot for each stream or a longer context.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .daemon import Server, clean_environment, free_port

# Environment variable that build.sh sets to the directory of the programs if they are built.
DIRECTORY_VARIABLE = "LLMD_BENCH_PEER"
SLOTS = 4
"""The number of slots that llama-server has by default."""


def directory() -> Path | None:
    found = Path(os.environ.get(DIRECTORY_VARIABLE) or "/nonexistent")
    return found if (found / "llama-server").exists() else None


def advice() -> str:
    return "llama.cpp's own programs are not built; ./build.sh peer builds them (7 minutes on two cores, once)"


def server(model: str, slots: int = 0, n_ctx: int = 0, options: list[str] | None = None) -> Server:
    """Starts a llama-server that can run `slots` streams at once, and returns it.

    The number of slots and the context size are passed only if `slots` exceeds llama-server's default. llama-server
    divides its context among its slots. So its context size is `n_ctx` times `slots`.
    """
    found = directory()
    if found is None:
        raise SystemExit(advice())
    flags = ["--host", "127.0.0.1", "--port", str(free_port())]
    flags += ["-np", str(slots), "-c", str(n_ctx * slots)] if slots > SLOTS else []
    log_directory = tempfile.TemporaryDirectory(prefix="llmd-bench-")
    command = [found / "llama-server", "-m", model, *flags, *(options or [])]
    return Server([str(part) for part in command], log_directory, "/health")


@dataclass(frozen=True, slots=True)
class EngineRate:
    """One row of llama-bench's output: the rate of prefill or decode after a context of `n_depth` tokens."""

    n_prompt: int
    n_decoded: int
    n_depth: int
    tokens_per_s: tuple[float, ...]
    """The tokens per second of each repeat."""


def engine(model: str, prompts: list[int], n_decoded: int, depths: list[int], repeats: int) -> list[EngineRate]:
    """Runs llama-bench. It measures the prefill of a prompt of each length in `prompts`. It also measures the decode of
    `n_decoded` tokens after a context of each length in `depths`.
    """
    found = directory()
    if found is None:
        raise SystemExit(advice())
    rates: list[EngineRate] = []
    prefill = ["-p", ",".join(map(str, prompts)), "-n", "0"]
    decode = ["-p", "0", "-n", str(n_decoded), "-d", ",".join(map(str, depths))]
    for flags in [*([prefill] if prompts else []), *([decode] if depths else [])]:
        command = [str(found / "llama-bench"), "-m", model, "-r", str(repeats), "-o", "json", *flags]
        out = subprocess.run(command, env=clean_environment(), capture_output=True, check=True, text=True).stdout
        rates += read_engine(json.loads(out))
    return rates


def read_engine(rows: list[dict[str, Any]]) -> list[EngineRate]:
    """Returns the rows of llama-bench's JSON output."""
    return [
        EngineRate(row["n_prompt"], row["n_gen"], row["n_depth"], tuple(float(rate) for rate in row["samples_ts"]))
        for row in rows
    ]
