"""The sockets the daemon listens on, opened before the model is loaded.

The TCP socket listens from then on: a port in use is known at once, and no other daemon can take this one. Clients that
connect while the model loads wait in its queue. The unix socket is only bound and its lock held: llmctl tells from that
that the daemon is starting.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from . import systemd
from .options import Config, UntrustedSocketError, check_socket

BACKLOG = 128
"""Connections that may wait to be accepted."""


class ListenError(Exception):
    """An address cannot be listened on; the message says which and what to do."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """Open sockets, and what was made for them."""

    sockets: list[socket.socket]
    lock: int | None
    """Descriptor of the lock file beside the unix socket: held as long as the daemon lives."""
    path: Path | None
    """The unix socket we made, which we remove."""

    def addresses(self) -> list[str]:
        return [address_of(listener) for listener in self.sockets]

    def close(self) -> None:
        for listener in self.sockets:
            listener.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)
        if self.lock is not None:
            os.close(self.lock)


def address_of(listener: socket.socket) -> str:
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"unix:{name if isinstance(name, str) else os.fsdecode(name)}"
    host, port = name[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def open_listeners(config: Config) -> Listeners:
    """Those that systemd passed, or those of the configuration. Raises ListenError."""
    passed = systemd.listen_sockets()
    if passed:
        return Listeners(passed, None, None)
    tcp = _tcp(config.host, config.port)
    try:
        local, lock = _unix(config.socket)
    except BaseException:
        tcp.close()
        raise
    return Listeners([tcp, local], lock, config.socket)


def _tcp(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise ListenError(f"--host: {host} is no address: {error.strerror}") from None
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        advice = "; choose another with --port" if error.errno == errno.EADDRINUSE else ""
        raise ListenError(f"cannot listen on {host} port {port}: {os.strerror(error.errno or 0)}{advice}") from None
    return listener


def _unix(path: Path) -> tuple[socket.socket, int]:
    """The unix socket, for its user only, and the lock that says that a daemon lives there."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_socket(path)  # now that the directory is there, nobody can put another in its place
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ListenError(
            f"cannot make the unix socket {path}: {error.strerror}; choose another with --socket"
        ) from None
    except UntrustedSocketError as error:
        raise ListenError(str(error)) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise ListenError(f"another llmd serves {path}; stop it, or choose another with --socket") from None
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        path.unlink(missing_ok=True)  # of a daemon that died: the lock was free
        listener.setblocking(False)
        listener.bind(os.fspath(path))
    except OSError as error:
        listener.close()
        os.close(lock)
        raise ListenError(f"cannot listen on {path}: {error.strerror or error}; choose another with --socket") from None
    finally:
        os.umask(mask)
    return listener, lock
