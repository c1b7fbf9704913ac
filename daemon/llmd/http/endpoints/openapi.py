"""Makes /openapi.json from the endpoint table and from the types of requests and answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args, get_origin

import msgspec
from aiohttp import web

from ... import __version__
from ...core import limits
from ...core.session_key import HEADERS
from ..context import OPENAPI
from ..decode import ignoring, is_struct
from ..envelope import OWN
from .endpoint import Endpoint
from .failures import by_status

_REF = "#/components/schemas/{name}"
_JSON = "application/json"
_PARAMETER = re.compile(r"{(\w+)}")
_SESSION = "/v1/sessions/{id}"


def document(endpoints: tuple[Endpoint, ...]) -> bytes:
    named = [_element(kind) for row in endpoints for kind in (row.takes, row.answer, row.unready) if kind]
    types = list(dict.fromkeys([OWN.kind, *(row.envelope.kind for row in endpoints), *named]))
    _, components = msgspec.json.schema_components(types, ref_template=_REF)
    for kind in filter(is_struct, types):
        for name in ignoring(kind):
            components[name].pop("additionalProperties", None)
    paths: dict[str, Any] = {}
    for row in endpoints:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row)
    description = {
        "openapi": "3.1.0",
        "info": {
            "title": "llmd",
            "version": __version__,
            "description": "Serves one language model to many conversations. Every path exists with and without /v1.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
        "x-limits": limits.TABLE,
    }
    return msgspec.json.encode(description)


def _operation(row: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": row.handler.__name__,
        "summary": row.summary,
        "responses": {"200": _success(row), **_failures(row)},
    }
    if row.is_public:
        operation["security"] = []
    parameters = _parameters(row)
    if parameters:
        operation["parameters"] = parameters
    if row.takes is not None:
        operation["requestBody"] = {"required": True, "content": {_JSON: {"schema": _ref(row.takes)}}}
    return operation


def _parameters(row: Endpoint) -> list[dict[str, Any]]:
    found = [_parameter("path", name) for name in _PARAMETER.findall(row.path)]
    if row.path.startswith(_SESSION):
        about = "Name or number of the session's owner. Needed if several owners have a session with this id."
        found.append(_parameter("query", "owner", about))
    if row.generates:
        others = ", ".join(names[0] for names in HEADERS[1:])
        about = f"Id of the session that this request continues. Other headers for this id: {others}"
        bounds = {"minLength": 1, "maxLength": limits.SESSION_ID_CHARS_MAX, "pattern": "^[!-~]*$"}
        found.append(_parameter("header", "X-LLM-Session-Id", about, bounds))
    return found


def _parameter(location: str, name: str, about: str = "", bounds: Mapping[str, Any] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "in": location, "required": location == "path"}
    described = {"description": about} if about else {}
    return {**found, **described, "schema": {"type": "string", **(bounds or {})}}


def _success(row: Endpoint) -> dict[str, Any]:
    if row.answer is None:
        schema = {"type": "object" if row.media == _JSON else "string"}
        kinds = filter(None, (row.media, row.other_media))
        return {"description": row.summary, "content": {media: {"schema": schema} for media in kinds}}
    content: dict[str, Any] = {row.media: {"schema": _ref(row.answer)}}
    if row.generates:
        content[row.framing.media] = {"schema": {"type": "string"}}
    return {"description": row.summary, "content": content}


def _failures(row: Endpoint) -> dict[str, Any]:
    """Returns the descriptions of an endpoint's error answers, by HTTP status. Every answer with an error status has
    the endpoint's error envelope as its body, except the 503 of /health and /ready.
    """
    failures = {
        str(row.envelope.status(status)): {
            "description": "The code is one of: " + ", ".join(codes),
            "content": {_JSON: {"schema": _ref(row.envelope.kind)}},
        }
        for status, codes in by_status(row.codes).items()
    }
    if row.unready is not None:
        failures["503"] = {"description": "llmd is not ready", "content": {_JSON: {"schema": _ref(row.unready)}}}
    return failures


def _ref(kind: type[Any]) -> dict[str, Any]:
    ref = {"$ref": _REF.format(name=_element(kind).__name__)}
    return ref if _element(kind) is kind else {"type": "array", "items": ref}


def _element(kind: type[Any]) -> type[Any]:
    """Returns the type of a list's elements if `kind` is a list type, and otherwise `kind`."""
    found: type[Any] = get_args(kind)[0] if get_origin(kind) is list else kind
    return found


async def show_openapi(request: web.Request) -> web.Response:
    return web.Response(body=request.app[OPENAPI], content_type=_JSON)
