"""Receives the body of a request, and limits its size and the time that it takes to arrive. A body in an unsupported
encoding is refused before it is received.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from ..core import limits
from ..core.errors import ApiError, quoted
from ..core.shares import share_of
from .connection import broken_body
from .context import FACTS, STATE

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Bodies:
    """Counts the bytes of all bodies that are being received, and limits them in total and for each owner. The event
    loop owns this object.
    """

    def __init__(self) -> None:
        self.n_bytes = 0
        self._of_owner: Counter[int] = Counter()

    @contextmanager
    def receiving(self, owner: int, n_owners: int) -> Iterator[_Share]:
        share = _Share(self, owner, n_owners)
        try:
            yield share
        finally:
            self._add(owner, -share.n_bytes)

    def _add(self, owner: int, n_bytes: int) -> None:
        self.n_bytes += n_bytes
        self._of_owner[owner] += n_bytes
        if not self._of_owner[owner]:
            del self._of_owner[owner]

    def take(self, owner: int, n_bytes: int, n_own_bytes: int, n_owners: int) -> None:
        """Counts `n_bytes` more bytes of a body of which `n_own_bytes` have arrived before. Raises ApiError if all
        bodies together, or the bodies of this owner, would exceed their limit. The owner's limit does not apply if the
        owner sends no other body.
        """
        most, others = limits.BODIES_BYTES_IN_FLIGHT_MAX, self._of_owner[owner] - n_own_bytes
        if self.n_bytes + n_bytes > most:
            raise ApiError(
                "overloaded", f"The server is receiving bodies of {most} bytes together, the limit. Try again later."
            )
        share = share_of(most, n_owners)
        if others and self._of_owner[owner] + n_bytes > share:
            raise ApiError(
                "overloaded",
                f"The server is receiving bodies of {self._of_owner[owner]} bytes together from you, and your share is "
                f"{share} bytes. Try again later.",
            )
        self._add(owner, n_bytes)


class _Share:
    def __init__(self, bodies: Bodies, owner: int, n_owners: int) -> None:
        self._bodies = bodies
        self._owner = owner
        self._n_owners = n_owners
        self.n_bytes = 0

    def take(self, n_bytes: int) -> None:
        self._bodies.take(self._owner, n_bytes, self.n_bytes, self._n_owners)
        self.n_bytes += n_bytes


BODIES = web.AppKey("bodies", Bodies)


async def received(request: web.Request, limit: int) -> bytes:
    """Receives the body of the request and returns it. Raises ApiError, for example if the body has more than `limit`
    bytes. Returns the body at once if it was received before.
    """
    facts = request[FACTS]
    if facts.body is not None:
        body, facts.body = facts.body, None
        return body
    _check_encodings(request)
    if (request.content_length or 0) > limit:
        raise _too_large(limit)
    await _ask_for_it(request)
    state, caller = request.app[STATE], facts.caller
    state.take_part(caller)
    with request.app[BODIES].receiving(caller.owner, state.n_owners) as share:
        chunks = await _chunks(request, limit, share)
        if share.n_bytes > limits.BODY_JOINED_ON_LOOP_BYTES_MAX:
            return await asyncio.to_thread(b"".join, chunks)
        return b"".join(chunks)


def _check_encodings(request: web.Request) -> None:
    """Raises ApiError if the body is compressed. llmd decompresses no bodies. A small compressed body can expand to a
    huge body.
    """
    for name, plain in (("Content-Encoding", "identity"), ("Transfer-Encoding", "chunked")):
        for encoding in request.headers.getall(name, ()):
            if encoding.strip().lower() != plain:
                raise ApiError(
                    "unsupported_encoding",
                    f"{name} {quoted(encoding)} is not supported: send the body uncompressed.",
                    name,
                )


def _too_large(limit: int) -> ApiError:
    return ApiError("request_too_large", f"The body is larger than {limit} bytes, the limit that --body-limit sets.")


async def _chunks(request: web.Request, limit: int, share: _Share) -> list[bytes]:
    loop = asyncio.get_running_loop()
    started = loop.time()
    chunks: list[bytes] = []
    while True:
        latest = started + limits.BODY_S_MAX + share.n_bytes / limits.BODY_BYTES_PER_S_MIN
        try:
            async with asyncio.timeout_at(min(latest, loop.time() + limits.BODY_SILENCE_S_MAX)):
                chunk = await request.content.readany()
        except TimeoutError:
            raise _too_slow(share.n_bytes, loop.time() - started) from None
        if not chunk:
            break
        if share.n_bytes + len(chunk) > limit:
            raise _too_large(limit)
        share.take(len(chunk))
        chunks.append(chunk)
    error = broken_body(request)
    if error is not None:
        raise error
    return chunks


def _too_slow(n_bytes: int, seconds: float) -> ApiError:
    return ApiError(
        "request_timeout",
        f"The body is too slow: {n_bytes} bytes arrived in {seconds:.0f} s. A body can pause for at most "
        f"{limits.BODY_SILENCE_S_MAX:g} s. It can take at most {limits.BODY_S_MAX:g} s plus one second for each "
        f"{limits.BODY_BYTES_PER_S_MIN} bytes.",
    )


# --- Expect: 100-continue --------------------------------------------------------------------------------------------


async def leave_expectation(_: web.Request) -> None:
    """Called by aiohttp for a request with `Expect: 100-continue`. Does nothing. aiohttp's own function would send 100
    Continue. The client would then send the body before llmd has accepted the request.
    """


async def _ask_for_it(request: web.Request) -> None:
    if "Expect" in request.headers and request.version >= (1, 1) and request.transport is not None:
        request.transport.write(_CONTINUE)
