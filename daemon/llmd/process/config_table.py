"""The table of all options. Each field of the class `Config` defines one option (option.py). An instance of `Config`
has the values of all options. The module config_reader.py makes the instance. The module config_checks.py checks
options against each other.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .option import (
    KIB,
    choice,
    integer,
    model,
    number,
    option,
    options_of,
    origins,
    path,
    path_or_none,
    size,
    switch,
    text,
    web_address,
    words,
)
from .socket_trust import default_socket

# The model that llmd serves if --model is not set.
DEMO_MODEL = Path(__file__).parents[1] / "data" / "llmd-demo.gguf"
STAND_IN_MODEL = Path(__file__).parents[3] / "build" / "models" / "tiny-dense.gguf"
EMBEDDED_MODEL = DEMO_MODEL if DEMO_MODEL.exists() else STAND_IN_MODEL

DEFAULT_PORT = 15563
"""The digit 1, then the keys of the letters LLMD on a telephone's keypad. llmd does not use 8000 or 8080. Many other
servers use these ports by default. The port is below 32768. Linux gives higher ports to outgoing connections, so any
program could take a higher port before llmd starts.
"""

SLOTS_MAX = 256
PARKED_MAX = 1024
BRANCHES_MAX = 16


# --- defaults that depend on the user --------------------------------------------------------------------------------


def default_state_dir() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/llmd")
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path(os.path.expanduser("~/.local/state"))) / "llmd"


# --- the options -----------------------------------------------------------------------------------------------------

MODEL, SERVER, SESSIONS, MACHINE = "model", "server", "sessions", "machine"
ACCESS, STREAMS, LOG = "access", "streams", "log"


_model, _server, _sessions, _machine = (partial(option, group) for group in (MODEL, SERVER, SESSIONS, MACHINE))
_any_model = model  # inside of Config, `model` is the option
_access, _streams, _log = (partial(option, group) for group in (ACCESS, STREAMS, LOG))


@dataclass(frozen=True, kw_only=True)
class Config:
    """The values of all options."""

    # fmt: off
    model: str = _model(str(EMBEDDED_MODEL), model, "MODEL",
        "path of a GGUF file, or OWNER/NAME[:QUANTIZATION] of a model on huggingface.co. llmd downloads this model "
        "if it is not in the cache. For tests, a simulated model: sim:dense, sim:window, sim:recurrent, sim:hybrid, "
        "sim:none,embed=N (default: the model that comes with llmd)")
    models_dir: Path | None = _model(None, path, "DIR",
        "directory with GGUF files. --model finds them by name, without path, ending and quantization. It also "
        "finds models in the cache of huggingface.co's tools, and in the folders of LM Studio and Ollama")
    model_id: str = _model("", text("a name"), "NAME", "name of the model in answers (default: the model's own name)")
    chat_template_file: Path | None = _model(None, path, "FILE", "Jinja chat template that replaces the model's own")
    host: str = _server("127.0.0.1", text("an address"), "ADDRESS",
        "address to listen on. An address that other machines can reach needs --api-key-file or --open on")
    port: int = _server(DEFAULT_PORT, integer(0, 65535, "a port from {} to {}; 0 picks a free one"), "PORT",
        "TCP port to listen on")
    socket: Path = _server(default_socket, path, "PATH",
        "unix socket to listen on. Every user who can open the socket is an administrator")
    config: Path | None = _server(None, path, "FILE",
        "TOML file with options (ctx_size = 8192). The command line and environment variables override the file")
    state_dir: Path | None = _server(default_state_dir, path_or_none, "DIR",
        "directory for sessions and parked states. Sessions in it survive a restart. Parked states go there if they "
        "exceed --park-memory. none: keep sessions in memory only")
    body_limit: int = _server(64 * KIB ** 2, size(KIB, 4 * KIB ** 3, "a size from 1K to 4G"), "SIZE",
        "maximum size of a request body", "bytes")
    shutdown_timeout: float = _server(30.0, number(0, 86400), "S",
        "maximum time for running requests to finish after SIGTERM", "seconds")
    load_wait: float = _server(600.0, number(0, 86400, "seconds, {:g} to {:g}; 0 is not to wait"), "S",
        "maximum time for a request to wait while the model loads. After this time the answer is 503. 0: do not wait",
        "seconds")
    ctx_size: int = _sessions(0, size(0, 1 << 24, "0 to 16777216 tokens (8k is 8192); 0 is the model's own"), "N",
        "context size: maximum tokens of a branch, or of one text for an embedding model. 0: the context that "
        "the model was trained for, at most 131072 tokens (8192 for embeddings), and at most what fits into "
        "--kv-memory",
        "tokens")
    max_sessions: int = _sessions(8, integer(1, SLOTS_MAX - 1), "N",
        "slots in the model's memory for named sessions. A branch of a session needs a slot while its request runs")
    scratch_sessions: int = _sessions(4, integer(1, SLOTS_MAX - 1), "N",
        "slots in the model's memory for requests that name no session")
    scratch_reuse: bool = _sessions(True, switch, "on|off",
        "let requests that name no session reuse the state of earlier requests")
    capacity_policy: str = _sessions("park", choice("park", "evict", "refuse"), "POLICY",
        "what to do if a request needs a slot and all slots are taken. park: move the least recently used idle "
        "session to host memory, and later to disk. evict: forget this session. refuse: answer the request with "
        "status 429")
    session_timelines: int = _sessions(3, integer(1, BRANCHES_MAX), "N",
        "maximum branches of one session. A branch is one token history with its state")
    max_parked: int = _sessions(64, integer(1, PARKED_MAX), "N",
        "maximum parked branches to keep in addition to the branches in slots")
    park_memory: int = _sessions(0, size(0, 1 << 50, "a size such as 2G; 0 is automatic"), "SIZE",
        "host memory for all parked states together. A parked state is the state of an idle session, kept outside the "
        "model's memory. If the parked states need more, some go to disk. 0: a tenth of free memory", "bytes")
    park_disk: int = _sessions(0, size(0, 1 << 50, "a size such as 20G; 0 is automatic"), "SIZE",
        "disk space for the states of sessions in --state-dir. If the states need more, llmd deletes the least "
        "recently used states and keeps their tokens. 0: half of the free space at the start", "bytes")
    checkpoint_memory: int = _sessions(0, size(0, 1 << 50, "a size such as 2G; 0 is automatic"), "SIZE",
        "host memory for the checkpoints of all sessions. A checkpoint is a saved state. Edited or regenerated "
        "conversations can resume from it. 0: a tenth of free memory", "bytes")
    checkpoint_every: int = _sessions(256, integer(1, 1 << 20, "{} to {} tokens"), "N",
        "number of generated tokens between two checkpoints", "tokens")
    session_idle_time: int = _sessions(0, integer(0, 1 << 30, "seconds, {} to {}; 0 is never"), "S",
        "forget a session after this time without a request. Pinned sessions are kept. 0: never", "seconds")
    history: str = _sessions("resident", choice("resident", "template"), "HISTORY",
        "which tokens a prompt contains for past answers. resident: the tokens as they were generated. template: "
        "tokens of the answers after rendering and tokenizing them again")
    threads: int = _machine(0, integer(0, 1024, "{} to {}; 0 is automatic"), "N",
        "threads for the model. More threads than cores are usually much slower. 0: the fastest number in a "
        "measurement at the start. This is at most one per physical core, and fewer while other processes use the "
        "cores")
    gpu_layers: int = _machine(-1, integer(-1, 10000, "{} to {}; -1 is as many as fit"), "N",
        "layers to offload to a GPU. -1: as many as fit into the GPU's memory")
    kv_memory: int = _machine(0, size(0, 1 << 50, "a size such as 2G; 0 is automatic"), "SIZE",
        "memory for the KV cache of all sessions. 0: a fraction of free memory", "bytes")
    kv_type: str = _machine("f16", choice("f16", "q8_0"), "f16|q8_0",
        "type of the keys and values in the KV cache. q8_0: 8 bits instead of 16. A token takes 34 bytes instead of "
        "64, and answers differ slightly. States that were saved with another type are prefilled again")
    oversize: str = _machine("refuse", choice("refuse", "allow"), "refuse|allow",
        "what to do if the model is larger than the available memory. refuse: do not start. allow: load the model, "
        "and read its weights from disk again and again (very slow)")
    gap_target_ms: int = _machine(100, integer(1, 60000, "{} to {} milliseconds"), "MS",
        "maximum pause of running streams while llmd processes a long prompt. llmd splits the prompt into chunks of "
        "at most this time, but of at least 16 tokens", "milliseconds")
    speculate: str = _machine("auto", choice("auto", "off"), "auto|off",
        "auto: guess the next tokens from text that the session already contains, and from the grammar of structured "
        "output and tool calls. Let one step of the model verify several of them, as long as this makes answers "
        "faster. The answers stay the same. off: no guesses")
    draft_model: str = _machine("", _any_model, "MODEL",
        "a small model that guesses the next tokens while a single request is answered, named like --model. It must "
        "have the same vocabulary as the model, such as a smaller model of the same family. The answers stay the "
        "same. It needs memory in addition to the model, on the GPU unless --gpu-layers is 0 (default: no draft model)")
    api_key_file: Path | None = _access(None, path, "FILE",
        "file with the API keys for the TCP port, one 'KEY [NAME] [admin]' per line. Other users must not have "
        "access to the file. SIGHUP reloads the file")
    open: bool = _access(False, switch, "on|off",
        "let other machines use the model without API keys. For this, --host must be an address that they can "
        "reach. These machines share one set of sessions")
    allowed_hosts: tuple[str, ...] = _access((), words, "NAMES",
        "names to accept in the Host header. Always accepted: localhost, IP addresses, and the names that "
        "containers use for their host. *: accept all names")
    allowed_origins: tuple[str, ...] = _access((), origins, "ORIGINS",
        "web origins whose pages can call the server, such as http://localhost:3000. *: all origins")
    keepalive_interval: float = _streams(10.0, number(0.1, 86400), "S",
        "send a comment, which clients ignore, if a stream has had no output for this time", "seconds")
    slow_reader_timeout: float = _streams(30.0, number(0.1, 86400), "S",
        "cancel a stream if its client has read nothing for this time", "seconds")
    request_timeout: float = _streams(0.0, number(0, 86400, "seconds, {:g} to {:g}; 0 is off"), "S",
        "maximum duration of one request. 0: no limit", "seconds")
    log_format: str = _log("text", choice("text", "json"), "text|json", "format of the log lines")
    log_level: str = _log("info", choice("debug", "info", "warning", "error"), "LEVEL",
        "lowest level of the messages to log")
    otel_endpoint: str = _log("", web_address, "URL",
        "address of an OpenTelemetry collector that accepts OTLP over HTTP, such as http://localhost:4318. llmd sends "
        "it a trace of each request that generates. Needs the extra llmd[otel] (default: no traces)")
    # fmt: on


OPTIONS = options_of(Config)
