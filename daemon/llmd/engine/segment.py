"""Reads and writes the lock file next to the unix socket. It contains the names of session tables in shared memory.

Each daemon makes a new random name for its table. So no other user can create shared memory of that name first. The
lock file is in a directory of the daemon's user. Each line of the file is a name. The first line is the name of the
current daemon's table. The other lines are the names of tables that killed daemons left. The name of such a table stays
in the file until a later daemon with the same model has taken over the table. A daemon creates its own table only after
it has taken over these tables. So for some time no table has the first name.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from pathlib import Path

PREFIX = "/llmd-"
_PATTERN = re.compile(re.escape(PREFIX) + r"[0-9a-f]{16}-[0-9a-f]{16}")
_NAMES_MAX = 4
_FILE_BYTES_MAX = 1024
_SHARED_MEMORY = Path("/dev/shm")


def new_name(socket_path: str | os.PathLike[str]) -> str:
    """Returns a new name for the session table of a daemon at this socket. The first half of the name is the same for
    all daemons at the socket. So people can see which tables belong to the same socket.
    """
    absolute = os.path.abspath(os.fspath(socket_path))
    return f"{PREFIX}{hashlib.sha256(os.fsencode(absolute)).hexdigest()[:16]}-{secrets.token_hex(8)}"


def names(socket_path: str | os.PathLike[str]) -> list[str]:
    """Returns the names in the lock file, the newest first. The list is empty in three cases: the file does not exist,
    does not belong to the user that `owner` returns, or can be written by other users. Raises PermissionError if this
    user has no permission to read the file.
    """
    try:
        descriptor = os.open(_lock_of(socket_path), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except PermissionError:
        raise
    except OSError:
        return []
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != owner(socket_path) or found.st_mode & 0o022:
            return []
        lines = file.read(_FILE_BYTES_MAX).decode("ascii", "replace").split("\n")
    return [line for line in lines if _PATTERN.fullmatch(line)][:_NAMES_MAX]


def name_in_use(socket_path: str | os.PathLike[str]) -> str | None:
    """Returns the name of the session table of the daemon that runs at this socket. If no daemon runs, returns the name
    of the table of the daemon that was killed most recently there, or None. Raises PermissionError if this user has no
    permission to read the lock file.
    """
    return next((name for name in names(socket_path) if exists(name)), None)


def write(socket_path: str | os.PathLike[str], *in_use: str) -> None:
    """Writes the names to the lock file. Raises OSError. If the names cannot be written, llmctl does not find the
    session table. After a crash, the next daemon does not find it, either.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(_lock_of(socket_path), flags, 0o600)
    try:
        data = "".join(f"{name}\n" for name in in_use[:_NAMES_MAX]).encode()
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)


def exists(name: str) -> bool:
    return (_SHARED_MEMORY / name.removeprefix("/")).exists()


def owner(socket_path: str | os.PathLike[str]) -> int:
    """Returns the id of the user that must own the lock file and the session table. This is the user of this process
    or, if the process runs as root, the owner of the socket.
    """
    if os.geteuid() != 0:
        return os.geteuid()
    for path in (socket_path, _lock_of(socket_path)):
        try:
            return os.lstat(path).st_uid
        except OSError:
            continue
    return os.geteuid()


def _lock_of(socket_path: str | os.PathLike[str]) -> str:
    return f"{os.fspath(socket_path)}.lock"
