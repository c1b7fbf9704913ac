"""What the worst inputs of one client (bench/inputs.py) cost the other clients.

An input has three figures:
- the longest time for which it blocked the event loop
- the longest wait of another client that says "hi" in a warm session
- the peak memory

The daemon records in histograms for how long its event loop is blocked. The figure is the upper bound of the highest
bucket that has a new entry. "loop blocked" is wall-clock time (llmd_event_loop_lag_seconds). Other programs on the
machine can block the event loop, too. The case "nothing" sends no input. Its figures show for how long other programs
block the event loop. "of that at work" is processor time of the event loop alone (llmd_event_loop_work_seconds).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from . import models
from .client import RefusedError, ask, chat
from .daemon import Server, daemon
from .inputs import INPUTS
from .report import Figure, Report

MODELS = ("sim:dense,step_us=200,ctx=8192",)
BLOCK_MS = 50.0
DELAYS = re.compile(r'^llmd_event_loop_(lag|work)_seconds_bucket{le="(.+)"} (\S+)$', re.MULTILINE)
HELLO = [{"role": "user", "content": "hi"}]
PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Cost:
    block_ms: float
    work_ms: float
    wait_ms: float
    peak_mb: float


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--context", type=int, default=512, metavar="N", help="tokens of a session (%(default)s)")
    parser.add_argument(
        "--body-limit", type=int, default=64 * 1024**2, metavar="BYTES", help="largest request body (%(default)s)"
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="measure only inputs whose names match")


def about(options: argparse.Namespace) -> str:
    return f"bodies of at most {options.body_limit / 1e6:.0f} MB"


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    costs: dict[str, list[Cost]] = {name: [] for name in INPUTS if re.search(options.only, name)}
    with daemon(models.path_of(model), ctx_size=options.context, body_limit=options.body_limit) as server:
        _say_hi(server)
        for name, measured in costs.items():
            for _ in range(options.repeats or (1 if options.short else 3)):
                measured.append(_cost(server, name, options.body_limit))
            report.progress(f"{name}: {max(cost.work_ms for cost in measured):.0f} ms")
    for name, measured in costs.items():
        blocks, works = [cost.block_ms for cost in measured], [cost.work_ms for cost in measured]
        waits, peaks = [cost.wait_ms for cost in measured], [cost.peak_mb for cost in measured]
        report.add(Figure(case=name, quantity="loop blocked", unit="ms", values=blocks))
        report.add(Figure(case=name, quantity="of that at work", unit="ms", values=works, at_most=BLOCK_MS))
        report.add(Figure(case=name, quantity="bystander waited", unit="ms", values=waits))
        report.add(Figure(case=name, quantity="memory", unit="MB", values=peaks))


def _cost(server: Server, name: str, body_limit: int) -> Cost:
    """Sends the input `name` once, and returns its cost."""
    command = [sys.executable, "-m", "bench.inputs", name, str(server.port), str(body_limit), "1"]
    root = Path(__file__).parents[1]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sender:
        assert sender.stdin is not None and sender.stdout is not None
        sender.stdout.readline()
        before_mb = _memory_mb(server.pid, "VmRSS")
        Path(f"/proc/{server.pid}/clear_refs").write_text("5")  # resets VmHWM, the peak of the resident memory
        before = delays(server)
        sender.stdin.write(b"\n")
        sender.stdin.close()
        waits = [_say_hi(server)]
        while sender.poll() is None:
            time.sleep(PAUSE_S)
            waits.append(_say_hi(server))
    peak_mb = _memory_mb(server.pid, "VmHWM")
    after = delays(server)
    block_ms, work_ms = (longest_ms(before[kind], after[kind]) for kind in ("lag", "work"))
    return Cost(block_ms, work_ms, max(waits), max(peak_mb - before_mb, 0.0))


def _say_hi(server: Server) -> float:
    """Sends a short chat request, again and again until it is accepted. Returns the milliseconds until its answer has
    ended.
    """
    started_s = time.monotonic()
    while True:
        try:
            chat(server.port, HELLO, session_id="bystander", max_tokens=1)
        except (RefusedError, OSError, KeyError):
            time.sleep(PAUSE_S)
        else:
            return (time.monotonic() - started_s) * 1e3


def delays(server: Server) -> dict[str, dict[float, int]]:
    """Returns the daemon's histograms of the two kinds of delay, "lag" and "work". A histogram has, for each upper
    bound in seconds, the number of delays that were not longer.
    """
    found: dict[str, dict[float, int]] = {"lag": {}, "work": {}}
    for kind, bound, count in DELAYS.findall(ask(server.port, "GET", "/metrics").decode()):
        found[kind][float(bound)] = int(float(count))
    return found


def longest_ms(before: dict[float, int], after: dict[float, int]) -> float:
    """Returns the smallest bound of a bucket, in milliseconds, that none of the delays between two readings of a
    histogram exceeds.
    """
    n_all = max(after.values()) - max(before.values())
    bound = min(bound for bound in after if after[bound] - before[bound] >= n_all)
    return min(bound, 60.0) * 1e3


def _memory_mb(pid: int, field: str) -> float:
    match = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1]) * 1024 / 1e6
