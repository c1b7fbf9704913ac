"""Reads a request's body into a typed request, or says what is wrong with which field.

Every body goes through libllm first (json_scan.py). A large one is read in a text thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from ..core import limits
from ..core.errors import ApiError, shown
from ..engine.json_scan import decoder_of
from . import choices
from .context import FACTS, STATE
from .deadline import in_time
from .integers import with_integers
from .receive import received

T = TypeVar("T")
U = TypeVar("U")
Check = Callable[[Mapping[str, msgspec.Raw]], None]
"""Raises ApiError for a field that will not do."""

_MISSING = "Object missing required field `"
_UNKNOWN = "Object contains unknown field `"
_NO_CHOICE = ("Invalid enum value ", "Invalid value ")


async def read(request: web.Request, kind: type[T]) -> T:
    """A request of which every field is known."""
    return await _read(request, lambda document: typed(document, kind))


async def read_as(request: web.Request, kind: type[T], check: Check, make: Callable[[T], U]) -> U:
    """What `make` makes of a request whose fields `check` judges first."""
    return await _read(request, lambda document: make(typed(document, kind, check)))


def decode_part(part: msgspec.Raw, kind: type[T], path: str) -> T:
    """Of a body that was kept as it came. `path`: what the client calls the part."""
    found: T = _decode(bytes(part), kind, path)
    return found


async def _read(request: web.Request, parse: Callable[[bytes], T]) -> T:
    state, facts = request.app[STATE], request[FACTS]
    engine = state.engine
    async with in_time(request):
        data = await received(request, state.config.body_limit)
    facts.n_body_bytes = len(data)
    if not facts.is_large:
        return parse(engine.json.clean(data))
    return await engine.in_thread(facts.caller.owner, len(data), lambda: parse(engine.json.clean(data)))


def typed(document: bytes, kind: type[T], check: Check = lambda _: None) -> T:
    """Decodes the document twice, whatever it holds: as its members, then as what they are."""
    members = _decode(document, dict[str, msgspec.Raw])
    check(members)
    found: T = _decode(with_integers(document, members, kind), kind)
    return found


def _decode(document: bytes, kind: Any, at: str = "") -> Any:
    try:
        return decoder_of(kind).decode(document)
    except msgspec.ValidationError as error:
        raise _validation_error(str(error), kind, at) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise ApiError("invalid_json", f"The body is not valid JSON: {error}.") from None


def _validation_error(text: str, kind: object, at: str) -> ApiError:
    """msgspec says what and where in English only; a test pins each of its sentences."""
    if text.startswith(_UNKNOWN):  # only whole requests forbid them: there is no path, and the name may look like one
        param = text.removeprefix(_UNKNOWN).removesuffix("`")[: limits.USER_FIELD_SHOWN_CHARS_MAX]
        return ApiError("unsupported_parameter", f"{shown(param)} is not a parameter of this endpoint.", param)
    message, place = _parted(text)
    path = f"{at}.{place}".strip(".")
    if message.startswith(_NO_CHOICE):
        return _choice_error(message.partition("value ")[2], path, choices.taken(kind, place))
    if message.startswith(_MISSING):
        param = _joined(path, message.removeprefix(_MISSING).removesuffix("`"))
        return ApiError("missing_parameter", f"{param} is missing.", param)
    message = _cut(message[:1].lower() + message[1:])
    if not path:
        return ApiError("invalid_type", f"The body: {message}.")
    code = "invalid_session_id" if path == "session_id" else "invalid_type"
    return ApiError(code, f"{path}: {message}.", path)


def _choice_error(value: str, path: str, taken: str) -> ApiError:
    return ApiError("invalid_value", f"{path}: {_cut(value)} is not {taken or 'one of its words'}.", path)


def _cut(text: str) -> str:
    longest = limits.USER_FIELD_SHOWN_CHARS_MAX
    return text if len(text) <= longest else text[:longest] + "…"


def _parted(text: str) -> tuple[str, str]:
    """What, and the path of the field: names of our own types, never what the client calls something."""
    message, _, place = text.rpartition(" - at `")
    place = place.removeprefix("key` in `").removesuffix("`")
    return (message, place[1:].removeprefix(".")) if place.startswith("$") else (text, "")


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
