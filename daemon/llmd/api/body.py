"""Reads a request's body into a typed request, or says what is wrong with which field."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
from aiohttp import web

from .. import parameters
from ..errors import ApiError, shown

T = TypeVar("T")

_AT = re.compile(r"(?P<text>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.+)`")


async def read(request: web.Request, kind: type[T]) -> T:
    """A small request, of which every field is known."""
    return _decode(await request.read(), kind)


async def read_generation(request: web.Request, endpoint: parameters.Endpoint, kind: type[T]) -> T:
    """A request whose fields the parameter table judges first."""
    data = await request.read()
    parameters.check(endpoint, _decode(data, dict[str, msgspec.Raw]))
    return _decode(data, kind)


def _decode(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise _validation_error(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError("invalid_json", f"The body is not valid JSON: {error}.") from None


def _validation_error(text: str) -> ApiError:
    match = _AT.fullmatch(text)
    message, path = (match["text"], match["path"] or "") if match else (text, "")
    if missing := _MISSING.fullmatch(message):
        param = _joined(path, missing[1])
        return ApiError("missing_parameter", f"{param} is missing.", param)
    if unknown := _UNKNOWN.fullmatch(message):
        param = _joined(path, unknown[1])
        return ApiError("unsupported_parameter", f"{shown(param)} is not a parameter of this endpoint.", param)
    message = message[:1].lower() + message[1:]
    if not path:
        return ApiError("invalid_type", f"The body: {message}.")
    code = "invalid_session_id" if path == "session_id" else "invalid_type"
    return ApiError(code, f"{path}: {message}.", path)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
