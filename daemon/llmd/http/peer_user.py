"""Asks the kernel which user of this machine owns the other end of a TCP connection (sock_diag(7)).

A netlink message asks for the client's socket, which has the two addresses of llmd's socket in reverse order. The
kernel answers within the call (40 us), whatever the number of sockets. A kernel without the module tcp_diag has only
/proc/net/tcp and /proc/net/tcp6, which list all sockets. Reading these files takes 3 ms, and 3 us more for each socket.
Owned by the event loop.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import struct
from pathlib import Path

log = logging.getLogger("llmd.http")

_Name = tuple[object, ...]
"""The address of a socket in Python's form: host, port and, for IPv6, flow and scope."""

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_NLMSG_ERROR = 2
_HEAD = struct.Struct("=IHHII")
"""nlmsghdr: bytes, type, flags, sequence number, port."""
_QUESTION = struct.Struct("=BBBxI2s2s16s16sI8s")
"""inet_diag_req_v2: family, protocol, extensions, states; inet_diag_sockid: ports, addresses, interface, cookie."""
_ANSWER = struct.Struct("=BBBB2s2s16s16sI8sIIIII")
"""inet_diag_msg: family, state, timer, retransmissions, inet_diag_sockid, expiry, queues, user, inode."""
_ALL_STATES = 0xFFFF_FFFF
_NO_COOKIE = b"\xff" * 8
_ADDRESS_BYTES = 16
_ANSWER_BYTES_MAX = 4096
_LOOPBACK_INTERFACE = 1
"""The number of the loopback interface, which is the same in every Linux. If a request names this interface, the kernel
finds sockets that are bound to this interface or to none.
"""
_CONNECTED = frozenset((1, 4, 5, 8, 9, 11))
"""States (tcp_states.h) of a connected socket that a program still holds: ESTABLISHED, FIN_WAIT1, FIN_WAIT2,
CLOSE_WAIT, LAST_ACK, CLOSING. In other states the kernel reports root as the user, or the socket belongs to another
program that listens on the client's port.
"""
_OVERFLOW_UID = 65534
"""The user id that stands for all users outside this process's user namespace."""
_CHECK_S_MAX = 0.5
_MAPPED = bytes(10) + b"\xff\xff"
"""Prefix of an IPv4 address in the form of an IPv6 address."""
_READ_BYTES = 1 << 20
_TABLE_BYTES_MAX = 4 << 20
"""Size of the longest table that is searched. A table of this size has 28,000 sockets and takes 0.1 s of the event
loop.
"""
_READINGS = 2
"""Number of times that a table is read if the socket is not found. One reading can miss a socket, because the kernel
returns a table in pieces that belong to different moments.
"""
_LOOPBACK_4 = _MAPPED + b"\x7f"
_LOOPBACK_6 = bytes(15) + b"\x01"


class UnknownUserError(Exception):
    """The client may be a program of this machine, but the kernel's tables do not show its user. The connection is
    refused. If the client were accepted as `anybody`, it would share its sessions with other clients, and another user
    could cause that by opening many sockets.
    """


class TableTooLongError(UnknownUserError):
    """A table has more than _TABLE_BYTES_MAX."""


class PeerUsers:
    """Finds the users of connections. Opens netlink and the tables at the start, so that a client cannot hide its user
    by using up all file descriptors.
    """

    def __init__(self) -> None:
        self._sources: list[_Netlink | _Tables] = []
        """All sources that could be opened. As soon as a source has reported a user, only that source."""
        self._is_trusted = False
        """Whether the source has reported a user at least once. Otherwise a connection without a known user is not
        refused, because the kernel may report no users at all.
        """
        troubles = []
        for kind in (_Netlink, _Tables):
            try:
                source = kind()
                self._sources.append(source)
                if _names_our_user(source):
                    self._trust(source)
                    return
                troubles.append(kind.doubt)
            except OSError as error:
                troubles.append(error.strerror or str(error))
        log.warning(
            "the kernel does not report which user connects (%s): users that connect to a loopback address may share "
            "sessions, unless --api-key-file is set",
            "; ".join(troubles),
        )

    def close(self) -> None:
        for source in self._sources:
            source.close()
        self._sources = []

    def user_of(self, connection: socket.socket) -> int | None:
        """Returns the client's user id, or None if the kernel does not know the user, because the client is on another
        machine or in another network namespace. Raises UnknownUserError.
        """
        for source in list(self._sources):
            try:
                user = _find(source, connection)
            except UnknownUserError:
                if self._is_trusted and _is_connected(connection):
                    raise
            except OSError:
                pass
            else:
                if user is not None:
                    self._trust(source)
                    return user
        return None

    def _trust(self, trusted: _Netlink | _Tables) -> None:
        """Uses only this source from now on. The source can be trusted although its check at the start failed, because
        the check may have had another cause of failure, such as a loopback interface that was down.
        """
        self._is_trusted = True
        for source in self._sources:
            if source is not trusted:
                source.close()
        self._sources = [trusted]


def _find(source: _Netlink | _Tables, connection: socket.socket) -> int | None:
    """Returns the user of the client. While the connection is open, no other socket can have the client's address and
    port. A client that resets the connection frees the port for another user, so the connection is checked again after
    the kernel's answer.
    """
    peer = connection.getpeername()
    user = source.user_of(connection.family, peer, connection.getsockname())
    return user if connection.getpeername() == peer else None


def _names_our_user(source: _Netlink | _Tables) -> bool:
    """Returns whether the kernel reports the user of a connection between two sockets of this process. Without the
    module tcp_diag, the kernel answers every question as if the connection did not exist. If this process runs as the
    overflow user (`nobody`), the check would prove nothing, because that user is never reported. A table that is too
    long counts as success: otherwise a user who opens many sockets while llmd starts could make all users one owner.
    """
    if os.geteuid() == _OVERFLOW_UID:
        return True
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(_CHECK_S_MAX)
        with socket.create_connection(listener.getsockname(), _CHECK_S_MAX), listener.accept()[0] as accepted:
            try:
                return _find(source, accepted) is not None
            except UnknownUserError as error:
                return isinstance(error, TableTooLongError)


def _is_connected(connection: socket.socket) -> bool:
    try:
        connection.getpeername()
    except OSError:
        return False
    return True


# --- by netlink ------------------------------------------------------------------------------------------------------


class _Netlink:
    doubt = "it may lack tcp_diag"

    def __init__(self) -> None:
        self._n_questions = 0
        self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG)
        self._netlink.setblocking(False)

    def close(self) -> None:
        self._netlink.close()

    def user_of(self, family: int, client: _Name, own: _Name) -> int | None:
        self._n_questions = (self._n_questions + 1) & 0xFFFF_FFFF
        self._netlink.send(_question(self._n_questions, family, client, own))
        while True:
            answer = self._netlink.recv(_ANSWER_BYTES_MAX)
            _, kind, _, number, _ = _HEAD.unpack_from(answer)
            if number == self._n_questions:
                return None if kind == _NLMSG_ERROR else _user_in(answer)


def _question(number: int, family: int, client: _Name, own: _Name) -> bytes:
    scope = client[3] if len(client) > 3 else 0
    body = _QUESTION.pack(
        family, socket.IPPROTO_TCP, 0, _ALL_STATES, _port(client), _port(own), _address(family, client),
        _address(family, own), scope or _LOOPBACK_INTERFACE, _NO_COOKIE,
    )  # fmt: skip
    return _HEAD.pack(_HEAD.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, number, 0) + body


def _port(name: _Name) -> bytes:
    assert isinstance(name[1], int)
    return name[1].to_bytes(2, "big")


def _address(family: int, name: _Name) -> bytes:
    return socket.inet_pton(family, str(name[0]).partition("%")[0]).ljust(_ADDRESS_BYTES, b"\0")


def _user_in(answer: bytes) -> int | None:
    """Returns the user, or None for a socket without an inode. Such a socket was closed by its program, and older
    kernels then report root as its user.
    """
    _, state, *_, user, inode = _ANSWER.unpack_from(answer, _HEAD.size)
    return _user_of_held(state, user, inode)


def _user_of_held(state: int, user: int, inode: int) -> int | None:
    is_held = state in _CONNECTED and inode != 0
    return user if is_held and user != _OVERFLOW_UID else None


# --- by the tables of all sockets ------------------------------------------------------------------------------------


class _Tables:
    doubt = "/proc/net/tcp names no user"

    def __init__(self) -> None:
        self._files = {int(socket.AF_INET): Path("/proc/net/tcp").open("rb", 0)}
        with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
            self._files[socket.AF_INET6] = Path("/proc/net/tcp6").open("rb", 0)

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def user_of(self, family: int, client: _Name, own: _Name) -> int | None:
        """Returns the user of the client's socket. Returns None if the client is on another machine, or if several
        users have a socket with these addresses: the same link-local address can exist on several interfaces, which the
        tables do not distinguish. Raises UnknownUserError if a table is too long, or if the client is on this machine
        and no table has its socket.
        """
        addresses = [_mapped(name) for name in (client, own)]
        for _ in range(_READINGS):
            if lines := self._lines_of(addresses, client, own):
                users = {user for line in lines if (user := _user_in_line(line)) is not None}
                return users.pop() if len(users) == 1 else None
            if not _is_own_machine(*addresses):
                return None
        raise UnknownUserError

    def _lines_of(self, addresses: list[bytes], client: _Name, own: _Name) -> list[bytes]:
        lines: list[bytes] = []
        if all(address.startswith(_MAPPED) for address in addresses):
            short = [address[len(_MAPPED) :] for address in addresses]
            lines = self._lines_in(socket.AF_INET, _in_table(short, client, own))
        return lines or self._lines_in(socket.AF_INET6, _in_table(addresses, client, own))

    def _lines_in(self, family: int, names: bytes) -> list[bytes]:
        if family not in self._files:
            return []
        file = self._files[family]
        file.seek(0)
        table, n_bytes = [], 0
        while piece := file.read(_READ_BYTES):
            table.append(piece)
            n_bytes += len(piece)
            if n_bytes > _TABLE_BYTES_MAX:
                raise TableTooLongError
        return re.findall(rb"^ *\d+: " + names + rb" (.*)$", b"".join(table), re.MULTILINE)


def _is_own_machine(client: bytes, own: bytes) -> bool:
    """Returns whether the client must be a program of this machine, because of its address."""
    return client == own or all(one.startswith(_LOOPBACK_4) or one == _LOOPBACK_6 for one in (client, own))


def _user_in_line(rest: bytes) -> int | None:
    """Returns the user in a line of the table. `rest` is the part of the line that begins with the state."""
    state, _, _, _, user, _, inode, *_ = rest.split()
    return _user_of_held(int(state, 16), int(user), int(inode))


def _mapped(name: _Name) -> bytes:
    """Returns an IPv4 address as an IPv6 address, because the other end of its connection can be an IPv6 socket."""
    address = str(name[0]).partition("%")[0]
    return socket.inet_pton(socket.AF_INET6, address if ":" in address else f"::ffff:{address}")


def _in_table(addresses: list[bytes], client: _Name, own: _Name) -> bytes:
    """Returns both addresses of the client's socket in the table's form, in which every four bytes are one number in
    host order.
    """
    ends = []
    for address, (_, port, *_) in zip(addresses, (client, own), strict=True):
        numbers = memoryview(address).cast("I")
        ends.append("".join(f"{number:08X}" for number in numbers) + f":{port:04X}")
    return " ".join(ends).encode()
