"""The page for people: GET / for browsers, and the page's scripts and styles under /page/. The files are in the package
(llmd/page) and are read once, when the module is loaded.

The page needs no API key. It has no data of its own: its scripts call the API with the key that the user enters.

The unix socket does not serve the page. Requests over this socket need no key and see the sessions of all owners. A
proxy that makes the socket available to browsers would give these rights to everybody who opens the page.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from ...core.errors import ApiError, quoted
from ..boundary import is_local

_FOLDER = Path(__file__).parents[2] / "page"
_MEDIA = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_HEADERS = {
    # Browsers run only scripts of this server, and these scripts can only call this server. So text of a model cannot
    # run as a script, and cannot load an image that would tell another server about the conversation.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # with the ETag, the browser asks whether its copy is still the newest
}


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    media: str
    etag: str


def _file(path: Path) -> _File:
    body = path.read_bytes()
    return _File(body, _MEDIA[path.suffix], hashlib.sha256(body).hexdigest()[:16])


_FILES = {path.name: _file(path) for path in sorted(_FOLDER.iterdir()) if path.suffix in _MEDIA}


async def greet(request: web.Request) -> web.Response:
    """Returns the page to browsers. Other clients, such as Ollama's, get a line that says that the server runs."""
    if "text/html" in request.headers.get("Accept", "") and not is_local(request):
        return _answer(request, _FILES["index.html"])
    return web.Response(text="llmd is running", headers={"Vary": "Accept"})


async def show_file(request: web.Request) -> web.Response:
    name = request.match_info["id"]
    if is_local(request):
        raise ApiError("not_found", "The unix socket does not serve the page. Open the page at llmd's TCP port.")
    if name not in _FILES:
        raise ApiError("not_found", f"The page has no file {quoted(name)}.")
    return _answer(request, _FILES[name])


def _answer(request: web.Request, file: _File) -> web.Response:
    headers = _HEADERS | {"ETag": f'"{file.etag}"', "Vary": "Accept"}
    if any(tag.value == file.etag for tag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    return web.Response(body=file.body, content_type=file.media, charset="utf-8", headers=headers)
