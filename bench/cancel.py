"""A client disconnects during prefill or decode: how long the client's next request waits for the first chunk.

For comparison, the next request is also measured without a request before it.
"""

from __future__ import annotations

import argparse

from . import streams
from .daemon import Server
from .report import OURS, Figure, Report
from .sides import alternating, both
from .streams import Request, body, prompt_of

MODELS = ("bench-dense", "bench-hybrid", "bench-small")
WAITS_MS_AT_MOST = 100.0
NEXT_TOKENS = 8
"""Number of tokens in the prompt of the next request, so few that its prefill takes almost no time."""
N_TOKENS = 400
CASES = {"in prefill": 0, "in decode": 16, "nothing before it": None}
"""For each case: the number of tokens in the prompt of the request whose client disconnects. 0 stands for the long
prompt (--prompt), and None for no such request.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompt", type=int, default=6000, metavar="N", help="tokens of the long prompt (%(default)s)")
    parser.add_argument(
        "--after", type=int, default=1000, metavar="MS", help="time after which the client disconnects (%(default)s)"
    )


def about(options: argparse.Namespace) -> str:
    return f"the client disconnects {options.after} ms after it has sent {options.prompt} tokens, or a short prompt"


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    repeats = options.repeats or (3 if options.short else 9)
    waited: dict[str, dict[str, list[float]]] = {case: {} for case in CASES}
    with both(options, model, n_ctx=options.prompt + N_TOKENS) as servers:
        for turn in range(repeats):
            for side, server in alternating(servers, turn):
                report.progress(f"{turn + 1} of {repeats}: {side}")
                for case, n_prompt in CASES.items():
                    first_ms = _waited(server, f"{turn} {case}", n_prompt, options)
                    waited[case].setdefault(side, []).append(first_ms)
    for case, by_side in waited.items():
        report.compare(case, "first chunk of the next", "ms", by_side)
        if CASES[case] is not None:
            report.add(_figure(case, "first chunk, ours", by_side[OURS], WAITS_MS_AT_MOST))
            added = [a - b for a, b in zip(by_side[OURS], waited["nothing before it"][OURS], strict=True)]
            report.add(_figure(case, "more than with nothing before", added, None))


def _figure(case: str, quantity: str, values: list[float], at_most: float | None) -> Figure:
    return Figure(case=case, quantity=quantity, unit="ms", values=values, at_most=at_most)


def _waited(server: Server, seed: str, n_prompt: int | None, options: argparse.Namespace) -> float:
    """Returns for how many milliseconds the next request waited for its first chunk."""
    after = Request(body(prompt_of(NEXT_TOKENS, f"next {seed}"), 1), user=0)
    if n_prompt is None:
        return streams.send(server.port, [after]).streams[0].first_ms
    before = body(prompt_of(n_prompt or options.prompt, f"left {seed}"), N_TOKENS)
    left = Request(before, user=0, cancel_ms=options.after)
    return streams.send(server.port, [left, after]).streams[1].first_ms
