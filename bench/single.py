"""One stream after prompts of many lengths: time to first token, prefill, decode.

llama-server and llama-bench are also measured. llama-bench runs llama.cpp without a server. The tokens are decoded
after the prompt. So their depth is the length of the prompt.

"beside the model's steps" is the overhead of llmd. It is the part of a request's time in which no step of the
model runs.
"""

from __future__ import annotations

import argparse

from . import models, peer, streams
from .daemon import Server
from .report import OURS, Figure, Report
from .sides import alternating, both

MODELS = ("bench-dense", "bench-hybrid", "bench-small")
ENGINE = "llama-bench"
# Longest prompt that llama-bench prefills here. It prefills each prompt twice, the first time to warm up, so longer
# prompts would take too long.
ENGINE_PREFILL_MAX = 1000
# Targets for decode: the smallest ratio of llmd's tokens per second to llama-server's, by depth. At depths that are not
# listed here, the smallest ratio is 1.0.
DECODE_AT_LEAST = {4000: 1.5}
# Target for decode: the smallest ratio of llmd's tokens per second to llama-bench's, at every depth.
ENGINE_AT_LEAST = 0.98

Rates = dict[str, list[float]]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prompts", type=int, nargs="+", default=[], metavar="N", help="lengths of the prompts in tokens"
    )
    parser.add_argument("--tokens", type=int, default=32, metavar="N", help="tokens to generate (%(default)s)")


def about(options: argparse.Namespace) -> str:
    return f"one stream, {options.tokens} tokens after prompts of {', '.join(map(str, prompts_of(options)))}"


def prompts_of(options: argparse.Namespace) -> list[int]:
    found: list[int] = options.prompts or ([64, 520, 4000] if options.short else [64, 520, 4000, 6000, 16000])
    return found


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    prompts, repeats = prompts_of(options), options.repeats or (1 if options.short else 3)
    prefill: dict[int, Rates] = {n: {} for n in prompts}
    decode: dict[int, Rates] = {n: {} for n in prompts}
    first: dict[int, Rates] = {n: {} for n in prompts}
    beside: dict[int, list[float]] = {n: [] for n in prompts}
    with both(options, model, n_ctx=max(prompts) + options.tokens + 64) as servers:
        for server in servers.values():
            _stream(server, 64, 8, "warm")
        for turn in range(repeats):
            for n in prompts:
                report.progress(f"{turn + 1} of {repeats}: {n} tokens")
                for side, server in alternating(servers, turn):
                    # llmd's counter is read before the turn of every server, so that all turns are alike.
                    steps_s = _steps_s(servers[OURS])
                    stream = _stream(server, n, options.tokens, f"{turn} {n}")
                    if side == OURS:
                        beside[n].append(100 * (1 - (_steps_s(server) - steps_s) / (stream.last_us / 1e6)))
                    report.progress(
                        f"  {side}: {stream.first_ms:.0f} ms, {stream.decode_rate(options.tokens):.1f} tokens/s"
                    )
                    first[n].setdefault(side, []).append(stream.first_ms)
                    prefill[n].setdefault(side, []).append(n / stream.first_us * 1e6)
                    decode[n].setdefault(side, []).append(stream.decode_rate(options.tokens))
                if peer.directory() is not None:
                    _engine(model, n, options.tokens, prefill[n], decode[n])
    for n in prompts:
        case = f"{n} tokens"
        report.compare(case, "first token", "ms", first[n])
        report.compare(case, "prefill", "tokens/s", prefill[n], at_least=1.0 if n >= 520 else None)
        report.compare(case, "decode", "tokens/s", decode[n], at_least=DECODE_AT_LEAST.get(n, 1.0))
        report.add_ratio(case, "decode", decode[n], against=ENGINE, at_least=ENGINE_AT_LEAST)
        report.add(Figure(case=case, quantity="beside the model's steps", unit="% of the time", values=beside[n]))


def _steps_s(server: Server) -> float:
    return server.metric("llmd_step_seconds_total")


def _stream(server: Server, n_prompt: int, n_tokens: int, seed: str) -> streams.Stream:
    prompt = streams.prompt_of(n_prompt, seed)
    return streams.complete(server.port, [streams.body(prompt, n_tokens)]).streams[0]


def _engine(model: str, n_prompt: int, n_tokens: int, prefill: Rates, decode: Rates) -> None:
    prompts = [n_prompt] if n_prompt <= ENGINE_PREFILL_MAX else []
    for rate in peer.engine(models.path_of(model), prompts, n_tokens, [n_prompt], repeats=1):
        rates = prefill if rate.n_prompt else decode
        rates.setdefault(ENGINE, []).extend(rate.tokens_per_s)
