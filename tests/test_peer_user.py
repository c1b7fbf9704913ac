"""Which user of this machine the kernel reports for a connection."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from llmd.core import limits
from llmd.http import peer_user
from llmd.http.peer_user import PeerUsers, UnknownUserError

ALICE, BOB = 54321, 54322
NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make sockets of other users")


def without_netlink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a kernel without the module tcp_diag, which reports no connection."""
    monkeypatch.setattr(peer_user._Netlink, "user_of", lambda *_: None)


def kinds(users: PeerUsers) -> list[type]:
    return [type(source) for source in users._sources]


@pytest.fixture(params=["netlink", "tables"])
def users(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[PeerUsers]:
    if request.param == "tables":
        without_netlink(monkeypatch)
    found = PeerUsers()
    assert kinds(found) == [peer_user._Netlink if request.param == "netlink" else peer_user._Tables]
    yield found
    found.close()


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def listener(sockets: ExitStack, host: str, *, is_dual: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, 0), family=family, backlog=limits.BACKLOG, dualstack_ipv6=is_dual)
    except OSError as error:
        pytest.skip(f"this machine has no address {host}: {error}")
    return sockets.enter_context(made)


def client(sockets: ExitStack, address: tuple[Any, ...], user: int | None = None) -> socket.socket:
    """Returns the socket of a client that belongs to a user. A socket belongs to the user who owns its inode, which
    normally is the user who created it.
    """
    made = sockets.enter_context(socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET))
    if user is not None:
        os.fchown(made.fileno(), user, -1)
    made.connect(address)
    return made


def accepted(sockets: ExitStack, listening: socket.socket) -> socket.socket:
    listening.settimeout(30)
    return sockets.enter_context(listening.accept()[0])


@pytest.mark.parametrize(
    ("host", "is_dual", "target"),
    [
        ("127.0.0.1", False, "127.0.0.1"),
        ("0.0.0.0", False, "127.0.0.2"),
        ("::1", False, "::1"),
        ("::", True, "::1"),
        ("::", True, "127.0.0.1"),
        ("::", True, "::ffff:127.0.0.1"),
        ("127.0.0.1", False, "::ffff:127.0.0.1"),
    ],
)
@pytest.mark.parametrize("user", [None, pytest.param(ALICE, marks=needs_root)])
def test_the_user_of_a_connection(
    users: PeerUsers, sockets: ExitStack, host: str, is_dual: bool, target: str, user: int | None
) -> None:
    listening = listener(sockets, host, is_dual=is_dual)
    client(sockets, (target, listening.getsockname()[1]), user)
    own = os.geteuid() if user is None else user
    assert users.user_of(accepted(sockets, listening)) == own


def test_a_kernel_that_knows_no_user_is_named_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No warning is logged, whether or not the kernel has the module tcp_diag."""
    PeerUsers().close()
    without_netlink(monkeypatch)
    PeerUsers().close()
    assert not caplog.records
    monkeypatch.setattr(peer_user._Tables, "user_of", lambda *_: None)
    PeerUsers().close()
    [record] = caplog.records
    assert "does not report which user connects (it may lack the module tcp_diag; /proc/net/tcp" in record.getMessage()


@needs_root
def test_a_program_of_another_user(users: PeerUsers, sockets: ExitStack) -> None:
    """The user of a connection is the user who created the socket, even if the program has changed its user since."""
    listening = listener(sockets, "127.0.0.1")
    go_on, end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(ALICE, ALICE, 0)
            made = socket.socket()
            os.setresuid(0, 0, 0)
            made.connect(listening.getsockname())
            os.close(end)
            os.read(go_on, 1)
        finally:
            os._exit(0)
    os.close(go_on)
    try:
        assert users.user_of(accepted(sockets, listening)) == ALICE
    finally:
        os.close(end)
        os.waitpid(child, 0)


@needs_root
def test_a_client_that_sends_no_more_is_known_and_one_that_has_gone_is_not(
    users: PeerUsers, sockets: ExitStack
) -> None:
    """Kernels report root for a socket that its program has closed."""
    listening = listener(sockets, "127.0.0.1")
    made = client(sockets, listening.getsockname(), ALICE)
    taken = accepted(sockets, listening)
    made.shutdown(socket.SHUT_WR)
    assert users.user_of(taken) == ALICE
    made.close()
    assert users.user_of(taken) is None
    taken.shutdown(socket.SHUT_WR)
    assert users.user_of(taken) is None


@needs_root
def test_a_port_left_to_another_user_does_not_lend_its_name(users: PeerUsers, sockets: ExitStack) -> None:
    """Alice sends a request and resets her connection before llmd accepts it. Bob's next connection has the same
    port.
    """
    for _ in range(20):
        listening = listener(sockets, "127.0.0.1")
        alices = client(sockets, listening.getsockname(), ALICE)
        port = alices.getsockname()[1]
        alices.send(b"DELETE /v1/sessions/bobs HTTP/1.1\r\nHost: localhost\r\n\r\n")
        alices.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        alices.close()
        bobs = sockets.enter_context(socket.socket())
        os.fchown(bobs.fileno(), BOB, -1)
        try:
            bobs.bind(("127.0.0.1", port))
        except OSError:  # another program uses this port
            continue
        bobs.connect(listening.getsockname())
        first, second = accepted(sockets, listening), accepted(sockets, listening)
        assert users.user_of(first) is None
        assert users.user_of(second) == BOB
        return
    pytest.fail("each port was taken by another client")


def reset_client(sockets: ExitStack, listening: socket.socket) -> tuple[socket.socket, int]:
    """Returns the server's end of a connection whose client has reset it, and the port that the client had."""
    made = client(sockets, listening.getsockname(), ALICE)
    taken = accepted(sockets, listening)
    port = made.getsockname()[1]
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    made.close()
    return taken, port


@needs_root
def test_who_listens_on_a_client_s_port_is_not_that_client(users: PeerUsers, sockets: ExitStack) -> None:
    listening = listener(sockets, "127.0.0.1")
    for _ in range(20):
        taken, port = reset_client(sockets, listening)
        try:
            sockets.enter_context(socket.create_server(("0.0.0.0", port)))
        except OSError:  # another program uses this port
            continue
        assert users.user_of(taken) is None
        return
    pytest.fail("each port was taken by another client")


@needs_root
def test_a_client_that_is_bound_to_the_loopback_interface(users: PeerUsers, sockets: ExitStack) -> None:
    listening = listener(sockets, "127.0.0.1")
    made = sockets.enter_context(socket.socket())
    os.fchown(made.fileno(), ALICE, -1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
    made.connect(listening.getsockname())
    assert users.user_of(accepted(sockets, listening)) == ALICE


@needs_root
def test_a_user_that_a_namespace_does_not_have_is_not_known(users: PeerUsers, sockets: ExitStack) -> None:
    """All users outside the namespace have one number, which is also the number of a real user."""
    listening = listener(sockets, "127.0.0.1")
    client(sockets, listening.getsockname(), NOBODY)
    assert users.user_of(accepted(sockets, listening)) is None


_ASK = """
import socket, sys
from llmd.http.peer_user import PeerUsers
print(PeerUsers().user_of(socket.socket(fileno=int(sys.argv[1]))))
"""


@needs_root
def test_a_client_of_another_network_namespace_is_not_known(users: PeerUsers, sockets: ExitStack) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-n", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no network namespace can be made here")
    listening = listener(sockets, "127.0.0.1")
    client(sockets, listening.getsockname(), ALICE)
    taken = accepted(sockets, listening)
    number = str(taken.fileno())
    command = [unshare, "-n", sys.executable, "-c", _ASK, number]
    asked = subprocess.run(command, check=True, capture_output=True, text=True, pass_fds=[taken.fileno()])
    assert asked.stdout.split() == ["None"]
    assert users.user_of(taken) == ALICE


@needs_root
def test_thousands_of_connections(users: PeerUsers, sockets: ExitStack) -> None:
    """The user of each connection is found, whatever other connections exist or wait to be closed."""
    listening = listener(sockets, "127.0.0.1")
    for round_ in range(20 if kinds(users) == [peer_user._Netlink] else 1):
        taken = []
        with ExitStack() as these:
            for number in range(100):
                user = ALICE + (number * 7 + round_) % 10
                client(these, listening.getsockname(), user)
                taken.append((user, accepted(these, listening)))
            assert [users.user_of(connection) for _, connection in taken] == [user for user, _ in taken]


def test_a_kernel_that_does_not_tell(monkeypatch: pytest.MonkeyPatch, sockets: ExitStack) -> None:
    listening = listener(sockets, "127.0.0.1")
    client(sockets, listening.getsockname())
    taken = accepted(sockets, listening)
    real = socket.socket

    def refuse(family: int = -1, *rest: Any, **named: Any) -> socket.socket:
        if family == socket.AF_NETLINK:
            raise PermissionError(1, "Operation not permitted")
        return real(family, *rest, **named)

    monkeypatch.setattr(socket, "socket", refuse)
    users = PeerUsers()
    assert users.user_of(taken) == os.geteuid()
    users.close()

    def refuse_tables(_: peer_user._Tables) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(peer_user._Tables, "__init__", refuse_tables)
    users = PeerUsers()
    assert users.user_of(taken) is None
    users.close()


def test_a_table_that_is_too_long_is_not_searched(
    users: PeerUsers, sockets: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening = listener(sockets, "127.0.0.1")
    client(sockets, listening.getsockname())
    taken = accepted(sockets, listening)
    assert users.user_of(taken) == os.geteuid()
    monkeypatch.setattr(peer_user, "_TABLE_BYTES_MAX", 100)
    if kinds(users) == [peer_user._Netlink]:
        assert users.user_of(taken) == os.geteuid()
    else:
        with pytest.raises(UnknownUserError):
            users.user_of(taken)


def test_a_table_that_is_too_long_at_the_start_makes_nobody_anybody(
    sockets: ExitStack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    without_netlink(monkeypatch)
    table_bytes_max = peer_user._TABLE_BYTES_MAX
    monkeypatch.setattr(peer_user, "_TABLE_BYTES_MAX", 100)
    users = PeerUsers()
    sockets.callback(users.close)
    assert not caplog.records
    listening = listener(sockets, "127.0.0.1")
    client(sockets, listening.getsockname())
    taken = accepted(sockets, listening)
    with pytest.raises(UnknownUserError):
        users.user_of(taken)
    monkeypatch.setattr(peer_user, "_TABLE_BYTES_MAX", table_bytes_max)
    assert users.user_of(taken) == os.geteuid()


@pytest.mark.parametrize("n_misses", [1, 2])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_socket_that_a_table_misses(
    sockets: ExitStack, monkeypatch: pytest.MonkeyPatch, n_misses: int, host: str
) -> None:
    """The kernel returns a table in pieces, so one reading can miss the socket. After two readings the user is
    unknown.
    """
    without_netlink(monkeypatch)
    users = PeerUsers()
    sockets.callback(users.close)
    listening = listener(sockets, host)
    made = client(sockets, listening.getsockname())
    taken = accepted(sockets, listening)
    real = peer_user._Tables._lines_of
    missed: list[tuple[Any, ...]] = []

    def lines_of(self: peer_user._Tables, *rest: Any) -> list[bytes]:
        if len(missed) < n_misses:
            missed.append(rest)
            return []
        return real(self, *rest)

    monkeypatch.setattr(peer_user._Tables, "_lines_of", lines_of)
    if n_misses == 1:
        assert users.user_of(taken) == os.geteuid()
        return
    with pytest.raises(UnknownUserError):
        users.user_of(taken)
    missed.clear()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    made.close()
    assert users.user_of(taken) is None  # the client has reset this connection


def test_a_client_of_another_machine_is_in_no_table() -> None:
    tables = peer_user._Tables()
    own = ("192.0.2.1", 80)
    assert tables.user_of(socket.AF_INET, ("192.0.2.2", 40000), own) is None
    with pytest.raises(UnknownUserError):
        tables.user_of(socket.AF_INET, ("192.0.2.1", 40000), own)
    tables.close()


@pytest.mark.parametrize("is_netlink", [True, False])
def test_sources_that_fail_their_check_stay_in_use_until_one_names_a_user(
    sockets: ExitStack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_netlink: bool
) -> None:
    """The check at the start can fail for another reason, such as a loopback interface that is down."""
    with monkeypatch.context() as patched:
        patched.setattr(peer_user, "_names_our_user", lambda _: False)
        users = PeerUsers()
    sockets.callback(users.close)
    assert "users that connect to a loopback address may share sessions" in caplog.text
    if not is_netlink:
        without_netlink(monkeypatch)
    listening = listener(sockets, "127.0.0.1")
    client(sockets, listening.getsockname())
    taken = accepted(sockets, listening)
    with monkeypatch.context() as patched:
        patched.setattr(peer_user._Netlink, "user_of", lambda *_: None)
        patched.setattr(peer_user._Tables, "_lines_of", lambda *_: [])
        assert users.user_of(taken) is None
    assert kinds(users) == [peer_user._Netlink, peer_user._Tables]
    assert users.user_of(taken) == os.geteuid()
    assert kinds(users) == [peer_user._Netlink if is_netlink else peer_user._Tables]
    if not is_netlink:  # trusted now, so a client of this machine without a line in a table is refused
        monkeypatch.setattr(peer_user._Tables, "_lines_of", lambda *_: [])
        with pytest.raises(UnknownUserError):
            users.user_of(taken)


def test_a_source_that_fails_later_refuses_the_connection(users: PeerUsers, sockets: ExitStack) -> None:
    listening = listener(sockets, "127.0.0.1")
    client(sockets, listening.getsockname())
    taken = accepted(sockets, listening)
    assert users.user_of(taken) == os.geteuid()
    with pytest.MonkeyPatch.context() as patched:

        def fail(*_: object) -> None:
            raise OSError(errno.ENOBUFS, "No buffer space available")

        patched.setattr(type(users._sources[0]), "user_of", fail)
        with pytest.raises(UnknownUserError):
            users.user_of(taken)
    assert users.user_of(taken) == os.geteuid()


def test_a_source_that_never_names_a_user_refuses_nobody(sockets: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """All users then share the owner `anybody`, as the warning at the start says."""

    def refuse_netlink(_: peer_user._Netlink) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(peer_user._Netlink, "__init__", refuse_netlink)
    monkeypatch.setattr(peer_user._Tables, "_lines_of", lambda *_: [])
    users = PeerUsers()
    sockets.callback(users.close)
    assert kinds(users) == [peer_user._Tables]
    listening = listener(sockets, "127.0.0.1")
    client(sockets, listening.getsockname())
    assert users.user_of(accepted(sockets, listening)) is None
