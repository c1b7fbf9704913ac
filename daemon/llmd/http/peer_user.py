"""Asks the kernel which user of this machine runs the client of a TCP connection (sock_diag(7)).

A netlink message asks for the client's socket. That socket has the two addresses of llmd's socket in reverse order. The
kernel answers within 40 us for any number of sockets. If the kernel has no module tcp_diag, llmd reads the tables of
all sockets, /proc/net/tcp and /proc/net/tcp6. Reading these tables takes 3 ms, and 3 us more for each socket. The event
loop owns all objects of this module.
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
"""The number of the loopback interface, which is the same on every Linux system. If a netlink question names this
interface, the kernel finds sockets that are bound to this interface or to no interface.
"""
_CONNECTED = frozenset((1, 4, 5, 8, 9, 11))
"""States of a connected socket that a program still holds. Their names in tcp_states.h are ESTABLISHED, FIN_WAIT1,
FIN_WAIT2, CLOSE_WAIT, LAST_ACK and CLOSING. The user of a socket in another state must not be used. For such a socket,
the kernel may report root. Such a socket may also belong to another program that listens on the client's port.
"""
_OVERFLOW_UID = 65534
"""The user id that the kernel reports for every user outside this process's user namespace."""
_CHECK_S_MAX = 0.5
_MAPPED = bytes(10) + b"\xff\xff"
"""First 12 bytes of an IPv4 address that is written as an IPv6 address."""
_READ_BYTES = 1 << 20
_TABLE_BYTES_MAX = 4 << 20
"""Maximum size of a table that is searched. A table of this size has 28,000 sockets, and searching it blocks the event
loop for 0.1 s.
"""
_READINGS = 2
"""How many times the tables are read before the socket counts as missing. One reading can miss a socket, because the
kernel returns a table piece by piece, and the pieces show different moments.
"""
_LOOPBACK_4 = _MAPPED + b"\x7f"
_LOOPBACK_6 = bytes(15) + b"\x01"


class UnknownUserError(Exception):
    """Raised if the client may be a program of this machine, but the kernel did not report its user. The connection is
    then rejected. If the connection were accepted as `anybody`, the client would share its sessions with other clients.
    Another user could cause this by opening many sockets.
    """


class TableTooLongError(UnknownUserError):
    """Raised if a table of sockets has more than _TABLE_BYTES_MAX bytes. Such a table is not searched."""


class PeerUsers:
    """Finds the user at the other end of a connection. Opens netlink and the tables when llmd starts. So a client
    cannot hide its user by using up all file descriptors later.
    """

    def __init__(self) -> None:
        self._sources: list[_Netlink | _Tables] = []
        """The sources that report users, as far as they could be opened: netlink and the tables. After one source has
        reported a user, the others are removed.
        """
        self.is_trusted = False
        """Whether a source has reported a user at least once. As long as this is false, the kernel possibly reports no
        users at all. So a connection of an unknown user is accepted.
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
            "the kernel does not report which user connects (%s). Without --api-key-file, users that connect to a "
            "loopback address may share sessions",
            "; ".join(troubles),
        )

    def close(self) -> None:
        for source in self._sources:
            source.close()
        self._sources = []

    def user_of(self, connection: socket.socket) -> int | None:
        """Returns the client's user id. Returns None if the kernel does not know the user. For example, users on other
        machines or in other network namespaces are unknown. Raises UnknownUserError.
        """
        for source in list(self._sources):
            try:
                user = _find(source, connection)
            except (UnknownUserError, OSError) as error:
                if self.is_trusted and _is_connected(connection):
                    raise UnknownUserError from error
            else:
                if user is not None:
                    self._trust(source)
                    return user
        return None

    def _trust(self, trusted: _Netlink | _Tables) -> None:
        """From now on, uses only the source `trusted`, because it has reported a user. It can do so even if it failed
        llmd's check at the start, for example because the loopback interface was down.
        """
        self.is_trusted = True
        for source in self._sources:
            if source is not trusted:
                source.close()
        self._sources = [trusted]


def _find(source: _Netlink | _Tables, connection: socket.socket) -> int | None:
    """Returns the user of the client, or None if the client has reset the connection meanwhile. While the connection is
    open, no other socket can have the client's address and port. A reset frees the client's port for another user. So
    the connection is checked again after the kernel's answer.
    """
    peer = connection.getpeername()
    user = source.user_of(connection.family, peer, connection.getsockname())
    return user if connection.getpeername() == peer else None


def _names_our_user(source: _Netlink | _Tables) -> bool:
    """Checks a source: returns whether it reports the user of a connection between two sockets of this process. Without
    the module tcp_diag, netlink reports that the connection does not exist. Returns True without a check if this
    process runs as the overflow user `nobody`, whom no source reports. Also returns True if a table is too long to be
    searched. Otherwise a user who opens many sockets while llmd starts could make llmd treat all users as one owner.
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


# --- the user by netlink ---------------------------------------------------------------------------------------------


class _Netlink:
    doubt = "it may lack the module tcp_diag"

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
    """Returns the user in an answer of netlink, or None if the socket has no inode. A socket without inode was closed
    by its program. Older kernels report root as the user of such a socket.
    """
    _, state, *_, user, inode = _ANSWER.unpack_from(answer, _HEAD.size)
    return _user_of_held(state, user, inode)


def _user_of_held(state: int, user: int, inode: int) -> int | None:
    is_held = state in _CONNECTED and inode != 0
    return user if is_held and user != _OVERFLOW_UID else None


# --- the user by the tables of all sockets ---------------------------------------------------------------------------


class _Tables:
    doubt = "/proc/net/tcp names no user"

    def __init__(self) -> None:
        self._files = {int(socket.AF_INET): Path("/proc/net/tcp").open("rb", 0)}
        with contextlib.suppress(FileNotFoundError):  # the kernel has no IPv6
            self._files[socket.AF_INET6] = Path("/proc/net/tcp6").open("rb", 0)

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def user_of(self, family: int, client: _Name, own: _Name) -> int | None:
        """Returns the user of the client's socket. Returns None in two cases:
        - The client is on another machine.
        - Several users have a socket with these addresses. The same link-local address can exist on several interfaces,
          and the tables do not show the interface.

        Raises UnknownUserError if a table is too long. Also raises UnknownUserError if the client is on this machine,
        but no table has its socket.
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
    """Returns whether the addresses show that the client is a program of this machine."""
    return client == own or all(one.startswith(_LOOPBACK_4) or one == _LOOPBACK_6 for one in (client, own))


def _user_in_line(rest: bytes) -> int | None:
    """Returns the user in a line of a table. `rest` is the line without the addresses at its beginning."""
    state, _, _, _, user, _, inode, *_ = rest.split()
    return _user_of_held(int(state, 16), int(user), int(inode))


def _mapped(name: _Name) -> bytes:
    """Returns the address as 16 bytes. An IPv4 address is converted to an IPv6 address, because the socket at the other
    end of its connection can be an IPv6 socket.
    """
    address = str(name[0]).partition("%")[0]
    return socket.inet_pton(socket.AF_INET6, address if ":" in address else f"::ffff:{address}")


def _in_table(addresses: list[bytes], client: _Name, own: _Name) -> bytes:
    """Returns the local and the remote address of the client's socket, as /proc/net/tcp and /proc/net/tcp6 write them.
    There, every four bytes are one hexadecimal number in the byte order of this machine.
    """
    ends = []
    for address, (_, port, *_) in zip(addresses, (client, own), strict=True):
        numbers = memoryview(address).cast("I")
        ends.append("".join(f"{number:08X}" for number in numbers) + f":{port:04X}")
    return " ".join(ends).encode()
