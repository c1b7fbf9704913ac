"""Checks where llmd listens and keeps its files: the port, the unix socket, the key file and the state directory."""

from __future__ import annotations

import errno
import http.client
import ipaddress
import json
import os
import re
import shutil
import socket
from contextlib import suppress
from pathlib import Path

from ..http.access import KeyFileError, read_keys
from ..process.listen import UNIX_PATH_BYTES_MAX, is_listened_on
from ..process.socket_trust import UntrustedSocketError, check_own, check_socket
from .finding import Finding, size

_ANSWER_S_MAX = 2.0
_DISK_BYTES_MIN = 2**30
_LISTENING = "0A"
"""The state of a listening socket in /proc/net/tcp."""


# --- the port --------------------------------------------------------------------------------------------------------


def port(host: str, number: int, processes: Path = Path("/proc")) -> Finding:
    if number == 0:
        return Finding("port", "ok", "llmd picks a free port when it starts.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except (OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            return _taken(host, number, processes)
        advice = "Choose another address with --host, or another port with --port."
        reason = error.strerror if isinstance(error, OSError) else error
        return Finding("port", "wrong", f"llmd cannot listen on {host} port {number}: {reason}.", advice)
    return Finding("port", "ok", f"Port {number} on {host} is free.")


def _taken(host: str, number: int, processes: Path) -> Finding:
    version = _version_of_llmd("localhost" if _is_any(host) else host, number)
    if version:
        return Finding("port", "ok", f"llmd {version} already listens on port {number}.")
    holder = _holder_of(number, processes)
    fact = f"Another program{f' ({holder})' if holder else ''} listens on port {number}."
    return Finding("port", "wrong", fact, "Stop that program, or choose another port with --port.")


def _is_any(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    return False


def _version_of_llmd(host: str, number: int) -> str:
    """Returns the version of the llmd that listens on the port. Returns "" if another program listens there."""
    connection = http.client.HTTPConnection(host, number, timeout=_ANSWER_S_MAX)
    try:
        connection.request("GET", "/live", headers={"Host": "localhost"})
        found = json.loads(connection.getresponse().read(4096))
        return str(found["version"]) if set(found) == {"status", "version", "pid"} else ""
    except (OSError, http.client.HTTPException, ValueError, TypeError, LookupError):
        return ""
    finally:
        connection.close()


def _holder_of(number: int, processes: Path) -> str:
    """Returns the name and pid of the process that listens on the port. Returns "" if this user has no permission to
    see that process.
    """
    inodes = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (processes / "net" / table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENING and words[1].endswith(f":{number:04X}"):
                    inodes.add(f"socket:[{words[9]}]")
    for folder in processes.glob("[0-9]*"):
        with suppress(OSError):
            if any(os.readlink(file) in inodes for file in (folder / "fd").iterdir()):
                return f"{(folder / 'comm').read_text().strip()}, pid {folder.name}"
    return ""


# --- the unix socket, keys and files ---------------------------------------------------------------------------------


def unix_socket(path: Path) -> Finding:
    another = "Choose another path with --socket."
    if len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX:
        return Finding("socket", "wrong", f"The path {path} has more than {UNIX_PATH_BYTES_MAX} bytes.", another)
    try:
        check_socket(path)
        if path.exists():
            check_own(str(path), path.lstat(), "a socket", lambda mode: mode & 0o170000 == 0o140000)
            if is_listened_on(path):
                return Finding("socket", "ok", f"A program, probably llmd, listens on {path}.")
    except (UntrustedSocketError, OSError) as error:
        return Finding("socket", "wrong", f"{error}.", another)
    folder = _nearest(path.parent)
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding("socket", "wrong", f"This user cannot create {path}: {folder} is not writable.", another)
    return Finding("socket", "ok", f"{path} is free.")


def _nearest(path: Path) -> Path:
    """Returns the path, or the nearest folder above it that exists."""
    return next(one for one in (path, *path.absolute().parents) if one.exists())


def access(host: str, key_file: Path | None, is_open: bool) -> Finding:
    if key_file is not None:
        try:
            keys = read_keys(key_file)
        except KeyFileError as error:
            return Finding("access", "wrong", f"{error}.", "Correct the file of --api-key-file.")
        return Finding("access", "ok", f"{key_file} has {len(keys)} keys.")
    if is_open or _is_loopback(host):
        whom = "Every machine that reaches it" if is_open else "Every user of this machine"
        return Finding("access", "ok", f"{whom} can use llmd without a key.")
    return Finding(
        "access", "wrong", f"Other machines can reach {host}, and llmd has no API keys, so it does not start.",
        "Set --api-key-file, or --open on, or --host 127.0.0.1.",
    )  # fmt: skip


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return re.fullmatch(r"(.*\.)?localhost", host) is not None


def state_directory(path: Path | None) -> Finding:
    if path is None:
        return Finding("state", "ok", "llmd keeps sessions in memory only (--state-dir none).")
    folder = _nearest(path)
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return Finding(
            "state", "wrong", f"This user cannot write to {folder}, where llmd keeps sessions.",
            "Choose another directory with --state-dir, or keep no files with --state-dir none.",
        )  # fmt: skip
    n_free = shutil.disk_usage(folder).free
    if n_free < _DISK_BYTES_MIN:
        return Finding(
            "state", "slow", f"The disk of {path} has only {size(n_free)} free, so llmd keeps few states there.",
            "Free disk space, or choose a directory on another disk with --state-dir.",
        )  # fmt: skip
    return Finding("state", "ok", f"The disk of {path} has {size(n_free)} free.")
