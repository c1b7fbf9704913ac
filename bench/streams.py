"""Runs many streams at once. A separate process, bench/sse_client.c, sends the requests and measures the times."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import machine

ROOT = Path(__file__).parents[1]
CLIENT = machine.PROGRAMS / "sse_client"

# Number of events without text in the stream of a text completion. It is one: the event with the finish reason.
_EVENTS_BESIDE_TEXT = 1

# Range of token ids that are ordinary text in every model, so that a prompt can be made without a tokenizer.
_FIRST_PLAIN_TOKEN, _PLAIN_TOKENS = 300, 600


def prompt_of(n_tokens: int, seed: int | str) -> list[int]:
    return random.Random(seed).choices(range(_FIRST_PLAIN_TOKEN, _FIRST_PLAIN_TOKEN + _PLAIN_TOKENS), k=n_tokens)


def body(prompt: list[int], n_tokens: int, session: str = "", **parameters: Any) -> dict[str, Any]:
    """Returns the body of a completion request with exactly `n_tokens` tokens of answer, each the most likely one. If
    no session is named, tells the server to reuse no state.
    """
    greedy = {"prompt": prompt, "max_tokens": n_tokens, "ignore_eos": True, "temperature": 0}
    return {**greedy, **({"session_id": session_id(session)} if session else {"cache_prompt": False}), **parameters}


def session_id(name: str) -> str:
    return name.replace(" ", "-")


@dataclass(frozen=True, slots=True)
class Request:
    body: dict[str, Any]
    user: int
    """Number of the user that sends the request. Each user sends one request after the other."""
    pause_ms: int = 0
    """Pause before the request is sent, counted from the end of the user's previous request or, for the first request,
    from the start of the run.
    """
    cancel_ms: int = 0
    """Time after which the client disconnects. 0 if it never does."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The client's measurements of one stream."""

    n_bytes: int
    sent_us: int
    """Time from the start of the run until the request was sent."""
    first_us: int
    """Time from sending the request to the first piece of text. 0 if no text arrived."""
    last_us: int
    """Time from sending the request to the end of the stream."""
    arrivals_us: tuple[int, ...]
    """For each piece of text: the time from sending the request until the text arrived."""

    @property
    def n_text_events(self) -> int:
        return len(self.arrivals_us)

    @property
    def first_ms(self) -> float:
        return self.first_us / 1e3

    @property
    def gaps_ms(self) -> list[float]:
        return [(b - a) / 1e3 for a, b in zip(self.arrivals_us, self.arrivals_us[1:], strict=False)]

    def decode_rate(self, n_tokens: int) -> float:
        """Returns the tokens per second after the first token."""
        return (n_tokens - 1) / (self.last_us - self.first_us) * 1e6


@dataclass(frozen=True, slots=True)
class Run:
    streams: list[Stream]
    client_cpu_s: float

    @property
    def n_text_events(self) -> int:
        return sum(stream.n_text_events for stream in self.streams)

    @property
    def whole_s(self) -> float:
        """Seconds from the sending of the first request to the end of the last stream."""
        first_us = min(stream.sent_us for stream in self.streams)
        return (max(stream.sent_us + stream.last_us for stream in self.streams) - first_us) / 1e6

    @property
    def streaming_s(self) -> float:
        """Seconds from the first text that any stream received to the end of the last stream."""
        first_us = min(stream.sent_us + stream.first_us for stream in self.streams)
        return (max(stream.sent_us + stream.last_us for stream in self.streams) - first_us) / 1e6

    @property
    def gaps_ms(self) -> list[float]:
        return [gap for stream in self.streams for gap in stream.gaps_ms]


def complete(port: int, bodies: Sequence[dict[str, Any]]) -> Run:
    """Sends all bodies to /v1/completions at once, each from another user, and waits until all streams have ended."""
    return send(port, [Request(body, user) for user, body in enumerate(bodies)])


def send(port: int, requests: Sequence[Request]) -> Run:
    """Sends the requests to /v1/completions, and waits until all streams have ended. The requests of one user are sent
    one after the other.
    """
    if not CLIENT.exists():
        raise SystemExit(f"{CLIENT.relative_to(ROOT)} is missing: run ./build.sh bench")
    lines = "".join(
        f"{one.user} {one.pause_ms} {one.cancel_ms} {json.dumps({**one.body, 'stream': True})}\n" for one in requests
    )
    done = subprocess.run(
        [CLIENT, str(port), "/v1/completions"], input=lines.encode(), capture_output=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"a stream was refused: {done.stderr.decode(errors='replace')}")
    return read(done.stdout.decode())


def read(output: str) -> Run:
    """Parses the output of bench/sse_client.c."""
    *rows, cpu = output.splitlines()
    return Run([_stream(row.split(",")) for row in rows], int(cpu.split(",")[1]) / 1e6)


def _stream(fields: list[str]) -> Stream:
    _, n_events, n_bytes, sent_us, first_us, last_us, arrivals = fields
    text_events = max(int(n_events) - _EVENTS_BESIDE_TEXT, 0)
    arrivals_us = tuple(int(arrival) for arrival in arrivals.split()[:text_events])
    return Stream(int(n_bytes), int(sent_us), int(first_us), int(last_us), arrivals_us)
