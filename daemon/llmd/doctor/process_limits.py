"""Checks the limits that the system sets for llmd: open files, locked memory and shared memory."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from ..core import limits
from ..process.config_table import Config
from .finding import Finding, size

_FILES = limits.CONNECTIONS_MAX + limits.CONNECTIONS_LOCAL_MAX + limits.DESCRIPTORS_RESERVED
_TOKEN_BYTES = 4


def open_files(hard: int) -> Finding:
    """Checks the limit on open files. `hard` is the hard limit, up to which llmd raises its own limit."""
    if hard == resource.RLIM_INFINITY or hard >= _FILES:
        return Finding("open files", "ok", f"llmd can open {_number(hard)} files, and needs at most {_FILES}.")
    return Finding(
        "open files", "slow", f"llmd can open only {hard} files, so it accepts fewer connections than its own limit.",
        f"Raise the limit to {_FILES} or more: ulimit -Hn, or LimitNOFILE= in the systemd unit.",
    )  # fmt: skip


def locked_memory(soft: int) -> Finding:
    limit = "no limit" if soft == resource.RLIM_INFINITY else f"a limit of {soft // 1024} KiB"
    return Finding("locked memory", "ok", f"Locked memory has {limit}; llmd locks no memory.")


def shared_memory(directory: Path, n_needed: int) -> Finding:
    """Checks the directory of the session table. `n_needed` is the size of the table, from `session_table_bytes`."""
    if not os.access(directory, os.W_OK | os.X_OK):
        return Finding(
            "shared memory", "wrong", f"This user cannot write to {directory}, where llmd has its session table.",
            f"Mount a tmpfs on {directory} that every user can write to (mode 1777).",
        )  # fmt: skip
    found = os.statvfs(directory)
    n_free = found.f_bavail * found.f_frsize
    if n_free < n_needed:
        return Finding(
            "shared memory", "wrong", f"{directory} has {size(n_free)} free; the session table needs {size(n_needed)}.",
            "In a container, set --shm-size (docker, podman); or choose a smaller --max-parked or --ctx-size.",
        )  # fmt: skip
    return Finding("shared memory", "ok", f"{directory} has {size(n_free)} free.")


def session_table_bytes(config: Config) -> int:
    """Returns about how many bytes the session table can have. The table has a token array for each entry."""
    n_entries = config.max_sessions + config.scratch_sessions + config.max_parked
    return n_entries * (config.ctx_size or limits.AGENT_CONTEXT_TOKENS) * _TOKEN_BYTES


def _number(limit: int) -> str:
    return "any number of" if limit == resource.RLIM_INFINITY else str(limit)
