"""Sends OpenTelemetry traces: one span for each request that generates, with child spans for the queue, the prefill and
the decoding of each answer. No span has text of a prompt or an answer.

llmd imports this module only if --otel-endpoint is set. A span is made after its request has ended, from the facts of
the request's log line. So both have the same words, and a running request does no work for its span. A thread of the
library sends the spans. Its queue is limited (OTEL_BSP_MAX_QUEUE_SIZE), and a full queue drops spans instead of
blocking.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

try:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.propagate import extract
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context
except ImportError as error:
    raise ImportError(
        "--otel-endpoint needs the Python package opentelemetry-exporter-otlp-proto-http. Install llmd with its extra "
        f"otel, or install this package ({error})"
    ) from error

from .. import __version__
from ..core import limits
from ..core.errors import ApiError
from ..engine.generation import CancelReason, Generation
from ..process.logs import fields
from .boundary import generated
from .context import FACTS, OPERATIONS, STATE

log = logging.getLogger("llmd.http")

_NAME = "llmd"
_PATH = "/v1/traces"
"""Path at which a collector accepts traces. The standard OTLP/HTTP appends the path to the address of the collector."""
_ATTRIBUTES = {
    "reason": "llmd.reason",
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "reused_tokens": "gen_ai.usage.cache_read.input_tokens",
    "generated_tokens": "gen_ai.usage.output_tokens",
}
"""Attributes of spans that the log line has, too, by the name of the field in the log line."""

Value = str | int | float | Sequence[str]
Ended = Callable[[Generation], None]
"""Type of the functions that are called when a generation has ended."""


class Traces:
    """The tracer of OpenTelemetry's library, and the library's thread. The event loop owns this object."""

    def __init__(self, endpoint: str) -> None:
        """Raises ValueError if the library refuses the value of a variable OTEL_…."""
        _limit_log()
        resource = Resource.create({"service.name": _NAME, "service.version": __version__})
        resource = resource.merge(OTELResourceDetector().detect())  # from variables such as OTEL_SERVICE_NAME
        exporter = OTLPSpanExporter(endpoint.rstrip("/").removesuffix(_PATH) + _PATH)
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(_NAME, __version__)

    @property
    def middleware(self) -> Middleware:
        """The middleware that follows the requests. It is called by `boundary`, so only for requests with access."""

        @web.middleware
        async def followed(request: web.Request, handler: Handler) -> web.StreamResponse:
            facts = request[FACTS]
            if facts.endpoint not in request.app[OPERATIONS]:
                return await handler(request)
            trace = facts.trace = RequestTrace(request, self._add)
            try:
                response = await handler(request)
                trace.status, trace.error = response.status, facts.error.code if facts.error is not None else ""
                return response
            except ApiError as error:
                trace.status, trace.error = error.status, error.code
                raise
            except Exception:
                trace.status, trace.error = 500, "internal_error"
                raise
            finally:
                trace.handled()

        return followed

    def _add(self, trace: RequestTrace) -> None:
        try:
            self._add_span(trace)
        except Exception:  # a sampler that OTEL_TRACES_SAMPLER names can have errors; the request must not fail
            log.exception("a request could not be traced")

    def _add_span(self, trace: RequestTrace) -> None:
        span = self._tracer.start_span(
            trace.name, extract(trace.request.headers), SpanKind.SERVER, trace.attributes(), start_time=trace.began_ns
        )
        # The sampler or the client's traceparent has decided against recording this request.
        if not span.is_recording():
            return
        context = set_span_in_context(span)
        for name, number, begin_ns, end_ns in trace.phases():
            phase = self._tracer.start_span(name, context, attributes={"llmd.answer": number}, start_time=begin_ns)
            phase.end(end_ns)
        if trace.error:
            span.set_status(StatusCode.ERROR)
        span.end(trace.ended_ns)

    async def close(self) -> None:
        """Sends the last spans. If the collector does not take them within TRACES_CLOSE_S, they are lost."""
        closing = threading.Thread(target=self._provider.shutdown, name="closing traces", daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, limits.TRACES_CLOSE_S)


class RequestTrace:
    """The facts of one request for its span. `add` is called once, when the handler of the request has returned and all
    its generations have ended. If the client has disconnected, a generation can end after the handler.
    """

    __slots__ = ("_add", "_is_handled", "_queued_ns", "began_ns", "ended_ns", "error", "request", "status")

    def __init__(self, request: web.Request, add: Callable[[RequestTrace], None]) -> None:
        self.request = request
        self.began_ns = time.time_ns()
        self.ended_ns = 0
        self.status = 0
        """The HTTP status, or 0 if the client has disconnected before the answer."""
        self.error = ""
        """The code of the error. If a generation ended without an answer for the client, the outcome of the generation.
        """
        self._add: Callable[[RequestTrace], None] | None = add
        self._queued_ns: dict[Generation, int] = {}
        """For each generation that has ended, the time at which it was queued."""
        self._is_handled = False

    def follow(self, ended: Ended) -> Ended:
        """Adds a generation, which begins now, to the trace. Returns a function to call when the generation has ended.
        This function does the same as `ended`, and records the end in the trace.
        """
        queued_ns = time.time_ns()

        def followed(generation: Generation) -> None:
            ended(generation)
            self._queued_ns[generation] = queued_ns
            self._add_if_over()

        return followed

    def handled(self) -> None:
        """Called when the request's handler has returned."""
        self.ended_ns, self._is_handled = time.time_ns(), True
        self._add_if_over()

    def _add_if_over(self) -> None:
        generations = self._generations()
        if self._add is None or not self._is_handled or any(one.finished is None for one in generations):
            return
        add, self._add = self._add, None
        # Without this line, the request and its trace would refer to each other, and wait for the garbage collector.
        self.request[FACTS].trace = None
        if not self.error:
            failed = (one.outcome_word for one in generations if one.error() is not None)
            self.error = str(next(failed, "" if self.status else CancelReason.CLIENT_GONE))
        add(self)

    def _generations(self) -> Sequence[Generation]:
        answering = self.request[FACTS].answering
        return answering.generations if answering is not None else ()

    # --- what the span has --------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return f"{self._operation} {self._model}".rstrip()

    @property
    def _operation(self) -> str:
        return self.request.app[OPERATIONS][self.request[FACTS].endpoint]

    @property
    def _model(self) -> str:
        state = self.request.app[STATE]
        return state.model_id if state.loaded_model is not None else state.config.model_id

    def attributes(self) -> dict[str, Value]:
        """Returns the attributes of the span. If OpenTelemetry's conventions have a name for a fact, the attribute has
        this name.
        """
        facts, generations = self.request[FACTS], self._generations()
        resource = self.request.match_info.route.resource
        found: dict[str, Value | None] = {
            "gen_ai.operation.name": self._operation,
            "gen_ai.provider.name": _NAME,
            "gen_ai.request.model": self._model,
            "http.request.method": self.request.method,
            "http.route": resource.canonical if resource is not None else None,
            "http.response.status_code": self.status or None,
            "error.type": self.error or None,
            "llmd.request_id": facts.id,
        }
        key = facts.answering.key if facts.answering is not None else facts.key
        if key is not None and not key.is_scratch:
            found["gen_ai.conversation.id"] = key.id
        if generations:
            logged = generated(generations)
            found |= {name: logged.get(field) for field, name in _ATTRIBUTES.items()}
            # OpenTelemetry's library accepts a list of str, but not a list of an enumeration that derives from str.
            found["gen_ai.response.finish_reasons"] = [str(one.outcome_word) for one in generations]
        decoding = [begin_ns for name, _, begin_ns, _ in self.phases() if name == "decode"]
        if decoding:
            found["gen_ai.server.time_to_first_token"] = (min(decoding) - self.began_ns) / 1e9
        return {name: value for name, value in found.items() if value is not None}

    def phases(self) -> Iterator[tuple[str, int, int, int]]:
        """Yields the name, the number of the answer, the begin and the end of each phase of each answer."""
        for number, generation in enumerate(self._generations()):
            queued_ns, finished = self._queued_ns[generation], generation.finished
            assert finished is not None
            started_ns = queued_ns + 1000 * finished.queue_us
            decoding_ns = started_ns + 1000 * finished.prefill_us
            yield "queue", number, queued_ns, started_ns
            if generation.started is not None:
                yield "prefill", number, started_ns, decoding_ns
            if finished.n_generated:
                yield "decode", number, decoding_ns, decoding_ns + 1000 * finished.decode_us


# --- the library's log ------------------------------------------------------------------------------------------------


class LibraryLog(logging.Handler):
    """Passes on messages of OpenTelemetry's library, at most one in TRACES_COMPLAINT_S seconds. The library makes a
    message for each span and each batch that it could not send.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._next_s = -math.inf
        self._n_held_back = 0

    def emit(self, record: logging.LogRecord) -> None:
        if self._clock() < self._next_s:
            self._n_held_back += 1
            return
        more = self._n_held_back or None
        self._n_held_back, self._next_s = 0, self._clock() + limits.TRACES_COMPLAINT_S
        log.warning("traces: %s", record.getMessage(), extra=fields(messages_held_back=more))


def _limit_log() -> None:
    library = logging.getLogger("opentelemetry")
    library.handlers[:] = [LibraryLog()]
    library.propagate = False
