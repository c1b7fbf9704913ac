"""The texts of llmctl's --help and man page, except the help of each verb."""

from __future__ import annotations

from llmd.ctl import context
from llmd.process.help_text import Section

PROGRAM = "llmctl"
PURPOSE = "inspect and control a running llmd"
DESCRIPTION = "Inspects and controls a running llmd over its unix socket."

EXAMPLES = Section(
    "examples",
    (
        ("llmctl status", "show whether llmd runs and is ready, and what it has done since its start"),
        ("llmctl top", "watch the sessions live, like htop. The key h lists the keys"),
        ("llmctl logs -f", "follow the log of a service. Without systemd, llmctl says where the log is"),
        ("llmctl models pull Qwen/Qwen3-8B-GGUF", "download a model from huggingface.co. This needs no running llmd"),
        ("llmctl chat --session work", "chat with the model. Ctrl-C stops an answer, Ctrl-D ends the chat"),
        ("llmctl sessions list", "list all sessions with state, tokens and last use"),
        (
            "llmctl sessions explain work",
            "show which tokens each of the last turns of a session reused, and why it could not reuse more",
        ),
        ("llmctl sessions show work --tokens", "show the exact tokens of a session, even while llmd is busy"),
        ("llmctl --json sessions list | jq .", "put --json, --socket and --timeout before or after the verb"),
        ("llmctl help sessions fork", "show the help of one verb, with examples"),
    ),
)

EXIT_STATUSES = Section(
    "exit status",
    (
        (str(context.EXIT_OK), "done"),
        (str(context.EXIT_REFUSED), "llmd refused the request, failed or is not ready"),
        (str(context.EXIT_USAGE), "the command line is wrong"),
        (str(context.EXIT_ABSENT), "llmd does not run or cannot be reached"),
        (str(context.EXIT_NOT_FOUND), "the session or saved session does not exist"),
        (str(context.EXIT_STREAM), "standard input or output failed"),
        (str(context.EXIT_INTERRUPTED), "a signal interrupted llmctl"),
        (str(context.EXIT_PIPE_CLOSED), "the program that reads the output of llmctl closed the pipe"),
    ),
)

ENVIRONMENT = Section(
    "environment",
    (
        ("LLMD_SOCKET", "path of llmd's unix socket, unless --socket is set"),
        ("XDG_RUNTIME_DIR", "the default socket is llmd/llmd.sock in this directory"),
        ("XDG_STATE_HOME", "directory for conversations, instead of ~/.local/state"),
        ("LLMD_MODELS_DIR", "directory with more GGUF files that llmctl models list shows"),
        ("HF_HOME", "directory of downloaded models, instead of ~/.cache/huggingface"),
        ("HF_TOKEN", "token for private and gated models of huggingface.co"),
        ("NO_COLOR", "if set, llmctl does not dim notes, and llmctl top shows no colors"),
    ),
)

FILES = Section(
    "files",
    (
        ("/run/llmd/llmd.sock", "the default socket if root runs llmd"),
        (
            "$XDG_RUNTIME_DIR/llmd/llmd.sock",
            "the default socket if this user runs llmd. Without XDG_RUNTIME_DIR, /tmp/llmd-UID/llmd.sock",
        ),
        (
            "~/.local/state/llmd/chats",
            "conversations of chats with --session, and earlier ones of the same sessions (.previous-N.json)",
        ),
        ("~/.local/state/llmd/chat_history", "lines that you typed in chats with --session"),
    ),
)

READ_ON = Section(
    "read on",
    (
        ("llmctl help VERB", "the help of a verb, as llmctl VERB --help shows it"),
        ("llmd --help, man llmd", "how to start llmd"),
        ("docs/llmctl.md, docs/sessions.md", "documentation in the source"),
    ),
)
