"""The option table: what can be set, once. Each field of `Config` is an option (option.py), and a `Config` is the value
of each. config_reader.py fills it; what no single option can know is in config_checks.py.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .option import option, options_of
from .option_values import KIB, choice, integer, model, number, origins, path, path_or_none, size, switch, text, words
from .socket_trust import default_socket

# What is served without --model.
DEMO_MODEL = Path(__file__).parents[1] / "data" / "llmd-demo.gguf"
STAND_IN_MODEL = Path(__file__).parents[3] / "build" / "models" / "tiny-dense.gguf"
EMBEDDED_MODEL = DEMO_MODEL if DEMO_MODEL.exists() else STAND_IN_MODEL

PLACES_MAX = 256
PARKED_MAX = 1024
TIMELINES_MAX = 16


# --- defaults that depend on who runs it -----------------------------------------------------------------------------


def default_state_dir() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/llmd")
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path(os.path.expanduser("~/.local/state"))) / "llmd"


# --- the table -------------------------------------------------------------------------------------------------------

MODEL, SERVER, SESSIONS, MACHINE = "model", "server", "sessions", "machine"
ACCESS, STREAMS, LOG = "access", "streams", "log"


_POSITIVE_S = "seconds, 0.1 to 86400"
_S_OR_OFF = "seconds, 0 to 86400; 0 is off"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that can be set, with its value."""

    model: str = option(
        str(EMBEDDED_MODEL),
        model,
        "a path or sim:CLASS",
        MODEL,
        "PATH",
        "GGUF file to serve, or a simulated model: sim:dense, sim:window, sim:recurrent, "
        "sim:hybrid, sim:none,embed=N (default: the embedded model)",
    )
    model_id: str = option(
        "", text, "a name", MODEL, "NAME", "name of the model in answers (default: the model's own name)"
    )
    chat_template_file: Path | None = option(
        None, path, "a path", MODEL, "FILE", "Jinja chat template that replaces the model's own"
    )
    host: str = option(
        "127.0.0.1",
        text,
        "an address",
        SERVER,
        "ADDRESS",
        "address to listen on; any other than loopback needs --api-key-file, or --open on",
    )
    port: int = option(
        8000, integer(0, 65535), "a port from 0 to 65535; 0 picks a free one", SERVER, "PORT", "TCP port to listen on"
    )
    socket: Path = option(
        default_socket,
        path,
        "a path",
        SERVER,
        "PATH",
        "unix socket to listen on; every user who may open it is an administrator",
    )
    config: Path | None = option(
        None,
        path,
        "a path",
        SERVER,
        "FILE",
        "TOML file with any of these options (ctx_size = 8192); flags and environment variables override it",
    )
    state_dir: Path | None = option(
        default_state_dir,
        path_or_none,
        "a path, or none",
        SERVER,
        "DIR",
        "directory for sessions that survive a restart and for parked sessions that do not fit --park-memory; none: "
        "keep everything in memory",
    )
    body_limit: int = option(
        64 * KIB**2,
        size(KIB, 4 * KIB**3),
        "a size from 1K to 4G",
        SERVER,
        "SIZE",
        "maximum size of a request body",
        "bytes",
    )
    shutdown_timeout: float = option(
        30.0,
        number(0, 86400),
        "seconds, 0 to 86400",
        SERVER,
        "S",
        "time that running requests get to finish after SIGTERM",
        "seconds",
    )
    ctx_size: int = option(
        0,
        size(0, 1 << 24),
        "0 to 16777216 tokens (8k is 8192); 0 is the model's own",
        SESSIONS,
        "N",
        "context size: tokens that one session may hold, or one text for an embedding model; 0: what the model was "
        "trained for, at most 131072 (8192 for a text) and what fits --kv-memory",
        "tokens",
    )
    max_sessions: int = option(
        8,
        integer(1, PLACES_MAX - 1),
        f"1 to {PLACES_MAX - 1}",
        SESSIONS,
        "N",
        "places for named sessions in the model's memory; a session takes 1 to --session-timelines of them",
    )
    scratch_sessions: int = option(
        4, integer(1, PLACES_MAX - 1), f"1 to {PLACES_MAX - 1}", SESSIONS, "N", "places for requests without a session"
    )
    scratch_reuse: bool = option(
        True,
        switch,
        "on or off",
        SESSIONS,
        "on|off",
        "let requests without a session name reuse the state of earlier ones",
    )
    capacity_policy: str = option(
        "park",
        choice("park", "evict", "refuse"),
        "park, evict or refuse",
        SESSIONS,
        "POLICY",
        "when all places are taken: park moves the least recently used idle session to host memory, then to disk; "
        "evict forgets it; refuse answers 429",
    )
    session_timelines: int = option(
        3,
        integer(1, TIMELINES_MAX),
        f"1 to {TIMELINES_MAX}",
        SESSIONS,
        "N",
        "histories that one session may hold side by side; each takes one place",
    )
    max_parked: int = option(
        64,
        integer(1, PARKED_MAX),
        f"1 to {PARKED_MAX}",
        SESSIONS,
        "N",
        "parked sessions to keep in addition to the places",
    )
    park_memory: int = option(
        0,
        size(0, 1 << 50),
        "a size such as 2G; 0 is automatic",
        SESSIONS,
        "SIZE",
        "host memory for parked sessions; beyond it they go to disk; 0: a tenth of free memory",
        "bytes",
    )
    park_disk: int = option(
        0,
        size(0, 1 << 50),
        "a size such as 20G; 0 is automatic",
        SESSIONS,
        "SIZE",
        "disk for the states of sessions in --state-dir; beyond it the least recently used are dropped, their tokens "
        "are kept; 0: half of what is free at the start",
        "bytes",
    )
    checkpoint_memory: int = option(
        0,
        size(0, 1 << 50),
        "a size such as 2G; 0 is automatic",
        SESSIONS,
        "SIZE",
        "host memory for the checkpoints of all sessions; 0: a tenth of free memory",
        "bytes",
    )
    checkpoint_every: int = option(
        256,
        integer(1, 1 << 20),
        "1 to 1048576 tokens",
        SESSIONS,
        "N",
        "generated tokens between two checkpoints",
        "tokens",
    )
    session_idle_time: int = option(
        0,
        integer(0, 1 << 30),
        "seconds, 0 to 1073741824; 0 is never",
        SESSIONS,
        "S",
        "forget sessions that were not used for this long, except pinned ones; 0: never",
        "seconds",
    )
    history: str = option(
        "resident",
        choice("resident", "template"),
        "resident or template",
        SESSIONS,
        "HISTORY",
        "past answers in a prompt: resident keeps the tokens that were generated; template renders and tokenizes "
        "them again",
    )
    threads: int = option(
        0,
        integer(0, 1024),
        "0 to 1024; 0 is automatic",
        MACHINE,
        "N",
        "threads for the model; more threads than cores is usually much slower; 0: the fastest number, measured at the "
        "start, at most one per physical core, and fewer while other processes use the cores",
    )
    gpu_layers: int = option(
        -1,
        integer(-1, 10_000),
        "-1 to 10000; -1 is as many as fit",
        MACHINE,
        "N",
        "layers to offload to the GPU, if there is one; -1: as many as fit its memory",
    )
    kv_memory: int = option(
        0,
        size(0, 1 << 50),
        "a size such as 2G; 0 is automatic",
        MACHINE,
        "SIZE",
        "memory for the KV cache of all sessions; 0: a fraction of free memory",
        "bytes",
    )
    oversize: str = option(
        "refuse",
        choice("refuse", "allow"),
        "refuse or allow",
        MACHINE,
        "refuse|allow",
        "what to do with a model larger than the available memory; allow loads it, and reads pages from disk again "
        "and again (very slow)",
    )
    gap_target_ms: int = option(
        100,
        integer(1, 60_000),
        "1 to 60000 milliseconds",
        MACHINE,
        "MS",
        "maximum pause of running streams while a long prompt is processed: the prompt is split into chunks that "
        "take no "
        "longer, of at least 16 tokens",
        "milliseconds",
    )
    api_key_file: Path | None = option(
        None,
        path,
        "a path",
        ACCESS,
        "FILE",
        "API keys for the TCP port, one 'KEY [NAME] [admin]' per line, not readable by others; SIGHUP reloads it",
    )
    open: bool = option(
        False,
        switch,
        "on or off",
        ACCESS,
        "on|off",
        "allow --host to be reachable from other machines without --api-key-file: all of them may use the model, and "
        "they share sessions",
    )
    allowed_hosts: tuple[str, ...] = option(
        (),
        words,
        "names separated by commas",
        ACCESS,
        "NAMES",
        "Host header names to accept besides localhost, IP addresses and the names that containers use for their "
        "host; * allows all",
    )
    allowed_origins: tuple[str, ...] = option(
        (),
        origins,
        "SCHEME://HOST or SCHEME://HOST:PORT, no path, pattern or default port, separated by commas; * allows all",
        ACCESS,
        "ORIGINS",
        "web origins whose pages may call the server, such as http://localhost:3000; * allows all",
    )
    keepalive_interval: float = option(
        10.0,
        number(0.1, 86400),
        _POSITIVE_S,
        STREAMS,
        "S",
        "send a comment in a stream after this much silence",
        "seconds",
    )
    slow_reader_timeout: float = option(
        30.0,
        number(0.1, 86400),
        _POSITIVE_S,
        STREAMS,
        "S",
        "cancel a stream whose client has read nothing for this long",
        "seconds",
    )
    request_timeout: float = option(
        0.0,
        number(0, 86400),
        _S_OR_OFF,
        STREAMS,
        "S",
        "maximum duration of one request; 0: no limit",
        "seconds",
    )
    log_format: str = option(
        "text", choice("text", "json"), "text or json", LOG, "text|json", "format of the log lines"
    )
    log_level: str = option(
        "info",
        choice("debug", "info", "warning", "error"),
        "debug, info, warning or error",
        LOG,
        "LEVEL",
        "least severe level to log",
    )


OPTIONS = options_of(Config)
