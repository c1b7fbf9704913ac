"""The parameters of a request. The type of the request's body declares each parameter once. The checks here,
/openapi.json, and the tables of docs/http.md are made from these declarations.

supported   a member of the type, with a `note`: it changes the answer as documented
accepted    clients send it, and it cannot change the text of the answer: it has no effect
refused     it would change the answer, and is not supported: 400 `unsupported_parameter`, unless the value is neutral
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
"""`bytes_max` of a prompt, which only the context limits."""


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    treatment: Treatment
    note: str
    hint: str = ""
    """What the client can do instead of using the refused parameter."""
    neutral: tuple[Any, ...] = ()
    """Values of a refused parameter, besides null, that have no effect and are therefore allowed."""
    bytes_max: int = limits.FIELD_BYTES_MAX
    """Maximum bytes of JSON of a supported parameter."""

    def is_neutral(self, value: object) -> bool:
        return value is None or any(value == v and isinstance(value, bool) == isinstance(v, bool) for v in self.neutral)


def note(text: str, bytes_max: int = limits.FIELD_BYTES_MAX, **bounds: float) -> msgspec.Meta:
    """Describes a supported parameter. `bounds` are keywords of JSON schema, which /openapi.json shows. msgspec does
    not check these bounds. The readers of the dialects check them, because errors of the readers say more.
    """
    parameter = Parameter("", "supported", text, bytes_max=bytes_max)
    return msgspec.Meta(description=text, extra_json_schema=bounds, extra={"parameter": parameter})


def accepts(*names: str, **notes: str) -> Callable[[type[T]], type[T]]:
    """Declares members of a request's type that are accepted without effect."""
    every = {**dict.fromkeys(names, ""), **notes}
    return _kept([Parameter(name, "accepted", text) for name, text in every.items()])


def refuses(**refused: tuple[Any, ...]) -> Callable[[type[T]], type[T]]:
    """Declares members of a request's type that are refused. The tuple of each member begins with a text: what the
    member asks for and, after a semicolon, what to do instead. The other items of the tuple are the member's neutral
    values.
    """
    parted = ((name, text.partition("; "), neutral) for name, (text, *neutral) in refused.items())
    return _kept([Parameter(name, "refused", what, hint, tuple(neutral)) for name, (what, _, hint), neutral in parted])


def _kept(members: list[Parameter]) -> Callable[[type[T]], type[T]]:
    """Declares members whose values are not decoded, because llmd ignores or refuses these values."""
    return has((one.name, Annotated[msgspec.Raw | UnsetType, _described(one)], UNSET) for one in members)


def has(members: Iterable[tuple[str, Any, Any]]) -> Callable[[type[T]], type[T]]:
    """Adds members to a struct. Each item of `members` is the name, type and default of a member."""

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


# --- checks ----------------------------------------------------------------------------------------------------------


def check_sizes(kind: Any, members: Mapping[str, msgspec.Raw]) -> None:
    """Refuses the first member that exceeds its size limit."""
    parameters = parameters_of(kind)
    for name, raw in members.items():
        known = parameters.get(name)
        if known is not None and known.treatment == "supported":
            check_count(name, len(raw), known.bytes_max, "bytes of JSON")


def check_refused(request: object) -> None:
    """Refuses parameters that would change the answer and are not supported."""
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
    """Returns whether the value is neutral. A long value is not decoded, because all neutral values are short."""
    return len(raw) <= limits.NEUTRAL_BYTES_MAX and parameter.is_neutral(msgspec.json.decode(raw))


def check_unknown(kind: type[Any], param: str, raw: msgspec.Raw) -> None:
    """Refuses a member that the type does not have. A null value is allowed, because it has no effect. A type that
    ignores unknown members refuses no member.
    """
    param = param[: limits.USER_FIELD_SHOWN_CHARS_MAX]
    if getattr(kind, "IGNORES_UNKNOWN", False):
        _log_once(kind.__name__, param)
    elif bytes(memoryview(raw)[:5]) != b"null":
        raise ApiError("unsupported_parameter", f"{quoted(param)} is not a parameter of this endpoint.", param)


@lru_cache(limits.IGNORED_NAMES_LOGGED_MAX)
def _log_once(kind: str, param: str) -> None:
    """Logs each ignored name once. The cache remembers the logged names; a name that has left the cache can be logged
    again.
    """
    log.info("parameter ignored", extra=fields(request=kind, param=param))
