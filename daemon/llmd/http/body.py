"""Reads a request's body into a typed request, or says what is wrong with which field.

Every body goes through libllm first (json_scan.py). A large one is read in a text thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from ..core import limits
from ..core.errors import ApiError, shown
from . import choices
from .context import FACTS, STATE
from .deadline import in_time
from .receive import received

T = TypeVar("T")
U = TypeVar("U")
Check = Callable[[Mapping[str, msgspec.Raw]], None]
"""Raises ApiError for a field that will not do."""

_MISSING = "Object missing required field `"
_UNKNOWN = "Object contains unknown field `"
_FLOAT_FOR_INT = re.compile(r"Expected `(.* \| )?int( \| .*)?`, got `float`")
_STEP = re.compile(r"[^.\[\]]+")
"""Of a path: a name, or the number of an element."""
_SOMEWHERE = "[...]"
"""In a path: one of the members that the client names."""
_INTEGERS = 1 << 53
"""Below it a float is exact."""
_NO_CHOICE = ("Invalid enum value ", "Invalid value ")


async def read(request: web.Request, kind: type[T]) -> T:
    """A request of which every field is known."""
    return await _read(request, lambda document: _decode(document, kind))


async def read_as(request: web.Request, kind: type[T], check: Check, make: Callable[[T], U]) -> U:
    """What `make` makes of a request whose fields `check` judges first."""

    def made(document: bytes) -> U:
        check(_decode(document, dict[str, msgspec.Raw]))
        return make(_decode(document, kind))

    return await _read(request, made)


def decode_part(part: msgspec.Raw, kind: type[T], path: str) -> T:
    """Of a body that was kept as it came. `path`: what the client calls the part."""
    return _decode(bytes(part), kind, path)


async def _read(request: web.Request, parse: Callable[[bytes], T]) -> T:
    state, facts = request.app[STATE], request[FACTS]
    engine = state.engine
    async with in_time(request):
        data = await received(request, state.config.body_limit)
    facts.n_body_bytes = len(data)
    if not facts.is_large:
        return parse(engine.json.clean(data))
    return await engine.in_thread(facts.caller.owner, len(data), lambda: parse(engine.json.clean(data)))


def _decode(document: bytes, kind: type[T], at: str = "") -> T:
    n_tries = limits.INTEGRAL_FLOATS_MAX + 1
    while True:
        try:
            return msgspec.json.decode(document, type=kind)
        except msgspec.ValidationError as error:
            n_tries -= 1
            text = str(error)
            found = _with_integer_at_fault(document, text) if n_tries else None
            if found is None:
                raise _validation_error(text, kind, at) from None
            document = found
        except (msgspec.DecodeError, RecursionError) as error:
            raise ApiError("invalid_json", f"The body is not valid JSON: {error}.") from None


def _with_integer_at_fault(document: bytes, text: str) -> bytes | None:
    """With the integer of which msgspec says that it is written as a float (4.0); None: that is not what is wrong."""
    message, place = _parted(text)
    if not _FLOAT_FOR_INT.fullmatch(message) or _SOMEWHERE in place:
        return None
    try:
        return _with_integer(document, _STEP.findall(place))
    except (msgspec.DecodeError, LookupError):  # of two members with one name the last one is looked at
        return None


def _with_integer(document: bytes | msgspec.Raw, steps: Sequence[str]) -> bytes | None:
    if not steps:
        value = msgspec.json.decode(document)
        is_integer = isinstance(value, float) and value.is_integer() and abs(value) < _INTEGERS
        return b"%d" % value if is_integer else None
    step, *inner = steps
    parts: Any = msgspec.json.decode(document, type=list[msgspec.Raw] if step.isdigit() else dict[str, msgspec.Raw])
    place = int(step) if step.isdigit() else step
    changed = _with_integer(parts[place], inner)
    if changed is None:
        return None
    parts[place] = msgspec.Raw(changed)
    return msgspec.json.encode(parts)


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
