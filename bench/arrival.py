"""One or two long prompts arrive during four streams: gaps of streams, time to first token of prompts.

A gap is the time between two texts of a stream. A step is the median gap of the four streams while no other request
runs. "longest gap" is the median of the longest gaps of the four streams. A single stream can have a long gap without a
pause of the model, because its text waits until all tokens of a character have been generated. So the median is used. A
newcomer is a request with a long prompt.
"""

from __future__ import annotations

import argparse
import math
import statistics
from typing import Any

from . import streams
from .daemon import Server
from .report import OURS, Figure, Report
from .sides import alternating, both
from .streams import Request, Run, body, prompt_of

MODELS = ("bench-dense", "bench-hybrid", "bench-small")
STREAMS, PROMPT_TOKENS = 4, 64
ARRIVES_AFTER_STEPS = 20
# The streams run for this multiple of the time that a newcomer's prompt takes alone.
SLOWED = 2.5
CALIBRATION_TOKENS = 16
STEPS_AT_MOST, GAP_MS_AT_MOST = 2.0, 100.0
ALONE_AT_MOST = 1.3

Samples = dict[str, dict[str, list[float]]]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompt", type=int, default=0, metavar="N", help="tokens of the prompt that arrives")
    parser.add_argument(
        "--tokens", type=int, default=3000, metavar="N", help="maximum tokens of a stream (%(default)s)"
    )


def about(options: argparse.Namespace) -> str:
    return f"{STREAMS} streams, then {_prompt(options)} tokens arrive"


def _prompt(options: argparse.Namespace) -> int:
    return int(options.prompt or (2000 if options.short else 6000))


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    n_prompt, repeats = _prompt(options), options.repeats or (1 if options.short else 3)
    samples: Samples = {}
    with both(options, model, slots=STREAMS + 2, n_ctx=max(n_prompt, options.tokens + PROMPT_TOKENS) + 64) as servers:
        for turn in range(repeats):
            for side, server in alternating(servers, turn):
                report.progress(f"{turn + 1} of {repeats}: {side}")
                _turn(server, f"{turn}", n_prompt, options.tokens, samples.setdefault(side, {}))
    for name, unit in QUANTITIES.items():
        report.compare(
            f"{n_prompt} tokens arrive", name, unit, {side: values[name] for side, values in samples.items()}
        )
    _add_targets(report, f"{n_prompt} tokens arrive", samples[OURS])


QUANTITIES = {
    "step of the streams": "ms",
    "longest gap": "ms",
    "longest gap beside two": "ms",
    "gap meanwhile, median": "ms",
    "newcomer alone": "ms",
    "newcomer beside the streams": "ms",
    "later of two newcomers": "ms",
}


def _turn(server: Server, seed: str, n_prompt: int, n_tokens_max: int, samples: dict[str, list[float]]) -> None:
    alone = streams.complete(server.port, [_newcomer(seed, "alone", n_prompt)]).streams[0].first_ms
    step = statistics.median(streams.complete(server.port, _running(f"{seed} calibration", CALIBRATION_TOKENS)).gaps_ms)
    arrives_ms = int(ARRIVES_AFTER_STEPS * step) + 1
    n_tokens = [min(n_tokens_max, int(ARRIVES_AFTER_STEPS + SLOWED * n * alone / step)) for n in (1, 2)]
    one = _with_arrivals(server, f"{seed} one", n_prompt, n_tokens[0], [arrives_ms])
    two = _with_arrivals(server, f"{seed} two", n_prompt, n_tokens[1], [arrives_ms, arrives_ms])
    values = (
        step,
        _longest_gap(one, arrives_ms),
        _longest_gap(two, arrives_ms),
        statistics.median(_gaps_meanwhile(one, arrives_ms)),
        alone,
        one.streams[STREAMS].first_ms,
        max(stream.first_ms for stream in two.streams[STREAMS:]),
    )
    for name, value in zip(QUANTITIES, values, strict=True):
        samples.setdefault(name, []).append(value)


def _longest_gap(run: Run, from_ms: float) -> float:
    """Returns the median of the longest gaps of the streams after `from_ms`, in milliseconds."""
    return statistics.median(max(gaps_from(stream, from_ms), default=0.0) for stream in run.streams[:STREAMS])


def _gaps_meanwhile(run: Run, arrives_ms: float) -> list[float]:
    """Returns the gaps of all streams while the prompt of the newcomer is prefilled."""
    until_ms = arrives_ms + run.streams[STREAMS].first_ms
    gaps = [gap for stream in run.streams[:STREAMS] for gap in gaps_from(stream, arrives_ms, until_ms)]
    return gaps or [0.0]


def gaps_from(stream: streams.Stream, from_ms: float, until_ms: float = math.inf) -> list[float]:
    """Returns the gaps of a stream in milliseconds. Only gaps that end after `from_ms` and not after `until_ms` are
    included.
    """
    at = [arrival / 1e3 for arrival in stream.arrivals_us]
    return [b - a for a, b in zip(at, at[1:], strict=False) if from_ms < b <= until_ms]


def _running(seed: str, n_tokens: int) -> list[dict[str, Any]]:
    names = [f"{seed} {number}" for number in range(STREAMS)]
    return [body(prompt_of(PROMPT_TOKENS, name), n_tokens, name) for name in names]


def _with_arrivals(server: Server, seed: str, n_prompt: int, n_tokens: int, arrivals_ms: list[int]) -> Run:
    running = [Request(one, user) for user, one in enumerate(_running(seed, n_tokens))]
    arriving = [
        Request(_newcomer(seed, f"new {number}", n_prompt), STREAMS + number, pause_ms=arrives_ms)
        for number, arrives_ms in enumerate(arrivals_ms)
    ]
    return streams.send(server.port, [*running, *arriving])


def _newcomer(seed: str, name: str, n_prompt: int) -> dict[str, Any]:
    return body(prompt_of(n_prompt, f"{seed} {name}"), 1)


def _add_targets(report: Report, case: str, ours: dict[str, list[float]]) -> None:
    steps = [
        gap / max(step, GAP_MS_AT_MOST / STEPS_AT_MOST)
        for gap, step in zip(ours["longest gap"], ours["step of the streams"], strict=True)
    ]
    # The target for the longest gap is two steps or 100 ms, whichever is longer.
    report.add(
        Figure(
            case=case, quantity="longest gap, in steps of at least 50 ms", unit="", values=steps, at_most=STEPS_AT_MOST
        )
    )
    slower = [
        next_to_streams / alone
        for next_to_streams, alone in zip(ours["newcomer beside the streams"], ours["newcomer alone"], strict=True)
    ]
    report.add(Figure(case=case, quantity="newcomer beside / alone", unit="", values=slower, at_most=ALONE_AT_MOST))
