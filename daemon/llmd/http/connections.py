"""All connections of clients, and their limits. At a limit, a new connection replaces the connection that has been idle
longest, or is rejected. Every second, the connections of clients that send or read too slowly are closed. The event
loop owns all objects of this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from functools import cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.streams import StreamReader

from ..core import limits
from ..core.errors import ApiError
from ..process.listen import descriptors_for
from ..process.logs import fields
from .boundary import error_response
from .connection import Connection
from .context import STATE, UNMATCHED, USER
from .metrics import RESPONSES
from .peer_user import PeerUsers, UnknownUserError
from .watches import LoopLag

log = logging.getLogger("llmd.http")

_SWEEP_S = 1.0
_LOOPBACK = "loopback"
_IPV6_CUSTOMER_BITS = 64
_TOO_MANY = "too_many_connections"
_UNKNOWN_USER = "unknown_user"


class Pool:
    """Connections that share a limit: those of the TCP port, or those of the unix socket. An idle connection of a pool
    can be closed to admit a new connection.
    """

    def __init__(self, n_max: int) -> None:
        self.n_max = n_max
        self.n_open = 0
        self.idle: dict[Connection, None] = {}
        """The idle connections, those that have been idle longest first."""

    def has_capacity(self, now: float) -> bool:
        """Returns whether another connection can be admitted. If the pool is full, it can replace a connection that has
        been idle for at least CONNECTION_IDLE_SPARED_S.
        """
        if self.n_open < self.n_max:
            return True
        oldest = next(iter(self.idle), None)
        return oldest is not None and now - oldest.idle_since >= limits.CONNECTION_IDLE_SPARED_S

    def make_capacity(self) -> None:
        """If the pool is full, closes the connection that has been idle longest."""
        if self.n_open >= self.n_max:
            oldest = next(iter(self.idle))
            del self.idle[oldest]
            oldest.force_close()


class Connections(web.Server):
    """The HTTP server. Serves the application in the same way as `inner`, which is aiohttp's server, and in addition
    limits the connections.
    """

    def __init__(self, app: web.Application, inner: web.Server, **settings: Any) -> None:
        super().__init__(inner.request_handler, request_factory=self._begin, handler_cancellation=True)
        self._state = app[STATE]
        self._make = inner.request_factory
        self._users = PeerUsers() if self._state.keys.is_open else None
        self._settings = settings
        n_connections = limits.CONNECTIONS_MAX + limits.CONNECTIONS_LOCAL_MAX
        n_connections_max = descriptors_for(n_connections)
        n_local = max(1, n_connections_max * limits.CONNECTIONS_LOCAL_MAX // n_connections)
        self._local = Pool(n_local)
        self._remote = Pool(max(1, n_connections_max - n_local))
        self._peers: Counter[str] = Counter()
        self._open: dict[Connection, tuple[Pool, str]] = {}
        self._refused: set[RejectedConnection] = set()
        self._n_refused: Counter[str] = Counter()
        """How many connections were rejected since the last `_sweep`, by error code."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._lag = LoopLag(self._loop, self._state.metrics.loop_was_late)

    # --- called by connections ---------------------------------------------------------------------------------------

    def busy(self, connection: Connection) -> None:
        if connection in self._open:
            self._open[connection][0].idle.pop(connection, None)

    def idle(self, connection: Connection) -> None:
        if connection in self._open:
            self._open[connection][0].idle[connection] = None

    def closed(self, connection: Connection) -> None:
        pool, peer = self._open.pop(connection)
        pool.idle.pop(connection, None)
        pool.n_open -= 1
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]
        self._state.metrics.connections_open = len(self._open)

    def is_local(self, connection: Connection) -> bool:
        return connection in self._open and self._open[connection][0] is self._local

    def answered(self, status: int) -> None:
        """Counts an answer that `Connection` sent without calling a handler."""
        self._state.metrics.add(RESPONSES, endpoint=UNMATCHED, status=str(status))

    def _begin(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        request = self._make(message, payload, protocol, writer, task)
        connection = cast(Connection, protocol)
        if connection.user is not None:
            request[USER] = connection.user
        connection.began(request)
        return request

    # --- new connections ---------------------------------------------------------------------------------------------

    def __call__(self) -> web.RequestHandler:
        return cast(web.RequestHandler, ConnectionGate(self))  # the event loop accepts any protocol

    def enter(self, transport: asyncio.Transport) -> asyncio.Protocol:
        peer = _peer_of(transport)
        pool = self._remote if peer else self._local
        if len(self._open) + len(self._refused) == 0:
            self._start_clocks()
        has_share = peer in ("", _LOOPBACK) or self._peers[peer] < limits.CONNECTIONS_PER_PEER_MAX
        if not has_share or not pool.has_capacity(self._loop.time()):
            return self._reject(_TOO_MANY)
        user = None
        if self._users is not None and pool is self._remote:
            try:
                user = self._users.user_of(transport.get_extra_info("socket"))
            except UnknownUserError:
                return self._reject(_UNKNOWN_USER)
        # This is the last step, so that a rejected client never causes another client's connection to be closed.
        pool.make_capacity()
        connection = Connection(self, loop=self._loop, **self._settings)
        connection.user = user
        self._open[connection] = (pool, peer)
        pool.n_open += 1
        pool.idle[connection] = None
        self._peers[peer] += 1
        self._state.metrics.connections_open = len(self._open)
        return connection

    def _reject(self, code: str) -> RejectedConnection:
        self._n_refused[code] += 1
        return RejectedConnection(self._refused, _refusal(code))

    # --- timers ------------------------------------------------------------------------------------------------------

    def _start_clocks(self) -> None:
        """Starts the timers, which run only while a client is connected."""
        self._lag.start()
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        now = self._loop.time()
        # This limit is at least twice the timeout of SlowReader (watches.py). So SlowReader cancels an unread stream
        # before this timer does. Only SlowReader reports the reason.
        unread_s_max = max(limits.UNREAD_S_MAX, 2 * self._state.config.slow_reader_timeout)
        for connection in list(self._open):
            connection.overdue(now, unread_s_max)
        for code, n in self._n_refused.items():
            log.warning("connections were rejected", extra=fields(n=n, error=code, open=len(self._open)))
        self._n_refused.clear()
        if self._open or self._refused:
            self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)
        else:
            self._sweeper = None
            self._lag.stop()

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await super().shutdown(timeout)
        for rejected in list(self._refused):
            rejected.end()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._lag.stop()
        if self._users is not None:
            self._users.close()


class ConnectionGate(asyncio.Protocol):
    """The protocol of a new connection until `Connections.enter` has accepted or rejected the connection."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        pipe = cast(asyncio.Transport, transport)  # uvloop's transport does not derive from asyncio.Transport
        protocol = self._connections.enter(pipe)
        pipe.set_protocol(protocol)
        protocol.connection_made(pipe)


class RejectedConnection(asyncio.Protocol):
    """The protocol of a rejected connection: sends an error answer that says why. The connection ends when the client
    closes it, or after LINGER_S.
    """

    def __init__(self, rejected: set[RejectedConnection], answer: bytes) -> None:
        self._all = rejected
        self._answer = answer
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = pipe = cast(asyncio.Transport, transport)
        if len(self._all) >= limits.CONNECTIONS_REFUSED_MAX:
            pipe.abort()
            return
        self._all.add(self)
        pipe.write(self._answer)
        with contextlib.suppress(OSError):  # the client has reset the connection
            pipe.write_eof()
        self._timer = asyncio.get_running_loop().call_later(limits.LINGER_S, self.end)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._all.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def end(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Runner(web.AppRunner):
    """aiohttp's runner, but with `Connections` as its server."""

    def __init__(self, app: web.Application, *, shutdown_timeout: float, **settings: Any) -> None:
        super().__init__(app, handle_signals=False, shutdown_timeout=shutdown_timeout)
        self._settings = settings

    async def _make_server(self) -> web.Server:
        inner = await super()._make_server()
        return Connections(self.app, inner, **self._settings)


@cache
def _refusal(code: str) -> bytes:
    error = ApiError(code)
    response = error_response(error)
    assert isinstance(response.body, bytes)
    head = [f"HTTP/1.1 {error.status} Service Unavailable", "Connection: close"]
    head += [f"Content-Length: {len(response.body)}", *(f"{name}: {value}" for name, value in response.headers.items())]
    return "\r\n".join([*head, "\r\n"]).encode() + response.body


def _peer_of(transport: asyncio.Transport) -> str:
    """Returns the IP address of the client. Returns the /64 network for an IPv6 client, because internet providers give
    each customer a whole /64 network. Returns "" for the unix socket.
    """
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family == socket.AF_UNIX:
        return ""
    name = transport.get_extra_info("peername")
    if not name:
        return "gone"
    address = ip_address(name[0].partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped  # a socket for IPv6 and IPv4 reports an IPv4 client in this form
    if address.is_loopback:
        return _LOOPBACK
    return str(ip_network((address, _IPV6_CUSTOMER_BITS), strict=False)) if address.version == 6 else str(address)
