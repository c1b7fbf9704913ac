"""The only module that loads libllm's extension module. Gives Python names to the enumerations and tables of libllm.

An environment variable must be set before libllm is loaded. Without it, llama.cpp starts a debugger after a failed
assertion. This module sets the variable first. Other modules must not load libllm themselves.
"""

from __future__ import annotations

import enum
import functools
import importlib.machinery
import importlib.util
import itertools
import os
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
DEFAULT_VARIANT = "native"


class NativeLibraryMissing(ImportError):
    """Raised if libllm has not been built, or was built for another machine."""


def _load() -> Any:
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    variant = os.environ.get("LLMD_LIBLLM_VARIANT", DEFAULT_VARIANT)
    directory = Path(__file__).parents[1] / "_native" / variant
    spec = importlib.machinery.PathFinder.find_spec("_libllm", [str(directory)])
    if spec is None or spec.loader is None:
        raise NativeLibraryMissing(f"the native library is not in {directory}; build it with: ./build.sh setup")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise NativeLibraryMissing(
            f"the native library in {directory} does not load ({error}); build it again with: ./build.sh setup"
        ) from error
    return module


_module = _load()
lib: Any = _module.lib
ffi: Any = _module.ffi


def text_of(pointer: Any) -> str:
    """Returns the text of a NUL-terminated C string, or "" for NULL."""
    return bytes(ffi.string(pointer)).decode("utf-8", "replace") if pointer else ""


_CONVERTERS: dict[str, Callable[[Any], Any]] = {"int": int, "bool": bool, "str": text_of}


def copied(raw: Any, kind: Callable[..., T], **otherwise: Any) -> T:
    """Copies a C struct to a dataclass whose fields have the names of the struct's members. A test checks that the
    names are equal. `otherwise` has the values of fields whose types have no converter.
    """
    plain = {name: convert(getattr(raw, name)) for name, convert in _plain(kind) if name not in otherwise}
    return kind(**plain, **otherwise)


@cache
def _plain(kind: Any) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    found = ((field.name, _CONVERTERS.get(str(field.type))) for field in fields(kind))
    return tuple((name, convert) for name, convert in found if convert is not None)


# --- words -----------------------------------------------------------------------------------------------------------


class Status(enum.IntEnum):
    OK = lib.LLM_OK
    INVALID = lib.LLM_INVALID
    FULL = lib.LLM_FULL
    NOT_FOUND = lib.LLM_NOT_FOUND
    IO = lib.LLM_IO
    CONTEXT_LENGTH = lib.LLM_CONTEXT_LENGTH
    CAPACITY = lib.LLM_CAPACITY
    CANCELLED = lib.LLM_CANCELLED
    SHUTDOWN = lib.LLM_SHUTDOWN
    TEMPLATE = lib.LLM_TEMPLATE
    VERSION = lib.LLM_VERSION
    BUSY = lib.LLM_BUSY
    EXISTS = lib.LLM_EXISTS
    PINS = lib.LLM_PINS
    SAVED_FULL = lib.LLM_SAVED_FULL


class Outcome(enum.IntEnum):
    END = lib.LLM_OUTCOME_END
    STOP = lib.LLM_OUTCOME_STOP
    LENGTH = lib.LLM_OUTCOME_LENGTH
    CANCELLED = lib.LLM_OUTCOME_CANCELLED
    REFUSED = lib.LLM_OUTCOME_REFUSED
    FAILED = lib.LLM_OUTCOME_FAILED
    SHUTDOWN = lib.LLM_OUTCOME_SHUTDOWN


class GenerateFlag(enum.IntFlag):
    IGNORE_END = lib.LLM_GENERATE_IGNORE_END
    COLD = lib.LLM_GENERATE_COLD
    RETURN_TOKENS = lib.LLM_GENERATE_RETURN_TOKENS
    RETURN_CONSUMED = lib.LLM_GENERATE_RETURN_CONSUMED
    NO_DRAFTS = lib.LLM_GENERATE_NO_DRAFTS


def vocabulary(number: int, count: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the words of a table in llm_words.h, and the sentences that explain them. `number` is the table's number,
    and `count` its number of rows.
    """
    words = (text_of(lib.llm_word(number, value)) for value in range(count))
    texts = (text_of(lib.llm_sentence(number, value)) for value in range(count))
    return tuple(words), tuple(texts)


STATUS_WORDS, STATUS_TEXTS = vocabulary(lib.LLM_STATUSES, lib.LLM_STATUS_N)
REASON_WORDS, REASON_TEXTS = vocabulary(lib.LLM_REASONS, lib.LLM_REASON_N)
OUTCOME_WORDS, _ = vocabulary(lib.LLM_OUTCOMES, lib.LLM_OUTCOME_N)
STATE_WORDS, _ = vocabulary(lib.LLM_STATES, lib.LLM_STATE_N)
PLACE_WORDS, _ = vocabulary(lib.LLM_PLACES, lib.LLM_PLACE_N)
MEMORY_WORDS, _ = vocabulary(lib.LLM_MEMORIES, lib.LLM_MEMORY_N)
POLICY_WORDS, _ = vocabulary(lib.LLM_POLICIES, lib.LLM_POLICY_N)
KV_TYPE_WORDS, _ = vocabulary(lib.LLM_KV_TYPES, lib.LLM_KV_TYPE_N)
SAMPLER_WORDS, _ = vocabulary(lib.LLM_SAMPLERS, lib.LLM_SAMPLER_N)
JSON_WORDS, JSON_TEXTS = vocabulary(lib.LLM_JSON_VERDICTS, lib.LLM_JSON_N)


@dataclass(frozen=True, slots=True)
class Field:
    """A member of a command, or a parameter of the command's member `sampling`."""

    name: str
    type: str
    is_needed: bool
    default: float
    """Value that applies if the member is missing."""


def _fields(field: Callable[[int, Any], int]) -> tuple[Field, ...]:
    raw = ffi.new("llm_field *")
    found: list[Field] = []
    while field(len(found), raw) == Status.OK:
        kind = ffi.string(ffi.cast("llm_field_type", raw.type)).removeprefix("LLM_FIELD_")
        default = raw.otherwise if kind == "FLOAT" else int(raw.otherwise)
        found.append(Field(text_of(raw.name), kind, bool(raw.is_needed), default))
    return tuple(found)


def _members(event: int) -> tuple[str, ...]:
    names = (text_of(lib.llm_event_member(event, number)) for number in itertools.count())
    return tuple(itertools.takewhile(bool, names))


def _numbers(enumeration: str, prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): number for number, name in ffi.typeof(enumeration).elements.items()}


SAMPLING_FIELDS = _fields(lib.llm_sampling_field)
COMMANDS = {
    name: (number, _fields(functools.partial(lib.llm_command_field, number)))
    for name, number in _numbers("llm_command_op", "LLM_COMMAND_").items()
}
EVENTS = {name: (number, _members(number)) for name, number in _numbers("llm_event_op", "LLM_EVENT_").items()}

SAVED_MAX = int(lib.LLM_SAVED_MAX)
SAVED_PER_OWNER_MAX = int(lib.LLM_SAVED_PER_OWNER_MAX)


def version() -> str:
    return text_of(lib.llm_version())


def backend_version() -> str:
    return text_of(lib.llm_backend_version())


def gpu_trouble() -> str:
    """Returns the reason why libllm computes everything on the CPU although it was built for a GPU. Returns "" if
    libllm uses a GPU, or was built for the CPU only.
    """
    return text_of(lib.llm_gpu_trouble())


def processor() -> str:
    """Returns a description, for people, of the processor features that libllm uses."""
    out = ffi.new("char[]", _PROCESSOR_BYTES)
    lib.llm_processor(out, _PROCESSOR_BYTES)
    return text_of(out)


_PROCESSOR_BYTES = 1024


# --- the session table -----------------------------------------------------------------------------------------------


def loading_per_mille() -> int:
    """Returns how much of the model has been read, in thousandths. Can be called in any thread."""
    return int(lib.llm_loading_progress())


class SegmentError(Exception):
    """Raised if the session table of another process could not be opened. `word` is the status word of the error."""

    def __init__(self, name: str, status: int) -> None:
        self.word = STATUS_WORDS[status]
        super().__init__(f"session table in the shared memory {name}: {STATUS_TEXTS[status]}")


@dataclass(frozen=True, slots=True)
class Counter:
    name: str
    help: str
    is_gauge: bool
    is_time: bool
    """Whether the value is a time, which the session table counts in microseconds."""


COUNTERS = tuple(
    Counter(
        name=text_of(lib.llm_counter_name(n)),
        help=text_of(lib.llm_counter_help(n)),
        is_gauge=bool(lib.llm_counter_is_gauge(n)),
        is_time=bool(lib.llm_counter_is_time(n)),
    )
    for n in range(lib.LLM_COUNTER_N)
)


@dataclass(frozen=True, slots=True)
class SessionTableView:
    """Fixed facts about a session table. The fields are those of llm_session_table_view (llm_session_table.h)."""

    n_entries: int
    n_ctx: int
    pid: int
    started_ms: int
    bytes: int
    model: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class SessionView:
    """A consistent copy of the record of one branch. llm_branch_view in llm_session_table.h describes the fields."""

    entry: int
    owner: int
    id: int
    state: int
    kept_in: int
    reason: int
    generation: int
    n_tokens: int
    n_visible: int
    n_waiting: int
    n_requests: int
    is_pinned: int
    diverged_at: int
    n_last_prompt: int
    n_last_reused: int
    n_prefilled_total: int
    n_reused_total: int
    n_generated_total: int
    memory_bytes: int
    checkpoint_bytes: int
    disk_bytes: int
    opened_ms: int
    used_ms: int
    name: str


class SessionTable:
    """Reads a session table. The table belongs to an engine in this process, or to another process. The table of
    another process is opened by its name. Can be used in any thread, and takes no lock.
    """

    def __init__(self, pointer: Any) -> None:
        self._pointer = pointer

    @classmethod
    def open(cls, name: str, owner: int = -1) -> SessionTable:
        """Opens the session table of another process. The shared memory must belong to the user whose id is `owner`. If
        `owner` is -1, it must belong to the user of this process.
        """
        out = ffi.new("llm_session_table **")
        status = lib.llm_session_table_open(name.encode(), owner, out)
        if status != Status.OK:
            raise SegmentError(name, status)
        return cls(ffi.gc(out[0], lib.llm_session_table_close))

    @classmethod
    def of_engine(cls, engine: Any) -> SessionTable:
        """Returns the session table of an engine in this process. The table is valid while the engine is open."""
        return cls(lib.llm_engine_session_table(engine))

    def read(self) -> SessionTableView:
        view = ffi.new("llm_session_table_view *")
        lib.llm_session_table_read(self._pointer, view)
        return copied(view, SessionTableView)

    def counter(self, number: int) -> int:
        return int(lib.llm_session_table_counter(self._pointer, number))

    def counters(self) -> dict[str, int]:
        return {counter.name: self.counter(number) for number, counter in enumerate(COUNTERS)}

    def session(self, entry: int) -> SessionView | None:
        view = ffi.new("llm_branch_view *")
        if lib.llm_session_table_entry(self._pointer, entry, view) != Status.OK:
            return None
        return copied(view, SessionView)

    def sessions(self) -> Iterator[SessionView]:
        """Yields a copy of the record of every branch. Copying a record takes about 10 us, so lists of sessions are
        made in a text thread.
        """
        return (copied(view, SessionView) for view in self._records())

    def sessions_by_record(self, known: Mapping[bytes, SessionView]) -> dict[bytes, SessionView]:
        """Returns the copies of all records, each with the bytes of the record. Records that are in `known` are not
        copied again, which makes a repeated reading several times as fast.
        """
        found: dict[bytes, SessionView] = {}
        for view in self._records():
            record = bytes(ffi.buffer(view))
            found[record] = known.get(record) or copied(view, SessionView)
        return found

    def sessions_named(self, name: str, owner: int | None = None) -> list[SessionView]:
        """Returns the branches of the sessions with this name. If `owner` is None, returns those of all owners. The
        name "" stands for the branches of requests without a session. Records with another name are not copied, to save
        time.
        """
        sought = name.encode()
        return [
            copied(view, SessionView)
            for view in self._records()
            if (owner is None or view.owner == owner) and ffi.string(view.name) == sought
        ]

    def entries_of(self, owner: int, name: str) -> set[int]:
        """Returns the numbers of the entries that hold branches of a session."""
        return {view.entry for view in self.sessions_named(name, owner)}

    def names(self) -> list[tuple[int, str]]:
        """Returns the owner and session name of each branch that belongs to a named session."""
        return [(view.owner, text_of(view.name)) for view in self._records() if view.name[0] != b"\0"]

    def _records(self) -> Iterator[Any]:
        """Yields the record of every entry that holds a branch. Each record is written to the same buffer. The caller
        must copy a record before it asks for the next one.
        """
        view = ffi.new("llm_branch_view *")
        for entry in range(self.read().n_entries):
            if lib.llm_session_table_entry(self._pointer, entry, view) == Status.OK:
                yield view

    def tokens(self, entry: int) -> array[int] | None:
        """Returns the tokens of the branch in an entry, or None if the entry has no branch."""
        capacity = 4096
        while True:
            out = array("i", bytes(4 * capacity))
            n = int(
                lib.llm_session_table_tokens(
                    self._pointer, entry, ffi.from_buffer("int32_t[]", out), capacity, ffi.NULL
                )
            )
            if n >= 0:
                return out[:n]
            if n == -1:
                return None
            capacity = -n - 1
