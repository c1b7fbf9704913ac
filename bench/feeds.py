"""The cost of GET /v1/feed: processor time of llmd with and without clients that watch the sessions."""

from __future__ import annotations

import argparse
import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from . import streams
from .daemon import Server, daemon
from .machine import process_cpu_s
from .report import Figure, Report
from .streams import body

MODELS = ("sim:dense",)
SHARE_AT_MOST = 1.0
"""Percent of a core that five feeds may take."""
PROMPT = [72, 101, 108, 108, 111]
STREAMS = 4
"""Streams that generate during the measurement, so that sessions change all the time."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sessions", type=int, nargs="+", default=[10, 1000], metavar="N", help="open sessions")
    parser.add_argument("--feeds", type=int, default=5, metavar="N", help="clients that watch (%(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="time of one run (%(default)s)")


def about(options: argparse.Namespace) -> str:
    return f"{options.feeds} clients watch the sessions, of which {STREAMS} generate 50 tokens per second"


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    repeats = options.repeats or (2 if options.short else 5)
    for n_sessions in options.sessions:
        name = f"{model},length=0,step_us=20000,ctx=4096"
        with daemon(name, max_sessions=8, max_parked=n_sessions, ctx_size=4096) as server:
            for first in range(0, n_sessions, 100):  # no more connections at once than llmd accepts
                some = range(first, min(first + 100, n_sessions))
                streams.complete(server.port, [body([one % 500, *PROMPT], 1, f"s{one}") for one in some])
            shares: dict[int, list[float]] = {0: [], options.feeds: []}
            for turn in range(repeats):
                for n_feeds in shares:
                    report.progress(f"{n_sessions} sessions, {n_feeds} feeds, {turn + 1} of {repeats}")
                    shares[n_feeds].append(_share(server, n_feeds, options.seconds))
        case = f"{n_sessions} sessions"
        for n_feeds, values in shares.items():
            report.add(
                Figure(case=case, quantity=f"processor time, {n_feeds} feeds", unit="% of a core", values=values)
            )
        added = [many - none for none, many in zip(shares[0], shares[options.feeds], strict=True)]
        report.add(
            Figure(case=case, quantity="added by the feeds", unit="% of a core", values=added, at_most=SHARE_AT_MOST)
        )


def _share(server: Server, n_feeds: int, seconds: float) -> float:
    """Returns the processor time of llmd, in percent of a core, while `n_feeds` feeds are read."""
    n_tokens = int(seconds * 50)
    with _watched(server, n_feeds):
        bodies = [body([one % 500, *PROMPT], n_tokens, f"s{one}") for one in range(STREAMS)]
        before_s, begun_s = process_cpu_s(server.pid), time.monotonic()
        streams.complete(server.port, bodies)
        return 100 * (process_cpu_s(server.pid) - before_s) / (time.monotonic() - begun_s)


@contextmanager
def _watched(server: Server, n_feeds: int) -> Iterator[None]:
    connections = [http.client.HTTPConnection("127.0.0.1", server.port) for _ in range(n_feeds)]
    readers = []
    for connection in connections:
        connection.request("GET", "/v1/feed")
        answer = connection.getresponse()
        answer.readline()
        reader = threading.Thread(target=_read, args=(answer,), daemon=True)
        reader.start()
        readers.append(reader)
    yield
    for connection in connections:
        connection.close()


def _read(answer: http.client.HTTPResponse) -> None:
    try:
        while answer.readline():
            pass
    except (OSError, ValueError, AttributeError, http.client.HTTPException):
        return  # the connection was closed
