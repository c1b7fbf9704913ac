"""The texts of llmd's --help and man pages. The help of each option is in config_table.py."""

from __future__ import annotations

from .help_text import Section

PROGRAM = "llmd"
USAGE = "llmd [options] [MODEL]"
PURPOSE = "serves one language model to many conversations and keeps their states"

DESCRIPTION = """\
Serves one language model over an OpenAI-compatible HTTP interface. Each conversation is a session whose state is kept,
so that its next prompt continues where the last answer ended. Without arguments, llmd serves the model that comes with
llmd. It listens on http://127.0.0.1:15563, and on a unix socket for llmctl.
"""

PRECEDENCE = """\
You can also set every option in the environment (--ctx-size is LLMD_CTX_SIZE) and in the TOML file that --config names
(ctx_size = 8192). The command line overrides the environment, and the environment overrides the file.
"""

SIGNALS = Section(
    "signals",
    (
        (
            "SIGTERM, SIGINT",
            "stop: wait up to --shutdown-timeout until running requests end, cancel those that still run, and save the "
            "sessions. A second signal ends llmd at once. Changes that are not saved yet are then lost, as in a crash",
        ),
        (
            "SIGHUP",
            "read --api-key-file again (systemctl reload llmd). Exception: if llmd was started from a terminal, SIGHUP "
            "means that the terminal was closed. llmd then stops as after SIGTERM",
        ),
        ("SIGQUIT", "print the stack of every thread and exit at once"),
    ),
)

EXIT_STATUSES = Section(
    "exit status",
    (
        ("0", "llmd stopped after SIGTERM, SIGINT, SIGHUP or POST /v1/drain"),
        ("1", "llmd could not start, or llmd doctor found something wrong"),
        ("2", "llmd did not start: an option, a key file or a template is not valid"),
        ("128 + signal", "a signal ended llmd at once"),
    ),
)

EXAMPLES = Section(
    "examples",
    (
        ("llmd model.gguf --ctx-size 16384", "serve a model with a context of 16384 tokens"),
        (
            "llmd Qwen/Qwen3-8B-GGUF:Q4_K_M",
            "download a model from huggingface.co, unless it is in the cache, and serve it",
        ),
        ("llmd --model model.gguf --max-sessions 32", "keep 32 sessions in the model's memory instead of 8"),
        ("llmd --host 0.0.0.0 --api-key-file keys", "let other machines connect with a key"),
        ("llmd --config /etc/llmd/llmd.toml", "read options from a file: llmd.toml(5)"),
        ("llmd --model sim:hybrid --port 0", "serve a simulated model, for tests, on a free port"),
        ("llmd doctor", "check this machine, and say what to do about what is slow or wrong"),
        ("llmctl chat --session work", "chat with the model, from another terminal"),
    ),
)

REQUEST = """\
  curl -N http://127.0.0.1:15563/v1/chat/completions -H 'content-type: application/json' \\
    -d '{"messages":[{"role":"user","content":"hello"}],"stream":true,"session_id":"a"}'
"""

ENVIRONMENT = Section(
    "environment",
    (
        ("LLMD_NAME", "sets the option of that name: LLMD_CTX_SIZE sets --ctx-size"),
        ("XDG_RUNTIME_DIR", "the default unix socket is llmd/llmd.sock in this directory. --socket sets another path"),
        ("XDG_STATE_HOME", "the default state directory is llmd in this directory. --state-dir sets another path"),
        ("HF_HOME", "directory of downloaded models, instead of ~/.cache/huggingface"),
        ("HF_TOKEN", "token for private and gated models of huggingface.co"),
        ("HF_ENDPOINT", "another hub, instead of https://huggingface.co"),
        ("HF_HUB_OFFLINE", "1: never download a model, and use only the cache"),
        ("OTEL_NAME", "settings of OpenTelemetry's library, such as OTEL_SERVICE_NAME, if --otel-endpoint is set"),
    ),
)

FILES = Section(
    "files",
    (
        (
            "/run/llmd/llmd.sock",
            "the unix socket if root runs llmd. Every user who can open the socket is an administrator",
        ),
        (
            "$XDG_RUNTIME_DIR/llmd/llmd.sock",
            "the unix socket if another user runs llmd. Without XDG_RUNTIME_DIR, /tmp/llmd-UID/llmd.sock",
        ),
        ("/var/lib/llmd", "the state directory if root runs llmd: sessions that survive a restart, and parked states"),
        ("~/.local/state/llmd", "the state directory if another user runs llmd"),
        ("/etc/llmd/llmd.env", "options of llmd.service, as environment variables"),
        ("/etc/llmd/NAME.toml", "options of the instance llmd@NAME.service"),
    ),
)

READ_ON = Section(
    "read on",
    (
        ("llmctl --help, man llmctl", "inspect and control a running llmd"),
        ("man llmd.toml", "the configuration file"),
        ("README.md, docs/", "in the source: sessions, HTTP, operating, systemd, reference, limits, benchmarks"),
        ("GET /openapi.json", "every endpoint, parameter, limit and error of a running llmd"),
    ),
)

TOML = (
    "--config names this file. It is in TOML (https://toml.io). Each option of llmd is a key: --ctx-size is "
    "ctx_size, or ctx-size. A value is text, a number, true or false, or a list of texts. A size can have a unit "
    '("8G").',
    "The command line overrides the environment, and the environment overrides the file. If a key is unknown or "
    "occurs twice, or if a value is invalid, llmd prints an error that names the key and does not start. llmd reads "
    "the file only when it starts, as the user that runs llmd.",
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
