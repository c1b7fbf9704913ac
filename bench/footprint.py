"""The cost of a daemon: time to start, idle memory and processor time, and memory of open and closed sessions.

"beyond the weights" is the resident memory minus the size of the model's file. The memory of a session is measured
without the first session. The reason is that a server can allocate the memory of all sessions when the first session
begins. Each repeat starts a new server.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from . import models, peer, streams
from .client import ask
from .daemon import Server, daemon
from .machine import process_cpu_s, resident_mb
from .report import OURS, Figure, Report
from .sides import PEER
from .streams import body, prompt_of

MODELS = ("bench-dense", "bench-hybrid", "bench-small")
IDLE_MB_AT_MOST, IDLE_SHARE_AT_MOST, READY_AT_MOST = 200.0, 0.002, 1.2
SESSIONS, SESSION_TOKENS, PARKED_TOKENS = 3, 400, 64
READ_BYTES = 1 << 20
SETTLES_S = 2.0

Values = dict[str, dict[str, list[float]]]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parked", type=int, default=0, metavar="N", help="number of conversations that are parked")


def about(options: argparse.Namespace) -> str:
    return f"start, idle, {SESSIONS} sessions of {SESSION_TOKENS} tokens, {_parked(options)} parked of {PARKED_TOKENS}"


def _parked(options: argparse.Namespace) -> int:
    return int(options.parked or (50 if options.short else 1000))


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    path = models.path_of(model)
    weights_mb = Path(path).stat().st_size / 1e6
    reading: list[float] = []
    found: Values = {name: {} for name in QUANTITIES}
    for turn in range(options.repeats or (1 if options.short else 3)):
        reading.append(_read_s(path))
        for side in (OURS, *([PEER] if peer.directory() else [])):
            report.progress(f"{turn + 1}: {side}")
            n_parked = _parked(options)
            made = daemon(path, max_parked=n_parked) if side == OURS else peer.server(path)
            with made as server:
                for name, value in _of_one(server, side, weights_mb, n_parked, options.short).items():
                    found[name].setdefault(side, []).append(value)
    report.add(Figure(case="start", side="reading the file", quantity="time", unit="s", values=reading))
    for name, (case, unit) in QUANTITIES.items():
        report.compare(case, name, unit, found[name])
    _add_targets(report, found, reading)


QUANTITIES = {
    "ready after": ("start", "s"),
    "memory beyond the weights": ("idle", "MB"),
    "processor": ("idle", "of a core"),
    "memory of a session": (f"{SESSIONS} sessions of {SESSION_TOKENS} tokens", "MB"),
    "memory of a conversation": ("many conversations", "MB"),
    "memory after all": ("many conversations", "MB"),
    "memory left when all is closed": ("closed", "MB"),
}


def _of_one(server: Server, side: str, weights_mb: float, n_parked: int, is_short: bool) -> dict[str, float]:
    found = {"ready after": server.ready_s}
    time.sleep(SETTLES_S)
    found["memory beyond the weights"] = resident_mb(server.pid) - weights_mb
    before_s, seconds = process_cpu_s(server.pid), 5 if is_short else 30
    time.sleep(seconds)
    found["processor"] = (process_cpu_s(server.pid) - before_s) / seconds
    after_mb = []
    for number in range(SESSIONS):
        _say(server, f"session {number}", SESSION_TOKENS)
        after_mb.append(resident_mb(server.pid) - weights_mb)
    with_first_mb, with_sessions_mb = after_mb[0], after_mb[-1]
    found["memory of a session"] = (with_sessions_mb - with_first_mb) / (SESSIONS - 1)
    for number in range(n_parked):
        _say(server, f"parked {number}", PARKED_TOKENS)
    full_mb = resident_mb(server.pid) - weights_mb
    found["memory after all"] = full_mb
    found["memory of a conversation"] = (full_mb - with_sessions_mb) / n_parked
    if side == OURS:
        names = [*(f"session {number}" for number in range(SESSIONS)), *(f"parked {n}" for n in range(n_parked))]
        for name in names:
            ask(server.port, "DELETE", f"/v1/sessions/{streams.session_id(name)}")
        time.sleep(SETTLES_S)
        found["memory left when all is closed"] = resident_mb(server.pid) - weights_mb
    return found


def _say(server: Server, name: str, n_prompt: int) -> None:
    streams.complete(server.port, [body(prompt_of(n_prompt, name), 2, name)])


def _add_targets(report: Report, found: Values, reading: list[float]) -> None:
    idle = found["memory beyond the weights"][OURS]
    report.add(Figure(case="idle", quantity="memory, ours", unit="MB", values=idle, at_most=IDLE_MB_AT_MOST))
    share = found["processor"][OURS]
    report.add(
        Figure(case="idle", quantity="processor, ours", unit="of a core", values=share, at_most=IDLE_SHARE_AT_MOST)
    )
    slower = [ready / read for ready, read in zip(found["ready after"][OURS], reading, strict=True)]
    report.add(Figure(case="start", quantity="ready / reading the file", unit="", values=slower, at_most=READY_AT_MOST))


def _read_s(path: str) -> float:
    """Returns the seconds that reading the whole file takes, for comparison with the start of a server. If the file is
    in the page cache, it is read from the page cache, as it is when a server starts.
    """
    started_s = time.monotonic()
    with open(path, "rb", buffering=0) as file:
        while file.read(READ_BYTES):
            pass
    return time.monotonic() - started_s
