"""/openapi.json, generated from the endpoint table and the wire types."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from aiohttp import web

from .. import __version__
from ..errors import CODES, ErrorEnvelope
from ..session_key import HEADERS
from .context import OPENAPI
from .endpoint import Endpoint

_REF = "#/components/schemas/{name}"
_JSON = "application/json"
_PARAMETER = re.compile(r"{(\w+)}")
_GENERATES = ("/v1/chat/completions", "/v1/completions")


def document(endpoints: tuple[Endpoint, ...]) -> bytes:
    named = [kind for row in endpoints for kind in (row.takes, row.answer) if kind is not None]
    types = [ErrorEnvelope, *named]
    _, components = msgspec.json.schema_components(types, ref_template=_REF)
    paths: dict[str, Any] = {}
    for row in endpoints:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row)
    description = {
        "openapi": "3.1.0",
        "info": {
            "title": "llmd",
            "version": __version__,
            "description": "One language model, many warm conversations. Every path is served with and without /v1.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }
    return msgspec.json.encode(description)


def _operation(row: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": row.handler.__name__,
        "summary": row.summary,
        "responses": {"200": _success(row), "default": _failure(), **_known_failures(row)},
    }
    if row.is_public:
        operation["security"] = []
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(row.path)
    ]
    if row.path in _GENERATES:
        parameters.append(
            {
                "name": "X-LLM-Session-Id",
                "in": "header",
                "required": False,
                "description": "The session this request continues. Also read: " + ", ".join(h[0] for h in HEADERS[1:]),
                "schema": {"type": "string", "maxLength": 128},
            }
        )
    if parameters:
        operation["parameters"] = parameters
    if row.takes is not None:
        operation["requestBody"] = {"required": True, "content": {_JSON: {"schema": _ref(row.takes)}}}
    return operation


def _success(row: Endpoint) -> dict[str, Any]:
    if row.answer is None:
        return {"description": row.summary, "content": {"text/plain": {"schema": {"type": "string"}}}}
    content: dict[str, Any] = {_JSON: {"schema": _ref(row.answer)}}
    if row.path in _GENERATES:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    return {"description": row.summary, "content": content}


def _known_failures(row: Endpoint) -> dict[str, Any]:
    """Readiness is the one answer that is not an error envelope when it is not 200."""
    if row.path != "/ready" or row.answer is None:
        return {}
    return {"503": {"description": "It cannot serve", "content": {_JSON: {"schema": _ref(row.answer)}}}}


def _failure() -> dict[str, Any]:
    codes = ", ".join(f"{code} ({kind.status})" for code, kind in CODES.items())
    return {"description": f"A code of: {codes}", "content": {_JSON: {"schema": _ref(ErrorEnvelope)}}}


def _ref(kind: type[Any]) -> dict[str, str]:
    return {"$ref": _REF.format(name=kind.__name__)}


async def show_openapi(request: web.Request) -> web.Response:
    return web.Response(body=request.app[OPENAPI], content_type=_JSON)
