"""What a stream with structured output costs the other streams.

Measures the gaps between the tokens of streams without structured output, called free streams. There are three cases:
the free streams run alone, next to a stream with a JSON schema (a "form"), or next to one more free stream.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time

from llmd.core.generation_request import Constraint
from llmd.engine.engine import Engine
from llmd.engine.opening import EngineOptions
from llmd.engine.wire import Admitted, Consumed, Finished, Generate, Sampling, Started, Text

from . import models
from .report import Figure, Report
from .streams import prompt_of

MODELS = ("bench-small",)
PROMPT_TOKENS = 64
SCHEMA = {
    "type": "object",
    "required": ["rows"],
    "properties": {
        "rows": {
            "type": "array",
            "minItems": 500,
            "items": {
                "type": "object",
                "required": ["name", "count"],
                "properties": {"name": {"type": "string"}, "count": {"type": "integer"}, "note": {"type": "string"}},
                "additionalProperties": False,
            },
        }
    },
}
"""A schema with so many rows that an answer always reaches --tokens before it may end."""


class Heard:
    """Receives the events of one stream, and records the times at which its tokens arrived."""

    def __init__(self) -> None:
        self.at_s: list[float] = []
        self.is_over = asyncio.Event()

    def on_admitted(self, event: Admitted) -> None:
        pass

    def on_started(self, event: Started) -> None:
        pass

    def on_consumed(self, event: Consumed) -> None:
        pass

    def on_text(self, event: Text) -> None:
        self.at_s.append(time.monotonic())

    def on_finished(self, event: Finished) -> None:
        self.is_over.set()

    def gaps_ms(self) -> list[float]:
        return [(later - sooner) * 1000 for sooner, later in zip(self.at_s, self.at_s[1:], strict=False)]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--streams", type=int, default=4, metavar="N", help="number of streams without structured output (%(default)s)"
    )
    parser.add_argument("--tokens", type=int, default=100, metavar="N", help="tokens of each stream (%(default)s)")


def about(options: argparse.Namespace) -> str:
    return f"{options.streams} free streams, alone and beside one with a schema"


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    asyncio.run(_measure(report, models.path_of(model), options))


async def _measure(report: Report, path: str, options: argparse.Namespace) -> None:
    n_ctx = PROMPT_TOKENS + 2 * options.tokens
    engine = await Engine.open(EngineOptions(model=path, n_ctx=n_ctx, n_scratch=options.streams + 1))
    repeats = options.repeats or (2 if options.short else 5)
    form = await engine.make_constraint(0, Constraint("json_schema", json.dumps(SCHEMA)))
    cases = {"alone": None, "beside a form": form, "beside another free stream": b""}
    found: dict[str, list[list[float]]] = {case: [] for case in cases}
    formed: list[float] = []
    for repeat in range(-1, repeats):
        report.progress(f"{repeat + 1} of {repeats}")
        for case, beside in cases.items():
            gaps, beside_ms = await _together(engine, options, beside)
            if repeat >= 0:  # repeat -1 only warms up the engine
                found[case].append(gaps)
                formed += [beside_ms] if case == "beside a form" else []
    for case, runs in found.items():
        _add(report, case, runs)
    report.add(Figure(case="the form's own stream", quantity="median gap", unit="ms", values=formed))
    await engine.close()


async def _together(
    engine: Engine, options: argparse.Namespace, other_grammar: bytes | None
) -> tuple[list[float], float]:
    """Runs all streams at once. Returns the gaps of the free streams, and the median gap of the other stream.
    `other_grammar` is the constraint of the other stream: b"" for a free stream, and None for no other stream.
    """
    free = [Heard() for _ in range(options.streams)]
    other = Heard()
    for number, heard in enumerate(free):
        _begin(engine, heard, number, options.tokens, b"")
    if other_grammar is not None:
        _begin(engine, other, options.streams, options.tokens, other_grammar)
    for heard in free:
        await heard.is_over.wait()
    if other_grammar is not None:
        await other.is_over.wait()
    gaps = [gap for heard in free for gap in heard.gaps_ms()]
    return gaps, statistics.median(other.gaps_ms() or [0.0])


def _begin(engine: Engine, heard: Heard, seed: int, n_tokens: int, constraint: bytes) -> None:
    prompt = b"".join(token.to_bytes(4, "little") for token in prompt_of(PROMPT_TOKENS, seed))
    sampling = Sampling(temperature=0.8, top_k=40, seed=seed)
    engine.generate(
        heard,
        Generate(
            request=0, owner=0, prompt=prompt, max_tokens=n_tokens, flags=3, constraint=constraint, sampling=sampling
        ),
    )


def _add(report: Report, case: str, runs: list[list[float]]) -> None:
    report.add(Figure(case=case, quantity="median gap", unit="ms", values=[statistics.median(run) for run in runs]))
    slow = [statistics.quantiles(run, n=20)[-1] for run in runs]
    report.add(Figure(case=case, quantity="95% of gaps within", unit="ms", values=slow))
