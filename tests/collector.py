"""A collector of OpenTelemetry traces for tests: receives spans over HTTP, as a real collector does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATIENCE_S = 60


@dataclass
class ReceivedSpan:
    name: str
    kind: int
    status: int
    trace: str
    id: str
    parent: str
    begin_ns: int
    end_ns: int
    attributes: dict[str, Any]


@dataclass
class Collector:
    """Keeps what it receives. While `is_answering` is not set, it does not answer."""

    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    resource: dict[str, Any] = field(default_factory=dict)
    paths: set[str] = field(default_factory=set)
    headers: dict[str, str] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)
    arrived: threading.Condition = field(default_factory=threading.Condition)
    is_answering: threading.Event = field(default_factory=threading.Event)

    async def requests(self, n: int) -> list[ReceivedSpan]:
        """Waits for the spans of n requests, and returns them."""
        return await asyncio.to_thread(self.wait, n)

    def wait(self, n: int) -> list[ReceivedSpan]:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self._requests()) >= n, PATIENCE_S), self.spans
            return self._requests()

    def _requests(self) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.kind == SERVER]

    def children(self, span: ReceivedSpan) -> list[ReceivedSpan]:
        return [one for one in self.spans if one.parent == span.id]

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        message = ExportTraceServiceRequest.FromString(body)
        with self.arrived:
            self.paths.add(path)
            self.headers = headers
            self.bodies.append(body)
            for group in message.resource_spans:
                self.resource = _attributes(group.resource.attributes)
                self.spans += [_span(span) for scope in group.scope_spans for span in scope.spans]
            self.arrived.notify_all()


SERVER = 2
"""Number of the span kind SERVER in OTLP."""
ERROR = 2
"""Number of the status ERROR in OTLP."""


def _span(span: Any) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        kind=span.kind,
        status=span.status.code,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        begin_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes=_attributes(span.attributes),
    )


def _attributes(found: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in found}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector on a free port of this machine."""
    received = Collector()
    received.is_answering.set()

    class Receiver(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            received.take(
                self.path,
                {name.lower(): value for name, value in self.headers.items()},
                self.rfile.read(int(self.headers["Content-Length"])),
            )
            received.is_answering.wait(PATIENCE_S)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        received.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield received
        finally:
            received.is_answering.set()
            server.shutdown()
            thread.join()
