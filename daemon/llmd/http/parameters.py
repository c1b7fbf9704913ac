"""The parameters of a request. The type of the request's body declares each parameter once. The checks in this module,
/openapi.json, and the tables of docs/http.md are made from these declarations. A parameter is one of these:

supported   has the effect that its `note` describes
accepted    is ignored. Clients send it, but it would not change the text of the answer
refused     is not supported, and would change the answer. A request with a refused parameter gets 400
            `unsupported_parameter`. Exception: a neutral value, which asks for what llmd does anyway, is allowed
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Annotated, Any, Literal, TypeVar, cast, get_args

import msgspec
from msgspec import UNSET, UnsetType

from ..core import limits
from ..core.errors import ApiError, check_count, quoted
from ..process.logs import fields

log = logging.getLogger("llmd.http")
T = TypeVar("T")

Treatment = Literal["supported", "accepted", "refused"]
UNBOUNDED = 1 << 62
"""Value of `bytes_max` for a prompt, whose size is limited only by the context."""


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    treatment: Treatment
    note: str
    hint: str = ""
    """What the client can do instead of using the refused parameter. Shown in the error."""
    neutral: tuple[Any, ...] = ()
    """Values of a refused parameter, besides null, that have no effect and are therefore allowed."""
    bytes_max: int = limits.FIELD_BYTES_MAX
    """Maximum size of a supported parameter, in bytes of JSON."""

    def is_neutral(self, value: object) -> bool:
        return value is None or any(value == v and isinstance(value, bool) == isinstance(v, bool) for v in self.neutral)


def note(text: str, bytes_max: int = limits.FIELD_BYTES_MAX, **bounds: float) -> msgspec.Meta:
    """Describes a supported parameter. `bounds` are keywords of JSON schema, such as minimum. /openapi.json shows them.
    msgspec does not check these bounds. The dialects' readers check them, because the readers' errors say more than
    those of msgspec.
    """
    parameter = Parameter("", "supported", text, bytes_max=bytes_max)
    return msgspec.Meta(description=text, extra_json_schema=bounds, extra={"parameter": parameter})


def accepts(*names: str, **notes: str) -> Callable[[type[T]], type[T]]:
    """Decorates the type of a request's body. Adds parameters that are accepted without effect. A keyword argument is a
    parameter with a note for the documentation.
    """
    every = {**dict.fromkeys(names, ""), **notes}
    return _kept([Parameter(name, "accepted", text) for name, text in every.items()])


def refuses(**refused: tuple[Any, ...]) -> Callable[[type[T]], type[T]]:
    """Decorates the type of a request's body: adds parameters that are refused. The tuple of each parameter begins with
    a text, which says what the parameter asks for and, after a semicolon, what to do instead. The other items of the
    tuple are the parameter's neutral values.
    """
    parted = ((name, text.partition("; "), neutral) for name, (text, *neutral) in refused.items())
    return _kept([Parameter(name, "refused", what, hint, tuple(neutral)) for name, (what, _, hint), neutral in parted])


def _kept(members: list[Parameter]) -> Callable[[type[T]], type[T]]:
    """Adds parameters to a struct. Their values are not decoded, because llmd ignores or refuses these parameters."""
    return has((one.name, Annotated[msgspec.Raw | UnsetType, _described(one)], UNSET) for one in members)


def has(members: Iterable[tuple[str, Any, Any]]) -> Callable[[type[T]], type[T]]:
    """Decorates a struct: adds `members`, each given by its name, type and default."""

    def made(kind: type[T]) -> type[T]:
        found: Any = msgspec.defstruct(
            kind.__name__,
            list(members),
            bases=(cast("type[msgspec.Struct]", kind),),
            module=kind.__module__,
            namespace={"__doc__": kind.__doc__},
            frozen=True,
            kw_only=True,
        )
        return cast("type[T]", found)

    return made


def _described(parameter: Parameter) -> msgspec.Meta:
    neutral = " or ".join(["null", *(msgspec.json.encode(one).decode() for one in parameter.neutral)])
    text = f"Refused, unless the value is {neutral}: the parameter asks for {parameter.note}."
    if parameter.treatment == "accepted":
        text = f"Accepted without effect: {parameter.note}." if parameter.note else "Accepted without effect."
    return msgspec.Meta(description=text, extra={"parameter": parameter})


def parameters_of(kind: Any) -> dict[str, Parameter]:
    return _declared(kind)


@cache
def _declared(kind: Any) -> dict[str, Parameter]:
    found: dict[str, Parameter] = {}
    for field in msgspec.structs.fields(kind):
        for meta in get_args(field.type)[1:]:
            if isinstance(meta, msgspec.Meta) and meta.extra is not None:
                name = field.encode_name
                found[name] = dataclasses.replace(meta.extra["parameter"], name=name)
    return found


# --- checks of a request ---------------------------------------------------------------------------------------------


def check_sizes(kind: Any, members: Mapping[str, msgspec.Raw]) -> None:
    """Raises ApiError if a member of the body exceeds its size limit."""
    parameters = parameters_of(kind)
    for name, raw in members.items():
        known = parameters.get(name)
        if known is not None and known.treatment == "supported":
            check_count(name, len(raw), known.bytes_max, "bytes of JSON")


def check_refused(request: object) -> None:
    """Raises ApiError if the request has a refused parameter whose value is not neutral."""
    for parameter in _refused(cast(Any, type(request))):
        raw = getattr(request, parameter.name)
        if raw is not UNSET and not _is_neutral(parameter, raw):
            hint = f"; {parameter.hint}" if parameter.hint else ""
            message = f"{parameter.name}: {quoted(raw)} asks for {parameter.note}, which this server does not support"
            raise ApiError("unsupported_parameter", f"{message}{hint}.", parameter.name)


@cache
def _refused(kind: Any) -> tuple[Parameter, ...]:
    return tuple(one for one in parameters_of(kind).values() if one.treatment == "refused")


def _is_neutral(parameter: Parameter, raw: msgspec.Raw) -> bool:
    """Returns whether the value is neutral. A long value is never neutral, so it is not decoded."""
    return len(raw) <= limits.NEUTRAL_BYTES_MAX and parameter.is_neutral(msgspec.json.decode(raw))


def check_unknown(kind: type[Any], param: str, raw: msgspec.Raw) -> None:
    """Checks a member of the body that the body's type does not declare. If the type ignores unknown members, only logs
    the member's name. Otherwise raises ApiError, unless the value of the member is null. A null has no effect.
    """
    param = param[: limits.USER_FIELD_SHOWN_CHARS_MAX]
    if getattr(kind, "IGNORES_UNKNOWN", False):
        _log_once(kind.__name__, param)
    elif bytes(memoryview(raw)[:5]) != b"null":
        raise ApiError("unsupported_parameter", f"{quoted(param)} is not a parameter of this endpoint.", param)


@lru_cache(limits.IGNORED_NAMES_LOGGED_MAX)
def _log_once(kind: str, param: str) -> None:
    """Logs the name of an ignored member. Each name is logged only once, because the cache of this function remembers
    the logged names. When the cache is full, it drops names, which can then be logged again.
    """
    log.info("parameter ignored", extra=fields(request=kind, param=param))
