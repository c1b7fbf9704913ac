"""What HTTP and the decode thread add: one stream through the daemon against the same library called directly.

Both processes have the model loaded and take turns with the same prompts, so that whatever else the machine does hits
both; each repeat gives one ratio, and the median of the ratios counts.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from . import models, streams
from .daemon import Server, daemon
from .report import Figure, Report

RATIO = 0.97
# Ids that are ordinary text in every model, so that a prompt needs no tokenizer.
_FIRST_PLAIN_TOKEN, _PLAIN_TOKENS = 300, 600

# The daemon has two OpenMP teams, one of the thread that loaded the model and one of the decode thread; with more such
# threads than processors libgomp waits a tenth as long before it sleeps. The raw engine has one team: it gets the same.
_RAW_SPINCOUNT = "100"

Generate = Callable[[int, int, int], tuple[float, float]]


def prompt_of(n_tokens: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(_FIRST_PLAIN_TOKEN, _FIRST_PLAIN_TOKEN + _PLAIN_TOKENS), k=n_tokens)


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    about = f"{options.model}: prompt of {options.prompt} tokens, then {options.tokens} tokens after a prompt of 64"
    report = Report("overhead", about)
    path, n_ctx = models.path_of(options.model), max(options.prompt, 64 + options.tokens) + 64
    first: dict[str, list[float]] = {"raw": [], "http": []}
    decode: dict[str, list[float]] = {"raw": [], "http": []}
    with _raw_engine(path, n_ctx, options.threads) as (raw, n_threads):
        with daemon(path, ctx_size=n_ctx, threads=n_threads, max_sessions=1, scratch_sessions=1) as server:
            sides = (("raw", raw), ("http", _through_http(server)))
            for generate in (raw, sides[1][1]):
                generate(options.prompt, 8, 1)
            for repeat in range(options.repeats):
                report.progress(f"{repeat + 1} of {options.repeats}")
                for name, generate in sides if repeat % 2 else sides[::-1]:
                    first[name].append(options.prompt / generate(options.prompt, 1, 100 + repeat)[0] * 1e6)
                for name, generate in sides if repeat % 2 else sides[::-1]:
                    decode[name].append((options.tokens - 1) / generate(64, options.tokens, 2)[1] * 1e6)
    for case, rates in (("prefill, to the first token", first), ("decode", decode)):
        _add(report, f"{case} ({n_threads} threads)", rates)
    return report.close()


def _add(report: Report, case: str, rates: dict[str, list[float]]) -> None:
    report.add(Figure(case=case, quantity="raw engine", unit="tokens/s", values=rates["raw"]))
    report.add(Figure(case=case, quantity="through HTTP", unit="tokens/s", values=rates["http"]))
    ratios = [http / raw for http, raw in zip(rates["http"], rates["raw"], strict=True)]
    report.add(Figure(case=case, quantity="ratio", unit="", values=ratios, at_least=RATIO))


@contextmanager
def _raw_engine(model: str, n_ctx: int, n_threads: int) -> Iterator[tuple[Generate, int]]:
    command = [sys.executable, "-m", "bench.raw_engine", model, str(n_ctx), str(n_threads)]
    environment = os.environ | {"GOMP_SPINCOUNT": _RAW_SPINCOUNT}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=models.ROOT, env=environment
    )
    assert process.stdin is not None and process.stdout is not None
    requests, answers = process.stdin, process.stdout

    def generate(n_prompt: int, n_decode: int, seed: int) -> tuple[float, float]:
        requests.write(f"{n_prompt} {n_decode} {seed}\n")
        requests.flush()
        first_us, decode_us = answers.readline().split()
        return float(first_us), float(decode_us)

    try:
        yield generate, int(answers.readline())
    finally:
        requests.close()
        process.wait()
        answers.close()


def _through_http(server: Server) -> Generate:
    def generate(n_prompt: int, n_decode: int, seed: int) -> tuple[float, float]:
        body = {
            "prompt": prompt_of(n_prompt, seed),
            "max_tokens": n_decode,
            "ignore_eos": True,
            "temperature": 0,
            "repeat_penalty": 1,
            "cache_prompt": False,
            "session_id": "http",
        }
        stream = streams.complete(server.port, [body]).streams[0]
        return stream.first_us, stream.last_us - stream.first_us

    return generate


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench overhead", description=__doc__)
    parser.add_argument("--model", default="bench-dense", help=models.HELP)
    parser.add_argument("--prompt", type=int, default=512, metavar="N", help="tokens of the prompt (%(default)s)")
    parser.add_argument("--tokens", type=int, default=32, metavar="N", help="tokens to produce (%(default)s)")
    parser.add_argument(
        "--threads", type=int, default=0, metavar="N", help="threads of the model; 0: the engine's choice"
    )
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="(%(default)s)")
    return parser
