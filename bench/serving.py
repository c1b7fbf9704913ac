"""Serving without the cost of a model: with a simulated model, only rings, events and HTTP take time.

The cost of a streamed token is the processor time of the event loop. The event loop is the first thread of the daemon.
If the steps of the model take no time, the event loop falls behind, and several tokens are sent as one event. With
slower steps (--step-us), each token is sent alone. So these cases show the full cost of a token.
"""

from __future__ import annotations

import argparse
from typing import Any

from . import streams
from .daemon import Server, daemon
from .machine import thread_cpu_s
from .report import Figure, Report

TOKENS_PER_CPU_S = 100_000
PROMPT = [72, 101, 108, 108, 111]


MODELS = ("sim:dense",)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 32, 255], metavar="N", help="concurrent streams")
    parser.add_argument(
        "--step-us",
        type=int,
        nargs="+",
        default=[0, 200, 2000],
        metavar="US",
        help="times of one step of the model; 0: as fast as possible",
    )
    parser.add_argument("--tokens", type=int, default=4000, metavar="N", help="tokens of one stream (%(default)s)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=2.0,
        metavar="S",
        help="maximum time of a run whose steps take time (%(default)s)",
    )


def about(options: argparse.Namespace) -> str:
    return "the serving layer alone, on a simulated model that costs nothing"


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    measured: dict[tuple[int, int], list[dict[str, float]]] = {}
    repeats = options.repeats or (1 if options.short else 3)
    for step_us in options.step_us:
        name = f"{model},length=0,step_us={step_us},ctx=65536"
        with daemon(name, max_sessions=max(options.streams), scratch_sessions=1, threads=1) as server:
            _measure(server, 1, 200)  # not measured: the first request imports modules and allocates buffers
            for repeat in range(repeats):
                for n_streams in options.streams:
                    n_tokens = _tokens(options.tokens, n_streams, step_us, options.seconds)
                    report.progress(f"step_us={step_us}, {n_streams} streams of {n_tokens} tokens, {repeat + 1}")
                    measured.setdefault((step_us, n_streams), []).append(_measure(server, n_streams, n_tokens))
    for (step_us, n_streams), runs in measured.items():
        _add(report, f"{n_streams} streams, step_us={step_us}", n_streams >= 32, runs)


def _tokens(most: int, n_streams: int, step_us: int, seconds: float) -> int:
    """Returns the number of tokens of a stream, at most `most`. If a step of the model takes time, the number is chosen
    so that the stream takes at most about `seconds`.
    """
    return min(most, int(seconds * 1e6 / max(step_us, 1))) if step_us else most // (1 if n_streams > 1 else 2)


def _measure(server: Server, n_streams: int, n_tokens: int) -> dict[str, float]:
    body: dict[str, Any] = {"prompt": PROMPT, "max_tokens": n_tokens, "ignore_eos": True, "temperature": 0}
    bodies = [{**body, "session_id": f"stream-{number}"} for number in range(n_streams)]
    loop_before_s = thread_cpu_s(server.pid, server.pid)
    run = streams.complete(server.port, bodies)
    loop_s = thread_cpu_s(server.pid, server.pid) - loop_before_s
    n_all = n_tokens * n_streams
    return {
        "tokens/s": n_all / run.whole_s,
        "tokens per loop CPU-second": n_all / loop_s,
        "events per loop CPU-second": run.n_text_events / loop_s,
        "tokens per event": n_all / run.n_text_events,
        "loop share": loop_s / run.whole_s,
    }


def _add(report: Report, case: str, has_target: bool, runs: list[dict[str, float]]) -> None:
    for quantity in runs[0]:
        target = TOKENS_PER_CPU_S if has_target and quantity == "tokens per loop CPU-second" else None
        values = [run[quantity] for run in runs]
        unit = "of a core" if quantity == "loop share" else ""
        report.add(Figure(case=case, quantity=quantity, unit=unit, values=values, at_least=target))
