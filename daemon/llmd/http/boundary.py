"""The middleware around the handler of every request: checks access, turns errors into error answers, writes one log
line for the request, and counts metrics.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Sequence
from itertools import chain
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from ..core.errors import ApiError, ContextLengthError, quoted
from ..engine.generation import Generation
from ..process.logs import fields
from .access import LOCAL, Caller, caller_of, check_host, check_origin
from .context import (
    ANTHROPIC_ID_HEADER,
    ANTHROPIC_VERSION,
    ENVELOPES,
    FACTS,
    PUBLIC,
    REQUEST_ID_HEADER,
    STATE,
    UNMATCHED,
    USER,
    Facts,
    State,
    request_id,
)  # fmt: skip
from .envelope import OWN, Envelope
from .metrics import RESPONSES

log = logging.getLogger("llmd.http")

_HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}
_CLOSING_CODES = ("invalid_http", "request_timeout")
"""After an error with one of these codes, llmd closes the connection, because it does not know where the next request
begins in the client's bytes.
"""
_VERSION_TWICE = "/v1/v1/"
"""The beginning of a path with one /v1 too many. A client requests such a path if it adds /v1 to a base URL that
already ends with /v1.
"""
_CLIENT_GONE = 499
_REASONS = {_CLIENT_GONE: "Request Cancelled", 529: "Overloaded"}
"""Reason phrases of statuses that HTTP does not define."""
_READING = ("GET", "HEAD", "OPTIONS")
_CREDENTIALS = struct.Struct("iII")
"""Layout of the data of SO_PEERCRED about the client of a unix socket: pid, uid, gid."""
_METHODS = "DELETE, GET, HEAD, OPTIONS, POST"
_EXPOSED = f"X-LLM-Session-Id, Retry-After, X-Should-Retry, {REQUEST_ID_HEADER}, {ANTHROPIC_ID_HEADER}"
_CORS_HEADERS = {
    "Access-Control-Allow-Methods": "GET, POST, DELETE, OPTIONS",
    "Access-Control-Allow-Headers": "*, Authorization",
    "Access-Control-Max-Age": "600",
}


@web.middleware
async def boundary(request: web.Request, handler: Handler) -> web.StreamResponse:
    state = request.app[STATE]
    started = asyncio.get_running_loop().time()
    facts = request[FACTS] = Facts(
        id=request_id(request.headers.get(REQUEST_ID_HEADER)),
        endpoint=_endpoint(request),
        came_at=started,
        client=client_of(request),
    )
    status = _CLIENT_GONE
    try:
        response = await _answer(state, request, handler, facts)
        status = response.status
        if state.is_stopping and not response.prepared:
            response.force_close()
        return response
    finally:
        state.metrics.add(RESPONSES, endpoint=facts.endpoint, status=str(status))
        _log_line(request, facts, status, asyncio.get_running_loop().time() - started)


async def _answer(state: State, request: web.Request, handler: Handler, facts: Facts) -> web.StreamResponse:
    try:
        if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:  # a CORS preflight
            _check_browser(state, request, facts)
            return web.Response(status=204, headers=_CORS_HEADERS)
        check_expectation(request)
        if request.method == "OPTIONS":
            return await _options(state, request, handler, facts)
        facts.caller = identify(state, request, facts)
        return await handler(request)
    except ApiError as error:
        return _refusal(error, request, facts)
    except web.HTTPException as error:
        code = _HTTP_CODES.get(error.status)
        if code is None:
            raise
        response = _refusal(ApiError(code, _http_message(request, code)), request, facts)
        if isinstance(error, web.HTTPMethodNotAllowed):
            response.headers["Allow"] = _allow(error)
        return response
    except Exception:
        log.exception(
            "a request failed because of an error in llmd", extra=fields(method=request.method, path=request.path)
        )
        return _refusal(ApiError("internal_error"), request, facts)


def _refusal(error: ApiError, request: web.Request, facts: Facts) -> web.Response:
    facts.error = error
    return error_response(error, _envelope(request, facts))


def _envelope(request: web.Request, facts: Facts) -> Envelope:
    """Returns the JSON envelope for an error of this request (envelope.py). The envelope depends only on the path, not
    on the method. If no endpoint has this path, a similar endpoint decides:
    - First choice: its path is a prefix of this path. Example: /v1/messages for /v1/messages/x.
    - Second choice: both paths begin with the same directory, such as /api/.
    """
    envelopes = request.app[ENVELOPES]
    endpoint = _without_versions(request.path) if facts.endpoint == UNMATCHED else facts.endpoint
    if endpoint not in envelopes:
        first = f"/{endpoint.removeprefix('/').partition('/')[0]}/"
        above = (one for one in envelopes if endpoint.startswith(f"{one}/"))
        siblings = (one for one in envelopes if one.startswith(first))
        endpoint = next(chain(above, siblings), "")
    return envelopes.get(endpoint, OWN)


def error_response(error: ApiError, envelope: Envelope = OWN) -> web.Response:
    status = envelope.status(error.status)
    response = web.Response(
        status=status,
        reason=_REASONS.get(status),
        body=envelope.body(error),
        content_type="application/json",
        headers=error.headers(),
    )
    if error.code in _CLOSING_CODES:
        response.force_close()
    return response


async def _options(state: State, request: web.Request, handler: Handler, facts: Facts) -> web.StreamResponse:
    """Answers an OPTIONS request with the methods that the path supports. OPTIONS needs no API key, because
    /openapi.json shows the same methods without a key.
    """
    if not is_local(request):
        _check_browser(state, request, facts)
    if request.raw_path == "*":  # "*" stands for the server as a whole
        return web.Response(status=204, headers={"Allow": _METHODS})
    try:
        return await handler(request)
    except web.HTTPMethodNotAllowed as error:
        return web.Response(status=204, headers={"Allow": _allow(error)})


def _allow(error: web.HTTPMethodNotAllowed) -> str:
    return ", ".join(sorted({*error.allowed_methods, "OPTIONS"}))


def _http_message(request: web.Request, code: str) -> str | None:
    if code == "not_found":
        if request.path.startswith(_VERSION_TWICE):
            return f"{request.path} does not exist: the client adds /v1 itself. Remove /v1 from the client's base URL."
        return f"{request.method} {request.path} does not exist. GET /openapi.json lists all paths."
    return f"{request.path} does not support {request.method}."


def _endpoint(request: web.Request) -> str:
    """Returns the endpoint's name for log lines and metrics. The name is the pattern of the path without /v1, such as
    /sessions/{id}. A slash at the end is removed.
    """
    resource = request.match_info.route.resource
    return UNMATCHED if resource is None else resource.canonical.removeprefix("/v1").rstrip("/") or "/"


def _without_versions(path: str) -> str:
    while path.startswith(_VERSION_TWICE):
        path = path.removeprefix("/v1")
    return path.removeprefix("/v1")


# --- access ----------------------------------------------------------------------------------------------------------


def check_expectation(request: web.Request) -> None:
    expected = request.headers.get("Expect")
    if expected is not None and expected.lower() != "100-continue":
        raise ApiError(
            "expectation_failed", f"Expect: {quoted(expected)} is not supported; only 100-continue is.", "Expect"
        )


def is_local(request: web.BaseRequest) -> bool:
    """Returns whether the request came over the unix socket."""
    transport = request.transport
    connection = transport.get_extra_info("socket") if transport is not None else None
    return connection is not None and connection.family == socket.AF_UNIX


def client_of(request: web.BaseRequest) -> dict[str, object]:
    """Returns the fields of the log line that identify the client. A TCP client is identified by its address, and a
    client of the unix socket by its user and pid.
    """
    if is_local(request):
        return {"client": "unix", **_process_of(request)}
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    if not isinstance(peer, tuple):
        return {}  # the client has already disconnected
    host, port = peer[:2]
    return {"client": f"[{host}]:{port}" if ":" in host else f"{host}:{port}"}


def _process_of(request: web.BaseRequest) -> dict[str, object]:
    """Returns the user and pid of the client process at the time of connecting. See SO_PEERCRED in unix(7)."""
    connection = request.transport.get_extra_info("socket") if request.transport is not None else None
    if connection is None:
        return {}
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return {}
    pid, uid, _ = _CREDENTIALS.unpack(found)
    return {"uid": uid, "pid": pid}


def identify(state: State, request: web.Request, facts: Facts) -> Caller:
    """Returns the caller of a request by the present API keys. Raises ApiError if the request is not allowed."""
    if is_local(request):
        return LOCAL
    _check_browser(state, request, facts)
    if facts.endpoint in request.app[PUBLIC]:
        return facts.caller
    if state.keys.is_open:
        return caller_of(request.get(USER))
    return state.keys.caller(request.headers.get("Authorization"), request.headers.get("X-Api-Key"))


def _check_browser(state: State, request: web.Request, facts: Facts) -> None:
    host = request.headers.get("Host")
    check_host(host, state.config.allowed_hosts)
    origin = request.headers.get("Origin")
    if check_origin(origin, host, state.config.allowed_origins):
        facts.cors_origin = origin


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    facts = request.get(FACTS)
    if facts is None:
        return
    response.headers[REQUEST_ID_HEADER] = facts.id
    if ANTHROPIC_VERSION in request.headers:
        response.headers[ANTHROPIC_ID_HEADER] = facts.id
    if facts.cors_origin is not None:
        response.headers["Access-Control-Allow-Origin"] = facts.cors_origin
        response.headers["Access-Control-Expose-Headers"] = _EXPOSED
        response.headers["Vary"] = "Origin"


# --- the log line ----------------------------------------------------------------------------------------------------


def _log_line(request: web.Request, facts: Facts, status: int, seconds: float) -> None:
    is_news = facts.answering is not None or facts.error is not None or request.method not in _READING
    level = logging.INFO if is_news else logging.DEBUG
    if not log.isEnabledFor(level):
        return
    values: dict[str, object] = {
        "method": request.method,
        "path": request.path,
        "status": status,
        "ms": round(1000 * seconds),
        "caller": facts.caller.name,
        **facts.client,
        "request_id": facts.id,
        "error": facts.error.code if facts.error is not None else None,
        "param": facts.error.param if facts.error is not None else None,
    }
    if facts.key is not None:
        values |= {"session": facts.key.id or "scratch", "identity": facts.key.source}
    if isinstance(facts.error, ContextLengthError):
        values |= {"requested_tokens": facts.error.n_tokens, "context_tokens": facts.error.n_ctx}
    if facts.answering is not None:
        values.update(generated(facts.answering.generations))
        values["session_left_reason"] = facts.answering.session_left_reason
    log.log(level, "request", extra=fields(**values))


def generated(generations: Sequence[Generation]) -> dict[str, Any]:
    """Returns the fields of the log line about the generations of a request. A request with `n` above 1 has several
    generations. `generated_tokens` counts the tokens of all generations. All other fields describe the first
    generation.
    """
    first = generations[0]
    values: dict[str, Any] = {
        "session": first.work.key.id or "scratch",
        "identity": first.work.key.source,
        "reason": first.reason_word,
        "outcome": first.outcome_word,
        "prompt_tokens": first.work.prompt.n_tokens,
    }
    if first.finished is not None:
        values["reused_tokens"] = first.finished.n_reused
        values["generated_tokens"] = sum(one.finished.n_generated for one in generations if one.finished is not None)
    return values
