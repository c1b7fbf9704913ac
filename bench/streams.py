"""Many streams at once, read by bench/sse_client.c in a process of its own."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CLIENT = ROOT / "build" / "native" / "bench" / "sse_client"

# What a text completion's stream says beside its text: how it finished.
_EVENTS_BESIDE_TEXT = 1


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream as its reader saw it."""

    n_text_events: int
    n_bytes: int
    first_us: int
    """From sending the request to the first piece of text."""
    last_us: int
    """... to the end of the stream."""


@dataclass(frozen=True, slots=True)
class Run:
    streams: list[Stream]
    client_cpu_s: float

    @property
    def n_text_events(self) -> int:
        return sum(stream.n_text_events for stream in self.streams)

    @property
    def whole_s(self) -> float:
        """From sending the requests to the end of the last stream."""
        return max(stream.last_us for stream in self.streams) / 1e6

    @property
    def streaming_s(self) -> float:
        """From the first text of any stream to the end of the last one."""
        first_us = min(stream.first_us for stream in self.streams)
        return (max(stream.last_us for stream in self.streams) - first_us) / 1e6


def complete(port: int, bodies: list[dict[str, Any]]) -> Run:
    """Sends all of them to /v1/completions at once and reads the streams to their ends."""
    if not CLIENT.exists():
        raise SystemExit(f"{CLIENT.relative_to(ROOT)} is missing: run ./build.sh bench")
    lines = "".join(json.dumps({**body, "stream": True}) + "\n" for body in bodies)
    done = subprocess.run(
        [CLIENT, str(port), "/v1/completions"], input=lines.encode(), capture_output=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"a stream was refused: {done.stderr.decode(errors='replace')}")
    rows = [[int(field) for field in line.split(",")] for line in done.stdout.decode().splitlines()[:-1]]
    cpu_us = int(done.stdout.decode().splitlines()[-1].split(",")[1])
    return Run([Stream(row[1] - _EVENTS_BESIDE_TEXT, *row[2:]) for row in rows], cpu_us / 1e6)
