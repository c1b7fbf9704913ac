"""Reads the tokens of a session (llmctl sessions show --tokens) from the session table in shared memory. No request is
sent, so llmctl can read the tokens even while the daemon's event loop is busy.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from llmd.ctl import text
from llmd.ctl.client import DaemonAbsent, DaemonRefused, is_daemon_alive
from llmd.engine import segment

TOKENS_PER_LINE = 12

# If a session table cannot be opened, maps libllm's word for the failure to the reason of DaemonAbsent.
_REASONS = {"not_found": "segment_missing", "version_mismatch": "segment_version", "io_error": "segment_forbidden"}


class Unreadable(Exception):
    """Raised if libllm, which reads the session table, is not installed with this llmctl."""


@dataclass(frozen=True)
class Resident:
    id: str
    owner: int
    slot: int
    state: str
    reason: str
    pid: int
    tokens: list[int]

    @property
    def is_daemon_alive(self) -> bool:
        return os.path.exists(f"/proc/{self.pid}")

    def text(self) -> str:
        cells = [str(token) for token in self.tokens]
        lines = [cells[at : at + TOKENS_PER_LINE] for at in range(0, len(cells), TOKENS_PER_LINE)]
        numbered = (f"{at * TOKENS_PER_LINE:>7}  {' '.join(line)}" for at, line in enumerate(lines))
        return "\n".join([f"{self.id}: {self.state}, {text.counted(len(cells), 'token')}", *numbered])


def read(socket_path: str, name: str, owner: int | None) -> Resident:
    try:
        from llmd.engine import native  # imported only here, because it loads libllm, which no other verb needs
    except ImportError as error:
        raise Unreadable(str(error)) from error
    try:
        segment_name = segment.name_in_use(socket_path)
    except PermissionError as error:
        raise DaemonAbsent(socket_path, "segment_forbidden", str(error)) from error
    if segment_name is None:
        # The daemon writes the session table's name to its lock file before it creates the shared memory.
        is_named = bool(segment.names(socket_path))
        reason = "starting" if is_named and is_daemon_alive(socket_path) else "segment_missing"
        raise DaemonAbsent(socket_path, reason, f"{socket_path}.lock names no session table")
    try:
        table = native.SessionTable.open(segment_name, segment.owner(socket_path))
    except native.SegmentError as error:
        raise DaemonAbsent(socket_path, _REASONS.get(error.word, "segment_missing"), str(error)) from error
    found = table.sessions_named(name, owner)
    found.sort(key=lambda view: (view.used_ms, view.n_requests), reverse=True)  # the most recently used branch first
    if len({view.owner for view in found}) > 1:
        owners = ", ".join(str(view.owner) for view in found)
        message = f"Several owners have a session {name}: {owners}. Choose one with --owner NAME."
        raise DaemonRefused(409, {"code": "ambiguous_session", "message": message})
    tokens = table.tokens(found[0].entry) if found else None
    if tokens is None:
        raise DaemonRefused(404, {"code": "session_not_found", "message": f"There is no session {name!r}."})
    view, pid = found[0], table.read().pid
    state, reason = native.STATE_WORDS[view.state], native.REASON_WORDS[view.reason]
    return Resident(name, view.owner, view.entry, state, reason, pid, tokens.tolist())
