"""Texts of llmd's --help and man page, apart from the options."""

from __future__ import annotations

from .section import Section

PROGRAM = "llmd"
USAGE = "llmd [options] [MODEL]"
PURPOSE = "serves one language model to many independent, named, warm conversations"

DESCRIPTION = """\
Serves one language model to many independent, named, warm conversations, over an OpenAI-compatible HTTP interface.
Without arguments it serves the embedded model on http://127.0.0.1:8000 and on a unix socket for llmctl.
"""

PRECEDENCE = """\
Every option can also be set by environment (--ctx-size is LLMD_CTX_SIZE) and in the TOML file named by --config
(ctx_size = 8192). The command line wins over the environment, the environment over the file.
"""

SIGNALS = Section(
    "signals",
    (
        (
            "SIGTERM, SIGINT",
            "stop in order: running requests end or are cancelled after --shutdown-timeout, sessions are saved; a "
            "second one exits at once, and what was not saved is lost as in a crash",
        ),
        (
            "SIGHUP",
            "without a terminal, as under systemd: read --api-key-file again (systemctl reload llmd); when llmd was "
            "started from a terminal, the terminal is gone: stop in order",
        ),
        ("SIGQUIT", "exit at once and print what every thread was doing"),
    ),
)

EXIT_STATUSES = Section(
    "exit status",
    (
        ("0", "stopped in order"),
        ("1", "could not start"),
        ("2", "wrong options"),
        ("128 + signal", "exited at once"),
    ),
)

EXAMPLES = Section(
    "examples",
    (
        ("llmd model.gguf --ctx-size 16384", "serve a model, 16k tokens for each conversation"),
        ("llmd --model model.gguf --max-sessions 32", "32 places in the model's memory instead of 8"),
        ("llmd --host 0.0.0.0 --api-key-file keys", "let other machines in, with a key"),
        ("llmd --config /etc/llmd/llmd.toml", "options from a file: llmd.toml(5)"),
        ("llmd --model sim:hybrid --port 0", "a simulated model, on a free port"),
        ("llmctl chat --session work", "then, in another terminal: talk to it"),
    ),
)

REQUEST = """\
  curl -N http://127.0.0.1:8000/v1/chat/completions -H 'content-type: application/json' \\
    -d '{"messages":[{"role":"user","content":"hello"}],"stream":true,"session_id":"a"}'
"""

ENVIRONMENT = Section(
    "environment",
    (
        ("LLMD_NAME", "the option of that name: LLMD_CTX_SIZE is --ctx-size"),
        ("XDG_RUNTIME_DIR", "where the unix socket is, unless --socket says"),
        ("XDG_STATE_HOME", "where the state directory is, unless --state-dir says"),
    ),
)

FILES = Section(
    "files",
    (
        ("/run/llmd/llmd.sock", "the unix socket of a daemon of root; who may open it may administer the daemon"),
        ("$XDG_RUNTIME_DIR/llmd/llmd.sock", "that of any other user; without the variable /tmp/llmd-UID/llmd.sock"),
        ("/var/lib/llmd", "the state directory of root: sessions that outlive the process, and parked ones"),
        ("~/.local/state/llmd", "that of any other user"),
        ("/etc/llmd/llmd.env", "options of llmd.service, as environment variables"),
        ("/etc/llmd/NAME.toml", "options of the instance llmd@NAME.service"),
    ),
)

READ_ON = Section(
    "read on",
    (
        ("llmctl --help, man llmctl", "the running daemon, from a terminal"),
        ("man llmd.toml", "the configuration file"),
        ("README.md, docs/", "in the source: sessions, HTTP, operating, systemd, reference, limits, benchmarks"),
        ("GET /openapi.json", "every endpoint, parameter, limit and error, from the daemon itself"),
    ),
)

TOML = (
    "The file named by --config, in TOML (https://toml.io). Each option of llmd is a key: --ctx-size is ctx_size, or "
    'ctx-size. A value is text, a number, true or false, or a list of texts; a size may have a unit ("8G").',
    "The command line wins over the environment, the environment over the file. An unknown key, a key twice and a "
    "value that is not valid end the start with a sentence. llmd reads the file once, at its start, as its own user.",
)

TOML_EXAMPLE = """\
model = "/srv/models/model.gguf"
port = 8001
ctx_size = 16384
max_sessions = 16
kv_memory = "8G"
session_idle_time = 86400
allowed_hosts = ["llm.example.org"]
"""
