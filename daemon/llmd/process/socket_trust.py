"""Rules that decide which unix socket llmd and llmctl may use safely.

Clients of the unix socket need no API key, and everybody who can open the socket is an administrator (LOCAL in
http/access.py). So llmd creates the socket such that only the user that runs llmd can open it. If a file already exists
at the socket's path, llmd uses the path only if the file belongs to this user. Similarly, llmctl refuses a socket that
another user may have created. Lock files of other users are ignored (engine/segment.py). The rules for TCP clients are
in http/access.py.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("llmd")

SOCKET_MODE = 0o600
"""Mode of the socket's file, independent of the umask. llmd sets this mode on the socket's descriptor before bind().
bind() gives the descriptor's mode to the new file.
"""


class UntrustedSocketError(Exception):
    """Raised if another user could impersonate the daemon, or owns a file that the daemon needs. The message names the
    file and says what to do.
    """


# --- the socket's path -----------------------------------------------------------------------------------------------


def default_socket() -> Path:
    """Returns the path that the daemon and llmctl use if --socket is not set."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if os.geteuid() == 0:
        return Path("/run/llmd/llmd.sock")
    if runtime:
        return Path(runtime) / "llmd" / "llmd.sock"
    return _socket_in_tmp()


def _socket_in_tmp() -> Path:
    return Path(f"/tmp/llmd-{os.geteuid()}/llmd.sock")


def check_socket(path: Path) -> None:
    """Checks the directory of the socket if `path` is the default path in /tmp, where any user could have created this
    directory first. Raises UntrustedSocketError if the directory exists, and another user owns it or can write to it.
    Does nothing for other paths.
    """
    if path != _socket_in_tmp():
        return
    try:
        found = os.lstat(path.parent)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise UntrustedSocketError(
            f"{path.parent} is not a directory that only this user can write to. Choose another path with --socket"
        )


# --- directories and files -------------------------------------------------------------------------------------------


def make_private(directory: Path) -> None:
    """Creates the directory and its missing parents. Only this user can use the created directories, whatever the umask
    is. Path.mkdir with parents=True is not used, because it would let the umask decide the mode of the parents.
    """
    if not directory.is_dir():
        make_private(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)


def warn_of_open(directory: Path) -> None:
    mode = directory.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        log.warning("every user of this machine can write to %s and so replace the unix socket there", directory)


def check_own(name: str, status: os.stat_result, kind: str, is_kind: Callable[[int], bool]) -> None:
    """Raises UntrustedSocketError unless the file `name` is of the right kind and belongs to this user. The message
    calls this kind `kind`, and `is_kind` checks the file's mode.
    """
    if not is_kind(status.st_mode):
        raise UntrustedSocketError(f"{name} exists and is not {kind}; remove it, or choose another path with --socket")
    if status.st_uid != os.geteuid():
        raise UntrustedSocketError(
            f"{name} belongs to another user (uid {status.st_uid}); choose another path with --socket"
        )
