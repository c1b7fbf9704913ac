"""What idle sessions cost a running session. A daemon with other sessions is compared with a daemon that has none.

An idle session should cost only memory. The two daemons get the same prompts, one daemon after the other.
"""

from __future__ import annotations

import argparse
from typing import Any

from . import models, streams
from .daemon import Server, daemon
from .report import Figure, Report

MODELS = ("bench-small",)
RATIO = 0.9
DECODE_PROMPT_TOKENS = 64


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sessions", type=int, default=6, metavar="N", help="idle sessions (%(default)s)")
    parser.add_argument(
        "--context", type=int, default=1500, metavar="N", help="tokens of each idle session (%(default)s)"
    )
    parser.add_argument(
        "--prompt", type=int, default=900, metavar="N", help="tokens of the prompt to prefill (%(default)s)"
    )
    parser.add_argument("--tokens", type=int, default=60, metavar="N", help="tokens to generate (%(default)s)")


def about(options: argparse.Namespace) -> str:
    return f"alone and beside {options.sessions} idle sessions of {options.context} tokens"


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    flags: dict[str, Any] = {
        "max_sessions": options.sessions + 1,
        "ctx_size": max(options.context, options.prompt) + options.tokens + DECODE_PROMPT_TOKENS,
    }
    path, repeats = models.path_of(model), options.repeats or (2 if options.short else 5)
    prefill: list[tuple[float, float]] = []
    decode: list[tuple[float, float]] = []
    with daemon(path, **flags) as empty, daemon(path, **flags) as full:
        for number in range(options.sessions):
            _first_s(full, f"idle-{number}", options.context, 1000 + number)
        for repeat in range(-1, repeats):
            report.progress(f"{repeat + 1} of {repeats}")
            alone_s, beside_s = (_first_s(server, "running", options.prompt, repeat) for server in (empty, full))
            alone, beside = (_tokens_per_s(server, options.tokens, repeat) for server in (empty, full))
            if repeat >= 0:  # repeat -1 only warms up the daemons
                prefill.append((options.prompt / alone_s, options.prompt / beside_s))
                decode.append((alone, beside))
    _add(report, f"prefill of {options.prompt} tokens", prefill)
    _add(report, f"decode of {options.tokens} tokens", decode)


def _add(report: Report, case: str, rates: list[tuple[float, float]]) -> None:
    report.add(Figure(case=case, quantity="alone", unit="tokens/s", values=[alone for alone, _ in rates]))
    report.add(Figure(case=case, quantity="beside", unit="tokens/s", values=[beside for _, beside in rates]))
    ratios = [beside / alone for alone, beside in rates]
    report.add(Figure(case=case, quantity="ratio", unit="", values=ratios, at_least=RATIO))


def _stream(server: Server, session: str, n_prompt: int, seed: int, n_tokens: int) -> streams.Stream:
    asked = streams.body(streams.prompt_of(n_prompt, seed), n_tokens, session, cache_prompt=False)
    return streams.complete(server.port, [asked]).streams[0]


def _first_s(server: Server, session: str, n_prompt: int, seed: int) -> float:
    return _stream(server, session, n_prompt, seed, 1).first_us / 1e6


def _tokens_per_s(server: Server, n_tokens: int, seed: int) -> float:
    stream = _stream(server, "running", DECODE_PROMPT_TOKENS, seed, n_tokens)
    return stream.decode_rate(n_tokens)
