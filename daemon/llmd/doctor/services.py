"""Checks what llmd needs from the kernel and from systemd."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from .finding import Finding

UNIT = "llmd.service"
_SYSTEMD = Path("/run/systemd/system")
"""This folder exists if systemd is the system's service manager. See sd_booted(3)."""
_PROPERTIES = ("LoadState", "ActiveState", "SubState", "Result", "PrivateUsers")
_ANSWER_S_MAX = 10.0


def users(is_reported: bool, has_keys: bool) -> Finding:
    """Checks whether llmd can tell users apart. `is_reported` says whether the kernel reports which user has a TCP
    connection.
    """
    if is_reported:
        return Finding("users", "ok", "The kernel reports which user of this machine connects.")
    if has_keys:
        return Finding("users", "ok", "The kernel does not report which user connects; the API keys tell users apart.")
    return Finding(
        "users", "wrong", "The kernel does not report which user connects, so all users share their sessions.",
        "Load the kernel module tcp_diag, or set --api-key-file.",
    )  # fmt: skip


def unit_properties() -> Mapping[str, str] | None:
    """Returns properties of llmd's systemd unit, or None if the system does not run systemd."""
    if not _SYSTEMD.is_dir():
        return None
    command = ["systemctl", "show", UNIT, f"--property={','.join(_PROPERTIES)}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_S_MAX, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def unit(read: Callable[[], Mapping[str, str] | None] = unit_properties) -> Finding:
    found = read()
    if found is None:
        return Finding("systemd", "ok", "This system does not run systemd.")
    if found.get("LoadState") != "loaded":
        return Finding("systemd", "ok", f"{UNIT} is not installed.")
    state = f"{found.get('ActiveState')} ({found.get('SubState')})"
    if found.get("ActiveState") == "failed":
        fact = f"{UNIT} has failed ({found.get('Result')})."
        return Finding("systemd", "wrong", fact, "Read its log: journalctl -u llmd -e.")
    if found.get("PrivateUsers") == "yes":
        fact = f"{UNIT} sets PrivateUsers=yes, so the kernel reports no users to llmd."
        return Finding("systemd", "wrong", fact, "Remove PrivateUsers=yes from the unit: systemctl edit llmd.")
    return Finding("systemd", "ok", f"{UNIT} is {state}.")
