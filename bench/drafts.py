"""Answers with drafts and without: speed where text repeats or a grammar requires it, and where neither is so.

A model with random weights never repeats what it has read. So a bias makes it write one token again and again. Then
every guess is right, which is the most that drafts can gain. Without the bias, no guess is right, and the time must
stay the same. The model `demo`, which comes with llmd, counts: there some guesses are wrong.

Where a grammar requires a text, random weights choose any tokens that spell it. The keys for such a model therefore
have letters that its vocabulary only has as bytes. The model `demo` calls a tool whose arguments have long names.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from llmd.process.config_table import DEMO_MODEL

from . import client, models
from .conversation import words
from .daemon import Server, daemon
from .report import Figure, Report

MODELS = ("bench-dense", "demo")
REPEATS = 5
GAIN_AT_LEAST, SAME_AT_LEAST = 2.0, 0.98
"""Targets: speed with drafts divided by speed without, where every guess is right, and where none is."""
GRAMMAR_AT_LEAST = 1.3
KEYS = r"""root ::= ("{\"температура_воздуха\": " [0-9] [0-9] ", \"скорость_ветра\": " [0-9] [0-9] "}\n")*"""
REPORTED = ("temperature_in_degrees_celsius", "wind_speed_in_meters_per_second", "relative_humidity_in_percent")
REPORT = {
    "type": "object",
    "properties": {"reports": {"type": "array", "minItems": 20, "items": {
        "type": "object", "properties": {name: {"type": "integer", "maximum": 99} for name in REPORTED},
        "required": [*REPORTED], "additionalProperties": False,
    }}},
    "required": ["reports"],
}  # fmt: skip
CALL = {
    "messages": [{"role": "user", "content": "Report the weather of the last days."}],
    "tools": [{"type": "function", "function": {"name": "report_weather", "parameters": REPORT}}],
    "tool_choice": "required",
}
BIAS = {"logit_bias": {"100": 100}}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tokens", type=int, default=0, metavar="N", help="tokens of an answer (200, with --short 80)")
    parser.add_argument(
        "--draft-model", default="", metavar="NAME", help="use this draft model, a model as for --model; without: none"
    )
    parser.add_argument("--streams", type=int, default=1, metavar="N", help="answers at once (%(default)s)")


def about(options: argparse.Namespace) -> str:
    guessing = f" of {options.draft_model}" if options.draft_model else ""
    return f"{options.streams} answers of {_n_tokens(options)} tokens at once, with drafts{guessing} and without"


def _n_tokens(options: argparse.Namespace) -> int:
    return int(options.tokens or (80 if options.short else 200))


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    path = str(DEMO_MODEL) if model == "demo" else models.path_of(model)
    prose = {"prompt": words("prose", 60)}
    cases: dict[str, tuple[dict[str, Any], float]] = {
        "repeats": ({**prose, **BIAS}, GAIN_AT_LEAST),
        "nothing repeats": (prose, SAME_AT_LEAST),
        "keys of a grammar": ({**prose, "grammar": KEYS}, GRAMMAR_AT_LEAST),
    }
    if model == "demo":
        cases = {
            "counts": ({"messages": [{"role": "user", "content": "Count from 1 to 200."}]}, SAME_AT_LEAST),
            "calls a tool": (CALL, GRAMMAR_AT_LEAST),
        }
    own: dict[str, str] = {"draft_model": models.path_of(options.draft_model)} if options.draft_model else {}
    with daemon(path, **own) as auto, daemon(path, speculate="off") as off:
        for case, (body, at_least) in cases.items():
            shares, accepted = [], Tally(0, 0, 0)
            for repeat in range(options.repeats or REPEATS):
                report.progress(f"{case}: {repeat + 1}")
                without_s, _ = _answers(off, body, options)
                with_s, accepted = _answers(auto, body, options)
                shares.append(without_s / with_s)
            report.add(Figure(case=case, quantity="speed / without", unit="", values=shares, at_least=at_least))
            report.add(Figure(case=case, quantity="accepted drafts", unit="tokens", values=[accepted.n_all]))
            report.add(Figure(case=case, quantity="of a grammar", unit="tokens", values=[accepted.n_of_grammar]))
            if options.draft_model:
                report.add(Figure(case=case, quantity="of a draft model", unit="tokens", values=[accepted.n_of_model]))


class Tally(NamedTuple):
    """Accepted draft tokens of an answer."""

    n_all: float
    n_of_grammar: float
    n_of_model: float


def _answers(server: Server, body: dict[str, Any], options: argparse.Namespace) -> tuple[float, Tally]:
    """Returns the decode time in seconds and the accepted draft tokens per answer, as means."""
    wanted = {**body, "max_tokens": _n_tokens(options), "temperature": 0, "ignore_eos": True}
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    with ThreadPoolExecutor(options.streams) as threads:
        sessions = [
            json.loads(answer)["session"]
            for answer in threads.map(lambda _: client.ask(server.port, "POST", path, wanted), range(options.streams))
        ]

    def mean(name: str) -> float:
        return sum(float(one.get(name, 0)) for one in sessions) / len(sessions)

    return mean("decode_ms") / 1000, Tally(
        mean("accepted_tokens"), mean("grammar_accepted_tokens"), mean("model_accepted_tokens")
    )
