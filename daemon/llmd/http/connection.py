"""One connection of a client, as a subclass of aiohttp's RequestHandler.
- Limits the size and time of a request's head. The head is the request line and the headers.
- Sends llmd's own error answers.
- Supports clients that close only their sending direction of the connection.

The subclass depends on undocumented parts of aiohttp. These parts are the overridden methods of `RequestHandler`, and
`RequestHandler._messages`, the queue of parsed requests. tests/test_connections.py fails if these parts change.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import select
import socket
import sys
import termios
from typing import TYPE_CHECKING, Any, cast

from aiohttp import web

from ..core import limits
from ..core.errors import ApiError
from ..process.logs import fields
from .boundary import client_of, error_response
from .context import FACTS

if TYPE_CHECKING:
    from .connections import Connections

log = logging.getLogger("llmd.http")

INVALID_HTTP = b"\0\r\n\r\n"
"""Bytes that are invalid HTTP, whatever came before them. If aiohttp's parser receives these bytes, aiohttp calls
handle_error and sends the answer that handle_error returns.
"""
# An interim answer, which every HTTP/1.1 client skips. If the client has closed the connection completely, its kernel
# replies to these bytes with a reset.
_PROBE = b"HTTP/1.1 100 Continue\r\n\r\n"
_FIRST_LOOK_S = 0.005
"""Time from the moment at which a client closes its sending direction to the first check whether the client still
reads. If the answer is sent within this time, no check is needed.
"""


class Connection(web.RequestHandler):
    """One connection, created when a client connects. The server (`Connections`) calls `overdue` every second. The
    event loop owns this object.
    """

    def __init__(self, server: Connections, *, loop: asyncio.AbstractEventLoop, **settings: Any) -> None:
        super().__init__(server, loop=loop, **settings)
        self._server = server
        self._pipe: asyncio.Transport | None = None
        """The transport, until it is closed. aiohttp drops its own reference when the transport begins to close."""
        self._request: web.BaseRequest | None = None
        """The request that is being answered, or an answered request whose body has not arrived completely. None if the
        connection has no such request.
        """
        self.user: int | None = None
        """User id of the client's program. None if the user was not looked up, or is unknown to the kernel. For
        example, the user of a client on another machine is unknown.
        """
        self._is_answered = False
        self.idle_since = loop.time()
        self._head_since: float | None = self.idle_since
        self._head_bytes = 0
        self._is_unread = False
        """True if llmd waits until the client reads. The cause is a full send buffer or a closing connection."""
        self._n_unread = 0
        self._last_read_at = 0.0
        """Time at which the client was last seen reading."""
        self._refusal: ApiError | None = None
        self._is_half_closed = False
        """True if the client has closed its sending direction of the connection."""
        self._client_done: asyncio.Future[None] | None = None
        """Set after a request was refused, while llmd waits until the client stops sending. This future gets its result
        when the client closes its sending direction.
        """
        self._probe_due = 0.0
        self.broken_body: ApiError | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pipe = cast(asyncio.Transport, transport)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._pipe = None
        self._request = None
        self._server.closed(self)
        super().connection_lost(exc)

    # --- requests ----------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """True if the connection waits for a new request, or for the rest of a request's head."""
        if self._messages or self._refusal is not None:
            return False
        return self._request is None or (self._is_answered and self._request.content.is_eof())

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return
        if not self.is_idle:
            self._more_received(data)
            return
        if self._head_since is None and data:
            self._head_since = self._loop.time()
        super().data_received(data)
        if self._messages:
            self._head_since, self._head_bytes = None, 0
            self._server.busy(self)
            return
        self._head_bytes += len(data)
        if self._head_bytes > limits.HEAD_BYTES_MAX:
            self._refuse(_head_too_large())

    def _more_received(self, data: bytes) -> None:
        """Accepts bytes while a request is being answered: the rest of its body, or later requests. If aiohttp's parser
        finds an error in the body, aiohttp only queues the error as a new message. The code that receives the body
        would then wait forever. So if a new message arrives while the body is incomplete, this method ends the body and
        records the error.
        """
        n_messages = len(self._messages)
        super().data_received(data)
        request = self._request
        if request is not None and len(self._messages) > n_messages and not request.content.is_eof():
            self.broken_body = ApiError("invalid_http", "The body is not valid HTTP.")
            request.content.feed_eof()

    def began(self, request: web.BaseRequest) -> None:
        """Called by the server when it passes a request to the request's handler."""
        self._request = request
        self._is_answered = False

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        try:
            finished = await super().finish_response(request, resp, start_time)
            if self._refusal is not None:
                await self._linger()
            return finished
        finally:
            self._is_answered = True
            if request.content.is_eof():
                self._request = None
            if self.is_idle:
                self.idle_since = self._loop.time()
                self._server.idle(self)

    # --- error answers without a handler -----------------------------------------------------------------------------

    def _refuse(self, error: ApiError) -> None:
        """Sends an error answer to a request whose head is not complete, and closes the connection."""
        self._refusal = error
        super().data_received(INVALID_HTTP)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Returns the answer to a request that aiohttp cannot parse, or whose handler failed outside of `boundary`.
        Called by aiohttp.
        """
        if status >= 500:
            log.error(
                "a request failed because of an error in llmd",
                exc_info=exc,
                extra=fields(method=request.method, path=request.path),
            )
            error = ApiError("internal_error")
        else:
            error = self._refusal = self._refusal or _error_of(message or "")
            values = fields(status=error.status, **client_of(request), error=error.code, reason=error.message)
            log.info("invalid request", extra=values)
        self._server.answered(error.status)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun")
        response = error_response(error)
        response.force_close()
        response.headers["Connection"] = "close"  # aiohttp assumes HTTP/1.0, and would not add this header
        return response

    async def _linger(self) -> None:
        """Waits until the client stops sending, at most LINGER_S. Called before the connection is closed. If llmd
        closed a connection before reading all received bytes, the kernel would send a reset. The client would then not
        get the error answer.
        """
        if self._pipe is None or self._pipe.is_closing() or self._is_half_closed:
            return
        try:
            self._pipe.write_eof()
        except OSError:
            return  # the client has reset the connection
        self._client_done = self._loop.create_future()
        try:
            async with asyncio.timeout(limits.LINGER_S):
                await self._client_done
        except TimeoutError:
            pass

    # --- clients that have closed their sending direction ------------------------------------------------------------

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Called when the client has closed its sending direction. If the client possibly still reads an answer,
        returns True, which keeps the connection open. llmd notices only by sending bytes whether the client has closed
        the other direction, too.
        """
        self._is_half_closed = True
        if self._client_done is not None and not self._client_done.done():
            self._client_done.set_result(None)
        request = self._request
        if self.is_idle or self._is_gone() or (request is not None and not request.content.is_eof()):
            return None
        self._loop.call_later(_FIRST_LOOK_S, self._look, 2 * _FIRST_LOOK_S)
        return True

    def _is_gone(self) -> bool:
        """Returns whether the kernel already knows that the client has closed both directions of the connection."""
        if self._pipe is None:
            return True
        poll = select.poll()
        poll.register(self._pipe.get_extra_info("socket").fileno(), 0)
        return bool(poll.poll(0))

    def _look(self, interval_s: float) -> None:
        """Checks whether a client that has closed its sending direction has now disconnected completely. Calls itself
        again after `interval_s`, until the client has received its answers or the connection is closed.
        """
        pipe = self._pipe
        if pipe is None or pipe.is_closing():
            return
        if self.is_idle:
            pipe.close()
        elif self._is_gone():
            pipe.abort()
        else:
            now = self._loop.time()
            if self._request is not None and self._refusal is None and now >= self._probe_due:
                self._probe_due = now + limits.PROBE_S
                self._probe(self._request)
            self._loop.call_later(interval_s, self._look, min(2 * interval_s, limits.HALF_CLOSED_LOOK_S_MAX))

    def _probe(self, request: web.BaseRequest) -> None:
        """Sends bytes that clients skip. If the client has disconnected, its kernel replies with a reset. A unix socket
        needs no probe, because the kernel knows at once when its client disconnects.
        """
        assert self._pipe is not None
        if self._server.is_local(self):
            return
        if request.writer.output_size > 0:
            answering = request[FACTS].answering if FACTS in request else None
            if answering is not None:
                answering.nudge()  # the stream then writes its keep-alive bytes, which serve as a probe
        elif request.version >= (1, 1):
            self._pipe.write(_PROBE)
        else:
            self._ask_kernel()

    def _ask_kernel(self) -> None:
        """Enables TCP keep-alive, for an HTTP/1.0 client, which must get no bytes before the answer. A minute after a
        client has disconnected, its kernel forgets the connection and replies to a keep-alive probe with a reset.
        """
        assert self._pipe is not None
        connection = self._pipe.get_extra_info("socket")
        with contextlib.suppress(OSError):  # the connection may be closed already
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
                connection.setsockopt(socket.IPPROTO_TCP, option, max(1, round(limits.PROBE_S)))

    # --- clients that are too slow -----------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._begin_unread(self._loop.time())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_unread = False

    def _begin_unread(self, now: float) -> None:
        self._is_unread = True
        self._last_read_at, self._n_unread = now, self._bytes_unread()

    def unread_s(self, now: float) -> float:
        """Returns for how many seconds the client has read nothing although bytes wait for it. Returns 0 while the send
        buffer accepts more bytes.
        """
        if not self._is_unread:
            return 0.0
        n_before = self._n_unread
        self._n_unread = self._bytes_unread()
        if self._n_unread < n_before:
            self._last_read_at = now
        return now - self._last_read_at

    def _bytes_unread(self) -> int:
        """Returns the number of bytes that the client has not read. These bytes are in the transport's buffer and in
        the kernel's send buffer. The transport's buffer alone would not reveal a slow client. The transport's buffer
        shrinks only after a large part of the kernel's buffer has become free.
        """
        if self._pipe is None:
            return 0
        try:
            in_kernel = fcntl.ioctl(self._pipe.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        except OSError:
            return 0  # the connection is closed
        return self._pipe.get_write_buffer_size() + int.from_bytes(in_kernel, sys.byteorder)

    def overdue(self, now: float, unread_s_max: float) -> None:
        """Closes the connection of a client that is too slow. Such a client has read nothing for more than
        `unread_s_max`, or has not sent the head of a request within HEAD_S_MAX.
        """
        pipe = self._pipe
        if pipe is None:
            return
        is_closing = pipe.is_closing()
        if is_closing and not self._is_unread:
            self._begin_unread(now)
        if self.unread_s(now) > (limits.CLOSE_S_MAX if is_closing else unread_s_max):
            pipe.abort()
        elif (
            not is_closing
            and self.is_idle
            and self._head_since is not None
            and now - self._head_since > limits.HEAD_S_MAX
        ):
            if self._head_bytes:
                message = f"The request line and headers did not arrive within {limits.HEAD_S_MAX:g} s."
                self._refuse(ApiError("request_timeout", message))
            else:
                self.force_close()


def unread_s(request: web.BaseRequest, now: float) -> float:
    """Returns for how many seconds the client of this request has read nothing although bytes wait for it."""
    connection = request.protocol
    return connection.unread_s(now) if isinstance(connection, Connection) else 0.0


def broken_body(request: web.BaseRequest) -> ApiError | None:
    """Returns an error if the body of the request is not valid HTTP, for example a wrong chunk size. Otherwise returns
    None.
    """
    connection = request.protocol
    return connection.broken_body if isinstance(connection, Connection) else None


def _error_of(message: str) -> ApiError:
    """Returns the error to send for an error message of aiohttp's parser. Only the first line of the message is used,
    because the other lines quote the request.
    """
    if message.startswith(("Got more than", "Too many headers")):
        return _head_too_large()
    reason = message.partition("\n")[0].rstrip(" :.")
    return ApiError("invalid_http", f"The request is not valid HTTP: {reason}.")


def _head_too_large() -> ApiError:
    return ApiError(
        "headers_too_large",
        f"The request line and headers are too large. Together they can have at most {limits.HEAD_BYTES_MAX} bytes. "
        f"The request line and each header can have at most {limits.HEAD_LINE_BYTES_MAX} bytes. A request can have at "
        f"most {limits.HEADERS_MAX} headers.",
    )
