"""Rules by which a socket is trusted.

The unix socket asks for no key: whoever may open it administers the daemon (LOCAL in http/access.py). So it is this
user's alone from its first moment on, what lies in its place is touched only if it is this user's, and llmctl speaks to
none that another user may have put there; engine/segment.py believes no other user's lock file beside it. What comes
over TCP is judged by http/access.py: keys, and the Host and Origin of browsers.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("llmd")

SOCKET_MODE = 0o600
"""Whatever the umask: a file has the mode of the descriptor that is bound to it."""


class UntrustedSocketError(Exception):
    """Another user could stand in for the daemon, or has put something in its place; the message says where and what
    to do."""


# --- where it lies ---------------------------------------------------------------------------------------------------


def default_socket() -> Path:
    """Where the daemon listens, and where llmctl looks, when nobody says."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if os.geteuid() == 0:
        return Path("/run/llmd/llmd.sock")
    if runtime:
        return Path(runtime) / "llmd" / "llmd.sock"
    return _socket_in_tmp()


def _socket_in_tmp() -> Path:
    return Path(f"/tmp/llmd-{os.geteuid()}/llmd.sock")


def check_socket(path: Path) -> None:
    """For the default in /tmp, where anybody can come first. Raises UntrustedSocketError unless the directory is this
    user's alone; one that is not there yet is no danger."""
    if path != _socket_in_tmp():
        return
    try:
        found = os.lstat(path.parent)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise UntrustedSocketError(
            f"{path.parent} is not a directory that only this user can write to; choose another path with --socket"
        )


# --- what its daemon makes, and finds --------------------------------------------------------------------------------


def make_private(directory: Path) -> None:
    """Makes the directory and those above it that are missing, each for this user only, whatever the umask, to which
    Path.mkdir leaves the upper ones."""
    if not directory.is_dir():
        make_private(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)


def warn_of_open(directory: Path) -> None:
    mode = directory.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        log.warning("every user of this machine can replace the unix socket: all of them can write to %s", directory)


def check_own(name: str, status: os.stat_result, kind: str, is_kind: Callable[[int], bool]) -> None:
    """Checks a file in the place of one of ours. Raises UntrustedSocketError."""
    if not is_kind(status.st_mode):
        raise UntrustedSocketError(f"{name} exists and is not {kind}; remove it, or choose another path with --socket")
    if status.st_uid != os.geteuid():
        raise UntrustedSocketError(
            f"{name} belongs to another user (uid {status.st_uid}); choose another path with --socket"
        )
