"""systemd's protocols for readiness, the watchdog and socket activation. These functions do nothing if systemd has not
started the process.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, MutableMapping

from ..core import limits

LISTEN_FDS_START = 3


def notify(*lines: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Sends the lines to the service manager, like sd_notify(3). Returns False if no service manager expects lines, or
    if sending fails.
    """
    address = environment.get("NOTIFY_SOCKET")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.settimeout(limits.NOTIFY_PATIENCE_S)
        try:
            sender.sendto("\n".join(lines).encode(), address)
        except OSError:
            return False
    return True


def more_time(seconds: float, is_needed: bool = True) -> tuple[str, ...]:
    """Returns a line for `notify` that extends systemd's timeout for the start or stop of the service. systemd then
    waits for at least `seconds` from now. This overrides the timeout in the unit file. Returns no line if `is_needed`
    is false.
    """
    return (f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}",) if is_needed else ()


def reloading() -> str:
    """Returns the lines for `notify` that announce a reload of the configuration. After the reload, the caller must
    send READY=1.
    """
    return f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}"


def watchdog_interval_s(environment: Mapping[str, str] = os.environ) -> float | None:
    """Returns the interval at which llmd notifies systemd's watchdog, which is half of the watchdog's timeout. Returns
    None if the service has no watchdog, or if the watchdog is for another process.
    """
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        microseconds = int(environment.get("WATCHDOG_USEC", "0"))
    except ValueError:
        return None
    return microseconds / 2_000_000 if microseconds > 0 else None


def listen_sockets(environment: MutableMapping[str, str] = os.environ) -> list[socket.socket]:
    """Returns the sockets that systemd opened for this process. See sd_listen_fds(3). Only the first call returns them.
    Child processes do not inherit the sockets.
    """
    count = environment.pop("LISTEN_FDS", "")
    pid = environment.pop("LISTEN_PID", "")
    environment.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdigit():
        return []
    sockets = []
    for descriptor in range(LISTEN_FDS_START, LISTEN_FDS_START + int(count)):
        os.set_inheritable(descriptor, False)
        listener = socket.socket(fileno=descriptor)
        listener.setblocking(False)
        sockets.append(listener)
    return sockets
