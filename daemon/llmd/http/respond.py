"""A typed answer as a JSON response."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from aiohttp import web

Answer = msgspec.Struct | Sequence[msgspec.Struct]


def respond(body: Answer, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")
