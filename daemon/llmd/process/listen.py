"""The sockets that the daemon listens on.

The sockets are opened before the model is loaded. So llmd reports at once if the port is in use. Also, no other program
can take the port while the model loads. Only the user that runs llmd can use the unix socket. llmd removes an existing
file at the path of the unix socket in one case: the file is a socket of this user, and no program listens on it. See
socket_trust.py.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import logging
import os
import resource
import socket
import stat
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ..core import limits
from . import systemd
from .config_table import Config
from .socket_trust import SOCKET_MODE, UntrustedSocketError, check_own, check_socket, make_private, warn_of_open

log = logging.getLogger("llmd")

_OTHER_PATH = "choose another path with --socket"
UNIX_PATH_BYTES_MAX = 107
"""Maximum length of the path of a unix socket. This is the size of sun_path in unix(7), without the terminating zero.
"""


class ListenError(Exception):
    """Raised if the daemon cannot listen on an address. The message names the address and says what to do."""


@dataclass(frozen=True, slots=True)
class UnixSocket:
    """The unix socket that this process has opened. `close` removes its file, unless another file has replaced it."""

    listener: socket.socket
    path: Path
    inode: tuple[int, int]
    lock: int
    """Descriptor of the lock file next to the socket. The daemon holds the lock until it ends. So no other daemon uses
    the socket's path. The lock file is never removed. Otherwise two daemons could lock two different files of the same
    name.
    """

    def close(self) -> None:
        self.listener.close()
        try:
            if _inode(os.lstat(self.path)) == self.inode:
                self.path.unlink()
        except OSError:
            pass  # the file is gone, or this user can no longer write to the directory
        os.close(self.lock)


@dataclass(frozen=True, slots=True)
class Listeners:
    """The sockets on which the daemon listens. `local` is the unix socket, which is also in `sockets`. `local` is None
    if systemd passed the sockets, because systemd then owns the socket's file.
    """

    sockets: list[socket.socket]
    local: UnixSocket | None

    def addresses(self) -> list[str]:
        return [address_of(listener) for listener in self.sockets]

    def public_addresses(self) -> list[str]:
        return [address_of(listener) for listener in self.sockets if not _is_local(listener)]

    def close(self) -> None:
        for listener in self.sockets:
            listener.close()
        if self.local is not None:
            self.local.close()


def _inode(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _is_local(listener: socket.socket) -> bool:
    if listener.family == socket.AF_UNIX:
        return True
    address = ipaddress.ip_address(listener.getsockname()[0].partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def address_of(listener: socket.socket) -> str:
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"unix:{name if isinstance(name, str) else os.fsdecode(name)}"
    host, port = name[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def open_listeners(config: Config) -> Listeners:
    """Returns the sockets that systemd passed to this process. If systemd passed none, opens the TCP port and the unix
    socket of the configuration. Raises ListenError.
    """
    passed = _passed()
    if passed:
        return Listeners(passed, None)
    with ExitStack() as opened:
        tcp = opened.enter_context(_tcp(config.host, config.port))
        try:
            local = _unix(config.socket)
        except UntrustedSocketError as error:
            raise ListenError(str(error)) from None
        opened.pop_all()
    return Listeners([tcp, local.listener], local)


def _passed() -> list[socket.socket]:
    try:
        passed = systemd.listen_sockets()
    except OSError as error:
        raise ListenError(f"LISTEN_FDS: cannot use a socket of systemd: {error.strerror}") from None
    for listener in passed:
        is_known = listener.family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
        is_stream = listener.type == socket.SOCK_STREAM
        if not (is_known and is_stream and listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)):
            raise ListenError(
                "LISTEN_FDS: systemd passed a socket that does not listen. Set ListenStream= and Accept=no in its unit"
            )
    return passed


def _tcp(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise ListenError(f"--host: {host} is not a valid address: {getattr(error, 'strerror', error)}") from None
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind(address)
        listener.listen(limits.BACKLOG)
    except OSError as error:
        listener.close()
        advice = (
            "; choose another port with --port, or run llmd doctor to see which program has it"
            if error.errno == errno.EADDRINUSE
            else ""
        )
        raise ListenError(f"cannot listen on {host} port {port}: {os.strerror(error.errno or 0)}{advice}") from None
    return listener


# --- the unix socket -------------------------------------------------------------------------------------------------


def _unix(path: Path) -> UnixSocket:
    """Opens the unix socket. Only this user can use the socket, from the moment of its creation and whatever the umask
    is. The file at `path` is removed and created only while this process holds the lock.
    """
    if len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX:
        raise ListenError(f"--socket: the path {path} has more than {UNIX_PATH_BYTES_MAX} bytes; choose a shorter path")
    with ExitStack() as opened:
        lock = _lock(path)
        opened.callback(os.close, lock)
        listener = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        try:
            _remove_dead(path)
            listener.setblocking(False)
            os.fchmod(listener.fileno(), SOCKET_MODE)  # bind() gives the socket's file this mode
            listener.bind(os.fspath(path))
            found = UnixSocket(listener, path, _inode(os.lstat(path)), lock)
        except OSError as error:
            raise ListenError(f"cannot listen on {path}: {error.strerror or error}; {_OTHER_PATH}") from None
        opened.pop_all()
    return found


def _lock(path: Path) -> int:
    """Locks the lock file of the socket's path, and returns the descriptor of the lock file. The lock shows other
    daemons that this path is in use. Creates the directory of the path if it does not exist.
    """
    try:
        make_private(path.parent)
        check_socket(path)  # after make_private, so that no other user can create the directory
        warn_of_open(path.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        lock = os.open(f"{path}.lock", flags, 0o600)
    except OSError as error:
        reason = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise ListenError(f"cannot create the unix socket {path}: {error.filename}: {reason}; {_OTHER_PATH}") from None
    with ExitStack() as opened:
        opened.callback(os.close, lock)
        try:
            check_own(f"{path}.lock", os.fstat(lock), "a regular file", stat.S_ISREG)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ListenError(f"another llmd uses the socket {path}; stop it, or {_OTHER_PATH}") from None
        except OSError as error:
            raise ListenError(f"cannot lock {path}.lock: {error.strerror}; {_OTHER_PATH}") from None
        opened.pop_all()
    return lock


def _remove_dead(path: Path) -> None:
    """Removes the socket that a killed daemon has left at `path`. If the file at `path` is anything else, removes
    nothing and raises an error.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    check_own(str(path), found, "a socket", stat.S_ISSOCK)
    if is_listened_on(path):
        raise ListenError(f"another program listens on {path}; stop it, or {_OTHER_PATH}")
    path.unlink(missing_ok=True)


def is_listened_on(path: Path) -> bool:
    """Tries to connect to the socket. Returns False if the connection is refused, or if the socket does not exist: then
    certainly no program listens. For every other result, such as a full queue of connections, returns True.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True


def descriptors_for(n_connections: int) -> int:
    """Raises the process's limit on open files, so that `n_connections` connections are possible. The new limit does
    not exceed the hard limit. Returns how many connections are possible now, at most `n_connections`.
    """
    needed = n_connections + limits.DESCRIPTORS_RESERVED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return n_connections
    return min(n_connections, max(soft - limits.DESCRIPTORS_RESERVED, soft // 2))
