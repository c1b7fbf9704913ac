"""Texts of llmctl's --help and man page, apart from the verbs."""

from __future__ import annotations

from llmd.ctl.context import (
    EXIT_ABSENT,
    EXIT_INTERRUPTED,
    EXIT_NOT_FOUND,
    EXIT_OK,
    EXIT_PIPE_CLOSED,
    EXIT_REFUSED,
    EXIT_STREAM,
    EXIT_USAGE,
)
from llmd.process.help_text import Section

PROGRAM = "llmctl"
PURPOSE = "ask and steer a running llmd"
DESCRIPTION = "Asks and steers a running llmd over its unix socket."

EXAMPLES = Section(
    "examples",
    (
        ("llmctl status", "is it there, is it ready, what has it done"),
        ("llmctl chat --session work", "talk; Ctrl-C stops an answer, Ctrl-D leaves"),
        ("llmctl sessions list", "sessions with their state, tokens and last use"),
        ("llmctl sessions explain work", "its last turns: what was reused, and why not more"),
        ("llmctl sessions show work --tokens", "the exact tokens in the model's memory, even while the daemon is busy"),
        ("llmctl --json sessions list | jq .", "--json, --socket and --timeout go before or after the verb"),
        ("llmctl help sessions fork", "one verb: what it takes, with examples"),
    ),
)

EXIT_STATUSES = Section(
    "exit status",
    (
        (str(EXIT_OK), "done"),
        (str(EXIT_REFUSED), "the daemon refused, failed or is not ready"),
        (str(EXIT_USAGE), "wrong usage"),
        (str(EXIT_ABSENT), "no daemon"),
        (str(EXIT_NOT_FOUND), "no such session"),
        (str(EXIT_STREAM), "standard input or output failed"),
        (str(EXIT_INTERRUPTED), "interrupted"),
        (str(EXIT_PIPE_CLOSED), "the reader of the output went away"),
    ),
)

ENVIRONMENT = Section(
    "environment",
    (
        ("LLMD_SOCKET", "the daemon's socket, unless --socket says"),
        ("XDG_RUNTIME_DIR", "where the daemon of this user listens, if neither does"),
        ("XDG_STATE_HOME", "where conversations are kept, instead of ~/.local/state"),
        ("NO_COLOR", "if set, notes are not dimmed"),
    ),
)

FILES = Section(
    "files",
    (
        ("/run/llmd/llmd.sock", "the socket of a daemon of root"),
        ("$XDG_RUNTIME_DIR/llmd/llmd.sock", "that of this user's; without the variable /tmp/llmd-UID/llmd.sock"),
        ("~/.local/state/llmd/chats", "the conversations of named chats, and those set aside (.previous-N.json)"),
        ("~/.local/state/llmd/chat_history", "the lines typed in chats with --session"),
    ),
)

READ_ON = Section(
    "read on",
    (
        ("llmctl help VERB", "the same as llmctl VERB --help"),
        ("llmd --help, man llmd", "the daemon"),
        ("docs/llmctl.md, docs/sessions.md", "in the source"),
    ),
)
