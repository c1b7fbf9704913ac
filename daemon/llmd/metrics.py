"""What the daemon counts, in Prometheus' text form: the engine's counter table and the event loop's own below."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from . import __version__
from .engine import Engine
from .generation import Generation
from .native import COUNTERS

PREFIX = "llmd_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: str
    help: str


REQUESTS = Metric("requests_total", "counter", "Generations by endpoint and how they ended.")
RESPONSES = Metric("http_responses_total", "counter", "HTTP responses by endpoint and status.")
STREAM_BYTES = Metric("stream_bytes_total", "counter", "Bytes of server-sent events written.")
QUEUE_US = Metric("request_queue_microseconds_total", "counter", "Time that requests waited for their session.")
PREFILL_US = Metric("request_prefill_microseconds_total", "counter", "Time from start to the first token of requests.")
DECODE_US = Metric("request_decode_microseconds_total", "counter", "Time that requests spent producing tokens.")
STREAMS = Metric("streams_open", "gauge", "Streams being written.")
LIVE = Metric("requests_live", "gauge", "Generations that have not ended, waiting ones included.")
EVENTS = Metric("engine_events_total", "counter", "Events taken from the decode thread.")
MODEL_BYTES = Metric("model_bytes", "gauge", "Bytes of the model's weights.")
STATE_BYTES = Metric("state_bytes", "gauge", "Bytes reserved for the KV cache and recurrent state.")
RESIDENT_BYTES = Metric("process_resident_memory_bytes", "gauge", "Resident memory of the process.")
PLACES = Metric("session_places", "gauge", "Places for named sessions.")
CONTEXT = Metric("session_context_tokens", "gauge", "Tokens one session may hold.")
READY = Metric("ready", "gauge", "1 while the daemon can serve.")
BUILD = Metric("build_info", "gauge", "Version, model and backend as labels.")

METRICS = (
    REQUESTS, RESPONSES, STREAM_BYTES, QUEUE_US, PREFILL_US, DECODE_US, STREAMS, LIVE, EVENTS, MODEL_BYTES,
    STATE_BYTES, RESIDENT_BYTES, PLACES, CONTEXT, READY, BUILD,
)  # fmt: skip


class Metrics:
    """The event loop's counters. Not shared with threads."""

    def __init__(self) -> None:
        self._values: dict[Metric, Counter[Labels]] = {}
        self.streams_open = 0
        self.stream_bytes = 0

    def add(self, metric: Metric, amount: int = 1, **labels: str) -> None:
        self._values.setdefault(metric, Counter())[tuple(labels.items())] += amount

    def generation_ended(self, endpoint: str, generation: Generation) -> None:
        self.add(REQUESTS, endpoint=endpoint, outcome=generation.outcome_word)
        finished = generation.finished
        if finished is not None:
            self.add(QUEUE_US, finished.queue_us)
            self.add(PREFILL_US, finished.prefill_us)
            self.add(DECODE_US, finished.decode_us)

    def render(self, engine: Engine, ready: bool) -> bytes:
        lines: list[str] = []
        for counter, value in zip(COUNTERS, engine.page.counters().values(), strict=True):
            kind = "gauge" if counter.is_gauge else "counter"
            lines += _lines(Metric(counter.name, kind, counter.help), {(): value})
        for metric, values in self._all(engine, ready):
            lines += _lines(metric, values)
        return ("\n".join(lines) + "\n").encode()

    def _all(self, engine: Engine, ready: bool) -> Iterator[tuple[Metric, dict[Labels, int]]]:
        info = engine.info
        current = {
            STREAM_BYTES: self.stream_bytes,
            STREAMS: self.streams_open,
            LIVE: engine.n_live,
            EVENTS: engine.events_drained,
            MODEL_BYTES: info.model_bytes,
            STATE_BYTES: info.state_bytes,
            RESIDENT_BYTES: _resident_bytes(),
            PLACES: info.n_sessions,
            CONTEXT: info.n_ctx,
            READY: int(ready),
        }
        about = {"version": __version__, "model": info.name, "arch": info.arch, "backend": info.backend}
        for metric in METRICS:
            if metric is BUILD:
                yield metric, {tuple(about.items()): 1}
            elif metric in current:
                yield metric, {(): current[metric]}
            else:
                yield metric, dict(self._values.get(metric, {}))


def _lines(metric: Metric, values: dict[Labels, int]) -> list[str]:
    name = PREFIX + metric.name
    lines = [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
    lines += [f"{name}{_labels(labels)} {value}" for labels, value in sorted(values.items())]
    return lines


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels) + "}" if labels else ""


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
