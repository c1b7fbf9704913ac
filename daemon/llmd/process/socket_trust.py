"""Rules for trusting the unix socket.

The unix socket needs no key: everybody who can open it administers the daemon (LOCAL in http/access.py). So the socket
belongs to this user alone from its first moment on. llmd accepts only files of this user at its path, and llmctl
refuses a socket that another user may have put there. engine/segment.py does not trust another user's lock file next to
it. http/access.py checks TCP clients: keys, and the Host and Origin of browsers.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("llmd")

SOCKET_MODE = 0o600
"""Mode of the socket, whatever the umask: bind() gives the file the mode of its descriptor."""


class UntrustedSocketError(Exception):
    """Another user could impersonate the daemon, or owns a file at its path. The message names the file and
    what to do."""


# --- path ------------------------------------------------------------------------------------------------------------


def default_socket() -> Path:
    """Returns the default path of the socket, for the daemon and for llmctl."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if os.geteuid() == 0:
        return Path("/run/llmd/llmd.sock")
    if runtime:
        return Path(runtime) / "llmd" / "llmd.sock"
    return _socket_in_tmp()


def _socket_in_tmp() -> Path:
    return Path(f"/tmp/llmd-{os.geteuid()}/llmd.sock")


def check_socket(path: Path) -> None:
    """Checks the default directory in /tmp, which any user could create first. Raises UntrustedSocketError unless the
    directory belongs to this user alone; a missing directory is allowed."""
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


# --- files -----------------------------------------------------------------------------------------------------------


def make_private(directory: Path) -> None:
    """Makes the directory and its missing parents. Each is for this user only, whatever the umask; Path.mkdir would
    apply the umask to the parents.
    """
    if not directory.is_dir():
        make_private(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)


def warn_of_open(directory: Path) -> None:
    mode = directory.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        log.warning("every user of this machine can replace the unix socket: all of them can write to %s", directory)


def check_own(name: str, status: os.stat_result, kind: str, is_kind: Callable[[int], bool]) -> None:
    """Checks that a file at a path of llmd has the right kind and belongs to this user. Raises UntrustedSocketError."""
    if not is_kind(status.st_mode):
        raise UntrustedSocketError(f"{name} exists and is not {kind}; remove it, or choose another path with --socket")
    if status.st_uid != os.geteuid():
        raise UntrustedSocketError(
            f"{name} belongs to another user (uid {status.st_uid}); choose another path with --socket"
        )
