"""An engine in this process, used through its rings as the daemon does. It checks each event strictly."""

from __future__ import annotations

import os
import select
import time
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from llmd.engine.native import REASON_WORDS, GenerateFlag, Outcome, SessionTable, Status, ffi, lib, text_of
from llmd.engine.wire import Admitted, Command, Event, Finished, Forgotten, Generate, Reply, Sampling, Started, Text

DEADLINE_S = 20.0
"""The longest wait for an event that must arrive. No test waits for this time to pass."""

DEVICE = os.environ.get("LLMD_TEST_DEVICE", "")
"""Part of the name of the device that has all layers. If it is empty, the CPU has them."""

GREEDY = Sampling(temperature=0.0)
POLICY_REFUSE, POLICY_EVICT, POLICY_PARK = (
    lib.LLM_POLICY_REFUSE,
    lib.LLM_POLICY_EVICT,
    lib.LLM_POLICY_PARK,
)


def as_bytes(numbers: Iterable[int]) -> bytes:
    return array("i", numbers).tobytes()


@dataclass
class Answer:
    """All events of the engine for one request."""

    text: str = ""
    started: Started | None = None
    finished: Finished | None = None
    reply: Reply | None = None

    @property
    def has_ended(self) -> bool:
        return self.finished is not None or self.reply is not None

    @property
    def end(self) -> Finished:
        assert self.finished is not None
        return self.finished

    @property
    def reason(self) -> str:
        assert self.started is not None
        return REASON_WORDS[self.started.reason]

    @property
    def reused(self) -> int:
        assert self.started is not None
        return self.started.n_reused

    @property
    def is_whole(self) -> bool:
        return self.end.outcome in (Outcome.END, Outcome.LENGTH)


@dataclass
class Places:
    """Options of an engine that tests set. 0 stands for the engine's default."""

    n_sessions: int = 2
    n_scratch: int = 1
    policy: int = POLICY_PARK
    n_ctx: int = 0
    parked_max: int = 0
    parked_bytes: int = 0
    checkpoint_bytes: int = 0
    checkpoint_every: int = 16
    timelines: int = 0
    exact: bool = False
    state_dir: Path | None = None
    table_name: str = ""
    kv_type: int = 0
    threads: int = 1
    extra: dict[str, int] = field(default_factory=dict)


def open_engine(model: str, places: Places) -> Any:
    """Returns an engine that does not serve yet. The caller must close it with llm_engine_close."""
    options = ffi.new("llm_engine_options *")
    kept = {
        name: ffi.new("char[]", str(text).encode())
        for name, text in (("model", model), ("state_dir", places.state_dir), ("table_name", places.table_name))
        if text
    }
    for name, text in kept.items():
        setattr(options, name, text)
    options.n_sessions, options.n_scratch = places.n_sessions, places.n_scratch
    options.capacity_policy, options.n_ctx = places.policy, places.n_ctx
    options.n_parked_max, options.parked_bytes_max = places.parked_max, places.parked_bytes
    options.checkpoint_bytes_max, options.checkpoint_every = places.checkpoint_bytes, places.checkpoint_every
    options.branches_max, options.exact, options.n_threads = places.timelines, places.exact, places.threads
    options.kv_type = places.kv_type
    options.n_gpu_layers = -1 if DEVICE and not places.exact else 0
    for name, number in places.extra.items():
        setattr(options, name, number)
    out, error = ffi.new("llm_engine **"), ffi.new("char[512]")
    status = lib.llm_engine_open(options, out, error, 512)
    assert status == Status.OK, text_of(error)
    return out[0]


class Engine:
    """An engine that serves until `close`. It chooses the request numbers. An answer that arrives twice or without a
    request fails the test.
    """

    def __init__(self, model: str, places: Places, first_request: int = 1) -> None:
        self.places = places
        self.pointer = open_engine(model, places)
        assert lib.llm_engine_start(self.pointer) == Status.OK
        self.session_table = SessionTable.of_engine(self.pointer)
        self.info = ffi.new("llm_info *")
        lib.llm_engine_info(self.pointer, self.info)
        self.answers: dict[int, Answer] = {}
        self.next_request = first_request
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(list[Event])
        self._buffer = ffi.new("char[]", lib.LLM_DRAIN_BYTES_MIN)

    def close(self) -> None:
        lib.llm_engine_close(self.pointer)

    def new_request(self) -> int:
        self.next_request += 1
        return self.next_request - 1

    def push(self, command: Command) -> int:
        """Queues the command, whose answer is then awaited."""
        message = self._encoder.encode(command)
        status = lib.llm_command_push(self.pointer, message, len(message))
        assert status == Status.OK, (status, command)
        return command.request

    def ask(self, make: type[Any], *fields: object) -> int:
        """Sends a command of owner 0 that gets a REPLY."""
        request = self.new_request()
        self.answers[request] = Answer()
        return self.push(make(request, 0, *fields))

    def generate(
        self,
        session: str,
        prompt: list[int],
        n_tokens: int,
        *,
        boundaries: Iterable[int] = (),
        parent: str = "",
        flags: int = 0,
        owner: int = 0,
        sampling: Sampling = GREEDY,
    ) -> int:
        """The first of several boundaries is the end of the system text."""
        request = self.new_request()
        self.answers[request] = Answer()
        ends = sorted(set(boundaries))
        return self.push(
            Generate(
                request=request,
                owner=owner,
                session=session,
                prompt=as_bytes(prompt),
                max_tokens=n_tokens,
                sampling=sampling,
                flags=flags,
                boundaries=as_bytes(ends),
                parent=parent,
                n_head=ends[0] if len(ends) > 1 else 0,
            )
        )

    def poll(self, wait_s: float = 0.0) -> None:
        """Reads the events that have arrived."""
        select.select([lib.llm_events_fd(self.pointer)], [], [], wait_s)
        n_bytes = int(lib.llm_events_drain(self.pointer, self._buffer, lib.LLM_DRAIN_BYTES_MIN))
        if n_bytes > 0:
            for event in self._decoder.decode(ffi.buffer(self._buffer, n_bytes)):
                self._take(event)

    def _take(self, event: Event) -> None:
        if isinstance(event, Forgotten):
            return
        answer = self.answers[event.request]
        assert not answer.has_ended, f"something came after the end: {event}"
        match event:
            case Admitted():
                assert answer.started is None
            case Started():
                assert answer.started is None
                answer.started = event
            case Text():
                answer.text += event.text
            case Finished():
                answer.finished = event
            case Reply():
                answer.reply = event

    def wait(self, requests: Iterable[int]) -> None:
        open_ones = set(requests)
        deadline = time.monotonic() + DEADLINE_S
        while open_ones := {request for request in open_ones if not self.answers[request].has_ended}:
            assert time.monotonic() < deadline, f"stuck: {sorted(open_ones)}"
            self.poll(0.1)

    def wait_for_text(self, request: int) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not self.answers[request].text and not self.answers[request].has_ended:
            assert time.monotonic() < deadline, f"no text: {request}"
            self.poll(0.1)

    def wait_all(self) -> None:
        self.wait(self.answers)

    def say(self, session: str, prompt: list[int], n_tokens: int, **fields: Any) -> Answer:
        """Sends a request and returns its complete answer."""
        request = self.generate(session, prompt, n_tokens, **fields)
        self.wait([request])
        return self.answers[request]

    def cold(self, prompt: list[int], n_tokens: int) -> Answer:
        """Returns the answer without any reuse, which answers with reuse must equal."""
        return self.say("", prompt, n_tokens, flags=GenerateFlag.COLD)

    def do(self, make: type[Any], *fields: object) -> Reply:
        """Sends a command and returns its REPLY."""
        request = self.ask(make, *fields)
        self.wait([request])
        reply = self.answers[request].reply
        assert reply is not None
        return reply

    def tokenize(self, text: str) -> list[int]:
        raw = text.encode()
        out = ffi.new("int32_t[]", len(raw) + 8)
        return list(out[0 : lib.llm_tokenize(self.pointer, raw, len(raw), 0, 0, out, len(raw) + 8)])

    def counter(self, name: str) -> int:
        return self.session_table.counters()[name]

    def resident(self, session: str) -> list[list[int]]:
        """Returns the tokens of each timeline of a session from the session table."""
        entries = self.session_table.entries_of(0, session)
        return [list(tokens) for tokens in map(self.session_table.tokens, sorted(entries)) if tokens is not None]

    def complaints(self) -> list[str]:
        out, found = ffi.new("char[512]"), []
        while lib.llm_engine_complaint(self.pointer, out, 512) == Status.OK:
            found.append(text_of(out))
        return found


@contextmanager
def serving_engine(model: str, places: Places | None = None, **options: Any) -> Iterator[Engine]:
    """Yields an engine that is closed when the block ends, also if the test fails."""
    engine = Engine(model, places or Places(**options))
    try:
        yield engine
    finally:
        engine.close()
