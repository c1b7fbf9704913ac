"""Metrics in Prometheus' text format. The metrics are the engine's counters, current values, and the counts and times
that the daemon has recorded. The event loop owns all objects of this module. Rendering all metrics takes about a
millisecond.

Times are in seconds and sizes in bytes, never in multiples such as milliseconds. Only the names of counters end in
_total.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from .. import __version__
from ..answers.memory import AnswerMemory
from ..engine.engine import Engine
from ..engine.generation import Generation
from ..engine.native import COUNTERS

PREFIX = "llmd_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MICRO = 1e-6

# Without this call, each counter and histogram would also export its creation time, which would double the number of
# time series.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

Family = CounterMetricFamily | GaugeMetricFamily


@dataclass(frozen=True, slots=True)
class Moment:
    """The objects from which the current values are read when metrics are requested."""

    metrics: Metrics
    engine: Engine
    answers: AnswerMemory
    is_ready: bool
    owners: Mapping[int, str]
    """The names of the owners whose usage is shown."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. A metric with buckets is a histogram. A metric with a name in _total is a counter. Any other metric
    is a gauge.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of the buckets of a histogram."""

    @property
    def kind(self) -> str:
        return "histogram" if self.buckets else "counter" if self.name.endswith("_total") else "gauge"


_WAITS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_GAPS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 10)
_DELAYS_S = (0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10)
_RATES = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)

REQUESTS = Metric("requests_total", "Generations, by endpoint and outcome.", ("endpoint", "outcome"))
RESPONSES = Metric("http_responses_total", "HTTP responses, by endpoint and status.", ("endpoint", "status"))
PREFILL_S = Metric(
    "request_prefill_seconds_total", "Total time that requests took from their start to their first token."
)
DECODE_S = Metric("request_decode_seconds_total", "Total time that requests took from their first to their last token.")
# fmt: off
QUEUE = Metric("request_queue_seconds", "Time that a generation waited before it started.", buckets=_WAITS_S)
FIRST = Metric("time_to_first_token_seconds", "Time from the arrival of a request to the first text of its answer.",
               buckets=_WAITS_S)
BETWEEN = Metric("time_between_tokens_seconds", "Time from one text of an answer to the next text.", buckets=_GAPS_S)
DURATION = Metric("request_seconds", "Time from the arrival of a request to the end of its generation.", ("endpoint",),
                  _WAITS_S)
LOOP_LAG = Metric("event_loop_lag_seconds", "Delay of a timer of the event loop that is due every 10 ms.",
                  buckets=_DELAYS_S)
LOOP_WORK = Metric("event_loop_work_seconds",
                   "Part of llmd_event_loop_lag_seconds in which the event loop was busy.", buckets=_DELAYS_S)
PREFILL_RATE = Metric("prefill_tokens_per_second", "Prompt tokens that a request prefilled per second.", buckets=_RATES)
BUILD = Metric("build_info", "Always 1; the labels are version, model, arch and backend.",
               ("version", "model", "arch", "backend"))

OWNER_REQUESTS = Metric("owner_requests_total", "Generations of an owner, if there are API keys.", ("owner",))
OWNER_PREFILLED = Metric("owner_prefilled_tokens_total", "Prompt tokens prefilled for an owner.", ("owner",))
OWNER_REUSED = Metric("owner_reused_tokens_total", "Prompt tokens of an owner whose state was reused.", ("owner",))
OWNER_GENERATED = Metric("owner_generated_tokens_total", "Tokens generated for an owner.", ("owner",))

_BY_OWNER = (OWNER_REQUESTS, OWNER_PREFILLED, OWNER_REUSED, OWNER_GENERATED)
_COUNTED = (REQUESTS, RESPONSES, PREFILL_S, DECODE_S)
_MEASURED = (QUEUE, FIRST, BETWEEN, DURATION, PREFILL_RATE, LOOP_LAG, LOOP_WORK)
_READ: dict[Metric, Callable[[Moment], float]] = {
    Metric("engine_events_total", "Events received from the decode thread."):
        lambda at: at.engine.events_drained,
    Metric("stream_bytes_total", "Bytes written to streams."):
        lambda at: at.metrics.stream_bytes,
    Metric("streams_open", "Open streams."):
        lambda at: at.metrics.streams_open,
    Metric("requests_live", "Generations that are waiting or running."):
        lambda at: at.engine.n_live,
    Metric("remembered_answers_bytes", "Host memory for past answers and their tokens."):
        lambda at: at.answers.n_bytes,
    Metric("remembered_answers_dropped_total", "Past answers dropped because their memory was full."):
        lambda at: at.answers.n_dropped,
    Metric("connections_open", "Open connections of clients."):
        lambda at: at.metrics.connections_open,
    Metric("model_bytes", "Size of the model's weights."):
        lambda at: at.engine.info.model_bytes,
    Metric("state_bytes", "Maximum size of the KV cache and recurrent state."):
        lambda at: at.engine.info.state_bytes,
    Metric("kv_usage_ratio", "Used part of the KV cache and recurrent state, 0 to 1."):
        lambda at: _gauge(at, "state_used_bytes") / max(1, at.engine.info.state_bytes),
    Metric("slots_free", "Slots that no branch occupies, including slots for scratch branches."):
        # at least 0, because open branches can wait for a slot
        lambda at: max(0, at.engine.info.n_sessions + at.engine.info.n_scratch
        - (_gauge(at, "sessions_open") - _gauge(at, "sessions_parked"))),
    Metric("process_resident_memory_bytes", "Resident memory of the process."):
        lambda _: _resident_bytes(),
    Metric("session_places", "Slots for named sessions."):
        lambda at: at.engine.info.n_sessions,
    Metric("session_context_tokens", "Maximum tokens of one branch."):
        lambda at: at.engine.info.n_ctx,
    Metric("ready", "1 while llmd can serve requests."):
        lambda at: at.is_ready,
}
# fmt: on
METRICS = (*_COUNTED, *_MEASURED, *_BY_OWNER, *_READ, BUILD)

Observe = Callable[[float], None]


class Metrics:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock  # not the event loop's clock, which is only exact to a millisecond
        self._registry = prometheus_client.CollectorRegistry(auto_describe=False)
        self._counters = {
            metric: prometheus_client.Counter(PREFIX + metric.name, metric.help, metric.labels, registry=self._registry)
            for metric in _COUNTED
        }
        self._histograms = {
            metric: prometheus_client.Histogram(
                PREFIX + metric.name, metric.help, metric.labels, registry=self._registry, buckets=metric.buckets
            )
            for metric in _MEASURED
        }
        self._usage: dict[int, list[int]] = {}
        """For each owner with a key, the values of the metrics _BY_OWNER. Not in the registry, because most callers see
        only their own usage.
        """
        self.streams_open: int = 0
        self.stream_bytes: int = 0
        """Bytes written to streams. A plain number, because increasing a counter of the registry would cost more than
        the rest of a write.
        """
        self.connections_open: int = 0

    def add(self, metric: Metric, amount: float = 1, **labels: str) -> None:
        counter = self._counters[metric]
        (counter.labels(**labels) if labels else counter).inc(amount)

    def loop_was_late(self, late_s: float, worked_s: float) -> None:
        self._histograms[LOOP_LAG].observe(late_s)
        self._histograms[LOOP_WORK].observe(worked_s)

    def watch(self, came_s: float) -> Watch:
        """Returns an object that measures the times of one generation. `came_s` is the time, by `time.monotonic`, at
        which the request of the generation arrived.
        """
        return Watch(self._clock, came_s, self._histograms[FIRST].observe, self._histograms[BETWEEN].observe)

    def generation_ended(self, endpoint: str, generation: Generation, seconds: float, owner: int | None = None) -> None:
        """Counts a generation. `owner` is its owner, or None if there are no API keys."""
        self.add(REQUESTS, endpoint=endpoint, outcome=generation.outcome_word)
        self._histograms[DURATION].labels(endpoint=endpoint).observe(seconds)
        finished = generation.finished
        if finished is not None:
            self._histograms[QUEUE].observe(finished.queue_us * _MICRO)
            self.add(PREFILL_S, finished.prefill_us * _MICRO)
            self.add(DECODE_S, finished.decode_us * _MICRO)
            if finished.n_prefilled and finished.prefill_us:
                rate = finished.n_prefilled / (finished.prefill_us * _MICRO)
                self._histograms[PREFILL_RATE].observe(rate)
            if owner is not None:
                added = (1, finished.n_prefilled, finished.n_reused, finished.n_generated)
                self._usage[owner] = [a + b for a, b in zip(self._usage.get(owner, (0, 0, 0, 0)), added, strict=True)]

    @property
    def owners(self) -> Iterable[int]:
        """The owners whose usage has been counted."""
        return self._usage.keys()

    def usage(self, owner: int) -> list[int]:
        """Returns the values of the metrics _BY_OWNER for an owner."""
        return self._usage[owner]

    def render(
        self, engine: Engine, answers: AnswerMemory, ready: bool, owners: Mapping[int, str] | None = None
    ) -> bytes:
        """Returns the metrics as text, with the usage of `owners`, which maps owners to their names."""
        now = _now(Moment(self, engine, answers, ready, owners or {}))
        return prometheus_client.generate_latest(_Exposition(self._registry, now))


def _now(at: Moment) -> Iterator[Family]:
    for counter, value in zip(COUNTERS, at.engine.session_table.counters().values(), strict=True):
        kind = GaugeMetricFamily if counter.is_gauge else CounterMetricFamily
        yield kind(PREFIX + counter.name, counter.help, value * _MICRO if counter.is_time else value)
    for metric, read in _READ.items():
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        yield kind(PREFIX + metric.name, metric.help, read(at))
    for number, metric in enumerate(_BY_OWNER):
        family = CounterMetricFamily(PREFIX + metric.name, metric.help, labels=metric.labels)
        for owner, name in at.owners.items():
            family.add_metric((name,), at.metrics.usage(owner)[number])
        yield family
    info = at.engine.info
    build = GaugeMetricFamily(PREFIX + BUILD.name, BUILD.help, labels=BUILD.labels)
    build.add_metric((__version__, info.name, info.arch, info.backend), 1)
    yield build


class Watch:
    __slots__ = ("_came_s", "_clock", "_last_s", "_observe", "_observe_next")

    def __init__(self, clock: Callable[[], float], came_s: float, first: Observe, following: Observe) -> None:
        self._clock = clock
        self._came_s = self._last_s = came_s
        self._observe = first
        self._observe_next = following

    def text(self) -> None:
        now = self._clock()
        self._observe(now - self._last_s)
        self._observe = self._observe_next
        self._last_s = now

    def seconds(self) -> float:
        return self._clock() - self._came_s


class _Exposition(Collector):
    """All metrics for one answer of /metrics. They are the metrics of the registry, and metrics with values that were
    just read.
    """

    def __init__(self, registry: Collector, now: Iterable[Family]) -> None:
        self._registry = registry
        self._now = now

    def collect(self) -> Iterator[prometheus_client.Metric]:
        yield from self._registry.collect()
        yield from self._now


def _gauge(at: Moment, name: str) -> int:
    return at.engine.session_table.counters()[name]


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
