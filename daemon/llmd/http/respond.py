"""A typed answer as a JSON response."""

from __future__ import annotations

import msgspec
from aiohttp import web


def respond(body: msgspec.Struct, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")
